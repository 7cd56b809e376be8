//! `pcload compare` of two runs, or of a run and a result of another client.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::args::Global;
use super::exit::{Exit, Failure};
use super::output;
use super::report::terminal_options;
use super::stored_run::{self, StoredRun};
use crate::analyze::compare::{
    Aspect, BenchServe, RunComparison, Sample, Side, aisbench_samples, compare,
};
use crate::artifacts::{self, PreparedSet, pyjson};
use crate::drive::aisbench::{self, FinishedRun};
use crate::report;

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  pcload compare before.manifest.json after.manifest.json
  pcload compare outputs/x/result/runs/1 outputs/x/result/runs/2 --html ab.html
  pcload compare outputs/x/result/runs/1 vllm-bench-serve.json
  pcload compare outputs/default/20260101_120000 outputs/default/20260102_120000")]
pub struct CompareArgs {
    /// The base: a manifest, a run's directory, its `analysis.json`, a detailed
    /// result of `vllm bench serve`, or the result folder of an AISBench run.
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
    /// Any Python, to read the database of an AISBench result folder; else that
    /// of the active virtual environment, or `python3`.
    #[arg(long, value_name = "FILE", env = "PCLOAD_PYTHON")]
    pub python: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: &CompareArgs, global: &Global) -> Result<Exit, Failure> {
    let (left, right) = sides(args)?;
    finish(&left, &right, args.html.as_deref(), args.strict, global)
}

/// Writes the page of the comparison, and nothing else.
pub(super) fn write_html(args: &CompareArgs, path: &Path) -> Result<(), Failure> {
    let (left, right) = sides(args)?;
    page(&compared(&left, &right)?, path)
}

fn sides(args: &CompareArgs) -> Result<(Side, Side), Failure> {
    let python = args.python.as_deref();
    let [left, right] = [&args.left, &args.right].map(|path| finished(path, python));
    match (left?, right?) {
        (Some(left), Some(right)) => {
            // The digest of prompts is comparable with its like alone.
            let named = |run: &FinishedRun| {
                let mut side = aisbench_side(run);
                let data_set = (Aspect::DataSet, run.inputs_sha256.clone());
                side.aspects.push(data_set);
                side
            };
            Ok((named(&left), named(&right)))
        }
        (left, right) => {
            let of = |run: Option<FinishedRun>, path: &Path| match run {
                Some(run) => Ok(aisbench_side(&run)),
                None => side(path),
            };
            Ok((of(left, &args.left)?, of(right, &args.right)?))
        }
    }
}

/// The AISBench run at `path`, where one is there and this program has not
/// judged it.
fn finished(path: &Path, python: Option<&Path>) -> Result<Option<FinishedRun>, Failure> {
    if path.join("analysis.json").is_file() {
        return Ok(None);
    }
    let details = aisbench::details_of(path)?;
    let run = details.map(|details| aisbench::finished_run(&details, python));
    Ok(run.transpose()?)
}

fn aisbench_side(run: &FinishedRun) -> Side {
    let profile = match (run.request_rate, run.slots) {
        (Some(rate), Some(slots)) => {
            Some(format!("open, {rate} a second, at most {slots} in flight"))
        }
        (Some(rate), None) => Some(format!("open, {rate} a second")),
        (None, Some(slots)) => Some(format!("closed, {slots} in flight")),
        (None, None) => None,
    };
    let known = [
        (Aspect::Model, run.model.clone()),
        (Aspect::Profile, profile),
        (Aspect::Driver, Some("aisbench".to_owned())),
    ];
    Side {
        name: format!("AISBench, {}", run.path.display()),
        aspects: known
            .into_iter()
            .filter_map(|(aspect, value)| Some((aspect, value?)))
            .collect(),
        verdicts: Vec::new(),
        samples: aisbench_samples(&run.requests),
    }
}

fn compared(left: &Side, right: &Side) -> Result<RunComparison, Failure> {
    compare(left, right).map_err(|error| Failure::input("TOO_FEW", error.to_string()))
}

fn page(comparison: &RunComparison, path: &Path) -> Result<(), Failure> {
    let mut page = Vec::new();
    report::comparison_html(comparison, &mut page)?;
    Ok(artifacts::write_atomic(path, &page)?)
}

/// Compares two sides and shows the result.
pub(super) fn finish(
    left: &Side,
    right: &Side,
    html: Option<&Path>,
    strict: bool,
    global: &Global,
) -> Result<Exit, Failure> {
    let comparison = compared(left, right)?;
    if strict {
        refuse_differing(&comparison)?;
    }
    show(&comparison, global)?;
    let mut document = json!(comparison);
    document["sentences"] = json!(report::sentences(&comparison));
    if let Some(path) = html {
        page(&comparison, path)?;
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
