//! What AISBench has left behind: its tables, its requests, and the time points
//! of its database, read by the interpreter that wrote them.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: result files and a process"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::AisbenchError;
use crate::measure::aisbench::{Detail, RequestTimes, Results, joined};
use crate::secret::Redactor;
use std::borrow::Cow;

/// Longest time the time points may take to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
/// Reads the database; `sqlite3` is in Python's standard library.
pub(super) const TIME_POINTS: &str = include_str!("time_points.py");
/// Largest file that is looked through for secrets, in bytes.
const SCRUBBED_BYTES_MAX: u64 = 256 << 20;
/// Files that AISBench's summary is copied from, for the run's own folder.
const KEPT: [&str; 2] = ["csv", "json"];

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// The folder of this run under `aisbench.work_dir`.
    pub folder: Option<PathBuf>,
    /// Its tables; `None` where they are missing or cannot be read.
    pub results: Option<Results>,
    /// Its requests in order of completion, as far as they are known.
    pub requests: Vec<(Detail, RequestTimes)>,
    /// What is missing or broken, for people.
    pub problems: Vec<String>,
}

/// Names in `work_dir`, to know later which one is new.
pub(super) fn names(work_dir: &Path) -> BTreeSet<PathBuf> {
    let Ok(entries) = fs::read_dir(work_dir) else {
        return BTreeSet::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

/// Reads the results of the run that is not among `before`. `kept` takes copies
/// of the tables and the time points.
pub(super) async fn collect(
    work_dir: &Path,
    before: &BTreeSet<PathBuf>,
    (model, dataset): (&str, &str),
    python: &Path,
    kept: &Path,
) -> Collected {
    let mut found = Collected::default();
    let fresh = names(work_dir);
    let fresh = fresh.difference(before).filter(|path| {
        // Another AISBench may have started a run in the same folder.
        path.join("performances").join(model).is_dir() || path.join("configs").is_dir()
    });
    let Some(folder) = fresh.max() else {
        let message = format!("no result folder appeared in `{}`", work_dir.display());
        found.problems.push(message);
        return found;
    };
    found.folder = Some(folder.clone());
    let tables = folder.join("performances").join(model);
    match tables_of(&tables, dataset, kept) {
        Ok(results) => found.results = Some(results),
        Err(problem) => found.problems.push(problem),
    }
    match requests_of(&tables, dataset, python, kept).await {
        Ok(requests) => found.requests = requests,
        Err(problem) => found.problems.push(problem),
    }
    found
}

fn tables_of(folder: &Path, dataset: &str, kept: &Path) -> Result<Results, String> {
    let [csv, json] = KEPT.map(|ending| {
        let path = folder.join(format!("{dataset}.{ending}"));
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        let copy = kept.join(format!("summary.{ending}"));
        fs::write(&copy, &text)
            .map_err(|error| format!("cannot write `{}`: {error}", copy.display()))?;
        Ok::<String, String>(text)
    });
    Results::parse(&csv?, &json?).map_err(|error| error.to_string())
}

async fn requests_of(
    folder: &Path,
    dataset: &str,
    python: &Path,
    kept: &Path,
) -> Result<Vec<(Detail, RequestTimes)>, String> {
    let details = details_file(folder, dataset)
        .ok_or_else(|| format!("no details in `{}`", folder.display()))?;
    let asked = Command::new(python)
        .args(["-c", TIME_POINTS])
        .arg(&details)
        .arg(folder.join("db_data"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(READ_TIMEOUT, asked)
        .await
        .map_err(|_| "reading the time points takes too long".to_owned())?
        .map_err(|error| format!("cannot read the time points: {error}"))?;
    if !output.status.success() {
        let last = last_line(&output.stderr);
        return Err(format!("cannot read the time points: {last}"));
    }
    let copy = kept.join("time_points.jsonl");
    fs::write(&copy, &output.stdout)
        .map_err(|error| format!("cannot write `{}`: {error}", copy.display()))?;
    let text = fs::read(&details)
        .map_err(|error| format!("cannot read `{}`: {error}", details.display()))?;
    joined(
        &String::from_utf8_lossy(&text),
        &String::from_utf8_lossy(&output.stdout),
    )
    .map_err(|error| error.to_string())
}

/// The details, or what a killed run has of them: its newest temporary file.
fn details_file(folder: &Path, dataset: &str) -> Option<PathBuf> {
    let whole = folder.join(format!("{dataset}_details.jsonl"));
    if whole.is_file() {
        return Some(whole);
    }
    let entries = fs::read_dir(folder.join("tmp")).ok()?;
    let parts = entries.flatten().map(|entry| entry.path());
    parts
        .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
        .max_by_key(|path| fs::metadata(path).map_or(0, |facts| facts.len()))
}

/// A traceback's only line that says why.
pub(super) fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().rev();
    let line = lines.map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("it said nothing").to_owned()
}

/// Takes the secrets of the run out of every text file in `folder`: a last
/// line of defense, since none should have got there.
pub(super) fn scrub(folder: &Path, redactor: &Redactor) -> Result<(), AisbenchError> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(facts) = entry.metadata() else {
            continue;
        };
        if facts.is_dir() {
            scrub(&path, redactor)?;
        } else if facts.is_file() && facts.len() <= SCRUBBED_BYTES_MAX {
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            if let Cow::Owned(clean) = redactor.clean(&text) {
                fs::write(&path, clean).map_err(AisbenchError::io("clean", &path))?;
            }
        }
    }
    Ok(())
}
