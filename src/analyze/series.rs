//! Series for charts, thinned so that a long run needs no more room than a short
//! one: a reader sees the shape, the records hold the points.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::account::RowTheory;
use super::executed::send_order;
use super::gaps::PooledGaps;
use super::inputs::{Inputs, KvFacts, Lane};
use super::rows::Row;
use super::throughput::{in_flight, measured, span, token_stamps};
use super::worth::point;
use crate::measure::{Derived, RequestRecord, gaps};
use crate::stats::{Percent, percentile, percentile_of_sorted};
use crate::theory::ServerView;
use crate::units::{DpRank, RunOffset, ratio};

const CUMULATIVE_MAX: usize = 400;
const POINTS_MAX: usize = 800;
const BINS_MAX: u64 = 240;
const KV_POINTS_MAX: usize = 300;
const LANES_MAX: usize = 40;
const SPANS_MAX: usize = 2_000;
const CURVE_PERCENTS: [f64; 24] = [
    0.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.0,
    98.0, 99.0, 99.5, 99.8, 99.9, 99.95, 99.99, 100.0,
];

/// All series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChartSeries {
    /// Hit rates over everything sent so far.
    pub cumulative: Vec<CumulativePoint>,
    /// `[uncached tokens, TTFT ms]`, every so-many-th request.
    pub ttft_by_uncached: Vec<[f64; 2]>,
    /// Percentile curves.
    pub curves: Vec<PercentileCurve>,
    /// The run in equal slices of time.
    pub slices: Vec<TimeSlice>,
    /// KV use by rank.
    pub kv: Vec<KvSeries>,
    /// When each lane's requests ran.
    pub lanes: Vec<LaneSeries>,
    /// Lanes that are not shown.
    pub lanes_left_out: u64,
}

/// Rates over the first requests in send order, 0..=1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CumulativePoint {
    /// How many requests.
    pub requests: u64,
    /// Planned theory in the server's view.
    pub planned: Option<f64>,
    /// Executed theory.
    pub executed: Option<f64>,
    /// By usage.
    pub actual: Option<f64>,
}

/// One latency over percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PercentileCurve {
    /// Which latency.
    pub metric: String,
    /// `[percent, ms]`, ascending.
    pub points: Vec<[f64; 2]>,
}

/// What happened in one slice of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSlice {
    /// Its start, seconds since the first send.
    pub start_s: f64,
    /// Its width, seconds.
    pub width_s: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests that ended well.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Median TTFT of requests whose first token came in it, ms.
    pub ttft_p50_ms: Option<f64>,
    /// 99th percentile of the same, ms.
    pub ttft_p99_ms: Option<f64>,
    /// Mean gap between chunks that arrived in it, ms.
    pub itl_mean_ms: Option<f64>,
    /// Output tokens a second.
    pub output_tokens_per_second: f64,
    /// Average in flight.
    pub in_flight: f64,
    /// Mean queue delay of requests sent in it, ms.
    pub queue_delay_mean_ms: Option<f64>,
}

/// KV use of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KvSeries {
    /// Its rank.
    pub rank: u32,
    /// `[seconds since the start of the run, share]`, peaks kept.
    pub points: Vec<[f64; 2]>,
}

/// The requests of one lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LaneSeries {
    /// Its group.
    pub group: String,
    /// Its rank.
    pub rank: Option<u32>,
    /// `[start s, end s, cached share or −1]`, every so-many-th request.
    pub spans: Vec<[f64; 3]>,
}

pub(super) fn series(
    inputs: &Inputs<'_>,
    view: ServerView,
    rows: &[Row<'_>],
    theory: &RowTheory,
    order: &[usize],
    pooled: &PooledGaps,
) -> ChartSeries {
    let (lanes, lanes_left_out) = lanes(rows);
    ChartSeries {
        cumulative: cumulative(view, rows, theory),
        ttft_by_uncached: thin(order, POINTS_MAX)
            .filter_map(|index| point(&rows[index]))
            .map(|point| [point.uncached as f64, point.ttft_ms])
            .collect(),
        curves: curves(rows, order, pooled),
        slices: slices(rows),
        kv: kv(inputs.kv),
        lanes,
        lanes_left_out,
    }
}

/// At most `most` of the indexes, evenly spread.
fn thin(order: &[usize], most: usize) -> impl Iterator<Item = usize> + '_ {
    let step = order.len().div_ceil(most).max(1);
    order.iter().copied().step_by(step)
}

