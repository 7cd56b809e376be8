//! The native driver against AISBench on the same prepared set: each figure of
//! both, how far they are apart, whether a difference is expected, and who is
//! nearer to the truth where a server has kept it.
//!
//! By AISBench's definitions both drivers are computed by one code from their
//! stamps, so that what is left is the drivers' own difference. By this
//! program's definitions the same stamps are read as records.

mod reasons;
mod truth;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::aisbench::Timed;
use crate::measure::{Derived, RequestRecord, derive};
use crate::rng::Seed;
use crate::stats::{Interval, Percent, percentile, percentile_intervals, sums_interval};
use reasons::reason;
pub use truth::{TruthError, TruthRow, parse_truth};

/// Differences up to this share of the native figure are agreement.
const WITHIN_RATIO: f64 = 0.05;
/// And differences up to this many milliseconds.
const WITHIN_MS: f64 = 3.0;

/// One driver's run.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Its records.
    pub records: &'a [RequestRecord],
    /// Hit rate by the server's counters, 0..=1.
    pub hit_rate: Option<f64>,
    /// Start of the run on the system's monotonic clock, ns.
    pub origin_ns: u64,
}

/// Whose definitions a figure is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// AISBench's: the usage event ends the request, each event is a token.
    Aisbench,
    /// This program's: content counts, the last choice ends the request.
    Pcload,
    /// Counts, about which there is one opinion.
    Count,
}

/// How two figures stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The same number.
    Equal,
    /// Within 5 % or 3 ms.
    Within,
    /// Further apart, but requests differ so much both ways that the interval
    /// covers 0.
    Noise,
    /// Further apart, for the reason that stands beside.
    Expected,
    /// Further apart, and nothing explains it.
    Differs,
    /// One of them is absent.
    Unknown,
}

/// Who is nearer to the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Nearer {
    /// AISBench.
    Aisbench,
    /// The native driver.
    Native,
}

/// One figure of both drivers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ParityRow {
    /// Such as `ttft_ms` or `input_tokens`.
    pub metric: String,
    /// `mean`, `p50`, `p99` or `total`.
    pub statistic: String,
    /// Whose definitions.
    pub by: By,
    /// By AISBench.
    pub aisbench: Option<f64>,
    /// By the native driver.
    pub native: Option<f64>,
    /// AISBench / native.
    pub ratio: Option<f64>,
    /// AISBench − native.
    pub difference: Option<f64>,
    /// 95 % interval of the mean (of `mean`) or the median (of `p50`) of the
    /// differences request by request.
    pub interval: Option<Interval>,
    /// How they stand to each other.
    pub agreement: Agreement,
    /// Why a difference is to be expected; absent where none is.
    pub reason: Option<String>,
    /// AISBench's requests as the server saw them.
    pub truth_aisbench: Option<f64>,
    /// The native driver's requests as the server saw them.
    pub truth_native: Option<f64>,
    /// Who is nearer to its own truth.
    pub nearer: Option<Nearer>,
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parity {
    /// Counts first, then latencies by AISBench's definitions, then by ours.
    pub rows: Vec<ParityRow>,
    /// Requests that both drivers brought to a good end.
    pub paired_requests: u64,
}

impl Parity {
    /// Figures that nothing explains.
    pub fn unexplained(&self) -> usize {
        let differs = |row: &&ParityRow| row.agreement == Agreement::Differs;
        self.rows.iter().filter(differs).count()
    }
}

/// Compares both runs; `truth` is the server's own log.
pub fn parity(
    aisbench: Side<'_>,
    native: Side<'_>,
    truth: Option<&[TruthRow]>,
    seed: &Seed,
) -> Parity {
    let both = [aisbench, native];
    let mut rows = counts(both);
    let truths = truth.map(|rows| both.map(|side| truth::of_run(rows, side)));
    let mut paired_requests = 0;
    for metric in METRICS {
        let samples = both.map(|side| samples(side.records, metric));
        let paired = pairs(&samples);
        paired_requests = paired_requests.max(paired.len() as u64);
        let intervals = intervals(metric, &paired, seed);
        // The log has no usage events, which are gaps by AISBench's definition.
        let told = metric.name != "itl_ms" || metric.by != By::Aisbench;
        let at = truths
            .as_ref()
            .filter(|_| told)
            .map(|truths| [0, 1].map(|side| truth::samples(&truths[side], metric.name)));
        for (statistic, interval) in STATISTICS.iter().zip(intervals) {
            let figures = [0, 1].map(|side| value(&pooled(&samples[side]), statistic));
            let truth = at.as_ref().map_or([None, None], |at| {
                [0, 1].map(|side| value(&at[side], statistic))
            });
            rows.push(row(metric, statistic, figures, interval, truth));
        }
    }
    Parity {
        rows,
        paired_requests,
    }
}

