//! Samples of the KV cache's level while the load runs. A scrape is rendered by
//! the process that streams the tokens, so it must cost little: one at a time,
//! missed ticks skipped and not made up for, its own connection, a bounded
//! body, and its duration recorded beside the sample.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: samples by the clock, over the network"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::{RankSnapshot, Snapshot};
use crate::service::control::ControlClient;
use crate::service::control_error::ControlError;
use crate::units::DpRank;

/// Samples that are kept: a week at one a second. Later ones are counted only.
pub const KV_SAMPLES_MAX: usize = 604_800;

/// Shortest and longest interval that is kept to.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);

/// Ticks of the shortest interval in a month.
const TICKS_MAX: u32 = 2_678_400_000;

/// One rank at the moment of a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct KvRank {
    /// Share of the KV pool in use, 0..=1.
    pub kv_cache_usage: Option<f64>,
    /// Requests running.
    pub requests_running: Option<u64>,
    /// Requests waiting.
    pub requests_waiting: Option<u64>,
    /// Requests preempted since the server's start.
    pub preemptions: Option<u64>,
}

impl From<&RankSnapshot> for KvRank {
    fn from(rank: &RankSnapshot) -> Self {
        Self {
            kv_cache_usage: rank.kv_cache_usage,
            requests_running: rank.requests_running,
            requests_waiting: rank.requests_waiting,
            preemptions: rank.preemptions,
        }
    }
}

/// One scrape under load.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct KvSample {
    /// From the origin to the start of the scrape.
    pub elapsed_seconds: f64,
    /// From the start of the scrape to the end of the page.
    pub duration_seconds: f64,
    /// Each rank.
    pub by_dp: BTreeMap<DpRank, KvRank>,
}

impl KvSample {
    /// The level of each rank that has one.
    pub fn usage_by_dp(&self) -> BTreeMap<DpRank, f64> {
        self.by_dp
            .iter()
            .filter_map(|(rank, one)| Some((*rank, one.kv_cache_usage?)))
            .collect()
    }
}

/// All samples of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KvSamples {
    /// The interval asked for; 0 for none.
    pub interval_seconds: f64,
    /// In the order of time.
    pub samples: Vec<KvSample>,
    /// Scrapes that gave no sample.
    pub poll_failures: u64,
    /// The same by code.
    pub failure_codes: BTreeMap<&'static str, u64>,
    /// Ticks that passed while a scrape was still on its way.
    pub skipped_ticks: u64,
    /// Samples over [`KV_SAMPLES_MAX`].
    pub dropped_samples: u64,
}

/// Level of one rank over a run, 0..=1; `None` where no sample had it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KvRankSummary {
    /// Largest.
    pub peak: Option<f64>,
    /// Mean of the samples.
    pub avg: Option<f64>,
    /// Mean over time: the level between two samples is taken as their mean.
    pub time_weighted_avg: Option<f64>,
    /// Samples that had it.
    pub sample_count: u64,
}

/// Levels over a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KvSummary {
    /// Samples.
    pub count: u64,
    /// Each rank.
    pub by_dp: BTreeMap<DpRank, KvRankSummary>,
    /// Over all ranks.
    #[serde(flatten)]
    pub global: KvGlobal,
}

/// Levels over all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KvGlobal {
    /// Largest of any rank.
    pub global_peak: Option<f64>,
    /// Mean over the samples of all ranks.
    pub global_avg: Option<f64>,
    /// Mean of the ranks' means over time.
    pub global_time_weighted_avg: Option<f64>,
}

impl KvSamples {
    /// Peak and means, per rank and over all.
    pub fn summary(&self) -> KvSummary {
        let mut levels: BTreeMap<DpRank, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in &self.samples {
            for (rank, level) in sample.usage_by_dp() {
                let levels = levels.entry(rank).or_default();
                levels.push((sample.elapsed_seconds, level));
            }
        }
        let all: Vec<f64> = levels.values().flatten().map(|(_, level)| *level).collect();
        let by_dp: BTreeMap<DpRank, KvRankSummary> = levels
            .iter()
            .map(|(rank, levels)| (*rank, rank_summary(levels)))
            .collect();
        let over_time: Vec<f64> = by_dp
            .values()
            .filter_map(|one| one.time_weighted_avg)
            .collect();
        KvSummary {
            count: self.samples.len() as u64,
            global: KvGlobal {
                global_peak: peak(&all),
                global_avg: mean(&all),
                global_time_weighted_avg: mean(&over_time),
            },
            by_dp,
        }
    }
}

