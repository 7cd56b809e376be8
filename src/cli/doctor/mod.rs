//! `pcload doctor`: everything a run would need, checked without load. It sends
//! the requests of the precheck, resets nothing, and writes no data set.
//!
//! Every check is made that can be made: a tokenizer that is missing does not
//! hide a server that is not there.

mod chart;
mod offline;
mod online;

use serde_json::json;

use super::args::{Global, ScenarioArgs};
use super::exit::{Exit, Failure};
use super::{inputs, logging, output};
use chart::Chart;
pub(super) use chart::Document;

/// Runs the command.
pub(super) fn run(args: &ScenarioArgs, global: &Global) -> Result<Exit, Failure> {
    let mut chart = Chart::default();
    match inputs::scenario(&args.scenario) {
        Ok(scenario) => {
            logging::start(global, None);
            chart.fine("scenario", format!("`{}`", args.scenario.display()));
            for note in &scenario.notes {
                chart.doubtful("scenario", None, note.clone(), Vec::new());
            }
            let prompts = offline::check(&scenario, &mut chart);
            online::check(&scenario, prompts, &mut chart)?;
        }
        Err(failure) => {
            chart.failed("scenario", &failure);
            chart.not_checked("service", "the scenario says where it is");
        }
    }
    if !global.quiet {
        output::complain(&chart.table(output::columns()));
    }
    output::complain(&chart.errors());
    output::print(&format!("{:#}\n", json!(chart.document())))?;
    Ok(chart.exit())
}
