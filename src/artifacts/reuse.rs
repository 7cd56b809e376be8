//! Which set a command works on: a prepared one with equal inputs, one to
//! complete or to rebuild, or a new directory. Every input counts: scenario
//! bytes, corpus, tokenizer, lengths from CSV files, format version.
#![allow(clippy::disallowed_methods, reason = "edge: lists the sets on disk")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::artifacts::dataset::length_values_sha256;
use crate::artifacts::error::at;
use crate::artifacts::reader::read_document;
use crate::artifacts::{
    ArtifactError, Claim, FORMAT_VERSION, SCHEMA_VERSION, SetLocation, Stamp, TokenizerFacts,
};
use crate::scenario::Scenario;

/// What a command wants a set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Always a new directory.
    Inspect,
    /// Completes an inspected or interrupted set, else a new directory.
    Prepare {
        /// Rebuild the newest set of the scenario instead, whatever its state.
        overwrite: bool,
    },
    /// Uses a prepared set with equal inputs, else as `Prepare`.
    Run {
        /// Rebuild the newest set of the scenario when its inputs have changed.
        overwrite: bool,
    },
}

/// The inputs of a set besides the scenario's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// SHA-256 of the corpus file.
    pub corpus_sha256: &'a str,
    /// The tokenizer.
    pub tokenizer: &'a TokenizerFacts,
}

/// What to do.
#[derive(Debug)]
pub enum Decision {
    /// Use this manifest.
    Reuse(PathBuf),
    /// Prepare into this directory.
    Prepare {
        /// The directory, taken.
        claim: Claim,
        /// Why prepared sets of the same scenario were not used.
        changed: Vec<String>,
    },
}

/// Decides where `purpose` finds or makes its set.
pub fn decide(
    scenario: &Scenario,
    inputs: Inputs<'_>,
    purpose: Purpose,
    now: Stamp,
) -> Result<Decision, ArtifactError> {
    let candidates = match purpose {
        Purpose::Inspect => Vec::new(),
        Purpose::Prepare { .. } | Purpose::Run { .. } => candidates(scenario)?,
    };
    let mut changed = Vec::new();
    if let Purpose::Run { .. } = purpose {
        for candidate in candidates.iter().filter(|one| one.is_prepared()) {
            let differences = candidate.differences(scenario, inputs);
            if differences.is_empty() {
                return Ok(Decision::Reuse(candidate.location.manifest()));
            }
            changed.push(format!(
                "{}: {}",
                candidate.location.directory().display(),
                differences.join(", ")
            ));
        }
    }
    let overwrite = match purpose {
        Purpose::Inspect => false,
        Purpose::Prepare { overwrite } | Purpose::Run { overwrite } => overwrite,
    };
    if overwrite && let Some(newest) = candidates.first() {
        let claim = Claim::replacing(newest.location.clone())?;
        return Ok(Decision::Prepare { claim, changed });
    }
    for candidate in candidates.into_iter().filter(|one| !one.is_prepared()) {
        match Claim::replacing(candidate.location) {
            Ok(claim) => return Ok(Decision::Prepare { claim, changed }),
            Err(ArtifactError::Busy { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let claim = Claim::fresh(&scenario.run.output_dir, &scenario.run.run_id, now)?;
    Ok(Decision::Prepare { claim, changed })
}

/// A set of the same scenario bytes.
struct Candidate {
    location: SetLocation,
    manifest: Value,
}

impl Candidate {
    fn is_prepared(&self) -> bool {
        match self.manifest["status"].as_str() {
            Some(status) => status == "prepared",
            None => self.manifest.get("artifacts").is_some(),
        }
    }

    /// Inputs that are not what they were when the set was prepared. A set of
    /// the reference plugin has no digest of its tokenizer's file and is known
    /// by the vocabulary.
    fn differences(&self, scenario: &Scenario, inputs: Inputs<'_>) -> Vec<&'static str> {
        let manifest = &self.manifest;
        let extension = &manifest["pcload"];
        let facts = inputs.tokenizer;
        let mut differences = Vec::new();
        let mut compare = |name, equal: bool| {
            if !equal {
                differences.push(name);
            }
        };
        let corpus_equal = manifest["corpus_sha256"] == inputs.corpus_sha256;
        compare("the corpus has changed", corpus_equal);
        if extension.is_object() {
            let equal = extension["tokenizer_file_sha256"] == facts.identity.file_sha256;
            compare("the tokenizer has changed", equal);
            let equal = extension["length_values_sha256"] == length_values_sha256(scenario);
            compare("the lengths in CSV files have changed", equal);
            let equal = extension["format_version"] == FORMAT_VERSION;
            compare("the format version has changed", equal);
        } else {
            let section = &manifest["tokenizer"];
            let special = serde_json::json!(facts.special_token_ids);
            let equal = section["vocab_size"] == facts.vocab_size
                && section["special_token_ids"] == special;
            compare("the tokenizer has changed", equal);
        }
        differences
    }
}

/// Sets of the scenario, newest first.
fn candidates(scenario: &Scenario) -> Result<Vec<Candidate>, ArtifactError> {
    let base = &scenario.run.output_dir;
    let (Some(parent), Some(name)) = (base.parent(), base.file_name()) else {
        return Ok(Vec::new());
    };
    if !parent.is_dir() {
        return Ok(Vec::new());
    }
    let prefix = format!("{}_", name.to_string_lossy());
    let mut stamps = Vec::new();
    for entry in fs::read_dir(parent).map_err(at("list", parent))? {
        let entry = entry.map_err(at("list", parent))?;
        let name = entry.file_name();
        let stamp = name
            .to_str()
            .and_then(|name| name.strip_prefix(&prefix))
            .and_then(|stamp| stamp.parse::<Stamp>().ok());
        stamps.extend(stamp);
    }
    stamps.sort_unstable_by(|left, right| right.cmp(left));
    Ok(stamps
        .into_iter()
        .filter_map(|stamp| candidate(scenario, stamp))
        .collect())
}

fn candidate(scenario: &Scenario, stamp: Stamp) -> Option<Candidate> {
    let location = SetLocation::new(&scenario.run.output_dir, &scenario.run.run_id, stamp);
    let (_, manifest) = read_document(&location.manifest()).ok()?;
    let run = &manifest["effective_config"]["run"];
    let is_known = match manifest["status"].as_str() {
        Some(status) => ["prepared", "inspected", "incomplete"].contains(&status),
        None => manifest.get("artifacts").is_some(),
    };
    let is_same = manifest["schema_version"] == SCHEMA_VERSION
        && manifest["run_id"] == location.run_id()
        && run["run_id"] == location.run_id()
        && manifest["scenario_sha256"] == scenario.sha256.as_str()
        && is_same_directory(run["output_dir"].as_str()?, location.directory());
    (is_known && is_same).then_some(Candidate { location, manifest })
}

/// Whether `named` is `directory`, links followed.
fn is_same_directory(named: &str, directory: &Path) -> bool {
    Path::new(named) == directory
        || matches!(
            (fs::canonicalize(named), fs::canonicalize(directory)),
            (Ok(left), Ok(right)) if left == right
        )
}
