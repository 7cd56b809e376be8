//! The native driver end to end against a mock server with a log of what it
//! really sent: processor seconds per million chunks, errors of chunk times,
//! gaps and TTFT, memory a stream.
//!
//! `cargo bench --bench e2e [-- NAME…]`; the mock's sources are looked for in
//! `$PCLOAD_SHARED/mock`. The client runs on core 0, the mock on core 1, both
//! at real-time priority where the system allows it. `PCLOAD_E2E_REPEAT` sets
//! the number of runs of each case (default 3); medians are printed as a table
//! on stderr and as JSON lines on stdout. Rivals: see `rival.rs`.
//!
//! Linux stops a real-time process that wants more than its share of a core
//! (`kernel.sched_rt_runtime_us`, 95 % by default) for the rest of each second.
//! That is 50 ms in which nothing is read or sent, and no fault of what is
//! measured; the harness says so where the limit stands.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    missing_docs,
    reason = "edge: a harness that starts programs and prints"
)]

mod cases;
mod figures;
mod mock;
mod pace;
mod rival;
mod sink;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use cases::{CASES, CLOSED, Case};
use figures::{Cost, Figures, Spread, figures};
use mock::{Mock, build, pinned};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{UsageWho, getrusage};
use pcload::drive::native::{Control, NativeOutcome, run};
use pcload::drive::{LoadRequest, NativeConfig};
use pcload::plan::{ArrivalLaw, LoadPlan, Pace, draw};
use pcload::rng::Seed;
use pcload::service::clock::RunClock;
use pcload::service::wire::Prompt;
use pcload::units::GroupIndex;
use rival::RivalFigures;

/// Set in the child that runs pinned.
const PINNED: &str = "PCLOAD_E2E_PINNED";

/// Above the streams of every case.
const HIGH: i32 = 16_383;

fn main() {
    // `cargo test` starts benches without it; a harness is no test.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    if std::env::var_os(PINNED).is_none() {
        let Some(program) = build(folder.path()) else {
            eprintln!("skipped: no mock server; set PCLOAD_SHARED to the folder that holds `mock`");
            return;
        };
        let this = std::env::current_exe().expect("this program has a path");
        pinned(0, 10, &this)
            .args(std::env::args().skip(1))
            .env(PINNED, program)
            .status()
            .expect("this program starts again");
        return;
    }
    let program = PathBuf::from(std::env::var_os(PINNED).unwrap_or_default());
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with("--"))
        .collect();
    let repeat = std::env::var("PCLOAD_E2E_REPEAT")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(3);
    warn_of_limits();
    open_high_descriptor();
    pace::run(&wanted, &program, folder.path());
    head();
    for case in CASES {
        if wanted.is_empty() || wanted.iter().any(|name| name == case.name) {
            let mut runs: Vec<Figures> = (0..repeat)
                .map(|_| run_case(case, &program, folder.path()))
                .collect();
            let by_cost = |a: &Figures, b: &Figures| {
                a.cpu_seconds_per_million
                    .total_cmp(&b.cpu_seconds_per_million)
            };
            runs.sort_by(by_cost);
            row(case, &runs[runs.len() / 2]);
            if let Some(rival) = rival::program() {
                let mut runs: Vec<RivalFigures> = (0..repeat)
                    .filter_map(|_| rival::run(&rival, case, &program, folder.path()))
                    .collect();
                runs.sort_by(|a, b| {
                    a.cpu_seconds_per_million
                        .total_cmp(&b.cpu_seconds_per_million)
                });
                if let Some(figures) = runs.get(runs.len() / 2) {
                    rival_row(case, figures);
                }
            }
        }
    }
}

/// Opens a descriptor of a high number, for good. Programs that are started here
/// have it, too, and so a table of descriptors that need not grow in the midst of
/// a load (see `pcload::system::descriptors`): neither the mock nor the rival
/// asks for one.
fn open_high_descriptor() {
    if let Ok(file) = std::fs::File::open("/dev/null") {
        fcntl(&file, FcntlArg::F_DUPFD(HIGH)).ok();
    }
}

/// Says what of this machine's settings gets into the figures.
fn warn_of_limits() {
    let limit = std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us");
    let limit = limit.as_deref().map_or("-1", str::trim);
    if limit != "-1" {
        eprintln!(
            "warning: real-time processes are stopped where they fill a core \
             (kernel.sched_rt_runtime_us = {limit}); measure with -1"
        );
    }
}

fn run_case(case: &Case, program: &Path, folder: &Path) -> Figures {
    let mut mock = Mock::start(program, folder, case.mock);
    let mut config = NativeConfig::new(mock.url());
    config.name_requests = true;
    let requests = requests(case, &config);
    let plan = plan(case);
    let clock = RunClock::start();
    let journal = std::fs::File::create(folder.join("records.jsonl")).expect("a file for records");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let before = processor(UsageWho::RUSAGE_SELF);
    reset_peak_memory();
    let resident = memory_kib("VmRSS:");
    let (outcome, seen) = runtime.block_on(async {
        let running = run(
            config,
            requests,
            plan,
            clock.clone(),
            Control::default(),
            Some(Box::new(journal)),
        );
        let disturbing = async {
            if case.killed {
                tokio::time::sleep(Duration::from_millis(700)).await;
                let seen = mock.requests();
                mock.kill();
                return seen;
            }
            None
        };
        let (outcome, seen) = tokio::join!(running, disturbing);
        (outcome.expect("the driver runs"), seen)
    });
    let after = processor(UsageWho::RUSAGE_SELF);
    let cost = Cost {
        user: after.0 - before.0,
        system: after.1 - before.1,
        rss_kib: memory_kib("VmHWM:") - resident,
    };
    let posted = mock.requests();
    check(case, &outcome, if case.killed { seen } else { posted });
    figures(
        &outcome,
        cost,
        case.streams,
        &mock.truth(),
        clock.monotonic_start_ns(),
    )
}

