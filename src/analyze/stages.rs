//! The stages of the load profile: what each was offered, what it achieved, and
//! its steady window.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{Inputs, StageFacts, StageLoad};
use super::latency::Table;
use super::rows::Row;
use super::throughput::{Throughput, in_flight, measured, throughput, token_stamps};
use crate::stats::Summary;
use crate::units::RunOffset;

/// Share of the target in flight from which a closed stage counts as steady.
const STEADY_SHARE: f64 = 0.95;

/// One stage of the profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageReport {
    /// Its place in the profile, from 0.
    pub stage: u32,
    /// `closed` or `open`; absent when the profile does not name the stage.
    pub load: Option<String>,
    /// Requests in flight that a closed stage holds.
    pub target_concurrency: Option<u32>,
    /// Arrivals a second of an open stage; absent when unbounded.
    pub offered_per_second: Option<f64>,
    /// `unbounded` when all requests arrive at once.
    pub arrival: Option<String>,
    /// Most requests an open stage lets be in flight.
    pub max_in_flight: Option<u32>,
    /// Requests that were due and never sent.
    pub dropped: u64,
    /// Rates of the stage.
    pub throughput: Throughput,
    /// Send to first content.
    pub ttft_ms: Summary,
    /// Time per output token.
    pub tpot_ms: Summary,
    /// Send to last choice.
    pub e2el_ms: Summary,
    /// Scheduled to first send.
    pub queue_delay_ms: Summary,
    /// The part in which a closed stage was at its target.
    pub steady: Option<Steady>,
}

/// From the first to the last moment at which in-flight was at least 95 % of the
/// target. Latencies are of requests that lie in it as a whole, rates of what
/// arrived in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steady {
    /// Start, seconds since the start of the run.
    pub start_s: f64,
    /// End, seconds since the start of the run.
    pub end_s: f64,
    /// Requests that lie in it as a whole.
    pub requests: u64,
    /// Requests that ended in it, a second.
    pub requests_per_second: f64,
    /// Output tokens that arrived in it, a second.
    pub output_tokens_per_second: f64,
    /// Send to first content.
    pub ttft_ms: Summary,
    /// Time per output token.
    pub tpot_ms: Summary,
    /// Send to last choice.
    pub e2el_ms: Summary,
}

pub(super) fn stages(inputs: &Inputs<'_>, rows: &[Row<'_>], order: &[usize]) -> Vec<StageReport> {
    let seen = rows
        .iter()
        .filter_map(|row| row.record)
        .map(|record| record.stage);
    let named = (0..)
        .zip(&inputs.profile.stages)
        .map(|(stage, _): (u32, _)| stage);
    let all: BTreeSet<u32> = seen.chain(named).collect();
    all.into_iter()
        .map(|stage| {
            let facts = inputs.profile.stages.get(stage as usize).copied();
            report(inputs, rows, order, stage, facts)
        })
        .collect()
}

