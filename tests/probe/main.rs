//! The probes end to end: the real program against a scripted chat server on
//! loopback. Each case states what a server does, and which exit status,
//! verdict and words follow.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    clippy::format_push_string,
    reason = "edge: tests over loopback sockets, which fail where the world does"
)]

mod compare;
mod endings;
mod inputs;
mod observed;
mod server;
mod simulated;
mod verdicts;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use server::Server;

/// Variables that would change what a test means.
const VARIABLES: &[&str] = &[
    "VLLM_API",
    "VLLM_MODEL",
    "PCLOAD_API_KEY",
    "OPENAI_API_KEY",
    "VLLM_API_KEY",
];

/// One run of the program in a folder of its own.
pub(crate) struct Run {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program with `arguments`, in `folder`.
pub(crate) fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcload"));
    command.current_dir(folder).args(arguments);
    command.env("COLUMNS", "80");
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
}

impl Run {
    /// Runs `pcload` to its end.
    pub(crate) fn of(arguments: &[&str]) -> Self {
        Self::with(arguments, |_| {})
    }

    /// The same with a command that `change` has set.
    pub(crate) fn with(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program(folder.path(), arguments);
        change(&mut command);
        let output = command.output().unwrap();
        Self::ended(folder, &output)
    }

    pub(crate) fn ended(folder: tempfile::TempDir, output: &Output) -> Self {
        Self {
            folder,
            status: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// Runs `pcload probe` against `server`.
    pub(crate) fn probe(server: &Server, probe: &str, options: &str) -> Self {
        let url = server.url();
        let mut arguments = vec!["probe", probe, "--url", &url];
        arguments.extend(options.split_whitespace());
        Self::of(&arguments)
    }

    /// The result on stdout.
    pub(crate) fn summary(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    /// Path of the record.
    pub(crate) fn record_path(&self) -> PathBuf {
        let name = self.summary()["record"].as_str().unwrap().to_owned();
        self.folder.path().join(name)
    }

    /// The record.
    pub(crate) fn record(&self) -> Value {
        let text = std::fs::read_to_string(self.record_path()).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The `ERROR:` line's code.
    pub(crate) fn code(&self) -> &str {
        let line = self
            .stderr
            .lines()
            .find_map(|line| line.strip_prefix("ERROR: "));
        line.and_then(|line| line.split(':').next()).unwrap_or("")
    }

    /// Verdicts of the judged rows, in order.
    pub(crate) fn verdicts(&self) -> Vec<String> {
        let record = self.record();
        let rows = record["requests"].as_array().unwrap();
        let verdicts = rows.iter().filter_map(|row| row["verdict"].as_str());
        verdicts.map(str::to_owned).collect()
    }

    /// Whether the record's notes hold `words`.
    pub(crate) fn noted(&self, words: &str) -> bool {
        let record = self.record();
        let notes = record["notes"].as_array().unwrap();
        notes
            .iter()
            .any(|note| note.as_str().unwrap().contains(words))
    }
}
