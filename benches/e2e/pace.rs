//! How exactly a server keeps its pace: 2,000 streams of a token every 20 ms,
//! each send held against its own due time, by the server's own log; and what
//! an event costs it when nothing is paced. The mock and `pcload sim` in turn
//! under the same client (see `sink`), so that what this machine's kernel takes
//! for a write shows in both.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcload::drive::NativeConfig;
use serde::{Deserialize, Serialize};

use crate::mock::{Mock, pinned};
use crate::sink::{self, Load};
use crate::{CLOSED, Case, body};

/// Names another `pcload` than the one just built.
const PROGRAM: &str = "PCLOAD_E2E_SIM";
/// Receive to first token, and token to token, in nanoseconds.
const TTFT_NS: u64 = 50_000_000;
const ITL_NS: u64 = 20_000_000;
/// How often a connection sends where starts are spread: 30 ms more than its
/// answer takes, a multiple of the time between tokens. So 2,024 connections are
/// 2,000 streams at any moment, and their tokens stay spread as their starts are.
const PERIOD: Duration = Duration::from_millis(2_620);
const MOCK: &[&str] = &[
    "--mode",
    "paced",
    "--ttft-ms",
    "50",
    "--itl-ms",
    "20",
    "--truth-full",
];

/// The same times as options of the simulator.
const TIMES: &[&str] = &["--ttft-ms", "50", "--itl-ms", "20"];
const FLOOD: &[&str] = &["--mode", "flood", "--truth-full"];

/// The loads; `mock` is for the mock, the simulator takes the same times.
const CASES: &[Case] = &[
    Case {
        name: "pace-none",
        mock: FLOOD,
        requests: 1_600,
        chunks: 500,
        ids: true,
        ..CLOSED
    },
    Case {
        name: "pace-256",
        mock: MOCK,
        streams: 256,
        requests: 1_024,
        ids: true,
        spread: PERIOD,
        ..CLOSED
    },
    Case {
        name: "pace-1000",
        mock: MOCK,
        streams: 1_012,
        requests: 4_048,
        ids: true,
        spread: PERIOD,
        ..CLOSED
    },
    Case {
        name: "pace-2000",
        mock: MOCK,
        streams: 2_024,
        requests: 8_096,
        spread: PERIOD,
        ids: true,
        ..CLOSED
    },
    Case {
        name: "pace-2000-text",
        mock: MOCK,
        streams: 2_024,
        requests: 8_096,
        spread: PERIOD,
        ..CLOSED
    },
    Case {
        name: "pace-2000-at-once",
        mock: MOCK,
        streams: 2_000,
        requests: 4_000,
        ids: true,
        ..CLOSED
    },
];

/// One request of a server's log.
#[derive(Debug, Deserialize)]
struct Row {
    recv_ns: u64,
    sends_ns: Vec<u64>,
}

/// What a server was like.
#[derive(Clone, Debug, Serialize)]
struct PaceFigures {
    /// Token events sent.
    pub events: usize,
    /// Processor seconds of the server per million events.
    pub cpu_seconds_per_million: f64,
    /// Of them in user mode.
    pub user_seconds_per_million: f64,
    /// Events per second between the first and the last.
    pub events_per_second: f64,
    /// Absolute difference of sent and due, in milliseconds: quantiles 0.5,
    /// 0.9, 0.99, 0.999 and the greatest; nothing where nothing is due.
    pub send_error_ms: Option<[f64; 5]>,
    /// The same without each request's first token.
    pub later_error_ms: Option<[f64; 5]>,
}

/// Runs the cases asked for: on demand only, they measure no client.
pub fn run(wanted: &[String], mock: &Path, folder: &Path) {
    for case in CASES {
        if wanted.iter().any(|name| name == case.name) {
            row(case, "mock", &run_case(case, Some(mock), folder));
            row(case, "sim", &run_case(case, None, folder));
        }
    }
}

/// Runs one case against the mock or, without one, the simulator.
fn run_case(case: &Case, mock: Option<&Path>, folder: &Path) -> PaceFigures {
    if let Some(program) = mock {
        let server = Mock::start(program, folder, case.mock);
        let before = processor(server.id());
        load(case, &server.url());
        let after = processor(server.id());
        let text = server.log();
        return figures(case, &text, before, after);
    }
    let truth = folder.join("sim-truth.jsonl");
    let mut server = Sim::start(case, &truth);
    let before = processor(server.child.id());
    load(case, &server.url);
    let after = processor(server.child.id());
    server.stop();
    let text = std::fs::read_to_string(&truth).expect("the simulator's log");
    figures(case, &text, before, after)
}