fn report(
    inputs: &Inputs<'_>,
    rows: &[Row<'_>],
    order: &[usize],
    stage: u32,
    facts: Option<StageFacts>,
) -> StageReport {
    let of_stage = |index: &&usize| rows[**index].record.is_some_and(|r| r.stage == stage);
    let order: Vec<usize> = order.iter().filter(of_stage).copied().collect();
    let table = Table {
        rows,
        order: &order,
        extra: inputs.percentiles,
    };
    let load = facts.map(|facts| facts.load);
    let (target, offered, unbounded, max_in_flight) = match load {
        Some(StageLoad::Closed { concurrency }) => (Some(concurrency), None, false, None),
        Some(StageLoad::Open {
            rate,
            max_in_flight,
        }) => {
            let finite = rate.filter(|rate| rate.is_finite());
            (None, finite, finite.is_none(), max_in_flight)
        }
        None => (None, None, false, None),
    };
    StageReport {
        stage,
        load: load.map(|load| match load {
            StageLoad::Closed { .. } => "closed".to_owned(),
            StageLoad::Open { .. } => "open".to_owned(),
        }),
        target_concurrency: target,
        offered_per_second: offered,
        arrival: unbounded.then(|| "unbounded".to_owned()),
        max_in_flight,
        dropped: facts.map_or(0, |facts| facts.dropped),
        throughput: throughput(measured(rows, Some(stage))),
        ttft_ms: table.summary(|derived| derived.ttft_ms),
        tpot_ms: table.summary(|derived| derived.tpot_ms),
        e2el_ms: table.summary(|derived| derived.e2el_ms),
        queue_delay_ms: table.summary(|derived| Some(derived.queue_delay_ms)),
        steady: target.and_then(|target| steady(&table, rows, stage, target)),
    }
}

fn steady(table: &Table<'_>, rows: &[Row<'_>], stage: u32, target: u32) -> Option<Steady> {
    let (start, end) = window(rows, stage, f64::from(target) * STEADY_SHARE)?;
    let seconds = end.millis_since(start) / 1e3;
    let inside = |at: RunOffset| start <= at && at <= end;
    let mut ended = 0_u64;
    let mut tokens = 0.0;
    let mut whole = Vec::new();
    for &index in table.order {
        let Some((record, derived)) = rows[index].counts() else {
            continue;
        };
        let ends_inside = record.ended_at().is_some_and(inside);
        ended += u64::from(ends_inside);
        tokens += token_stamps(record, derived)
            .filter(|(at, _)| inside(*at))
            .map(|(_, tokens)| tokens)
            .sum::<f64>();
        if ends_inside && inside(record.first_sent_at()) {
            whole.push(index);
        }
    }
    let table = Table {
        rows,
        order: &whole,
        extra: table.extra,
    };
    Some(Steady {
        start_s: start.seconds(),
        end_s: end.seconds(),
        requests: whole.len() as u64,
        requests_per_second: ended as f64 / seconds,
        output_tokens_per_second: tokens / seconds,
        ttft_ms: table.summary(|derived| derived.ttft_ms),
        tpot_ms: table.summary(|derived| derived.tpot_ms),
        e2el_ms: table.summary(|derived| derived.e2el_ms),
    })
}

/// First and last moment with at least `least` requests of the stage in flight.
fn window(rows: &[Row<'_>], stage: u32, at_least: f64) -> Option<(RunOffset, RunOffset)> {
    let of_stage = rows
        .iter()
        .filter_map(|row| row.record.zip(row.derived.as_ref()))
        .filter(|(record, _)| record.stage == stage && record.was_sent());
    let steps = in_flight(of_stage);
    let full = |count: u64| count as f64 >= at_least;
    let first = steps.iter().find(|(_, count)| full(*count))?.0;
    let last_full = steps.iter().rposition(|(_, count)| full(*count))?;
    let last = steps.get(last_full + 1)?.0;
    (last > first).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::fixture::{planned, rows_of};
    use crate::measure::sample::{at, stream};

    #[test]
    fn the_steady_window_leaves_out_ramp_and_drain() {
        // Two slots: the second opens at 100 ms, the first closes at 400 ms.
        let run = [(0.0, 200.0), (100.0, 300.0), (200.0, 400.0), (300.0, 600.0)];
        let records: Vec<_> = (0_u32..)
            .zip(run)
            .map(|(index, (sent, ended))| {
                let mut record = stream(&[ended - 50.0, ended], 2);
                record.sequence_index = index;
                record.t_send_ns = at(sent);
                record
            })
            .collect();
        let plan: Vec<_> = (0..4).map(|index| planned(index, 64, 0)).collect();
        let rows = rows_of(&plan, &records);
        let table = Table {
            rows: &rows,
            order: &[0, 1, 2, 3],
            extra: &[],
        };
        let steady = steady(&table, &rows, 0, 2).unwrap();
        assert_eq!((steady.start_s, steady.end_s), (0.1, 0.4));
        assert_eq!(steady.requests, 2, "the two that lie in it as a whole");
        // Ends at 200, 300 and 400; tokens at 150 200 250 300 350 400.
        assert!((steady.requests_per_second - 10.0).abs() < 1e-9);
        assert!((steady.output_tokens_per_second - 20.0).abs() < 1e-9);
        assert_eq!(steady.e2el_ms.mean, Some(200.0));
    }

    #[test]
    fn a_target_never_reached_has_no_steady_window() {
        let records = [stream(&[100.0], 1)];
        let plan = [planned(0, 64, 0)];
        let rows = rows_of(&plan, &records);
        assert_eq!(window(&rows, 0, 1.9), None);
    }
}
