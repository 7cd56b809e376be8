//! The mock server that the harness measures against: built from its sources,
//! started on a free port and pinned to the second core. It has a log of what
//! was really sent, and when.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Longest wait for a server to answer.
const START_MAX: Duration = Duration::from_secs(10);

/// What the mock says it sent of one request; nanoseconds of the monotonic
/// clock.
#[derive(Debug, Deserialize)]
pub struct Truth {
    /// The request's name.
    pub rid: String,
    /// When it had been read.
    pub recv_ns: u64,
    /// When the first content was about to be written.
    pub first_send_ns: u64,
    /// When each content chunk was about to be written.
    #[serde(default)]
    pub sends_ns: Vec<u64>,
}

/// Builds the mock into `folder` and gives its program; `None` where its
/// sources are not at hand.
pub fn build(folder: &Path) -> Option<PathBuf> {
    let shared = std::env::var_os("PCLOAD_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    let manifest = shared.join("mock/Cargo.toml");
    if !manifest.exists() {
        return None;
    }
    // The sources may lie in a place that cannot be written to.
    let sources = folder.join("mock");
    std::fs::create_dir_all(&sources).ok()?;
    let copied = Command::new("cp")
        .arg("-r")
        .arg(shared.join("mock/."))
        .arg(&sources)
        .status();
    copied.ok().filter(std::process::ExitStatus::success)?;
    let built = Command::new("cargo")
        .args(["build", "--release", "--quiet"])
        .current_dir(&sources)
        .env_remove("CARGO_TARGET_DIR")
        .status();
    built.ok().filter(std::process::ExitStatus::success)?;
    Some(sources.join("target/release/pcmock"))
}

/// A running mock.
pub struct Mock {
    child: Child,
    port: u16,
    truth: PathBuf,
}

impl Mock {
    /// Starts `program` with these options and waits until it answers.
    pub fn start(program: &Path, folder: &Path, options: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let truth = folder.join("truth.jsonl");
        std::fs::remove_file(&truth).ok();
        let child = pinned(1, 20, program)
            .args(["--port", &port.to_string(), "--no-cache", "--truth"])
            .arg(&truth)
            .args(options)
            .stderr(Stdio::null())
            .spawn()
            .expect("the mock starts");
        let mut mock = Self { child, port, truth };
        let begin = Instant::now();
        while mock
            .get("/version")
            .is_none_or(|answer| !answer.contains("pcmock"))
        {
            assert!(begin.elapsed() < START_MAX, "the mock does not answer");
            assert!(
                mock.child.try_wait().is_ok_and(|end| end.is_none()),
                "the mock has ended"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        mock
    }

    /// Where requests go.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/completions", self.port)
    }

    /// Requests the mock has seen.
    pub fn requests(&self) -> Option<u64> {
        let stats = self.get("/mock/stats")?;
        let body = stats.split("\r\n\r\n").nth(1)?;
        let stats: serde_json::Value = serde_json::from_str(body).ok()?;
        stats.get("requests")?.as_u64()
    }

    /// Ends the mock at once, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the mock and reads its log.
    pub fn log(mut self) -> String {
        self.request("POST", "/mock/flush");
        self.kill();
        std::fs::read_to_string(&self.truth).unwrap_or_default()
    }

    /// The same by name of the request.
    pub fn truth(self) -> BTreeMap<String, Truth> {
        let text = self.log();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines
            .map(|truth: Truth| (truth.rid.clone(), truth))
            .collect()
    }

    fn get(&self, path: &str) -> Option<String> {
        self.request("GET", path)
    }

    fn request(&self, method: &str, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(START_MAX)).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: mock\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A command on one core, at real-time priority where the system allows it.
pub fn pinned(core: u32, priority: u32, program: &Path) -> Command {
    let real_time = Command::new("chrt")
        .args(["-f", "1", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let core = core.to_string();
    let mut command;
    if real_time {
        command = Command::new("chrt");
        command.args(["-f", &priority.to_string(), "taskset", "-c", &core]);
    } else {
        command = Command::new("taskset");
        command.args(["-c", &core]);
    }
    command.arg(program);
    command
}
