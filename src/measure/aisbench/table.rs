//! AISBench's two tables as values, and their computation from time points. A
//! value is held as it is printed: milliseconds where AISBench prints them,
//! after its rounding, so that tables read and tables computed compare equal.

use serde::Serialize;

use super::stable::stable_stage;
use super::{StageRule, Timed};
use crate::stats::{Percent, percentile_of_sorted};

/// The statistics of a row: AISBench's default list.
const STATISTICS: [&str; 7] = ["Average", "Min", "Max", "Median", "P75", "P90", "P99"];

/// What AISBench prints after a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// `total` or `stable`.
    pub stage: String,
    /// The request table, a row a metric.
    pub rows: Vec<MetricRow>,
    /// The common metrics, in order.
    pub common: Vec<Figure>,
}

impl Results {
    /// A cell of the request table.
    pub fn cell(&self, metric: &str, statistic: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.metric == metric)?;
        let cell = row.cells.iter().find(|cell| cell.statistic == statistic)?;
        Some(cell.value)
    }

    /// A common metric.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let figure = self.common.iter().find(|figure| figure.name == name)?;
        Some(figure.value)
    }
}

/// One row of the request table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricRow {
    /// `E2EL`, `TTFT`, `TPOT`, `ITL`, `InputTokens`, `OutputTokens` or
    /// `OutputTokenThroughput`.
    pub metric: String,
    /// One a statistic.
    pub cells: Vec<Cell>,
    /// Column `N`: requests, not samples.
    pub count: u64,
}

/// One statistic of a metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Such as `Average` or `P99`.
    pub statistic: String,
    /// In `unit`.
    pub value: f64,
    /// `ms`, `token/s`, or nothing for tokens.
    pub unit: String,
}

/// One common metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Such as `Benchmark Duration`.
    pub name: String,
    /// In `unit`.
    pub value: f64,
    /// `ms`, `req/s`, `token/s`, or nothing.
    pub unit: String,
}

/// Both tables of `successes` beside `failed` requests at `slots` concurrent
/// ones. `None` where AISBench ends with an error: nothing succeeded, or there
/// is no stable stage.
pub fn recompute(
    successes: &[Timed],
    failed: u64,
    slots: u32,
    stage: StageRule,
) -> Option<Results> {
    let (name, members, total, seconds) = match stage {
        StageRule::Total => {
            let all: Vec<&Timed> = successes.iter().collect();
            let total = all.len() as u64 + failed;
            let end = all.iter().map(|one| one.end()).reduce(f64::max)?;
            let start = all.iter().map(|one| one.start()).reduce(f64::min)?;
            ("total", all, total, end - start)
        }
        StageRule::Stable => {
            let stable = stable_stage(successes, slots)?;
            let of = |index: &usize| &successes[*index];
            let members: Vec<&Timed> = stable.members.iter().map(of).collect();
            let total = members.len() as u64;
            ("stable", members, total, stable.seconds)
        }
    };
    Some(Results {
        stage: name.to_owned(),
        rows: rows(&members),
        common: common(&members, total, seconds, slots, stage),
    })
}

