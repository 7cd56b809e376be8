//! Signals. Ctrl-C: the first stops sending, drains and writes; the second ends
//! at once; both end with 130. The shell's limit of file sizes is an error.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pcload::sim::{Config, Faults, Pace};
use serde_json::{Value, json};

use crate::folder::{Folder, with};
use crate::server::{Simulated, instant};

/// A program under way, and what it says. Its stdout goes to a file: a pipe that
/// nobody reads would hold it up.
struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    fn start(folder: &Folder) -> Self {
        Self::command(folder, "run")
    }

    fn command(folder: &Folder, command: &str) -> Self {
        let stdout = folder.path("stdout");
        let mut child = Command::new(env!("CARGO_BIN_EXE_pcload"))
            .args([command, "--scenario", "scenario.json"])
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
        self.signal("-INT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end: status, stdout, the rest of stderr.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap().code();
        (status, fs::read_to_string(self.stdout).unwrap(), stderr)
    }

    /// Waits for the end by an interrupt: the analysis, the rest of stderr.
    fn interrupted(self) -> (Value, String) {
        let (status, stdout, stderr) = self.end();
        assert_eq!(status, Some(130), "{stderr}");
        let analysis: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(analysis["status"], "interrupted");
        (analysis, stderr)
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
    let (analysis, stderr) = running.interrupted();
    assert!(stderr.contains("ERROR: INTERRUPTED: "), "{stderr}");
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
    let (_, stderr) = running.interrupted();
    assert!(stderr.contains("interrupted again"), "{stderr}");
}

/// Forwards to the server at `port`; while `gate` is locked, no answer comes
/// through.
fn behind(gate: &Arc<Mutex<()>>, port: u16) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let gate = Arc::clone(gate);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || io::copy(&mut from, &mut to));
            let (mut from, mut to, gate) = (server, client, Arc::clone(&gate));
            std::thread::spawn(move || {
                let mut bytes = [0; 4_096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    drop(gate.lock());
                    if to.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A page that does not come is not waited for after an interrupt, and what was
/// measured is written.
#[test]
fn an_interrupt_ends_the_wait_for_the_counters() {
    let server = Simulated::start(instant());
    let gate = Arc::new(Mutex::new(()));
    let page = format!("http://{}/metrics", behind(&gate, server.port()));
    let folder = Folder::new();
    folder.write_scenario(&with(server.scenario(), "service.metrics_url", json!(page)));
    let mut running = Running::start(&folder);
    running.until("formal: ");
    let _locked = gate.lock().unwrap();
    running.until("after: ");
    running.interrupt();
    let (_, stderr) = running.interrupted();
    assert!(stderr.contains("ERROR: INTERRUPTED: "), "{stderr}");
    let listing = folder.listing();
    let records = listing.keys().find(|name| name.ends_with("records.jsonl"));
    let records = fs::read_to_string(folder.path(records.unwrap())).unwrap();
    assert_eq!(records.lines().count(), 12);
}

/// Files and folders below `outputs`, without logs.
fn outputs(folder: &Folder) -> Vec<PathBuf> {
    let mut left = vec![folder.path("outputs")];
    let mut found = Vec::new();
    while let Some(place) = left.pop() {
        for entry in fs::read_dir(place).into_iter().flatten() {
            let path = entry.unwrap().path();
            let is_log = path.file_name().is_some_and(|name| name == "log");
            if path.is_dir() && !is_log {
                left.push(path);
            } else if !is_log {
                found.push(path);
            }
        }
    }
    found
}

/// Whichever command makes the prompts, and whichever signal comes.
#[test]
fn an_interrupt_while_prompts_are_made_leaves_no_set() {
    for (command, signal) in [("prepare", "-INT"), ("prepare", "-TERM"), ("run", "-INT")] {
        let folder = Folder::new();
        let mut scenario = with(crate::folder::scenario(), "requests.count", json!(20_000));
        scenario["run"]["output_dir"] = json!("outputs/x");
        folder.write_scenario(&scenario);
        let mut running = Running::command(&folder, command);
        running.until("prompts: ");
        running.signal(signal);
        let (status, stdout, stderr) = running.end();
        assert_eq!(status, Some(130), "{command} {signal}: {stderr}");
        assert_eq!(stdout, "");
        let errors: Vec<_> = stderr
            .lines()
            .filter(|line| line.starts_with("ERROR"))
            .collect();
        assert_eq!(
            errors,
            ["ERROR: INTERRUPTED: interrupted before it was done"]
        );
        assert_eq!(outputs(&folder), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_file_beyond_the_limit_of_the_shell_is_an_error_and_leaves_no_set() {
    let folder = Folder::new();
    let mut scenario = with(crate::folder::scenario(), "requests.count", json!(400));
    scenario["run"]["output_dir"] = json!("outputs/x");
    folder.write_scenario(&scenario);
    let program = env!("CARGO_BIN_EXE_pcload");
    let script = format!("ulimit -f 64; exec {program} prepare --quiet --scenario scenario.json");
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path(""))
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.starts_with("ERROR: FILE_ACCESS: "), "{stderr}");
    assert_eq!(outputs(&folder), Vec::<PathBuf>::new());
}

#[test]
fn a_run_that_was_killed_is_named_as_such() {
    let server = Simulated::start(Config::default());
    let folder = Folder::new();
    folder.write_scenario(&with(
        server.scenario(),
        "run.output_dir",
        json!("outputs/x"),
    ));
    folder.done(&["run", "--quiet", "--scenario", "scenario.json"]);
    let files = outputs(&folder);
    let file = |end: &str| files.iter().find(|path| path.ends_with(end)).unwrap();
    let analysis = file("runs/1/analysis.json");
    // What a kill before the judgment leaves.
    fs::remove_file(analysis).unwrap();
    let run = analysis.parent().unwrap().to_str().unwrap();
    let is_manifest = |path: &&PathBuf| path.to_string_lossy().ends_with(".manifest.json");
    let manifest = files.iter().find(is_manifest).unwrap().to_str().unwrap();
    for arguments in [
        vec!["report", "--manifest", manifest, "--run", "1"],
        vec!["compare", run, run],
        vec!["export", "vllm-json", "--manifest", manifest, "--run", "1"],
    ] {
        let ran = folder.run(&arguments);
        ran.fails(2, "NO_JUDGMENT", &["ended before it was judged"]);
    }
}
