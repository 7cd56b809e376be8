//! Figures of one run: cost per chunk, errors against the mock's log.

use std::collections::BTreeMap;

use pcload::drive::native::NativeOutcome;
use pcload::measure::{Outcome, RequestRecord};
use serde::Serialize;

use crate::mock::Truth;

/// Quantiles of a series, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spread {
    /// Samples.
    pub count: usize,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
}

impl Spread {
    /// Nearest-rank quantiles of nanoseconds.
    pub fn of(mut nanos: Vec<f64>) -> Option<Self> {
        if nanos.is_empty() {
            return None;
        }
        nanos.sort_by(f64::total_cmp);
        let at = |q: f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an index of the series"
            )]
            let index = (q * (nanos.len() - 1) as f64).round() as usize;
            nanos[index] / 1e3
        };
        Some(Self {
            count: nanos.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
        })
    }
}

/// What one run has cost and how exact it was.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Content-bearing chunks received.
    pub chunks: u64,
    /// Failed requests.
    pub failed: usize,
    /// Chunks per second of wall time.
    pub chunks_per_second: f64,
    /// Processor seconds per million chunks, user and system, of the whole
    /// process: driver, journal and tickers.
    pub cpu_seconds_per_million: f64,
    /// Of them in user mode.
    pub user_seconds_per_million: f64,
    /// Growth of the resident set at its peak, KiB a stream.
    pub rss_kib_per_stream: f64,
    /// Connections opened.
    pub connections: u64,
    /// Client stamp minus the mock's stamp before its write, each chunk.
    pub chunk_delay_us: Option<Spread>,
    /// Absolute difference of a gap as the client and the mock saw it.
    pub itl_error_us: Option<Spread>,
    /// Time to first token minus the mock's own; holds the way to the mock.
    pub ttft_error_us: Option<Spread>,
    /// Task stamp minus kernel stamp: p50, p99 in µs.
    pub own_lag_us: (Option<f64>, Option<f64>),
    /// From due to sent, p50 and p99 in µs, from the records.
    pub send_lag_us: Option<Spread>,
}

/// Processor seconds and memory around a run.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// User seconds.
    pub user: f64,
    /// System seconds.
    pub system: f64,
    /// Growth of the resident set at its peak, KiB.
    pub rss_kib: f64,
}

/// Joins a run with the mock's log.
pub fn figures(
    outcome: &NativeOutcome,
    cost: Cost,
    streams: u32,
    truth: &BTreeMap<String, Truth>,
    clock_start_ns: u64,
) -> Figures {
    let chunks = outcome.health.chunks;
    let per_million = |seconds: f64| seconds / (chunks.max(1) as f64 / 1e6);
    let mut errors = Errors::default();
    for record in &outcome.records {
        if let Some(truth) = truth.get(&record.request_id) {
            errors.add(record, truth, clock_start_ns);
        }
    }
    let is_failure = |record: &&RequestRecord| record.outcome != Outcome::Success;
    let lag = |record: &RequestRecord| {
        record
            .t_send_ns
            .nanos()
            .saturating_sub(record.t_ready_ns.nanos()) as f64
    };
    Figures {
        chunks,
        failed: outcome.records.iter().filter(is_failure).count(),
        chunks_per_second: chunks as f64 / outcome.health.wall_seconds,
        cpu_seconds_per_million: per_million(cost.user + cost.system),
        user_seconds_per_million: per_million(cost.user),
        rss_kib_per_stream: cost.rss_kib / f64::from(streams),
        connections: outcome.health.connections,
        chunk_delay_us: Spread::of(errors.delays),
        itl_error_us: Spread::of(errors.gaps),
        ttft_error_us: Spread::of(errors.firsts),
        own_lag_us: (outcome.health.own_lag.p50_us, outcome.health.own_lag.p99_us),
        send_lag_us: Spread::of(outcome.records.iter().map(lag).collect()),
    }
}

#[derive(Default)]
struct Errors {
    delays: Vec<f64>,
    gaps: Vec<f64>,
    firsts: Vec<f64>,
}

impl Errors {
    fn add(&mut self, record: &RequestRecord, truth: &Truth, clock_start_ns: u64) {
        let stamps: Vec<f64> = record
            .content_ns
            .iter()
            .map(|at| (at.nanos() + clock_start_ns) as f64)
            .collect();
        let sends: Vec<f64> = truth.sends_ns.iter().map(|at| *at as f64).collect();
        if stamps.len() == sends.len() {
            self.delays
                .extend(stamps.iter().zip(&sends).map(|(at, sent)| at - sent));
            let pairs = stamps.windows(2).zip(sends.windows(2));
            self.gaps.extend(
                pairs.map(|(seen, sent)| ((seen[1] - seen[0]) - (sent[1] - sent[0])).abs()),
            );
        }
        if let Some(first) = stamps.first() {
            let seen = first - (record.t_send_ns.nanos() + clock_start_ns) as f64;
            let own = (truth.first_send_ns - truth.recv_ns) as f64;
            self.firsts.push(seen - own);
        }
    }
}
