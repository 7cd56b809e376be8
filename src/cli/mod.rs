//! The command line: clap types, one file a command, the only printing, exit
//! statuses. The only room that joins others.

mod analyze;
mod args;
mod calibrate;
mod compare;
mod compare_runs;
mod convert;
mod dataset;
mod demo;
mod doctor;
mod duration;
mod exit;
mod export;
mod inputs;
mod inspect;
mod logging;
mod man;
mod output;
mod parity;
mod prepare;
mod probe;
mod progress;
mod report;
mod run;
mod runtime;
mod schema;
mod secrets;
mod signals;
mod sim;
mod stored_run;
mod usage;
mod validate;

use std::process::ExitCode;

use clap::Parser as _;

use crate::scenario::Scenario;
use output::Voice;

pub use args::Cli;
use args::Command;
pub use exit::{ErrorLine, Exit, Failure};

/// Runs the program on the process's own arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::end(&error),
    };
    signals::watch();
    match dispatch(&cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            logging::failed(&failure);
            output::complain(&failure.render());
            failure.exit.into()
        }
    }
}

fn dispatch(cli: &Cli) -> Result<Exit, Failure> {
    let global = &cli.global;
    match &cli.command {
        Command::Inspect(args) => inspect::run(args, global),
        Command::Prepare(args) => prepare::run(args, global),
        Command::Validate(args) => validate::run(args, global),
        Command::Run(args) => run::run(args, global),
        Command::Analyze(args) => analyze::run(args, global),
        Command::Doctor(args) => doctor::run(args, global),
        Command::Report(args) => report::run(args, global),
        Command::Sim(args) => sim::run(args),
        Command::Demo(args) => demo::run(args, global),
        Command::Probe(args) => probe::run(args, global),
        Command::Compare(args) => compare::run(args, global),
        Command::Calibrate(args) => calibrate::run(args, global),
        Command::Export(command) => export::run(command, global),
        Command::Schema(args) => schema::run(args),
        Command::Completions { shell } => schema::completions(*shell),
        Command::Man(args) => man::run(args),
    }
}

/// Says what is legal in a scenario but deserves a word.
fn note_all(scenario: &Scenario, voice: Voice) {
    for note in &scenario.notes {
        voice.say(&format!("warning: {note}"));
    }
}
