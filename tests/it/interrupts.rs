//! Ctrl-C: the first stops sending, drains and writes; the second ends at once.
//! Both end with 130.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use pcload::sim::{Config, Faults, Pace};
use serde_json::{Value, json};

use crate::folder::{Folder, with};
use crate::server::Simulated;

/// A program under way, and what it says. Its stdout goes to a file: a pipe that
/// nobody reads would hold it up.
struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    fn start(folder: &Folder) -> Self {
        let stdout = folder.path("stdout");
        let mut child = Command::new(env!("CARGO_BIN_EXE_pcload"))
            .args(["run", "--scenario", "scenario.json"])
            .current_dir(folder.path(""))
            .stdout(File::create(&stdout).unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Reads on until a line begins with `words`.
    fn until(&mut self, words: &str) {
        let mut all = String::new();
        loop {
            let before = all.len();
            let read = self.stderr.read_line(&mut all).unwrap();
            assert!(read > 0, "ended before `{words}`: {all}");
            if all[before..].starts_with(words) {
                return;
            }
        }
    }

    fn interrupt(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end: status, stdout, the rest of stderr.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap().code();
        (status, fs::read_to_string(self.stdout).unwrap(), stderr)
    }
}

/// Many requests, one after the other.
fn long_scenario(server: &Simulated) -> Value {
    with(server.scenario(), "requests.count", json!(2_000))
}

#[test]
fn an_interrupt_writes_what_was_measured() {
    let server = Simulated::start(Config {
        pace: Pace::Fixed {
            ttft: Duration::from_millis(20),
            itl: Duration::from_millis(2),
        },
        ..Config::default()
    });
    let folder = Folder::new();
    folder.write_scenario(&long_scenario(&server));
    let mut running = Running::start(&folder);
    running.until("formal: ");
    let before = server.answered();
    while server.answered() < before + 3.0 {}
    running.interrupt();
    let (status, stdout, stderr) = running.end();
    assert_eq!(status, Some(130), "{stderr}");
    assert!(stderr.contains("ERROR: INTERRUPTED: "), "{stderr}");
    let analysis: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(analysis["status"], "interrupted");
    let records: Vec<String> = folder
        .listing()
        .into_keys()
        .filter(|name| name.ends_with("records.jsonl"))
        .collect();
    let records = fs::read_to_string(folder.path(&records[0])).unwrap();
    let count = records.lines().count();
    assert!((3..2_000).contains(&count), "{count} records");
    let queries = analysis["actual"]["global_queries"].as_u64().unwrap();
    assert_eq!(queries, count as u64 * 128, "drained, not cut");
}

#[test]
fn an_interrupt_before_the_formal_phase_measures_nothing() {
    let server = Simulated::start(Config {
        faults: Faults {
            slow_first_byte: Some(Duration::from_secs(300)),
            ..Faults::default()
        },
        ..Config::default()
    });
    let folder = Folder::new();
    folder.write_scenario(&server.scenario());
    let mut running = Running::start(&folder);
    running.until("precheck: ");
    running.interrupt();
    let (status, stdout, stderr) = running.end();
    assert_eq!(status, Some(130), "{stderr}");
    assert_eq!(stdout, "");
    assert!(stderr.contains("nothing was measured"), "{stderr}");
}

/// Streams that never end are not waited for after the second interrupt.
#[test]
fn a_second_interrupt_ends_at_once() {
    let server = Simulated::start(Config {
        pace: Pace::Fixed {
            ttft: Duration::from_millis(5),
            itl: Duration::from_secs(3_600),
        },
        ..Config::default()
    });
    let folder = Folder::new();
    folder.write_scenario(&long_scenario(&server));
    let mut running = Running::start(&folder);
    running.until("formal: ");
    running.interrupt();
    running.until("interrupted: ");
    running.interrupt();
    let (status, stdout, stderr) = running.end();
    assert_eq!(status, Some(130), "{stderr}");
    assert!(stderr.contains("interrupted again"), "{stderr}");
    let analysis: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(analysis["status"], "interrupted");
}
