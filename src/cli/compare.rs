//! `pcload compare`: two probe records side by side, or two runs.

use std::path::Path;

use serde_json::{Value, json};

use super::args::Global;
use super::compare_runs::{self, CompareArgs};
use super::exit::{Exit, Failure};
use super::stored_run::document;
use super::{output, parity, probe};
use crate::artifacts::{self, pyjson};
use crate::probe::{Comparison, Line, compare};
use crate::report;

/// Runs the command: the directories of a native and an AISBench run give the
/// parity table; else two records of one probe, else two runs. One record of a
/// probe asks for another.
pub(super) fn run(args: &CompareArgs, global: &Global) -> Result<Exit, Failure> {
    // With --strict, drivers that differ are refused like all that differs.
    if !args.strict && parity::is_pair(&args.left, &args.right) {
        let truth_log = args.truth_log.as_deref();
        let table = parity::compare(&args.left, &args.right, truth_log, global.voice())?;
        let mut document = json!(table);
        if let Some(path) = &args.html {
            compare_runs::write_html(args, path)?;
            document["html"] = path.to_string_lossy().into();
        }
        output::print(&(pyjson::indented(&document) + "\n"))?;
        return Ok(Exit::Done);
    }
    if !(is_probe(&args.left)? || is_probe(&args.right)?) {
        return compare_runs::run(args, global);
    }
    let (left, right) = (probe::record(&args.left)?, probe::record(&args.right)?);
    let comparison = compare(&left, &right)
        .map_err(|error| Failure::input("PROBES_DIFFER", error.to_string()))?;
    let voice = global.voice();
    voice.say(&table(&comparison));
    let mut value = json!(comparison);
    if let Some(path) = &args.html {
        let mut page = Vec::new();
        report::probe_comparison_html([&left, &right], &comparison, &mut page)?;
        artifacts::write_atomic(path, &page)?;
        value["html"] = path.to_string_lossy().into();
    }
    output::print(&(pyjson::line(&value) + "\n"))?;
    Ok(Exit::Done)
}

/// Whether `path` holds the record of a probe.
fn is_probe(path: &Path) -> Result<bool, Failure> {
    // Lines of JSON are no record.
    let is_lines = path.extension().is_some_and(|ending| ending == "jsonl");
    Ok(!path.is_dir() && !is_lines && document(path)?["kind"] == "pcload.probe")
}

/// Both verdicts, what differs in the setting, and the whole result.
fn table(comparison: &Comparison) -> String {
    let mut table = output::table(&[comparison.probe.name(), "A", "B", ""]);
    let differing = comparison.setting.iter().filter(|line| !line.same);
    for line in differing.chain(&comparison.result) {
        table.add_row(cells(line));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

fn cells(line: &Line) -> [String; 4] {
    let differs = if line.same { "" } else { "differs" };
    [
        line.name.clone(),
        shown(&line.left),
        shown(&line.right),
        differs.to_owned(),
    ]
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
