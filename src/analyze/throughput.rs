//! Rates over the measure phase: throughput, its best second, concurrency and
//! goodput. Tokens are the server's counts; a chunk is worth its request's
//! average tokens for each chunk.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::Row;
use crate::measure::{Derived, RequestRecord, StatsPhase};
use crate::units::RunOffset;

/// Width of the bins of the sliding one-second window.
const BIN_NANOS: u64 = 10_000_000;
const BINS_A_SECOND: usize = 100;
/// Most bins; a longer run gets wider ones.
const BINS_MAX: u64 = 5_000_000;

/// Rates of the measure phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Throughput {
    /// Requests that were sent.
    pub requests: u64,
    /// Of them successful.
    pub successes: u64,
    /// First send to last stream end, seconds; absent when nothing was sent.
    pub duration_s: Option<f64>,
    /// Prompt tokens of the successes.
    pub input_tokens: u64,
    /// Output tokens of the successes.
    pub output_tokens: u64,
    /// Successes a second.
    pub requests_per_second: Option<f64>,
    /// Prompt tokens a second.
    pub input_tokens_per_second: Option<f64>,
    /// Output tokens a second.
    pub output_tokens_per_second: Option<f64>,
    /// Prompt and output tokens a second.
    pub total_tokens_per_second: Option<f64>,
    /// Output tokens of the best one-second window (of the whole, where it is
    /// shorter); never below the average.
    pub peak_output_tokens_per_second: Option<f64>,
    /// Σ time in flight / duration.
    pub concurrency_average: Option<f64>,
    /// Most requests in flight at once.
    pub concurrency_max: u64,
}

/// Requests that met every objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Goodput {
    /// Objectives, ms by metric.
    pub objectives_ms: BTreeMap<String, f64>,
    /// Successes that met them all.
    pub met: u64,
    /// Of all requests that were sent, 0..=1.
    pub met_ratio: Option<f64>,
    /// Such requests a second.
    pub requests_per_second: Option<f64>,
}

/// Rows of the measure phase that were sent, of one stage or of all.
pub(super) fn measured<'a>(
    rows: &'a [Row<'a>],
    stage: Option<u32>,
) -> impl Iterator<Item = (&'a RequestRecord, &'a Derived)> + Clone {
    rows.iter()
        .filter_map(|row| row.record.zip(row.derived.as_ref()))
        .filter(move |(record, _)| record.phase == StatsPhase::Measure)
        .filter(move |(record, _)| stage.is_none_or(|stage| record.stage == stage))
        .filter(|(record, _)| record.was_sent())
}

/// First send and last end of `records`.
pub(super) fn span<'a>(
    records: impl Iterator<Item = (&'a RequestRecord, &'a Derived)>,
) -> Option<(RunOffset, RunOffset)> {
    records
        .map(|(record, _)| (record.first_sent_at(), end_of(record)))
        .reduce(|(start, end), (sent, ended)| (start.min(sent), end.max(ended)))
}

/// A request without any stamp ended where it began.
fn end_of(record: &RequestRecord) -> RunOffset {
    record
        .ended_at()
        .unwrap_or(record.t_send_ns)
        .max(record.first_sent_at())
}

pub(super) fn throughput<'a>(
    records: impl Iterator<Item = (&'a RequestRecord, &'a Derived)> + Clone,
) -> Throughput {
    let Some((start, end)) = span(records.clone()) else {
        return Throughput::default();
    };
    let successes = || records.clone().filter(|(record, _)| record.succeeded());
    let seconds = Some(end.millis_since(start) / 1e3).filter(|&seconds| seconds > 0.0);
    let per_second = |count: u64| seconds.map(|seconds| count as f64 / seconds);
    let count = successes().count() as u64;
    let input_tokens = successes().filter_map(|(_, d)| d.prompt_tokens).sum();
    let output_tokens = successes().filter_map(|(_, d)| d.output_tokens).sum();
    let in_flight_ms: f64 = records
        .clone()
        .map(|(record, _)| end_of(record).millis_since(record.first_sent_at()))
        .sum();
    let average = per_second(output_tokens);
    let peak = average.map(|average| {
        let best = peak_tokens(successes(), start, end) / seconds.unwrap_or(1.0).min(1.0);
        best.max(average)
    });
    Throughput {
        requests: records.clone().count() as u64,
        successes: count,
        duration_s: seconds,
        input_tokens,
        output_tokens,
        requests_per_second: per_second(count),
        input_tokens_per_second: per_second(input_tokens),
        output_tokens_per_second: average,
        total_tokens_per_second: per_second(input_tokens + output_tokens),
        peak_output_tokens_per_second: peak,
        concurrency_average: seconds.map(|seconds| in_flight_ms / 1e3 / seconds),
        concurrency_max: in_flight(records)
            .into_iter()
            .map(|(_, n)| n)
            .max()
            .unwrap_or(0),
    }
}

