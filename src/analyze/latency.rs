//! Latency statistics over the requests that count: successes of the measure
//! phase. Samples are exact; only inter-token gaps may have gone through a
//! histogram, and then its error is stated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gaps::PooledGaps;
use super::inputs::Inputs;
use super::rows::Row;
use crate::measure::{Derived, TimestampSource};
use crate::rng::Seed;
use crate::stats::{
    INDICATIVE_BELOW, Interval, Percent, Summary, percentile_intervals, summarize, sums_interval,
};

/// A summary with its uncertainty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The statistics, in the unit of the field that holds them.
    #[serde(flatten)]
    pub summary: Summary,
    /// 95 % intervals; absent below two samples.
    pub interval: Option<MetricIntervals>,
}

/// 95 % intervals by moving-block bootstrap in send order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricIntervals {
    /// Of the mean.
    pub mean: Interval,
    /// Of the median.
    pub p50: Interval,
    /// Of the 99th percentile.
    pub p99: Interval,
    /// They rest on fewer than 100 requests.
    pub indicative: bool,
}

/// How inter-token gaps were summarized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItlMethod {
    /// From all samples.
    Exact,
    /// From a histogram; count, mean, std, min and max are exact all the same.
    Histogram,
}

/// Pooled gaps between content-bearing chunks, ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ItlSummary {
    /// The statistics, ms.
    #[serde(flatten)]
    pub summary: Summary,
    /// How they were made.
    pub method: ItlMethod,
    /// Largest relative error of a percentile; 0 when exact.
    pub relative_error_max: f64,
    /// Smallest difference kept apart, ms; 0 when exact.
    pub resolution_ms: f64,
}

/// All latencies; everything in milliseconds unless its name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyReport {
    /// Requests that count.
    pub requests: u64,
    /// Where the stamps come from; absent without requests.
    pub timestamp_source: Option<TimestampSourceName>,
    /// Content chunks that shared a read with an earlier one.
    pub coalesced_events: u64,
    /// Their share of all content chunks, 0..=1.
    pub coalesced_ratio: Option<f64>,
    /// Send to first content.
    pub ttft_ms: Metric,
    /// Send to first choice, where it differs from TTFT anywhere.
    pub first_choice_ms: Option<Summary>,
    /// First to second content.
    pub second_token_ms: Summary,
    /// (E2EL − TTFT) / (output tokens − 1).
    pub tpot_ms: Metric,
    /// Gaps between content chunks, pooled over requests.
    pub itl_ms: ItlSummary,
    /// Send to last choice.
    pub e2el_ms: Metric,
    /// Scheduled to first content.
    pub ttft_from_schedule_ms: Summary,
    /// Scheduled to last choice.
    pub e2el_from_schedule_ms: Summary,
    /// Scheduled to first send.
    pub queue_delay_ms: Summary,
    /// Of it, held by the lane.
    pub lane_wait_ms: Summary,
    /// Of it, held by nothing but the client.
    pub send_lag_ms: Summary,
    /// Send to the end of the stream.
    pub stream_close_ms: Summary,
    /// Output tokens for each content chunk.
    pub tokens_per_chunk: Summary,
    /// Wasted on attempts that failed; requests without retries are not in it.
    pub retry_wasted_ms: Summary,
}

/// [`TimestampSource`] as the analysis spells it; `mixed` when both occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimestampSourceName {
    /// The kernel's receive time.
    Kernel,
    /// The return of the read.
    Read,
    /// Some of each.
    Mixed,
}