fn cumulative(view: ServerView, rows: &[Row<'_>], theory: &RowTheory) -> Vec<CumulativePoint> {
    let order = send_order(rows);
    let step = order.len().div_ceil(CUMULATIVE_MAX).max(1);
    let (mut prompt, mut planned, mut executed) = (0, 0, 0);
    let (mut usage_prompt, mut cached) = (0, 0);
    let mut points = Vec::new();
    for (place, index) in (1_u64..).zip(&order) {
        let row = &rows[*index];
        prompt += row.planned.prompt_tokens(view);
        planned += theory.planned_server[*index];
        executed += theory.executed[*index].unwrap_or(0);
        if let Some(tokens) = row.cached_tokens() {
            cached += tokens;
            usage_prompt += row.prompt_tokens(view);
        }
        if place % step as u64 == 0 || place == order.len() as u64 {
            points.push(CumulativePoint {
                requests: place,
                planned: ratio(planned, prompt),
                executed: ratio(executed, prompt),
                actual: ratio(cached, usage_prompt),
            });
        }
    }
    points
}

fn curves(rows: &[Row<'_>], order: &[usize], pooled: &PooledGaps) -> Vec<PercentileCurve> {
    let percents: Vec<Percent> = CURVE_PERCENTS
        .into_iter()
        .filter_map(Percent::new)
        .collect();
    let exact = |metric: &str, pick: fn(&Derived) -> Option<f64>| {
        let mut samples: Vec<f64> = order
            .iter()
            .filter_map(|&index| rows[index].derived.as_ref().and_then(pick))
            .collect();
        samples.sort_unstable_by(f64::total_cmp);
        let at = |percent: &Percent| percentile_of_sorted(&samples, *percent);
        curve(
            metric,
            &percents,
            percents.iter().map(at),
            samples.len() as u64,
        )
    };
    let itl = curve(
        "itl_ms",
        &percents,
        pooled.percentiles(&percents).into_iter(),
        pooled.count(),
    );
    [
        exact("ttft_ms", |derived| derived.ttft_ms),
        exact("tpot_ms", |derived| derived.tpot_ms),
        itl,
        exact("e2el_ms", |derived| derived.e2el_ms),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Percentiles beyond the largest sample's own rank say nothing and are left
/// out; the maximum stays.
fn curve(
    metric: &str,
    percents: &[Percent],
    values: impl Iterator<Item = Option<f64>>,
    count: u64,
) -> Option<PercentileCurve> {
    let finest = 100.0 - 100.0 / count.max(1) as f64;
    let points: Vec<[f64; 2]> = percents
        .iter()
        .zip(values)
        .filter(|(percent, _)| percent.get() <= finest || percent.get() >= 100.0)
        .filter_map(|(percent, value)| Some([percent.get(), value?]))
        .collect();
    (!points.is_empty()).then(|| PercentileCurve {
        metric: metric.to_owned(),
        points,
    })
}

/// The measure phase in at most [`BINS_MAX`] slices of at least 10 ms.
fn slices(rows: &[Row<'_>]) -> Vec<TimeSlice> {
    let Some((start, end)) = span(measured(rows, None)) else {
        return Vec::new();
    };
    let width = (end.nanos() - start.nanos())
        .div_ceil(BINS_MAX)
        .max(10_000_000);
    let place = |at: RunOffset| {
        usize::try_from(at.nanos().saturating_sub(start.nanos()) / width).unwrap_or(usize::MAX)
    };
    let mut bins = vec![Slice::default(); place(end) + 1];
    let last = bins.len() - 1;
    let place = |at: RunOffset| place(at).min(last);
    for (record, derived) in measured(rows, None) {
        let sent = &mut bins[place(record.first_sent_at())];
        sent.sent += 1;
        sent.queue_delay_ms += derived.queue_delay_ms;
        let ended = &mut bins[place(record.ended_at().unwrap_or(record.t_send_ns))];
        if !record.succeeded() {
            ended.failed += 1;
            continue;
        }
        ended.succeeded += 1;
        if let (Some(ttft), Some(first)) = (derived.ttft_ms, record.content_ns.first()) {
            bins[place(*first)].ttft_ms.push(ttft);
        }
        for (at, tokens) in token_stamps(record, derived) {
            bins[place(at)].tokens += tokens;
        }
        for (nanos, at) in gaps(record).zip(record.content_ns.iter().skip(1)) {
            let bin = &mut bins[place(*at)];
            bin.gap_nanos += nanos;
            bin.gaps += 1;
        }
    }
    let steps = in_flight(measured(rows, None));
    for (step, next) in steps.iter().zip(steps.iter().skip(1)) {
        hold(&mut bins, start, width, step.1, (step.0, next.0));
    }
    (0_u64..)
        .zip(bins)
        .map(|(index, bin)| bin.finish(index, width))
        .collect()
}

/// Adds `count` requests in flight to every slice that `span` touches.
fn hold(
    bins: &mut [Slice],
    start: RunOffset,
    width: u64,
    count: u64,
    span: (RunOffset, RunOffset),
) {
    let (mut from, to) = (
        span.0.nanos() - start.nanos(),
        span.1.nanos() - start.nanos(),
    );
    while from < to {
        let index = from / width;
        let until = to.min((index + 1) * width);
        if let Some(bin) = usize::try_from(index).ok().and_then(|at| bins.get_mut(at)) {
            bin.held_nanos += count as f64 * (until - from) as f64;
        }
        from = until;
    }
}

#[derive(Clone, Default)]
struct Slice {
    sent: u64,
    succeeded: u64,
    failed: u64,
    ttft_ms: Vec<f64>,
    queue_delay_ms: f64,
    gap_nanos: u64,
    gaps: u64,
    tokens: f64,
    held_nanos: f64,
}

impl Slice {
    fn finish(self, index: u64, width: u64) -> TimeSlice {
        let width_s = width as f64 / 1e9;
        let at = |percent| percentile(&self.ttft_ms, Percent::new(percent)?);
        TimeSlice {
            start_s: index as f64 * width_s,
            width_s,
            sent: self.sent,
            succeeded: self.succeeded,
            failed: self.failed,
            ttft_p50_ms: at(50.0),
            ttft_p99_ms: at(99.0),
            itl_mean_ms: (self.gaps > 0).then(|| self.gap_nanos as f64 / 1e6 / self.gaps as f64),
            output_tokens_per_second: self.tokens / width_s,
            in_flight: self.held_nanos / width as f64,
            queue_delay_mean_ms: (self.sent > 0).then(|| self.queue_delay_ms / self.sent as f64),
        }
    }
}

fn kv(kv: &KvFacts) -> Vec<KvSeries> {
    let ranks: BTreeSet<DpRank> = kv
        .samples
        .iter()
        .flat_map(|sample| sample.ranks.keys().copied())
        .collect();
    ranks
        .into_iter()
        .map(|rank| {
            let points: Vec<[f64; 2]> = kv
                .samples
                .iter()
                .filter_map(|sample| Some([sample.at.seconds(), sample.ranks.get(&rank)?.usage?]))
                .collect();
            let step = points.len().div_ceil(KV_POINTS_MAX).max(1);
            let peak =
                |chunk: &[[f64; 2]]| chunk.iter().copied().max_by(|a, b| a[1].total_cmp(&b[1]));
            KvSeries {
                rank: rank.0,
                points: points.chunks(step).filter_map(peak).collect(),
            }
        })
        .collect()
}

fn lanes(rows: &[Row<'_>]) -> (Vec<LaneSeries>, u64) {
    let mut lanes: BTreeMap<Lane, Vec<usize>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        if row.record.is_some_and(RequestRecord::was_sent) {
            lanes.entry(row.planned.lane()).or_default().push(index);
        }
    }
    let left_out = lanes.len().saturating_sub(LANES_MAX) as u64;
    let most = SPANS_MAX / lanes.len().clamp(1, LANES_MAX);
    let shown = lanes
        .into_iter()
        .take(LANES_MAX)
        .map(|((group, rank), order)| LaneSeries {
            group: group.to_string(),
            rank: rank.map(|rank| rank.0),
            spans: thin(&order, most)
                .filter_map(|index| lane_span(&rows[index]))
                .collect(),
        });
    (shown.collect(), left_out)
}

fn lane_span(row: &Row<'_>) -> Option<[f64; 3]> {
    let record = row.record?;
    let usage = record.usage;
    let share = usage.and_then(|usage| ratio(usage.cached_tokens?, usage.prompt_tokens));
    let end = record.ended_at().unwrap_or(record.t_send_ns);
    Some([
        record.first_sent_at().seconds(),
        end.seconds(),
        share.unwrap_or(-1.0),
    ])
}
