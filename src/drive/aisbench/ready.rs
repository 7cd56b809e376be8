//! Everything that can be known to go wrong before a request is sent: checked
//! before the server is touched.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::AisbenchError;
use super::python::{Python, find_python};
use super::render::{Classes, Plan, SetPaths, command};
use super::requests::{AisbenchRow, check, is_routed};
use crate::scenario::Scenario;

/// What the command line and the set say of a run by AISBench.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interpreter that was named.
    pub python: Option<PathBuf>,
    /// The configuration template that was named.
    pub template: Option<PathBuf>,
    /// Requests at a time.
    pub slots: u32,
    /// Body fields besides the scenario's generation arguments.
    pub extra_body: Map<String, Value>,
    /// Name of the set, time stamp included.
    pub run_id: String,
    /// Files of the set.
    pub set: SetPaths,
    /// The tokenizer's file.
    pub tokenizer: PathBuf,
    /// Longest time in which nothing of AISBench's files may grow.
    pub silence: Duration,
    /// Whether its output goes into a file in place of the terminal.
    pub quiet: bool,
}

/// A run by AISBench that can begin.
#[derive(Clone, Debug)]
pub struct Ready<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// What was said of the run.
    pub options: Options,
    /// The data set.
    pub rows: Vec<AisbenchRow>,
    /// The interpreter.
    pub python: Python,
    /// Whose classes send the requests.
    pub classes: Classes,
}

impl Ready<'_> {
    /// The configuration's plan, with the data set at `dataset` and the
    /// tokenizer in `tokenizer`.
    pub(super) fn plan(&self, dataset: PathBuf, tokenizer: PathBuf) -> Plan<'_> {
        Plan {
            scenario: self.scenario,
            run_id: &self.options.run_id,
            set: self.options.set.clone(),
            tokenizer,
            slots: self.options.slots,
            extra_body: self.options.extra_body.clone(),
            classes: self.classes,
            dataset,
        }
    }

    /// The template to run in place of our own rendering: the one that was
    /// named, else the scenario's, which needs the plugin.
    pub(super) fn template(&self) -> Option<PathBuf> {
        let own = &self.scenario.aisbench.config;
        let scenarios = (self.python.plugin && own.is_file()).then(|| own.clone());
        self.options.template.clone().or(scenarios)
    }
}

/// Checks what can be checked, and asks the interpreter what it has.
pub async fn prepare(
    scenario: &Scenario,
    options: Options,
    rows: Vec<AisbenchRow>,
) -> Result<Ready<'_>, AisbenchError> {
    check(&rows, options.slots)?;
    let placeholder = PathBuf::new();
    command(&placeholder, &placeholder, &scenario.aisbench.extra_args.0)?;
    let path = scenario.service.inference_url.split(['?', '#']).next();
    let path = path.unwrap_or_default().trim_end_matches('/');
    if path.ends_with("/chat/completions") || !path.ends_with("/completions") {
        let message = "its service class speaks `/completions`, and nothing else";
        return Err(AisbenchError::Unsupported(message.to_owned()));
    }
    let python = find_python(options.python.as_deref()).await?;
    if !is_plain(&python.path.to_string_lossy()) {
        let message = format!(
            "it starts its processes through a shell, without quotes, and would wait for ever: \
             `{}` has blanks",
            python.path.display()
        );
        return Err(AisbenchError::Unsupported(message));
    }
    let classes = match (python.plugin, rows.iter().any(is_routed)) {
        (true, _) => Classes::Plugin,
        (false, true) => Classes::Adapter,
        (false, false) => Classes::Stock,
    };
    Ok(Ready {
        scenario,
        options,
        rows,
        python,
        classes,
    })
}

/// Whether a path survives a shell without quotes.
pub(super) fn is_plain(path: &str) -> bool {
    path.chars()
        .all(|letter| letter.is_alphanumeric() || "/._-+@,:".contains(letter))
}
