//! `pcload analyze`: actual hit rates from two saved metrics pages, offline.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: reads the metrics pages that the user names"
)]

use std::fs;
use std::path::Path;

use super::args::{AnalyzeArgs, Global};
use super::exit::{Exit, Failure};
use super::run::scenario_of;
use super::{inputs, logging, output};
use crate::artifacts::{
    self, AnalysisStatus, MetricsPage, PreparedSet, RankActual, RunOutcome, pyjson,
};
use crate::engine::{self, ReadOptions, Snapshot};
use crate::scenario::{EngineChoice, ManifestPurpose, Scenario};

/// Runs the command.
pub(super) fn run(args: &AnalyzeArgs, global: &Global) -> Result<Exit, Failure> {
    let set = PreparedSet::open(&args.manifest)?;
    logging::start(global, set.log_path("validate").as_deref());
    artifacts::validate(&args.manifest)?;
    let scenario = scenario_of(&set, ManifestPurpose::Analyze)?;
    let options = read_options(&scenario);
    let baseline = page(&args.baseline, &options)?;
    let after = page(&args.after, &options)?;
    let delta = engine::difference(&baseline.snapshot, &after.snapshot)?;
    let outcome = RunOutcome {
        status: AnalysisStatus::Analyzed,
        phases: Vec::new(),
        precheck: None,
        warmup: None,
        actual: Some(RankActual::by_rank(&delta.ranks, &after.snapshot)),
        baseline: Some(baseline),
        after: Some(after),
        aisbench_exit_code: None,
        kv_polling: None,
        warnings: Vec::new(),
        extension: serde_json::Value::Null,
    };
    let document = artifacts::record_run(&set, &outcome, None)?;
    output::print(&(pyjson::indented(&document) + "\n"))?;
    Ok(Exit::Done)
}

/// How the pages of the scenario's service are read.
pub(super) fn read_options(scenario: &Scenario) -> ReadOptions {
    ReadOptions {
        dp_size: scenario.service.dp_size,
        engine_label_map: scenario.service.engine_label_map.clone(),
        model: Some(scenario.service.model.clone()),
        engine: engine_choice(scenario),
    }
}

/// The engine behind the scenario's service.
pub(super) fn engine_choice(scenario: &Scenario) -> engine::EngineChoice {
    match scenario.pcload.engine {
        EngineChoice::Auto => engine::EngineChoice::Auto,
        EngineChoice::Vllm => engine::EngineChoice::Vllm,
        EngineChoice::Sglang => engine::EngineChoice::Sglang,
    }
}

fn page(path: &Path, options: &ReadOptions) -> Result<MetricsPage, Failure> {
    let bytes = fs::read(path).map_err(|error| inputs::unreadable("metrics page", path, &error))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        let message = format!("`{}` is not UTF-8", path.display());
        Failure::input("METRICS_UNREADABLE", message)
    })?;
    let snapshot: Snapshot = engine::read(&text, options).map_err(|error| {
        let failure = Failure::input(error.code(), format!("`{}`: {error}", path.display()));
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    Ok(MetricsPage { snapshot, text })
}