/// A latency that is compared.
#[derive(Clone, Copy)]
struct LatencyMetric {
    name: &'static str,
    by: By,
}

const METRICS: [LatencyMetric; 8] = [
    metric("ttft_ms", By::Aisbench),
    metric("e2el_ms", By::Aisbench),
    metric("tpot_ms", By::Aisbench),
    metric("itl_ms", By::Aisbench),
    metric("ttft_ms", By::Pcload),
    metric("e2el_ms", By::Pcload),
    metric("tpot_ms", By::Pcload),
    metric("itl_ms", By::Pcload),
];

const STATISTICS: [&str; 3] = ["mean", "p50", "p99"];

const fn metric(name: &'static str, by: By) -> LatencyMetric {
    LatencyMetric { name, by }
}

/// Samples of one request, ms; several of a gap.
type Samples = Vec<(u32, Vec<f64>)>;

fn samples(records: &[RequestRecord], metric: LatencyMetric) -> Samples {
    let of = |record: &RequestRecord| match metric.by {
        By::Aisbench => Timed::of(record).map(|timed| by_aisbench(&timed, metric.name)),
        By::Pcload | By::Count => record.succeeded().then(|| by_pcload(record, metric.name)),
    };
    let mut samples: Samples = records
        .iter()
        .filter_map(|record| Some((record.sequence_index, of(record)?)))
        .filter(|(_, samples)| !samples.is_empty())
        .collect();
    samples.sort_by_key(|(index, _)| *index);
    samples
}

fn by_aisbench(timed: &Timed, metric: &str) -> Vec<f64> {
    let one = match metric {
        "ttft_ms" => timed.first_event(),
        "e2el_ms" => timed.latency(),
        "tpot_ms" => timed.per_token(),
        _ => return timed.gaps().map(|gap| gap * 1e3).collect(),
    };
    vec![one * 1e3]
}

fn by_pcload(record: &RequestRecord, metric: &str) -> Vec<f64> {
    let one: fn(&Derived) -> Option<f64> = match metric {
        "ttft_ms" => |derived| derived.ttft_ms,
        "e2el_ms" => |derived| derived.e2el_ms,
        "tpot_ms" => |derived| derived.tpot_ms,
        _ => {
            let gaps = crate::measure::gaps(record);
            return gaps.map(|nanos| nanos as f64 / 1e6).collect();
        }
    };
    one(&derive(record)).into_iter().collect()
}

fn pooled(samples: &Samples) -> Vec<f64> {
    let all = samples.iter().flat_map(|(_, samples)| samples);
    all.copied().collect()
}

/// AISBench − native for each request that both have, in send order; of several
/// samples their means.
fn pairs([aisbench, native]: &[Samples; 2]) -> Vec<f64> {
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
    let other: std::collections::BTreeMap<u32, f64> = native
        .iter()
        .map(|(index, samples)| (*index, mean(samples)))
        .collect();
    aisbench
        .iter()
        .filter_map(|(index, samples)| Some(mean(samples) - other.get(index)?))
        .collect()
}

/// Of the mean, the median, and none of the 99th percentile: the difference of
/// extremes is not a statistic of differences.
fn intervals(metric: LatencyMetric, paired: &[f64], seed: &Seed) -> [Option<Interval>; 3] {
    let mut stream = seed.stream(&format!("parity/{:?}/{}", metric.by, metric.name));
    let terms: Vec<[f64; 2]> = paired.iter().map(|difference| [1.0, *difference]).collect();
    let mean = sums_interval(
        &terms,
        |[count, sum]| (count > 0.0).then(|| sum / count),
        &mut stream,
    );
    let median = Percent::new(50.0)
        .and_then(|percent| percentile_intervals(paired, [percent], &mut stream)[0]);
    [mean, median, None]
}

fn value(samples: &[f64], statistic: &str) -> Option<f64> {
    if statistic == "mean" {
        let count = samples.len() as f64;
        return (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / count);
    }
    let percent = if statistic == "p50" { 50.0 } else { 99.0 };
    percentile(samples, Percent::new(percent)?)
}