fn rows(members: &[&Timed]) -> Vec<MetricRow> {
    let each = |pick: fn(&Timed) -> f64| members.iter().map(|one| pick(one)).collect::<Vec<f64>>();
    let count = members.len() as u64;
    let has_gap = |one: &&&Timed| one.gaps().any(|gap| gap != 0.0);
    let decoding = members.iter().filter(has_gap).count() as u64;
    let present = |values: &[f64]| values.iter().sum::<f64>() != 0.0;
    let ttft = each(Timed::first_event);
    let tpot = each(Timed::per_token);
    let gaps: Vec<f64> = members.iter().flat_map(|one| one.gaps()).collect();
    // Whether ITL is printed is decided by the first request that has a gap.
    let first_gaps = members.iter().find(|one| one.gaps().next().is_some());
    let itl_shown = first_gaps.is_some_and(|one| one.gaps().any(|gap| gap != 0.0));
    let mut rows = vec![latency_row("E2EL", each(Timed::latency), count)];
    if present(&ttft) {
        rows.push(latency_row("TTFT", ttft, count));
    }
    if present(&tpot) {
        rows.push(latency_row("TPOT", tpot, decoding));
    }
    if itl_shown {
        rows.push(latency_row("ITL", gaps, decoding));
    }
    let speed = |one: &Timed| one.output_tokens as f64 / one.latency();
    rows.extend([
        row(
            "InputTokens",
            each(|one| one.input_tokens as f64),
            "",
            count,
        ),
        row(
            "OutputTokens",
            each(|one| one.output_tokens as f64),
            "",
            count,
        ),
        row("OutputTokenThroughput", each(speed), "token/s", count),
    ]);
    rows
}

/// A row in milliseconds from seconds. AISBench rounds seconds to four
/// decimals first: its latencies have steps of 0.1 ms.
fn latency_row(metric: &str, seconds: Vec<f64>, count: u64) -> MetricRow {
    let mut row = row(metric, seconds, "ms", count);
    for cell in &mut row.cells {
        cell.value = round4(cell.value * 1e3);
    }
    row
}

fn row(metric: &str, mut values: Vec<f64>, unit: &str, count: u64) -> MetricRow {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.sort_unstable_by(f64::total_cmp);
    let at = |percent| {
        let percent = Percent::new(percent).expect("a constant within 0..=100");
        percentile_of_sorted(&values, percent).unwrap_or(f64::NAN)
    };
    let figures = [
        mean,
        at(0.0),
        at(100.0),
        at(50.0),
        at(75.0),
        at(90.0),
        at(99.0),
    ];
    let cells = STATISTICS
        .iter()
        .zip(figures)
        .map(|(statistic, value)| Cell {
            statistic: (*statistic).to_owned(),
            value: round4(value),
            unit: unit.to_owned(),
        });
    MetricRow {
        metric: metric.to_owned(),
        cells: cells.collect(),
        count,
    }
}

fn common(
    members: &[&Timed],
    total: u64,
    seconds: f64,
    slots: u32,
    stage: StageRule,
) -> Vec<Figure> {
    let sum = |pick: fn(&Timed) -> f64| members.iter().map(|one| pick(one)).sum::<f64>();
    let input = sum(|one| one.input_tokens as f64);
    let output = sum(|one| one.output_tokens as f64);
    let success = members.len() as f64;
    let slots = f64::from(slots);
    let level = round4(sum(Timed::latency) / seconds);
    let concurrency = match stage {
        StageRule::Total => level,
        StageRule::Stable => level.min(slots),
    };
    let figure = |name: &str, value: f64, unit: &str| Figure {
        name: name.to_owned(),
        value: round4(value),
        unit: unit.to_owned(),
    };
    vec![
        figure("Benchmark Duration", seconds * 1e3, "ms"),
        figure("Total Requests", total as f64, ""),
        figure("Failed Requests", total as f64 - success, ""),
        figure("Success Requests", success, ""),
        figure("Concurrency", concurrency, ""),
        figure("Max Concurrency", slots, ""),
        figure("Request Throughput", success / seconds, "req/s"),
        figure("Total Input Tokens", input, ""),
        figure(
            "Prefill Token Throughput",
            input / sum(Timed::first_event),
            "token/s",
        ),
        figure("Total Generated Tokens", output, ""),
        figure("Input Token Throughput", input / seconds, "token/s"),
        figure("Output Token Throughput", output / seconds, "token/s"),
        figure(
            "Total Token Throughput",
            (input + output) / seconds,
            "token/s",
        ),
    ]
}

/// Python's `round(value, 4)`: the nearest number of four decimals, ties to
/// even, which is how both languages print four decimals.
fn round4(value: f64) -> f64 {
    format!("{value:.4}").parse().unwrap_or(value)
}