fn rank_summary(levels: &[(f64, f64)]) -> KvRankSummary {
    let values: Vec<f64> = levels.iter().map(|(_, level)| *level).collect();
    KvRankSummary {
        peak: peak(&values),
        avg: mean(&values),
        time_weighted_avg: over_time(levels).or_else(|| mean(&values)),
        sample_count: values.len() as u64,
    }
}

fn peak(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Trapezoids between neighbours, over the time they span.
fn over_time(levels: &[(f64, f64)]) -> Option<f64> {
    let span = levels.last()?.0 - levels.first()?.0;
    let area: f64 = levels
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0) * f64::midpoint(pair[0].1, pair[1].1))
        .sum();
    (span > 0.0).then(|| area / span)
}

/// Polls in its own task until it is stopped.
#[derive(Debug)]
pub struct KvPoller {
    task: JoinSet<KvSamples>,
    cancel: CancellationToken,
}

impl KvPoller {
    /// Begins with a sample at once, then one each `interval` after `origin`'s
    /// clock; an interval of 0 takes none.
    pub fn start(client: ControlClient, interval: Duration, origin: Instant) -> Self {
        let cancel = CancellationToken::new();
        let mut task = JoinSet::new();
        if !interval.is_zero() {
            let cancel = cancel.clone();
            task.spawn(async move {
                let scrape = || async { client.scrape().await.map(|scrape| scrape.snapshot) };
                poll(interval, origin, &cancel, scrape).await
            });
        }
        Self { task, cancel }
    }

    /// Stops (a scrape on its way is given up) and returns the samples.
    pub async fn stop(mut self) -> KvSamples {
        self.cancel.cancel();
        match self.task.join_next().await {
            Some(Ok(samples)) => samples,
            // Without a task there was no interval; a task that died is a bug
            // that costs the samples, not the run.
            Some(Err(_)) | None => KvSamples::default(),
        }
    }
}

/// Takes a sample at once and then at each tick, until `cancel`.
pub async fn poll<S, F>(
    interval: Duration,
    origin: Instant,
    cancel: &CancellationToken,
    mut scrape: S,
) -> KvSamples
where
    S: FnMut() -> F,
    F: Future<Output = Result<Snapshot, ControlError>>,
{
    let mut samples = KvSamples {
        interval_seconds: interval.as_secs_f64(),
        ..KvSamples::default()
    };
    let interval = interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
    let begun = Instant::now();
    let mut tick: u32 = 0;
    loop {
        let started = Instant::now();
        let scraped = tokio::select! {
            biased;
            () = cancel.cancelled() => return samples,
            scraped = scrape() => scraped,
        };
        samples.add(started.duration_since(origin), started.elapsed(), scraped);
        // Not `tokio::time::interval`: it fires at once after a missed tick, so
        // that an endpoint slower than the interval would be asked without rest.
        let next = next_tick(begun.elapsed(), interval, tick.min(TICKS_MAX));
        samples.skipped_ticks += u64::from(next.saturating_sub(tick + 1));
        tick = next;
        tokio::select! {
            biased;
            () = cancel.cancelled() => return samples,
            () = tokio::time::sleep_until(begun + interval * tick) => {}
        }
    }
}

/// The first tick after `tick` that lies in the future.
fn next_tick(elapsed: Duration, interval: Duration, tick: u32) -> u32 {
    let passed = elapsed.as_nanos() / interval.as_nanos().max(1);
    u32::try_from(passed)
        .unwrap_or(TICKS_MAX)
        .clamp(tick, TICKS_MAX)
        + 1
}

