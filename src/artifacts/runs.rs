//! The files of one run: `result/runs/<n>/`, a directory a run, none ever
//! written twice.
#![allow(clippy::disallowed_methods, reason = "edge: makes run directories")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::artifacts::error::at;
use crate::artifacts::{ArtifactError, PreparedSet};

/// Most runs of one set.
const RUNS_MAX: u32 = 1_000_000;

/// The directory of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectory {
    path: PathBuf,
    number: u32,
}

impl RunDirectory {
    /// Makes the directory of the next run: the first number above all that are
    /// there.
    pub fn create(set: &PreparedSet) -> Result<Self, ArtifactError> {
        let runs = runs_dir(set);
        fs::create_dir_all(&runs).map_err(at("create", &runs))?;
        let mut number = numbers(&runs)?.last().map_or(1, |newest| newest + 1);
        loop {
            let path = runs.join(number.to_string());
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path, number }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < RUNS_MAX => {
                    number += 1;
                }
                Err(error) => return Err(at("create", &path)(error)),
            }
        }
    }

    /// All runs of a set, oldest first.
    pub fn all(set: &PreparedSet) -> Result<Vec<Self>, ArtifactError> {
        let runs = runs_dir(set);
        if !runs.is_dir() {
            return Ok(Vec::new());
        }
        let all = numbers(&runs)?.into_iter().map(|number| Self {
            path: runs.join(number.to_string()),
            number,
        });
        Ok(all.collect())
    }

    /// The newest run of a set.
    pub fn newest(set: &PreparedSet) -> Result<Option<Self>, ArtifactError> {
        Ok(Self::all(set)?.pop())
    }

    /// Number of the run, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The directory itself; HDR logs are `<name>.hlog` in it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One row a request.
    pub fn records(&self) -> PathBuf {
        self.path.join("records.jsonl")
    }

    /// The metrics page before the formal phase.
    pub fn metrics_baseline(&self) -> PathBuf {
        self.path.join("metrics-baseline.prom")
    }

    /// The metrics page after it.
    pub fn metrics_after(&self) -> PathBuf {
        self.path.join("metrics-after.prom")
    }

    /// Samples of the KV poller.
    pub fn kv(&self) -> PathBuf {
        self.path.join("kv.jsonl")
    }

    /// The run's own copy of the analysis.
    pub fn analysis(&self) -> PathBuf {
        self.path.join("analysis.json")
    }

    /// An HDR histogram log.
    pub fn histogram(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.hlog"))
    }
}

fn runs_dir(set: &PreparedSet) -> PathBuf {
    set.result_dir().join("runs")
}

fn numbers(runs: &Path) -> Result<Vec<u32>, ArtifactError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(runs).map_err(at("list", runs))? {
        let name = entry.map_err(at("list", runs))?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