/// Requests in flight from each moment on at which their number changes. A
/// request that ends when another is sent is out first.
pub(super) fn in_flight<'a>(
    records: impl Iterator<Item = (&'a RequestRecord, &'a Derived)>,
) -> Vec<(RunOffset, u64)> {
    let mut changes: Vec<(RunOffset, bool)> = records
        .flat_map(|(record, _)| [(record.first_sent_at(), true), (end_of(record), false)])
        .collect();
    changes.sort_unstable();
    let mut now: i64 = 0;
    let mut steps: Vec<(RunOffset, u64)> = Vec::with_capacity(changes.len());
    for (at, starts) in changes {
        now += if starts { 1 } else { -1 };
        // A request of no length ends before it starts in this order.
        let count = u64::try_from(now.max(0)).unwrap_or(0);
        match steps.last_mut() {
            Some(last) if last.0 == at => last.1 = count,
            _ => steps.push((at, count)),
        }
    }
    steps
}

/// Output tokens of each content chunk with its stamp; of a response that was
/// not streamed, all of them at its end.
pub(super) fn token_stamps<'a>(
    record: &'a RequestRecord,
    derived: &Derived,
) -> impl Iterator<Item = (RunOffset, f64)> + 'a {
    let tokens = derived.output_tokens.unwrap_or(0) as f64;
    let streamed = record.streamed && !record.content_ns.is_empty();
    let each = if streamed {
        tokens / record.content_ns.len() as f64
    } else {
        tokens
    };
    let chunks: &[RunOffset] = if streamed { &record.content_ns } else { &[] };
    let whole = (!streamed).then(|| end_of(record));
    chunks
        .iter()
        .copied()
        .chain(whole)
        .map(move |at| (at, each))
}

/// Tokens of the best window of one second that begins on a bin.
fn peak_tokens<'a>(
    successes: impl Iterator<Item = (&'a RequestRecord, &'a Derived)>,
    start: RunOffset,
    end: RunOffset,
) -> f64 {
    let nanos = end.nanos() - start.nanos();
    let width = BIN_NANOS.max(nanos / BINS_MAX);
    let place = |at: RunOffset| {
        let bin = at.nanos().saturating_sub(start.nanos()).min(nanos) / width;
        usize::try_from(bin).expect("bins are few")
    };
    let mut bins = vec![0.0; place(end) + 1];
    for (record, derived) in successes {
        for (at, tokens) in token_stamps(record, derived) {
            bins[place(at)] += tokens;
        }
    }
    let window = if width == BIN_NANOS { BINS_A_SECOND } else { 1 };
    let seconds = (window as u64 * width) as f64 / 1e9;
    let mut now = 0.0;
    let mut best: f64 = 0.0;
    for place in 0..bins.len() {
        now += bins[place];
        if let Some(gone) = place.checked_sub(window) {
            now -= bins[gone];
        }
        best = best.max(now);
    }
    best / seconds.max(1.0)
}

