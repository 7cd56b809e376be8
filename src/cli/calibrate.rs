//! `pcload calibrate`: the client's own error on this machine. The driver of
//! `pcload run` streams from a server in this process, on a thread of its own,
//! that sends at a fixed pace and logs when it really sent; what the client
//! recorded is held against that log.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: runs a server beside the client and reads its log"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::runtime::Builder;

use super::args::{CalibrateArgs, Global};
use super::demo::embedded_tokenizer;
use super::exit::{Exit, Failure};
use super::{output, runtime};
use crate::artifacts::pyjson;
use crate::drive::native::{self, Control, NativeOutcome};
use crate::drive::{LoadRequest, NativeConfig};
use crate::measure::{Calibration, ServerTruth, TimestampSource, calibration};
use crate::plan::{LoadPlan, Pace};
use crate::service::clock::RunClock;
use crate::service::wire::Prompt;
use crate::sim::{self, Config, Server};
use crate::system::descriptors;
use crate::units::GroupIndex;

/// Name of the simulated model.
const MODEL: &str = "calibration";
/// From a request's arrival to its first chunk.
const TTFT: Duration = Duration::from_millis(20);
/// About how long one request streams.
const REQUEST: Duration = Duration::from_secs(1);
/// Fewest chunks of a request, so that gaps outnumber first tokens.
const CHUNKS_MIN: u64 = 8;
/// Most chunks of a request.
const CHUNKS_MAX: u64 = 512;
/// Share of a request's length over which the streams start. Below 1, so that
/// all connections are open before a measured request begins; no simple
/// fraction, so that the streams do not tick in step.
const START_SHARE: f64 = 0.414_213_56;

/// Share of the chunk rate asked for below which the machine is said to be
/// overloaded; starting and ending the streams takes up to a third of a short
/// calibration.
const KEPT_PACE_MIN: f64 = 0.6;

/// The load to calibrate at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    /// Streams side by side.
    pub streams: u32,
    /// From chunk to chunk of a stream.
    pub itl: Duration,
    /// About how long to stream.
    pub length: Duration,
    /// Threads that read streams.
    pub threads: usize,
}

impl Load {
    fn chunks(self) -> u64 {
        let fitting = REQUEST.as_nanos() / self.itl.as_nanos().max(1);
        u64::try_from(fitting)
            .unwrap_or(CHUNKS_MAX)
            .clamp(CHUNKS_MIN, CHUNKS_MAX)
    }

    /// How long one request takes.
    fn request(self) -> Duration {
        TTFT + self.itl * u32::try_from(self.chunks() - 1).unwrap_or(u32::MAX)
    }