fn row(
    metric: LatencyMetric,
    statistic: &str,
    [aisbench, native]: [Option<f64>; 2],
    interval: Option<Interval>,
    [truth_aisbench, truth_native]: [Option<f64>; 2],
) -> ParityRow {
    let reason = reason(metric.name, statistic, metric.by);
    let covers_zero = interval.is_some_and(|interval| interval.covers(0.0));
    let agreement = match agreement(aisbench, native, WITHIN_MS, reason.is_some()) {
        Agreement::Expected | Agreement::Differs if covers_zero => Agreement::Noise,
        other => other,
    };
    let error = |figure: Option<f64>, truth: Option<f64>| Some((figure? - truth?).abs());
    let errors = (error(aisbench, truth_aisbench), error(native, truth_native));
    let nearer = match errors {
        (Some(aisbench), Some(native)) if aisbench < native => Some(Nearer::Aisbench),
        (Some(_), Some(_)) => Some(Nearer::Native),
        _ => None,
    };
    ParityRow {
        metric: metric.name.to_owned(),
        statistic: statistic.to_owned(),
        by: metric.by,
        aisbench,
        native,
        ratio: ratio(aisbench, native),
        difference: difference(aisbench, native),
        interval,
        agreement,
        reason: reason.map(str::to_owned),
        truth_aisbench,
        truth_native,
        nearer,
    }
}

fn ratio(left: Option<f64>, right: Option<f64>) -> Option<f64> {
    let (left, right) = (left?, right?);
    (right != 0.0).then(|| left / right)
}

fn difference(left: Option<f64>, right: Option<f64>) -> Option<f64> {
    Some(left? - right?)
}

/// How far two figures are apart; `slack` in their own unit.
fn agreement(left: Option<f64>, right: Option<f64>, slack: f64, has_reason: bool) -> Agreement {
    let (Some(left), Some(right)) = (left, right) else {
        return Agreement::Unknown;
    };
    let apart = (left - right).abs();
    if apart == 0.0 {
        Agreement::Equal
    } else if apart <= slack || apart <= WITHIN_RATIO * right.abs() {
        Agreement::Within
    } else if has_reason {
        Agreement::Expected
    } else {
        Agreement::Differs
    }
}

/// Counts, which are equal or are not.
fn counts(both: [Side<'_>; 2]) -> Vec<ParityRow> {
    let of = |pick: fn(&RequestRecord) -> u64| {
        both.map(|side| Some(side.records.iter().map(pick).sum::<u64>() as f64))
    };
    let figures: [(&str, [Option<f64>; 2]); 7] = [
        ("requests", of(|_| 1)),
        ("successes", of(|record| u64::from(record.succeeded()))),
        ("attempts", of(|record| record.attempts.len() as u64)),
        (
            "input_tokens",
            of(|record| record.usage.map_or(0, |usage| usage.prompt_tokens)),
        ),
        (
            "output_tokens",
            of(|record| record.usage.map_or(0, |usage| usage.completion_tokens)),
        ),
        ("hit_rate", both.map(|side| side.hit_rate)),
        (
            "in_flight_max",
            both.map(|side| in_flight_max(side.records)),
        ),
    ];
    figures
        .into_iter()
        .map(|(metric, [aisbench, native])| {
            let reason = reason(metric, "total", By::Count);
            let exact = agreement(aisbench, native, 0.0, reason.is_some());
            ParityRow {
                metric: metric.to_owned(),
                statistic: "total".to_owned(),
                by: By::Count,
                aisbench,
                native,
                ratio: ratio(aisbench, native),
                difference: difference(aisbench, native),
                interval: None,
                // 5 % is no agreement of counts.
                agreement: match exact {
                    Agreement::Within if reason.is_some() => Agreement::Expected,
                    Agreement::Within => Agreement::Differs,
                    other => other,
                },
                reason: reason.map(str::to_owned),
                truth_aisbench: None,
                truth_native: None,
                nearer: None,
            }
        })
        .collect()
}

/// Most requests between their send and their end at one moment.
fn in_flight_max(records: &[RequestRecord]) -> Option<f64> {
    let spans = records
        .iter()
        .filter_map(|record| Some((record.t_send_ns, record.ended_at()?)));
    let mut events: Vec<(u64, i64)> = spans
        .flat_map(|(from, to)| [(from.nanos(), 1), (to.nanos(), -1)])
        .collect();
    // An end frees its slot before a start at the same moment takes it.
    events.sort_unstable();
    let mut level = 0;
    let levels = events.iter().map(|(_, step)| {
        level += step;
        level
    });
    levels.max().map(|most| most as f64)
}
