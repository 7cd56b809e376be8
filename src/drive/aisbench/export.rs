//! A configuration, its data and a command for AISBench alone, without pcload.
#![allow(clippy::disallowed_methods, reason = "edge: writes files")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::AisbenchError;
use super::render::{Classes, Plan, SetPaths, command};
use super::requests::{AisbenchRow, check, is_routed};
use super::run::{CONFIG, DATASET, make, tokenizer_folder, write, write_inputs};
use crate::scenario::Scenario;

/// Name of the script.
const SCRIPT: &str = "run.sh";

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Exported {
    /// The configuration.
    pub config: PathBuf,
    /// The data set.
    pub dataset: PathBuf,
    /// The script that starts it.
    pub script: PathBuf,
    /// The command in it.
    pub command: String,
}

/// Writes everything into `folder`, which is made.
pub fn export(
    scenario: &Scenario,
    run_id: &str,
    (tokenizer, set): (&Path, SetPaths),
    extra_body: serde_json::Map<String, serde_json::Value>,
    rows: &[AisbenchRow],
    folder: &Path,
) -> Result<Exported, AisbenchError> {
    let slots = scenario.aisbench.model.batch_size;
    check(rows, slots)?;
    make(folder)?;
    let plan = Plan {
        scenario,
        run_id,
        set,
        tokenizer: tokenizer_folder(tokenizer, folder)?,
        slots,
        extra_body,
        classes: if rows.iter().any(is_routed) {
            Classes::Adapter
        } else {
            Classes::Stock
        },
        dataset: folder.join(DATASET),
    };
    write_inputs(&plan, rows, folder)?;
    let args = command(
        Path::new(CONFIG),
        &folder.join("results"),
        &scenario.aisbench.extra_args.0,
    )?;
    let args: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
    let line = format!("\"${{PYTHON:-python3}}\" {}", args.join(" "));
    let path = folder.join(SCRIPT);
    write(&path, &script(&plan, folder, &line))?;
    Ok(Exported {
        config: folder.join(CONFIG),
        dataset: plan.dataset.clone(),
        script: path,
        command: line,
    })
}

fn script(plan: &Plan<'_>, folder: &Path, line: &str) -> String {
    let mut text = "#!/bin/sh\n\
        # Sends the set by AISBench alone. It neither resets nor warms the cache.\n\
        # PYTHON names an interpreter with AISBench.\n\
        set -eu\n"
        .to_owned();
    let mut add = |line: String| {
        let _infallible = writeln!(text, "{line}");
    };
    add(format!("cd {}", quoted(&folder.to_string_lossy())));
    add(
        "export TERM=dumb HF_HUB_OFFLINE=1 PYTHONPATH=\"$PWD${PYTHONPATH:+:$PYTHONPATH}\""
            .to_owned(),
    );
    if plan.scenario.service.api_key.is_configured() {
        add(": \"${PCLOAD_AISBENCH_KEY:?set it to the API key of the service}\"".to_owned());
        add("export PCLOAD_AISBENCH_KEY".to_owned());
    }
    if plan.hidden_url().is_some() {
        add(": \"${PCLOAD_AISBENCH_URL:?set it to the address of the service}\"".to_owned());
        add("export PCLOAD_AISBENCH_URL".to_owned());
    }
    add(format!("exec {line}"));
    text
}

/// A word as the shell takes it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for (word, expected) in [
            ("--mode", "--mode"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$(x)", "'$(x)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
