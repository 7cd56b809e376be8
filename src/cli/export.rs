//! `pcload export`: a prepared set or a run in another tool's form.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::Global;
use super::exit::{Exit, Failure};
use super::{logging, output, parity, run, stored_run};
use crate::analyze::vllm_bench::{VllmFacts, vllm_result};
use crate::artifacts::{self, PreparedSet, RunDirectory, pyjson, write_document};
use crate::scenario::{ManifestPurpose, Scenario};
use crate::stats::Percent;

/// What can be exported.
#[derive(Clone, Debug, Subcommand)]
pub enum ExportCommand {
    /// Configuration, data and a command line for AISBench alone.
    Aisbench(ExportAisbenchArgs),
    /// The newest run in the JSON of `vllm bench serve`.
    VllmJson(ExportVllmArgs),
}

/// Options of `export aisbench`.
#[derive(Clone, Debug, Args)]
pub struct ExportAisbenchArgs {
    /// Manifest of the set.
    #[arg(long, value_name = "FILE")]
    pub manifest: PathBuf,
    /// Folder to write into; made when missing.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Options of `export vllm-json`.
#[derive(Clone, Debug, Args)]
pub struct ExportVllmArgs {
    /// Manifest of the set.
    #[arg(long, value_name = "FILE")]
    pub manifest: PathBuf,
    /// Number of the run; the newest when absent.
    #[arg(long, value_name = "N")]
    pub run: Option<u32>,
    /// File to write; stdout when absent.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(command: &ExportCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        ExportCommand::Aisbench(args) => aisbench(args, global),
        ExportCommand::VllmJson(args) => vllm_json(args, global),
    }
}

fn open(manifest: &Path, global: &Global) -> Result<(PreparedSet, Scenario), Failure> {
    let set = PreparedSet::open(manifest)?;
    let scenario = run::scenario_of(&set, ManifestPurpose::Run)?;
    logging::start(global, set.log_path("export").as_deref());
    Ok((set, scenario))
}

fn aisbench(args: &ExportAisbenchArgs, global: &Global) -> Result<Exit, Failure> {
    artifacts::validate(&args.manifest)?;
    let (set, scenario) = open(&args.manifest, global)?;
    let out = std::path::absolute(&args.out).unwrap_or_else(|_| args.out.clone());
    let exported = run::export(&set, &scenario, &out)?;
    let hint = format!("start it with `PYTHON=… sh {}`", exported.script.display());
    global.voice().say(&hint);
    output::print(&(pyjson::indented(&json!(exported)) + "\n"))?;
    Ok(Exit::Done)
}

fn vllm_json(args: &ExportVllmArgs, global: &Global) -> Result<Exit, Failure> {
    let (set, scenario) = open(&args.manifest, global)?;
    let directory = stored_run::run_of(&set, args.run)?;
    let document = document(&set, &scenario, &directory)?;
    match &args.out {
        Some(path) => write_document(path, &document)?,
        None => output::print(&(pyjson::indented(&document) + "\n"))?,
    }
    Ok(Exit::Done)
}

fn document(
    set: &PreparedSet,
    scenario: &Scenario,
    directory: &RunDirectory,
) -> Result<Value, Failure> {
    let records = parity::records(directory.path())?;
    let analysis = stored_run::document(&directory.analysis())?;
    let judged = &analysis["pcload"];
    let stage = match judged["stages"].as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => &Value::Null,
    };
    let slots = |stage: &Value| {
        let fields = ["target_concurrency", "max_in_flight"];
        fields.into_iter().find_map(|field| stage[field].as_u64())
    };
    let facts = VllmFacts {
        date: date(judged["run"]["started_unix_ns"].as_i64().unwrap_or(0)),
        model: scenario.service.model.clone(),
        tokenizer: set.config("tokenizer.path")?,
        max_concurrency: slots(stage).and_then(|slots| u32::try_from(slots).ok()),
        request_rate: stage["offered_per_second"].as_f64(),
        goodput: judged["goodput"]["requests_per_second"].as_f64(),
        percentiles: [50.0, 90.0, 95.0, 99.0]
            .into_iter()
            .filter_map(Percent::new)
            .collect(),
    };
    Ok(vllm_result(&records, &facts))
}

/// Local time, as `vllm bench serve` writes it.
fn date(unix_ns: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or_default();
    let local = jiff::ZonedDateTime::new(time, jiff::tz::TimeZone::system());
    local.strftime("%Y%m%d-%H%M%S").to_string()
}