fn is_paced(case: &Case) -> bool {
    case.mock != FLOOD
}

/// Sends the case's requests to `url` and takes what comes.
fn load(case: &Case, url: &str) {
    let (authority, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .expect("a URL");
    let body = body(case, &NativeConfig::new(url.to_owned()));
    let mut request = format!(
        "POST /{path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len(),
    )
    .into_bytes();
    request.extend_from_slice(&body);
    let connections = case.streams as usize;
    sink::take(Load {
        authority,
        request: &request,
        connections,
        rounds: case.requests / connections,
        period: case.spread,
        pauses: is_paced(case),
    });
}

/// `pcload sim` on the second core.
struct Sim {
    child: Child,
    url: String,
}

impl Sim {
    fn start(case: &Case, truth: &Path) -> Self {
        let pace = if is_paced(case) { "fixed" } else { "flood" };
        let program = std::env::var_os(PROGRAM).map_or_else(
            || PathBuf::from(env!("CARGO_BIN_EXE_pcload")),
            PathBuf::from,
        );
        let mut child = pinned(1, 20, &program)
            .args(["sim", "--port", "0", "--model", "mock", "--pace", pace])
            .args(if is_paced(case) { TIMES } else { &[] })
            .arg("--truth-log")
            .arg(truth)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the simulator starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("the simulator says where it is");
        let said: serde_json::Value = serde_json::from_str(&line).expect("a line of JSON");
        let url = said["url"].as_str().expect("an address");
        Self {
            url: format!("{url}/v1/completions"),
            child,
        }
    }

    fn stop(&mut self) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGTERM).ok();
        self.child.wait().ok();
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// User and system seconds of a process that runs.
fn processor(pid: u32) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process that runs");
    // Behind the name in parentheses: state, …; 12th and 13th are the times.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number of ticks") / 100.0;
    (ticks(11), ticks(12))
}

fn figures(case: &Case, log: &str, before: (f64, f64), after: (f64, f64)) -> PaceFigures {
    let mut errors = Vec::new();
    let mut later = Vec::new();
    let (mut first, mut last) = (u64::MAX, 0);
    for line in log.lines() {
        let row: Row = serde_json::from_str(line).expect("a row of the log");
        for (at, sent) in (0..).zip(&row.sends_ns) {
            let due = row.recv_ns + TTFT_NS + at * ITL_NS;
            let error = sent.abs_diff(due) as f64 / 1e6;
            errors.push(error);
            if at > 0 {
                later.push(error);
            }
            first = first.min(*sent);
            last = last.max(*sent);
        }
    }
    let events = errors.len();
    assert_eq!(
        events as u64,
        case.requests as u64 * case.chunks,
        "{}: an event a token",
        case.name
    );
    let per_million = |seconds: f64| seconds / (events as f64 / 1e6);
    PaceFigures {
        events,
        cpu_seconds_per_million: per_million(after.0 + after.1 - before.0 - before.1),
        user_seconds_per_million: per_million(after.0 - before.0),
        events_per_second: events as f64 / ((last - first) as f64 / 1e9),
        send_error_ms: is_paced(case).then(|| quantiles(errors)),
        later_error_ms: is_paced(case).then(|| quantiles(later)),
    }
}

/// Nearest-rank quantiles.
fn quantiles(mut values: Vec<f64>) -> [f64; 5] {
    values.sort_by(f64::total_cmp);
    [0.5, 0.9, 0.99, 0.999, 1.0].map(|q| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index of the series"
        )]
        let index = (q * (values.len() - 1) as f64).round() as usize;
        values[index]
    })
}

/// One line of the table, and one of JSON.
fn row(case: &Case, server: &str, figures: &PaceFigures) {
    let say = |values: Option<[f64; 5]>| {
        values.map_or("-".to_owned(), |values| {
            values.map(|value| format!("{value:.2}")).join("/")
        })
    };
    eprintln!(
        "{:<18} {server:<5} {:>8} events {:>7.0}/s  cpu s/M {:>6.2} user {:>5.2}  send error ms p50/90/99/99.9/max {}  later {}",
        case.name,
        figures.events,
        figures.events_per_second,
        figures.cpu_seconds_per_million,
        figures.user_seconds_per_million,
        say(figures.send_error_ms),
        say(figures.later_error_ms),
    );
    let line = serde_json::json!({"case": case.name, "server": server, "figures": figures});
    println!("{line}");
}
