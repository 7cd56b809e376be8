//! What the offline commands begin with: the scenario and the files it names.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: reads the scenario, its CSV files, and the environment's key"
)]

use std::path::Path;
use std::sync::Arc;
use std::{env, fs, io};

use super::exit::Failure;
use super::secrets;
use crate::corpus::{self, Corpus, CorpusError};
use crate::scenario::{self, Scenario};
use crate::tokenizer::{self, HfTokenizer, TokenizerError};

/// Variable that stands in for `service.api_key`.
const API_KEY_VARIABLE: &str = "PCLOAD_API_KEY";

/// The key of the environment, if there is one.
pub(super) fn environment_api_key() -> Option<String> {
    env::var(API_KEY_VARIABLE)
        .ok()
        .filter(|key| !key.is_empty())
}

/// Reads and checks a scenario.
pub(super) fn scenario(path: &Path) -> Result<Scenario, Failure> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let bytes = fs::read(&path).map_err(|error| unreadable("scenario", &path, &error))?;
    let key = environment_api_key();
    let read = |file: &Path| fs::read(file);
    let scenario = scenario::load(&bytes, &path, key.as_deref(), &read).map_err(|problems| {
        Failure::from(problems).hint(format!("in the scenario `{}`", path.display()))
    })?;
    secrets::keep_out(&scenario.service.redactor());
    Ok(scenario)
}

/// A file the user named that cannot be read.
pub(super) fn unreadable(what: &str, path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::input(
        "FILE_UNREADABLE",
        format!("cannot read the {what} `{}`: {error}", path.display()),
    );
    match error.kind() {
        io::ErrorKind::NotFound => failure.hint("is the path right, seen from this directory?"),
        io::ErrorKind::IsADirectory => failure.hint("name the file inside the directory"),
        _ => failure,
    }
}

/// A scenario with everything that prompts are made of.
pub(super) struct Materials {
    /// The scenario.
    pub scenario: Scenario,
    /// Its corpus.
    pub corpus: Corpus,
    /// Its tokenizer.
    pub tokenizer: Arc<HfTokenizer>,
}

impl Materials {
    /// Loads what `scenario` names.
    pub(super) fn load(scenario: Scenario) -> Result<Self, Failure> {
        let corpus = corpus(&scenario)?;
        let tokenizer = tokenizer(&scenario)?;
        Ok(Self {
            scenario,
            corpus,
            tokenizer,
        })
    }
}

/// The corpus that `scenario` names.
pub(super) fn corpus(scenario: &Scenario) -> Result<Corpus, Failure> {
    let config = &scenario.corpus;
    corpus::load(&config.path, &config.field).map_err(|error| corpus_failure(&config.path, &error))
}

/// A corpus that cannot be used, by its file.
fn corpus_failure(path: &Path, error: &CorpusError) -> Failure {
    let message = match error {
        CorpusError::Unreadable { .. } => error.to_string(),
        _ => format!("`{}`: {error}", path.display()),
    };
    let failure = Failure::input(error.code(), message);
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The tokenizer that `scenario` names.
pub(crate) fn tokenizer(scenario: &Scenario) -> Result<Arc<HfTokenizer>, Failure> {
    Ok(load_tokenizer(scenario)?)
}

/// The same, with the tokenizer's own error.
pub(crate) fn load_tokenizer(scenario: &Scenario) -> Result<Arc<HfTokenizer>, TokenizerError> {
    let config = &scenario.tokenizer;
    let loaded = tokenizer::load(&config.path, &config.base_dir, config.revision.as_deref())?;
    Ok(Arc::new(loaded))
}
