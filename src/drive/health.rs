//! Whether the client kept up: its own delays, its share of the processor. It
//! measures and refuses to judge.
#![allow(clippy::disallowed_methods, reason = "edge: timers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};

use super::pacing::Timer;
use crate::measure::{LiveHistogram, RequestRecord};
use crate::service::client::ClientCounts;
use crate::service::clock::RunClock;
use crate::units::{RunOffset, ratio};

/// Distance of two looks at a runtime's lag.
const TICK: Duration = Duration::from_millis(1);

/// A distribution of delays. Quantiles are known within 6.25 %, the maximum
/// exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lag {
    /// Number of samples.
    pub count: u64,
    /// Median, microseconds; `None` without samples.
    pub p50_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// 99.9th percentile, microseconds.
    pub p999_us: Option<f64>,
    /// Largest, microseconds.
    pub max_us: Option<f64>,
}

impl Lag {
    /// The distribution in `histogram`, which counts nanoseconds.
    pub fn of(histogram: &LiveHistogram) -> Self {
        let quantile = |q| histogram.quantile(q).map(|ns| ns as f64 / 1e3);
        Self {
            count: histogram.count(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: quantile(1.0),
        }
    }
}

/// What the client can say against its own numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientHealth {
    /// Threads that read streams.
    pub threads: usize,
    /// From the moment nothing held a request (schedule, lane, slot) to its
    /// sending.
    pub send_lag: Lag,
    /// Lateness of a 1 ms ticker on each reading thread.
    pub runtime_lag: Lag,
    /// From the kernel's receive time to the task's read; without samples where
    /// stamps are taken by the task.
    pub own_lag: Lag,
    /// Processor time of the whole process during the run, user, seconds.
    pub cpu_user_seconds: f64,
    /// The same, system.
    pub cpu_system_seconds: f64,
    /// Length of the run in seconds.
    pub wall_seconds: f64,
    /// Processor time over wall time and threads; may exceed 1 where other
    /// threads work too.
    pub cpu_share: f64,
    /// Content-bearing chunks received.
    pub chunks: u64,
    /// Of them, those that shared a read with an earlier one of their stream,
    /// 0..=1; `None` without chunks.
    pub coalesced_share: Option<f64>,
    /// Connections opened.
    pub connections: u64,
    /// Requests the server may have seen.
    pub posts: u64,
    /// Idle connections found closed before use.
    pub stale_connections: u64,
}

/// What a load took of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub(super) wall_seconds: f64,
    /// User and system.
    pub(super) cpu_seconds: (f64, f64),
    pub(super) threads: usize,
}

impl ClientHealth {
    /// The health of a client with these records; lags of sending, of the
    /// runtime, and its own.
    pub(super) fn of(
        records: &[RequestRecord],
        took: Took,
        [send_lag, runtime_lag, own_lag]: [Lag; 3],
        counts: &ClientCounts,
    ) -> Self {
        let sum = |of: fn(&RequestRecord) -> u64| records.iter().map(of).sum::<u64>();
        let chunks = sum(|record| record.content_ns.len() as u64);
        let coalesced = sum(|record| u64::from(record.coalesced_events));
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (user, system) = took.cpu_seconds;
        let available = took.wall_seconds * took.threads as f64;
        Self {
            threads: took.threads,
            send_lag,
            runtime_lag,
            own_lag,
            cpu_user_seconds: user,
            cpu_system_seconds: system,
            wall_seconds: took.wall_seconds,
            cpu_share: if available > 0.0 {
                (user + system) / available
            } else {
                0.0
            },
            chunks,
            coalesced_share: ratio(coalesced, chunks),
            connections: count(&counts.connections),
            posts: count(&counts.posts),
            stale_connections: count(&counts.stale),
        }
    }
}

/// Processor time of the process so far: user and system, seconds.
pub(super) fn cpu_seconds() -> (f64, f64) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return (0.0, 0.0);
    };
    let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
    (seconds(usage.user_time()), seconds(usage.system_time()))
}

/// Records the lateness of a 1 ms ticker, until dropped.
pub(super) async fn watch_runtime(clock: RunClock, mut timer: Timer, lag: Arc<LiveHistogram>) {
    let tick = RunOffset::from_duration(TICK).nanos();
    let mut due = clock.now().nanos() + tick;
    loop {
        timer.until(&clock, RunOffset(due)).await;
        let now = clock.now().nanos();
        lag.record(now.saturating_sub(due));
        // Ticks missed meanwhile are one delay, not many.
        due = now + tick - (now - due.min(now)) % tick;
    }
}
