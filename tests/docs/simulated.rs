//! A simulated server for as long as a test needs one.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A server of its own process; it ends with its handle.
pub(crate) struct Simulated {
    /// Its process.
    pub child: Child,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// The line that it said.
    pub said: Value,
}

impl Simulated {
    /// Starts `command`, which must be one that says its URL on stdout as
    /// `pcload sim` does.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self {
            child,
            url: said["url"].as_str().unwrap().to_owned(),
            said,
        }
    }

    /// `pcload sim` with `arguments` on a free port.
    pub(crate) fn sim(arguments: &[&str], folder: &Path) -> Self {
        let mut command = pcload();
        command.args(["sim", "--port", "0"]).args(arguments);
        Self::start(command.current_dir(folder))
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn authority(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The program.
pub(crate) fn pcload() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcload"));
    command.env_remove("PCLOAD_API_KEY").env("NO_COLOR", "1");
    command
}
