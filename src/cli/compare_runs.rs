//! `pcload compare` of two runs, or of a run and a result of another client.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::args::Global;
use super::exit::{Exit, Failure};
use super::output;
use super::report::terminal_options;
use super::stored_run::{self, StoredRun};
use crate::analyze::compare::{Aspect, BenchServe, RunComparison, Sample, Side, compare};
use crate::artifacts::{self, PreparedSet, pyjson};
use crate::report;

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  pcload compare before.manifest.json after.manifest.json
  pcload compare outputs/x/result/runs/1 outputs/x/result/runs/2 --html ab.html
  pcload compare outputs/x/result/runs/1 vllm-bench-serve.json")]
pub struct CompareArgs {
    /// The base: a manifest, a run's directory, its `analysis.json`, or a
    /// detailed result of `vllm bench serve`.
    #[arg(value_name = "A")]
    pub left: PathBuf,
    /// What is set against it.
    #[arg(value_name = "B")]
    pub right: PathBuf,
    /// Write the comparison as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Refuse where data set, engine, model, block size, load profile, cache
    /// mode or driver differ.
    #[arg(long)]
    pub strict: bool,
    /// Truth log of `pcload sim` on this machine: for the directories of a native
    /// and an AISBench run it says which is nearer to what the server did.
    #[arg(long, value_name = "FILE")]
    pub truth_log: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: &CompareArgs, global: &Global) -> Result<Exit, Failure> {
    let (left, right) = (side(&args.left)?, side(&args.right)?);
    finish(&left, &right, args.html.as_deref(), args.strict, global)
}

/// Compares two sides and shows the result.
pub(super) fn finish(
    left: &Side,
    right: &Side,
    html: Option<&Path>,
    strict: bool,
    global: &Global,
) -> Result<Exit, Failure> {
    let comparison =
        compare(left, right).map_err(|error| Failure::input("TOO_FEW", error.to_string()))?;
    if strict {
        refuse_differing(&comparison)?;
    }
    show(&comparison, global)?;
    let mut document = json!(comparison);
    document["sentences"] = json!(report::sentences(&comparison));
    if let Some(path) = html {
        let mut page = Vec::new();
        report::comparison_html(&comparison, &mut page)?;
        artifacts::write_atomic(path, &page)?;
        document["html"] = path.to_string_lossy().into();
    }
    output::print(&(pyjson::indented(&document) + "\n"))?;
    Ok(Exit::Done)
}

fn refuse_differing(comparison: &RunComparison) -> Result<(), Failure> {
    let differing: Vec<&str> = comparison
        .settings
        .iter()
        .filter(|setting| setting.same == Some(false))
        .map(|setting| setting.aspect.name())
        .collect();
    if differing.is_empty() {
        return Ok(());
    }
    let message = format!("the runs differ in: {}", differing.join(", "));
    Err(Failure::input("RUNS_DIFFER", message)
        .hint("without --strict they are compared all the same, with a warning"))
}

fn show(comparison: &RunComparison, global: &Global) -> Result<(), Failure> {
    if global.voice().quiet {
        return Ok(());
    }
    let mut text = Vec::new();
    report::comparison_terminal(comparison, terminal_options(), &mut text)
        .map_err(|error| Failure::world("REPORT_FAILED", error.to_string()))?;
    output::complain(&String::from_utf8_lossy(&text));
    Ok(())
}

/// A side of one run, or of a result of `vllm bench serve`.
fn side(path: &Path) -> Result<Side, Failure> {
    // The set is looked for in the folders above.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if path.is_dir() {
        return run_side(&StoredRun::of_directory(&absolute)?);
    }
    let document = stored_run::document(path)?;
    if BenchServe::is_one(&document) {
        return bench_serve_side(path, &document);
    }
    let run = if document.get("artifacts").is_some() {
        StoredRun::of_set(PreparedSet::open(path)?, None)?
    } else {
        StoredRun::of_analysis(&absolute)?
    };
    run_side(&run)
}

fn run_side(run: &StoredRun) -> Result<Side, Failure> {
    runs_side(run.name(), std::slice::from_ref(run))
}

/// One side of several runs of one set; the nth is paired with the other side's
/// nth.
pub(super) fn runs_side(name: String, runs: &[StoredRun]) -> Result<Side, Failure> {
    let mut samples = Vec::new();
    for (index, run) in (0..).zip(runs) {
        samples.extend(Sample::of_records(&run.records()?, index));
    }
    Ok(Side {
        name,
        aspects: runs.first().map(StoredRun::aspects).unwrap_or_default(),
        verdicts: runs
            .iter()
            .filter_map(|run| Some(run.analysis.as_ref()?.verdict))
            .collect(),
        samples,
    })
}

fn bench_serve_side(path: &Path, document: &Value) -> Result<Side, Failure> {
    let result = BenchServe::read(document).map_err(|error| {
        let message = format!("`{}`: {error}", path.display());
        Failure::input("BENCH_RESULT_UNREADABLE", message)
            .hint("`vllm bench serve` writes every request with --save-result --save-detailed")
    })?;
    let profile = match result.max_concurrency {
        Some(concurrency) if result.request_rate == "inf" => {
            format!("closed, {concurrency} in flight")
        }
        Some(concurrency) => format!(
            "open, {} a second, at most {concurrency} in flight",
            result.request_rate
        ),
        None if result.request_rate == "inf" => "open, all at once".to_owned(),
        None => format!("open, {} a second", result.request_rate),
    };
    Ok(Side {
        name: format!("vllm bench serve, {}", path.display()),
        aspects: vec![
            (Aspect::Model, result.model),
            (Aspect::Profile, profile),
            (Aspect::Driver, "vllm bench serve".to_owned()),
        ],
        verdicts: Vec::new(),
        samples: result.samples,
    })
}