    /// Requests of each stream: one that opens it and does not count, and as
    /// many more as fit, at least one.
    fn rounds(self) -> u32 {
        let fitting = self.length.as_secs_f64() / self.request().as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float above u32 saturates, and the length is bounded"
        )]
        let fitting = fitting.round() as u32;
        fitting.max(2)
    }

    /// Chunks per second while all streams are open.
    fn chunks_per_second(self) -> f64 {
        f64::from(self.streams) * self.chunks() as f64 / self.request().as_secs_f64()
    }

    fn plan(self, requests: usize) -> LoadPlan {
        let pace = Pace::Closed {
            from: 1,
            concurrency: self.streams,
            ramp: self.request().mul_f64(START_SHARE),
        };
        LoadPlan {
            warmup_requests: self.streams as usize,
            ..LoadPlan::one_stage(pace, requests)
        }
    }

    fn requests(self, config: &NativeConfig) -> Vec<LoadRequest> {
        let prompt = Prompt::Text("How exact is this client?".to_owned());
        let body = config
            .body_template(MODEL, &[])
            .build(&prompt, self.chunks());
        let request = |index: u32| LoadRequest {
            sequence_index: index,
            request_id: format!("calibration-{index:08}"),
            group: GroupIndex(0),
            dp_rank: None,
            lane_sequence: None,
            body: body.clone(),
            planned_prompt_tokens: 0,
            max_tokens: self.chunks(),
        };
        (0..self.streams.saturating_mul(self.rounds()))
            .map(request)
            .collect()
    }

    /// A server with room for all streams.
    fn server(self, truth: &Path) -> Config {
        let blocks = self.streams.saturating_mul(64);
        Config {
            model: MODEL.to_owned(),
            pace: sim::Pace::Fixed {
                ttft: TTFT,
                itl: self.itl,
            },
            precise_timers: true,
            max_model_len: 1 << 10,
            pool_blocks: blocks.max(1 << 10),
            max_sequences: self.streams as usize,
            connections_max: self.streams as usize + 64,
            keep_alive: Duration::from_secs(600),
            truth_log: Some(truth.to_owned()),
            ..Config::default()
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &CalibrateArgs, global: &Global) -> Result<Exit, Failure> {
    let load = Load {
        streams: args.concurrency,
        itl: bounded("--itl-ms", args.itl_ms, 0.1, 10_000.0)?.div_f64(1e3),
        length: bounded("--seconds", args.seconds, 0.1, 3_600.0)?,
        threads: args.threads as usize,
    };
    let found = calibrate(load)?;
    for line in table(load, &found) {
        global.voice().say(&line);
    }
    let document = serde_json::to_value(found)
        .map_err(|error| Failure::world("CALIBRATION_FAILED", error.to_string()))?;
    output::print(&(pyjson::indented(&document) + "\n"))?;
    Ok(Exit::Done)
}

/// `value` seconds, within these limits.
fn bounded(option: &str, value: f64, least: f64, most: f64) -> Result<Duration, Failure> {
    if (least..=most).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    let message = format!("{option} must be within {least} and {most}, not `{value}`");
    Err(Failure::input("USAGE", message))
}

/// Measures the client's error at `load`.
pub(super) fn calibrate(load: Load) -> Result<Calibration, Failure> {
    let failed = |error: String| Failure::world("CALIBRATION_FAILED", error);
    let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let log = folder.path().join("truth.jsonl");
    let clock = RunClock::start();
    let outcome = stream(load, &log, clock.clone())?;
    let truth = fs::read_to_string(&log).map_err(|error| failed(error.to_string()))?;
    let truth = read_truth(&truth).map_err(|error| failed(error.to_string()))?;
    let start = clock.monotonic_start_ns();
    calibration(&outcome.records, &truth, start, load.streams)
        .map_err(|error| failed(error.to_string()))
}

/// Streams as a run would; the server has the runtime's only worker thread.
fn stream(load: Load, log: &Path, clock: RunClock) -> Result<NativeOutcome, Failure> {
    let runtime = runtime::build(Builder::new_multi_thread().worker_threads(1))?;
    check_descriptors(load.streams, descriptors::raise_limit())?;
    descriptors::make_room(2 * u64::from(load.streams));
    let server = runtime.block_on(Server::start(load.server(log), embedded_tokenizer()?))?;
    let config = NativeConfig {
        name_requests: true,
        threads: load.threads,
        ..NativeConfig::new(format!("{}/v1/completions", server.base_url()))
    };
    let requests = load.requests(&config);
    let plan = load.plan(requests.len());
    let driving = native::run(config, requests, plan, clock, Control::default(), None);
    let outcome = runtime.block_on(driving);
    runtime.block_on(server.shutdown());
    outcome.map_err(|error| Failure::world("DRIVER_FAILED", error.to_string()))
}

/// Both ends of each stream are open in this process.
fn check_descriptors(streams: u32, limit: Option<u64>) -> Result<(), Failure> {
    let needed = 2 * u64::from(streams) + descriptors::BESIDE;
    match limit {
        Some(limit) if limit < needed => {
            let message = format!(
                "{streams} streams with both their ends need {needed} open files; {limit} are allowed"
            );
            let hint = format!("raise the limit (`ulimit -Hn {needed}`) or take fewer streams");
            Err(Failure::world("TOO_FEW_DESCRIPTORS", message).hint(hint))
        }
        _ => Ok(()),
    }
}

/// A row of the server's log, as far as it is looked at.
#[derive(Deserialize)]
struct TruthRow {
    rid: Option<String>,
    recv_ns: u64,
    sends_ns: Vec<u64>,
}

fn read_truth(text: &str) -> serde_json::Result<BTreeMap<String, ServerTruth>> {
    let mut truth = BTreeMap::new();
    for line in text.lines() {
        let row: TruthRow = serde_json::from_str(line)?;
        if let Some(name) = row.rid {
            let known = ServerTruth {
                received_ns: row.recv_ns,
                sends_ns: row.sends_ns,
            };
            truth.insert(name, known);
        }
    }
    Ok(truth)
}

/// What was found, for people.
pub(super) fn table(load: Load, found: &Calibration) -> Vec<String> {
    let source = match found.timestamp_source {
        TimestampSource::Kernel => "by the kernel at arrival",
        TimestampSource::Read => "at the return of the read",
    };
    let row = |name: &str, bias: f64, p99: f64| format!("  {name:<5} {bias:>10.1} {p99:>14.1}");
    let mut lines = vec![
        format!(
            "calibration: {} streams, {:.0} chunks/s, stamps {source}",
            found.streams, found.chunks_per_second
        ),
        format!("  {:<5} {:>10} {:>14}", "", "bias µs", "p99 error µs"),
        row("TTFT", found.ttft_bias_us, found.ttft_p99_error_us),
        row("ITL", found.itl_bias_us, found.itl_p99_error_us),
        format!(
            "  from the server's write to the stamp: {:.1} µs median, {:.1} µs p99; {} requests, {} gaps",
            found.chunk_delay_p50_us, found.chunk_delay_p99_us, found.requests, found.gaps
        ),
    ];
    if found.left_out > 0 {
        lines.push(format!(
            "  {} requests failed and are left out",
            found.left_out
        ));
    }
    let asked = load.chunks_per_second();
    if found.chunks_per_second < asked * KEPT_PACE_MIN {
        lines.push(format!(
            "  warning: {asked:.0} chunks/s were asked for; this machine cannot keep the pace, \
             and the server's own delays are in the figures"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(streams: u32, itl_ms: u64, seconds: u64) -> Load {
        Load {
            streams,
            itl: Duration::from_millis(itl_ms),
            length: Duration::from_secs(seconds),
            threads: 1,
        }
    }

    #[test]
    fn requests_fill_the_time_and_the_first_of_each_stream_does_not_count() {
        let ten = load(32, 10, 5);
        assert_eq!(ten.chunks(), 100);
        assert_eq!(ten.request(), Duration::from_millis(1_010));
        assert_eq!(ten.rounds(), 5);
        let plan = ten.plan(160);
        assert_eq!((plan.warmup_requests, plan.planned_requests), (32, 160));
        // Slow streams and short times still leave a measured round.
        let slow = load(1, 2_000, 1);
        assert_eq!((slow.chunks(), slow.rounds()), (8, 2));
        // All streams are open before the first one ends.
        let Pace::Closed { ramp, .. } = ten.plan(160).stages[0].pace.clone() else {
            panic!("a closed loop");
        };
        assert!(ramp < ten.request());
    }

    #[test]
    fn every_stream_is_compared_with_what_the_server_sent() {
        let found = calibrate(Load {
            length: Duration::from_millis(100),
            ..load(3, 2, 0)
        })
        .unwrap();
        // Two rounds of 500 chunks; the first opens the streams.
        assert_eq!((found.requests, found.left_out), (3, 0));
        assert_eq!(found.gaps, 3 * 499);
        assert_eq!(found.streams, 3);
        // A client cannot stamp a chunk before it was sent, nor know the first
        // token before the request had been on its way.
        assert!(found.ttft_bias_us > 0.0, "{found:?}");
        assert!(found.chunk_delay_p50_us > 0.0, "{found:?}");
        assert!(found.chunks_per_second > 0.0);
    }

    #[test]
    fn a_machine_that_cannot_keep_the_pace_is_told_on() {
        let asked = load(10, 10, 5);
        assert!((asked.chunks_per_second() - 1_000.0 / 1.010).abs() < 1e-9);
        let found = |chunks_per_second| Calibration {
            streams: 10,
            chunks_per_second,
            timestamp_source: TimestampSource::Kernel,
            requests: 40,
            left_out: 0,
            gaps: 3_960,
            ttft_bias_us: 90.0,
            ttft_p99_error_us: 300.0,
            itl_bias_us: 0.0,
            itl_p99_error_us: 12.0,
            chunk_delay_p50_us: 20.0,
            chunk_delay_p99_us: 60.0,
        };
        let kept = table(asked, &found(900.0)).join("\n");
        assert!(!kept.contains("warning"), "{kept}");
        assert!(kept.contains("10 streams, 900 chunks/s, stamps by the kernel"));
        let lost = table(asked, &found(400.0)).join("\n");
        assert!(
            lost.contains("warning: 990 chunks/s were asked for"),
            "{lost}"
        );
    }

    #[test]
    fn streams_need_two_descriptors_each() {
        check_descriptors(100, Some(264)).unwrap();
        check_descriptors(100, None).unwrap();
        let failure = check_descriptors(100, Some(263)).unwrap_err();
        assert_eq!(failure.lines[0].code, "TOO_FEW_DESCRIPTORS");
    }

    #[test]
    fn options_out_of_range_are_refused() {
        assert!(bounded("--itl-ms", 0.0, 0.1, 10.0).is_err());
        assert!(bounded("--itl-ms", f64::NAN, 0.1, 10.0).is_err());
        assert_eq!(
            bounded("--seconds", 0.5, 0.1, 10.0).unwrap(),
            Duration::from_millis(500)
        );
    }
}
