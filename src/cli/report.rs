//! `pcload report`: what is on the disk of a run, as tables, a page, rows or
//! metrics, or of a probe; and the page that `run` and `demo` write.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: starts the system's opener"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::{Value, json};

use super::args::Global;
use super::exit::{Exit, Failure};
use super::output::{self, Voice};
use super::probe;
use super::stored_run::StoredRun;
use crate::artifacts::{self, PreparedSet, pyjson};
use crate::report::{self, HtmlError, TerminalOptions};

/// Options of `report`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  pcload report --manifest outputs/x/result/x.manifest.json
  pcload report --manifest x.manifest.json --html report.html --csv records.csv
  pcload report --manifest x.manifest.json --run 2 --openmetrics x.prom
  pcload report --probe pcload-probe-dose.json --html dose.html")]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub struct ReportArgs {
    /// Manifest of a prepared set that was run.
    #[arg(long, value_name = "FILE", group = "source")]
    pub manifest: Option<PathBuf>,
    /// Record of a probe.
    #[arg(long, value_name = "RECORD", group = "source")]
    pub probe: Option<PathBuf>,
    /// Which run of the set; the newest when absent.
    #[arg(long, value_name = "N", conflicts_with = "probe")]
    pub run: Option<u32>,
    /// Write the report as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the records, one row a request.
    #[arg(long, value_name = "FILE", conflicts_with = "probe")]
    pub csv: Option<PathBuf>,
    /// Write the records as Parquet: the columns of --csv, and the time of each
    /// chunk.
    #[arg(long, value_name = "FILE", conflicts_with = "probe")]
    pub parquet: Option<PathBuf>,
    /// Write the judgment as JSON.
    #[arg(long, value_name = "FILE", conflicts_with = "probe")]
    pub json: Option<PathBuf>,
    /// Write the summary as OpenMetrics text.
    #[arg(long, value_name = "FILE", conflicts_with = "probe")]
    pub openmetrics: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: &ReportArgs, global: &Global) -> Result<Exit, Failure> {
    let voice = global.voice();
    if let Some(path) = &args.probe {
        return of_probe(path, args.html.as_deref(), voice);
    }
    let manifest = args.manifest.as_deref().expect("clap asks for one source");
    let run = StoredRun::of_set(PreparedSet::open(manifest)?, args.run)?;
    let files = exports(args, &run)?;
    match &run.analysis {
        Some(_) => tables(&run, voice)?,
        None => rates_only(&run, voice),
    }
    let result = if files.is_empty() {
        run.document.clone()
    } else {
        json!({
            "run": run.name(),
            "analysis": run.path.to_string_lossy(),
            "files": Value::Object(files.into_iter().collect()),
        })
    };
    output::print(&(pyjson::indented(&result) + "\n"))?;
    Ok(Exit::Done)
}

/// Shows the record of a probe as the probe did, and writes its report.
fn of_probe(path: &Path, html: Option<&Path>, voice: Voice) -> Result<Exit, Failure> {
    let record = probe::record(path)?;
    probe::show(&record, voice);
    if let Some(html) = html {
        probe::write_html(&record, html)?;
    }
    let summary = probe::Summary::new(&record, path, html);
    output::print(&(pyjson::line(&json!(summary)) + "\n"))?;
    Ok(Exit::Done)
}

/// Writes what was asked for; returns the paths by kind.
fn exports(args: &ReportArgs, run: &StoredRun) -> Result<Vec<(String, Value)>, Failure> {
    let mut files = Vec::new();
    let mut write = |kind: &str, path: &Path, bytes: &[u8]| {
        artifacts::write_atomic(path, bytes)?;
        files.push((kind.to_owned(), path.to_string_lossy().into()));
        Ok::<_, Failure>(())
    };
    if let Some(path) = &args.html {
        write("html", path, &html(run)?)?;
    }
    if let Some(path) = &args.csv {
        let mut rows = Vec::new();
        report::records_csv(&run.records()?, &mut rows).map_err(|error| no_report(&error))?;
        write("csv", path, &rows)?;
    }
    if let Some(path) = &args.parquet {
        let rows = report::records_parquet(&run.records()?).map_err(|error| no_report(&error))?;
        write("parquet", path, &rows)?;
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(run.judgment()?);
        let text = text.map_err(|error| no_report(&error))? + "\n";
        write("json", path, text.as_bytes())?;
    }
    if let Some(path) = &args.openmetrics {
        let mut text = Vec::new();
        report::open_metrics(run.judgment()?, &run.name(), &mut text)
            .map_err(|error| no_report(&error))?;
        write("openmetrics", path, &text)?;
    }
    Ok(files)
}

fn html(run: &StoredRun) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    report::html(run.judgment()?, &run.facts(), &mut page)?;
    Ok(page)
}

/// Writes the page of the run in `directory`.
pub(super) fn write_html(directory: &Path, path: &Path) -> Result<(), Failure> {
    let page = html(&StoredRun::of_directory(directory)?)?;
    artifacts::write_atomic(path, &page)?;
    Ok(())
}

/// Shows a file in whatever the system opens it with.
pub(super) fn open(path: &Path, voice: Voice) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let started = Command::new(opener)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        voice.say(&format!(
            "warning: cannot start `{opener}` ({error}); the report is {}",
            path.display()
        ));
    }
}

/// How reports look on this terminal.
pub(super) fn terminal_options() -> TerminalOptions {
    TerminalOptions {
        width: output::columns(),
        color: output::stderr_color(),
    }
}

fn tables(run: &StoredRun, voice: Voice) -> Result<(), Failure> {
    if voice.quiet {
        return Ok(());
    }
    let mut tables = Vec::new();
    report::terminal(run.judgment()?, terminal_options(), &mut tables)
        .map_err(|error| no_report(&error))?;
    output::complain(&String::from_utf8_lossy(&tables));
    voice.say(&format!("analysis: {}", run.path.display()));
    Ok(())
}

/// What an analysis without a judgment has to say.
fn rates_only(run: &StoredRun, voice: Voice) {
    let percent = |value: &Value| {
        let rate = value.as_f64();
        rate.map_or("n/a".to_owned(), |rate| format!("{:.2} %", rate * 100.0))
    };
    voice.say(&format!(
        "{}: {}",
        run.name(),
        run.document["status"].as_str().unwrap_or("n/a")
    ));
    voice.say(&format!(
        "theoretical hit rate {}, actual {} (by cache counters)",
        percent(&run.document["theoretical_hit_rate"]),
        percent(&run.document["actual"]["global_hit_rate"]),
    ));
    if let Err(missing) = run.judgment() {
        for line in missing.lines {
            voice.say(&format!("missing: {}", line.message));
            line.hints
                .iter()
                .for_each(|hint| voice.say(&format!("hint: {hint}")));
        }
    }
}

fn no_report(error: &dyn std::fmt::Display) -> Failure {
    Failure::world("REPORT_FAILED", error.to_string())
}

impl From<HtmlError> for Failure {
    fn from(error: HtmlError) -> Self {
        no_report(&error)
    }
}