/// Latencies of the rows at `order`, which count and stand in send order.
pub(super) fn latency(
    inputs: &Inputs<'_>,
    rows: &[Row<'_>],
    order: &[usize],
    pooled: &PooledGaps,
) -> LatencyReport {
    let table = Table {
        rows,
        order,
        extra: inputs.percentiles,
    };
    let coalesced = table.sum(|row| {
        row.record
            .map_or(0, |record| u64::from(record.coalesced_events))
    });
    let chunks = table.sum(|row| row.derived.as_ref().map_or(0, |derived| derived.chunks));
    let metric = |name, pick: fn(&Derived) -> Option<f64>| {
        metric_of(&table.samples(pick), inputs.percentiles, inputs.seed, name)
    };
    LatencyReport {
        requests: order.len() as u64,
        timestamp_source: table.timestamp_source(),
        coalesced_events: coalesced,
        coalesced_ratio: crate::units::ratio(coalesced, chunks),
        ttft_ms: metric("ttft_ms", |derived| derived.ttft_ms),
        first_choice_ms: table.first_choice(),
        second_token_ms: table.summary(|derived| derived.second_token_ms),
        tpot_ms: metric("tpot_ms", |derived| derived.tpot_ms),
        itl_ms: pooled.summary(inputs.percentiles),
        e2el_ms: metric("e2el_ms", |derived| derived.e2el_ms),
        ttft_from_schedule_ms: table.summary(|derived| derived.ttft_from_schedule_ms),
        e2el_from_schedule_ms: table.summary(|derived| derived.e2el_from_schedule_ms),
        queue_delay_ms: table.summary(|derived| Some(derived.queue_delay_ms)),
        lane_wait_ms: table.summary(|derived| Some(derived.lane_wait_ms)),
        send_lag_ms: table.summary(|derived| Some(derived.send_lag_ms)),
        stream_close_ms: table.summary(|derived| derived.stream_close_ms),
        tokens_per_chunk: table.summary(|derived| derived.tokens_per_chunk),
        retry_wasted_ms: table
            .summary(|derived| (derived.attempts > 1).then_some(derived.retry_wasted_ms)),
    }
}

/// The requests that count, and what can be asked of all of them.
pub(super) struct Table<'a> {
    pub(super) rows: &'a [Row<'a>],
    pub(super) order: &'a [usize],
    pub(super) extra: &'a [Percent],
}

impl<'a> Table<'a> {
    fn each(&self) -> impl Iterator<Item = &'a Row<'a>> {
        let rows = self.rows;
        self.order.iter().map(move |&index| &rows[index])
    }

    pub(super) fn samples(&self, pick: fn(&Derived) -> Option<f64>) -> Vec<f64> {
        self.each()
            .filter_map(|row| row.derived.as_ref().and_then(pick))
            .collect()
    }

    pub(super) fn summary(&self, pick: fn(&Derived) -> Option<f64>) -> Summary {
        summarize(&self.samples(pick), self.extra)
    }

    fn sum(&self, pick: fn(&Row<'_>) -> u64) -> u64 {
        self.each().map(pick).sum()
    }

    fn timestamp_source(&self) -> Option<TimestampSourceName> {
        let sources =
            self.each()
                .filter_map(|row| row.record)
                .map(|record| match record.timestamp_source {
                    TimestampSource::Kernel => TimestampSourceName::Kernel,
                    TimestampSource::Read => TimestampSourceName::Read,
                });
        sources.reduce(|all, one| {
            if all == one {
                all
            } else {
                TimestampSourceName::Mixed
            }
        })
    }

    fn first_choice(&self) -> Option<Summary> {
        let differs = self
            .each()
            .filter_map(|row| row.derived.as_ref())
            .any(|derived| {
                derived.first_choice_ms.is_some() && derived.first_choice_ms != derived.ttft_ms
            });
        differs.then(|| self.summary(|derived| derived.first_choice_ms))
    }
}

/// A summary with intervals; `samples` stand in send order.
fn metric_of(samples: &[f64], extra: &[Percent], seed: &Seed, name: &str) -> Metric {
    Metric {
        summary: summarize(samples, extra),
        interval: intervals(samples, seed, name),
    }
}

fn intervals(samples: &[f64], seed: &Seed, name: &str) -> Option<MetricIntervals> {
    let mut stream = seed.stream(&format!("bootstrap/{name}"));
    let rows: Vec<[f64; 2]> = samples.iter().map(|&sample| [sample, 1.0]).collect();
    let mean = sums_interval(
        &rows,
        |[sum, count]| (count > 0.0).then(|| sum / count),
        &mut stream,
    )?;
    let percents = [Percent::new(50.0)?, Percent::new(99.0)?];
    let [p50, p99] = percentile_intervals(samples, percents, &mut stream);
    Some(MetricIntervals {
        mean,
        p50: p50?,
        p99: p99?,
        indicative: samples.len() < INDICATIVE_BELOW,
    })
}