/// Goodput against `slo`; `None` without objectives or where one of them cannot
/// be judged because nothing was streamed.
pub(super) fn goodput(
    slo: &BTreeMap<String, f64>,
    rows: &[Row<'_>],
    overall: &Throughput,
) -> Option<Goodput> {
    let needs_stream = slo.contains_key("ttft") || slo.contains_key("tpot");
    let streamed = measured(rows, None).all(|(record, _)| record.streamed);
    if slo.is_empty() || (needs_stream && !streamed) {
        return None;
    }
    let met = measured(rows, None)
        .filter(|(record, derived)| record.succeeded() && meets(slo, derived))
        .count() as u64;
    Some(Goodput {
        objectives_ms: slo.clone(),
        met,
        met_ratio: crate::units::ratio(met, overall.requests),
        requests_per_second: overall.duration_s.map(|seconds| met as f64 / seconds),
    })
}

/// A request of one token has no TPOT that could be too long.
fn meets(slo: &BTreeMap<String, f64>, derived: &Derived) -> bool {
    slo.iter().all(|(metric, limit)| match metric.as_str() {
        "ttft" => derived.ttft_ms.is_some_and(|ms| ms <= *limit),
        "tpot" => derived.tpot_ms.is_none_or(|ms| ms <= *limit),
        "e2el" => derived.e2el_ms.is_some_and(|ms| ms <= *limit),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample::{at, failed, stream};
    use crate::measure::{FailureKind, derive};

    fn of(records: &[RequestRecord]) -> Throughput {
        let derived: Vec<_> = records.iter().map(derive).collect();
        throughput(records.iter().zip(&derived))
    }

    #[test]
    fn tokens_are_counted_not_chunks() {
        let one = of(&[stream(&[100.0, 130.0, 160.0, 190.0], 12)]);
        assert!((one.output_tokens_per_second.unwrap() - 63.158).abs() < 1e-3);
        let peak = one.peak_output_tokens_per_second.unwrap();
        assert!(
            (peak - 63.158).abs() < 1e-3,
            "the whole is under a second: {peak}"
        );
        assert_eq!(one.concurrency_max, 1);
        assert!((one.concurrency_average.unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_best_second_is_found_wherever_it_begins() {
        // 30 tokens in the second from 1.5 s, 3 elsewhere.
        let mut stamps = vec![100.0, 900.0, 3_900.0];
        stamps.extend((0..30).map(|i| 1_500.0 + f64::from(i) * 33.0));
        stamps.sort_by(f64::total_cmp);
        let run = of(&[stream(&stamps, 33)]);
        assert_eq!(run.peak_output_tokens_per_second, Some(30.0));
        assert!((run.output_tokens_per_second.unwrap() - 33.0 / 3.9).abs() < 1e-9);
    }

    #[test]
    fn failures_count_as_load_but_not_as_throughput() {
        let failed = failed(FailureKind::HttpStatus, Some(500), 0.0, 2_000.0);
        let run = of(&[stream(&[500.0, 1_000.0], 10), failed]);
        assert_eq!((run.requests, run.successes), (2, 1));
        assert_eq!(run.duration_s, Some(2.0));
        assert_eq!(run.output_tokens_per_second, Some(5.0));
        assert_eq!(
            (run.concurrency_max, run.concurrency_average),
            (2, Some(1.5))
        );
    }

    #[test]
    fn a_successor_takes_the_slot_of_the_one_that_ended() {
        let first = stream(&[100.0], 1);
        let mut second = stream(&[200.0], 1);
        second.t_send_ns = at(100.0);
        assert_eq!(of(&[first, second]).concurrency_max, 1);
    }

    #[test]
    fn nothing_sent_is_no_rate() {
        assert_eq!(of(&[]), Throughput::default());
    }

    #[test]
    fn goodput_needs_every_objective() {
        let slo = BTreeMap::from([("ttft".to_owned(), 150.0), ("tpot".to_owned(), 20.0)]);
        for (stamps, tokens, expected) in [
            (vec![100.0, 110.0], 2, true),
            (vec![100.0, 150.0], 2, false),
            (vec![200.0, 210.0], 2, false),
            (vec![100.0], 1, true),
        ] {
            assert_eq!(meets(&slo, &derive(&stream(&stamps, tokens))), expected);
        }
    }
}