impl KvSamples {
    fn add(
        &mut self,
        elapsed: Duration,
        duration: Duration,
        scraped: Result<Snapshot, ControlError>,
    ) {
        match scraped {
            Ok(_) if self.samples.len() >= KV_SAMPLES_MAX => self.dropped_samples += 1,
            Ok(snapshot) => self.samples.push(KvSample {
                elapsed_seconds: elapsed.as_secs_f64(),
                duration_seconds: duration.as_secs_f64(),
                by_dp: snapshot
                    .ranks
                    .iter()
                    .map(|(rank, one)| (*rank, KvRank::from(one)))
                    .collect(),
            }),
            Err(error) => {
                self.poll_failures += 1;
                *self.failure_codes.entry(error.code()).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn snapshot(usage: f64) -> Snapshot {
        let rank = RankSnapshot {
            kv_cache_usage: Some(usage),
            ..RankSnapshot::default()
        };
        Snapshot {
            ranks: [(DpRank(0), rank)].into(),
            ..Snapshot::default()
        }
    }

    fn unavailable() -> ControlError {
        ControlError::Status {
            url: "http://127.0.0.1/metrics".to_owned(),
            status: 503,
            message: String::new(),
        }
    }

    /// ROCm/ATOM#2186, anthony-chaudhary/fak#12762: an interval of 1 s, a first
    /// answer after 3.2 s, then 503 twice, then ordinary ones; 12 s in all.
    #[tokio::test(start_paused = true)]
    async fn a_slow_scrape_is_never_joined_by_a_second_one() {
        let (in_flight, calls) = (Cell::new(0), Cell::new(0));
        let cancel = CancellationToken::new();
        let scrape = || async {
            in_flight.set(in_flight.get() + 1);
            assert_eq!(in_flight.get(), 1);
            calls.set(calls.get() + 1);
            let result = match calls.get() {
                1 => {
                    tokio::time::sleep(Duration::from_millis(3_200)).await;
                    Ok(snapshot(0.5))
                }
                2 | 3 => Err(unavailable()),
                _ => Ok(snapshot(0.1)),
            };
            in_flight.set(in_flight.get() - 1);
            result
        };
        let polling = poll(Duration::from_secs(1), Instant::now(), &cancel, scrape);
        let stop = async {
            tokio::time::sleep(Duration::from_millis(11_999)).await;
            cancel.cancel();
        };
        let (samples, ()) = tokio::join!(polling, stop);
        let at: Vec<f64> = samples
            .samples
            .iter()
            .map(|one| one.elapsed_seconds)
            .collect();
        assert_eq!(at, [0.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
        let duration = samples.samples[0].duration_seconds;
        assert!((duration - 3.2).abs() < 1e-9, "{duration}");
        assert_eq!(samples.poll_failures, 2);
        assert_eq!(samples.failure_codes["SERVICE_REFUSED"], 2);
        assert_eq!(samples.skipped_ticks, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_does_not_wait_for_a_scrape() {
        let cancel = CancellationToken::new();
        let started = Instant::now();
        let never = || std::future::pending::<Result<Snapshot, ControlError>>();
        let polling = poll(Duration::from_secs(1), started, &cancel, never);
        let stop = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            cancel.cancel();
        };
        let (samples, ()) = tokio::join!(polling, stop);
        assert_eq!(started.elapsed(), Duration::from_secs(2));
        assert!(samples.samples.is_empty());
    }

    #[test]
    fn means_over_time_weigh_each_level_by_how_long_it_lasted() {
        let sample = |elapsed_seconds: f64, levels: &[Option<f64>]| KvSample {
            elapsed_seconds,
            duration_seconds: 0.01,
            by_dp: (0..)
                .map(DpRank)
                .zip(levels.iter().map(|level| KvRank {
                    kv_cache_usage: *level,
                    ..KvRank::default()
                }))
                .collect(),
        };
        let samples = KvSamples {
            samples: vec![
                sample(0.0, &[Some(0.0), None]),
                sample(1.0, &[Some(0.8), None]),
                sample(9.0, &[Some(0.8), Some(0.2)]),
            ],
            ..KvSamples::default()
        };
        let summary = samples.summary();
        let rank = &summary.by_dp[&DpRank(0)];
        // (1 s at 0.4 + 8 s at 0.8) / 9 s.
        assert!((rank.time_weighted_avg.unwrap() - 6.8 / 9.0).abs() < 1e-12);
        assert!((rank.avg.unwrap() - 1.6 / 3.0).abs() < 1e-12);
        assert_eq!((rank.peak, rank.sample_count), (Some(0.8), 3));
        let other = &summary.by_dp[&DpRank(1)];
        assert_eq!((other.avg, other.time_weighted_avg), (Some(0.2), Some(0.2)));
        assert_eq!(other.sample_count, 1);
        assert_eq!(summary.global.global_peak, Some(0.8));
        assert!((summary.global.global_avg.unwrap() - 1.8 / 4.0).abs() < 1e-12);
        let empty = KvSamples::default().summary();
        assert_eq!(empty.global, KvGlobal::default());
    }
}
