//! `pcload inspect`: what a scenario would give, without sending anything.

use serde_json::{Value, json};

use super::args::{Global, ScenarioArgs};
use super::dataset::Planned;
use super::exit::{Exit, Failure};
use super::inputs::{self, Materials};
use super::{logging, output, signals};
use crate::artifacts::{Decision, Purpose, pyjson};

/// Runs the command.
pub(super) fn run(args: &ScenarioArgs, global: &Global) -> Result<Exit, Failure> {
    let scenario = inputs::scenario(&args.scenario)?;
    super::note_all(&scenario, global.voice());
    let planned = Planned::new(Materials::load(scenario)?)?;
    let _writing = signals::writing();
    let Decision::Prepare { claim, .. } = planned.decide(Purpose::Inspect)? else {
        unreachable!("inspect always takes a new directory");
    };
    // Prefixes and seeds prove that the prompts can be built.
    planned.builder()?;
    signals::check()?;
    let location = claim.location().clone();
    let log = location.log("inspect");
    logging::start(global, Some(&log));
    let data = planned.data_set();
    let mut summary = data.inspect_summary(Some(&log));
    let manifest = claim.write_inspected(&data.inspect_manifest(&location, Some(&log)))?;
    if let Value::Object(fields) = &mut summary {
        fields.insert("manifest".to_owned(), json!(manifest.to_string_lossy()));
    }
    output::print(&(pyjson::indented(&summary) + "\n"))?;
    Ok(Exit::Done)
}
