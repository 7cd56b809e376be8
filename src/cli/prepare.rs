//! `pcload prepare`: prompts, theory and manifest on disk.

use serde_json::json;

use super::args::{Global, PrepareArgs};
use super::dataset::Planned;
use super::exit::{Exit, Failure};
use super::inputs::{self, Materials};
use super::{logging, output, signals};
use crate::artifacts::{Decision, Purpose, pyjson};

/// Runs the command.
pub(super) fn run(args: &PrepareArgs, global: &Global) -> Result<Exit, Failure> {
    let scenario = inputs::scenario(&args.scenario)?;
    super::note_all(&scenario, global.voice());
    let planned = Planned::new(Materials::load(scenario)?)?;
    let purpose = Purpose::Prepare {
        overwrite: args.overwrite,
    };
    let _writing = signals::writing();
    let Decision::Prepare { claim, .. } = planned.decide(purpose)? else {
        unreachable!("prepare always writes a set");
    };
    let builder = planned.builder()?;
    let log = claim.location().log("prepare");
    logging::start(global, Some(&log));
    let files = planned.write(&builder, claim, global.voice())?;
    let result = json!({
        "full": files.full.to_string_lossy(),
        "requests": files.requests.to_string_lossy(),
        "manifest": files.manifest.to_string_lossy(),
        "analysis": files.analysis.to_string_lossy(),
        "log": log.to_string_lossy(),
    });
    output::print(&(pyjson::line(&result) + "\n"))?;
    Ok(Exit::Done)
}
