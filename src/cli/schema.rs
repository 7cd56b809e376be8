//! `pcload schema` and `pcload completions`: descriptions of the program itself.

use clap::CommandFactory as _;
use schemars::schema_for;

use super::args::{Cli, SchemaArgs, SchemaKind};
use super::exit::{Exit, Failure};
use super::output;
use crate::analyze::Analysis;
use crate::artifacts;
use crate::measure::RequestRecord;
use crate::scenario;

/// Prints a JSON Schema.
pub(super) fn run(args: &SchemaArgs) -> Result<Exit, Failure> {
    let schema = match args.kind {
        SchemaKind::Scenario => scenario::schema(),
        SchemaKind::Profile => scenario::profile_schema(),
        SchemaKind::Analysis => artifacts::analysis_schema(schema_for!(Analysis).into()),
        SchemaKind::Record => schema_for!(RequestRecord).into(),
    };
    output::print(&format!("{schema:#}\n"))?;
    Ok(Exit::Done)
}

/// Prints completions for a shell.
pub(super) fn completions(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pcload", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}
