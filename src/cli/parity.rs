//! Two runs of one set by two drivers, from what is on disk: the parity table.

#![allow(clippy::disallowed_methods, reason = "edge: reads runs and truth logs")]

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::exit::Failure;
use super::inputs::unreadable;
use super::output::{self, Voice};
use super::stored_run;
use crate::analyze::parity::{Parity, Side, parity, parse_truth};
use crate::measure::RequestRecord;
use crate::report::{self, TerminalOptions};
use crate::rng::Seed;

/// A run as its directory has it.
struct RunOnDisk {
    driver: String,
    records: Vec<RequestRecord>,
    hit_rate: Option<f64>,
    origin_ns: u64,
    seed: String,
}

impl RunOnDisk {
    fn read(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join("analysis.json");
        let document = stored_run::document(&path)?;
        let run = &document["pcload"]["run"];
        let driver = run["driver"].as_str();
        let driver = driver.ok_or_else(|| broken(&path, "it names no driver"))?;
        Ok(Self {
            driver: driver.to_owned(),
            records: records(directory)?,
            hit_rate: document["actual"]["global_hit_rate"].as_f64(),
            origin_ns: run["started_monotonic_ns"].as_u64().unwrap_or(0),
            seed: document["run_id"].as_str().unwrap_or_default().to_owned(),
        })
    }

    fn side(&self) -> Side<'_> {
        Side {
            records: &self.records,
            hit_rate: self.hit_rate,
            origin_ns: self.origin_ns,
        }
    }
}

/// The driver that a run's directory names, where it is one.
fn driver_of(directory: &Path) -> Option<String> {
    let text = fs::read(directory.join("analysis.json")).ok()?;
    let document: Value = serde_json::from_slice(&text).ok()?;
    Some(document["pcload"]["run"]["driver"].as_str()?.to_owned())
}

/// Whether the two are directories of runs, one by AISBench and one native.
pub(super) fn is_pair(left: &Path, right: &Path) -> bool {
    let mut drivers = [driver_of(left), driver_of(right)];
    drivers.sort();
    drivers.iter().flatten().eq(["aisbench", "native"])
}

/// The records of a run, from its directory.
pub(super) fn records(directory: &Path) -> Result<Vec<RequestRecord>, Failure> {
    let path = directory.join("records.jsonl");
    let text = fs::read_to_string(&path).map_err(|error| unreadable("records", &path, &error))?;
    let records = text.lines().enumerate().map(|(index, line)| {
        serde_json::from_str(line)
            .map_err(|error| broken(&path, &format!("line {}: {error}", index + 1)))
    });
    records.collect()
}

fn broken(path: &Path, what: &str) -> Failure {
    let message = format!("`{}` is no file of a run: {what}", path.display());
    Failure::input("RUN_UNREADABLE", message)
}

/// Compares a run by AISBench with one by the native driver, in either order,
/// and shows the table.
pub(super) fn compare(
    left: &Path,
    right: &Path,
    truth_log: Option<&Path>,
    voice: Voice,
) -> Result<Parity, Failure> {
    let runs = [RunOnDisk::read(left)?, RunOnDisk::read(right)?];
    let by = |driver: &str| {
        let found = runs.iter().find(|run| run.driver == driver);
        found.ok_or_else(|| {
            let message = format!("neither of the two runs was sent by the driver `{driver}`");
            Failure::input("DRIVERS_EQUAL", message)
        })
    };
    let (aisbench, native) = (by("aisbench")?, by("native")?);
    let truth = truth_log
        .map(|path| {
            let text =
                fs::read_to_string(path).map_err(|error| unreadable("truth log", path, &error))?;
            parse_truth(&text).map_err(|error| {
                let message = format!("`{}`: {error}", path.display());
                Failure::input("TRUTH_LOG_UNREADABLE", message)
            })
        })
        .transpose()?;
    let seed = Seed::from_decimal(&native.seed);
    let table = parity(aisbench.side(), native.side(), truth.as_deref(), &seed);
    show(&table, voice)?;
    Ok(table)
}

fn show(table: &Parity, voice: Voice) -> Result<(), Failure> {
    if voice.quiet {
        return Ok(());
    }
    let options = TerminalOptions {
        width: output::columns(),
        color: output::stderr_color(),
    };
    let mut text = Vec::new();
    report::parity(table, options, &mut text)
        .map_err(|error| Failure::world("REPORT_FAILED", error.to_string()))?;
    output::complain(&String::from_utf8_lossy(&text));
    Ok(())
}