/// Each request is accounted for once, and none was posted twice.
fn check(case: &Case, outcome: &NativeOutcome, seen: Option<u64>) {
    assert_eq!(
        outcome.records.len(),
        case.requests,
        "{}: a record each",
        case.name
    );
    assert!(
        outcome
            .records
            .iter()
            .all(|record| record.attempts.len() == 1)
    );
    if case.killed {
        assert!(seen.is_some_and(|seen| seen <= outcome.health.posts));
        return;
    }
    assert_eq!(
        seen,
        Some(case.requests as u64),
        "{}: one POST a request",
        case.name
    );
    assert_eq!(
        outcome.health.chunks,
        case.requests as u64 * case.chunks,
        "{}",
        case.name
    );
}

/// The body of each of the case's requests.
fn body(case: &Case, config: &NativeConfig) -> Bytes {
    let template = config.body_template("mock", &[]);
    let prompt = if case.ids {
        // Downwards, because the last one is whole text then: of half a
        // character a server decodes and says again all that stood before.
        Prompt::TokenIds((1_000..1_128).rev().collect())
    } else {
        Prompt::Text("four words of text. ".repeat(26))
    };
    template.build(&prompt, case.chunks)
}

fn requests(case: &Case, config: &NativeConfig) -> Vec<LoadRequest> {
    let body = body(case, config);
    let request = |index: u32| LoadRequest {
        sequence_index: index,
        request_id: format!("request-{index:08}"),
        group: GroupIndex(0),
        dp_rank: None,
        lane_sequence: None,
        body: body.clone(),
        planned_prompt_tokens: 128,
        max_tokens: case.chunks,
    };
    (0..).take(case.requests).map(request).collect()
}

fn plan(case: &Case) -> LoadPlan {
    let pace = match case.rate {
        Some(rate) => {
            let seed = Seed::from(1);
            let (arrivals_ns, length_ns) =
                draw(ArrivalLaw::Poisson, rate, case.requests, None, &seed, "e2e");
            Pace::Open {
                arrivals_ns,
                length_ns,
                max_in_flight: None,
                rate_per_second: Some(rate),
            }
        }
        None => Pace::Closed {
            from: if case.spread.is_zero() {
                case.streams
            } else {
                1
            },
            concurrency: case.streams,
            ramp: case.spread,
        },
    };
    LoadPlan::one_stage(pace, case.requests)
}

/// User and system seconds of this process, or of its ended children.
fn processor(who: UsageWho) -> (f64, f64) {
    use nix::sys::time::TimeValLike as _;
    let usage = getrusage(who).expect("usage of a process");
    let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
    (seconds(usage.user_time()), seconds(usage.system_time()))
}

/// Lets the kernel count the peak of the resident set anew.
fn reset_peak_memory() {
    std::fs::write("/proc/self/clear_refs", "5").ok();
}

fn memory_kib(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with(field))
        .unwrap_or("");
    let number = line
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok());
    number.unwrap_or(0.0)
}

fn head() {
    eprintln!(
        "{:<11} {:>8} {:>6} {:>9} {:>7} {:>7} {:>8} {:>21} {:>21} {:>17} {:>15}",
        "case",
        "chunks",
        "failed",
        "chunks/s",
        "cpu s/M",
        "user",
        "KiB/str",
        "delay p50/99/99.9 µs",
        "ITL error µs",
        "TTFT error µs",
        "send lag µs"
    );
}

fn row(case: &Case, figures: &Figures) {
    let three = |spread: Option<Spread>| {
        spread.map_or("-".to_owned(), |s| {
            format!("{:.1}/{:.1}/{:.0}", s.p50, s.p99, s.p999)
        })
    };
    let two = |spread: Option<Spread>| {
        spread.map_or("-".to_owned(), |s| format!("{:.0}/{:.0}", s.p50, s.p99))
    };
    eprintln!(
        "{:<11} {:>8} {:>6} {:>9.0} {:>7.2} {:>7.2} {:>8.1} {:>21} {:>21} {:>17} {:>15}",
        case.name,
        figures.chunks,
        figures.failed,
        figures.chunks_per_second,
        figures.cpu_seconds_per_million,
        figures.user_seconds_per_million,
        figures.rss_kib_per_stream,
        three(figures.chunk_delay_us),
        three(figures.itl_error_us),
        two(figures.ttft_error_us),
        two(figures.send_lag_us),
    );
    let line = serde_json::json!({"case": case.name, "figures": figures});
    println!("{line}");
}

fn rival_row(case: &Case, figures: &RivalFigures) {
    eprintln!(
        "{:<11} {:>8} {:>6} {:>9} {:>7.2} {:>7.2}",
        "  vllm-rs",
        figures.chunks,
        "-",
        "-",
        figures.cpu_seconds_per_million,
        figures.user_seconds_per_million,
    );
    let line = serde_json::json!({"case": case.name, "rival": "vllm-rs", "figures": figures});
    println!("{line}");
}
