//! Each figure that two runs are compared by, and how its difference is
//! estimated: latencies over pairs of requests or over both series, ratios as
//! ratios of sums, rates over slices of time.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rounds::Sides;
use super::sample::Sample;
use crate::rng::Seed;
use crate::stats::{Difference, Estimate, INDICATIVE_BELOW, Pairing, Percent};

/// Requests for each slice of time that a rate is counted in.
const SLICE_REQUESTS: usize = 4;
/// Most slices of one run.
const SLICES_MAX: usize = 400;

/// What is compared.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Send to first token, ms.
    TtftMs,
    /// Time per output token, ms.
    TpotMs,
    /// Gaps between content chunks, pooled, ms.
    ItlMs,
    /// Send to last token, ms.
    E2elMs,
    /// Successes a second.
    RequestsPerSecond,
    /// Output tokens a second.
    OutputTokensPerSecond,
    /// Cached over prompt tokens by usage, 0..=1.
    HitRate,
    /// Successes over requests sent, 0..=1.
    SuccessRate,
}

impl Quantity {
    /// Whether less of it is better.
    pub fn is_cost(self) -> bool {
        matches!(
            self,
            Self::TtftMs | Self::TpotMs | Self::ItlMs | Self::E2elMs
        )
    }

    /// Whether it is a ratio in 0..=1, whose difference is told in percentage
    /// points and not in percent of itself.
    pub fn is_ratio(self) -> bool {
        matches!(self, Self::HitRate | Self::SuccessRate)
    }
}

/// Which statistic of it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// Arithmetic mean.
    Mean,
    /// Median.
    P50,
    /// 99th percentile.
    P99,
    /// The ratio or rate itself.
    Overall,
}

/// What the interval says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judgment {
    /// The right side is better: the interval leaves out 0.
    Better,
    /// The right side is worse.
    Worse,
    /// No difference was found.
    NotFound,
    /// Both sides are the same in every sample.
    Same,
}

/// One figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricDifference {
    /// What.
    pub quantity: Quantity,
    /// Which statistic.
    pub statistic: Statistic,
    /// What the interval says.
    pub judgment: Judgment,
    /// Whether pairs were compared.
    pub pairing: Pairing,
    /// Samples of each side: requests, or slices of time for rates.
    pub samples: [u64; 2],
    /// It rests on fewer than 100 samples on a side.
    pub indicative: bool,
    /// The figures, and the difference right − left.
    #[serde(flatten)]
    pub difference: Difference,
}

impl MetricDifference {
    /// The difference as it is told: of ratios the absolute one, else the
    /// relative one where there is one.
    pub fn told(&self) -> Estimate {
        let relative = self
            .difference
            .relative
            .filter(|_| !self.quantity.is_ratio());
        relative.unwrap_or(self.difference.absolute)
    }

    /// Whether [`told`](Self::told) is relative.
    pub fn is_relative(&self) -> bool {
        !self.quantity.is_ratio() && self.difference.relative.is_some()
    }

    fn new(
        figure: (Quantity, Statistic),
        pairing: Pairing,
        samples: [usize; 2],
        difference: Difference,
    ) -> Self {
        let (quantity, statistic) = figure;
        let mut metric = Self {
            quantity,
            statistic,
            judgment: Judgment::NotFound,
            pairing,
            samples: samples.map(|count| count as u64),
            indicative: samples.iter().any(|&count| count < INDICATIVE_BELOW),
            difference,
        };
        let told = metric.told();
        metric.judgment = if told.is_found() {
            if (told.value < 0.0) == quantity.is_cost() {
                Judgment::Better
            } else {
                Judgment::Worse
            }
        } else if told.interval.high <= told.interval.low {
            Judgment::Same
        } else {
            Judgment::NotFound
        };
        metric
    }
}

/// Pairs of requests by run and key, in the left side's send order.
pub(super) fn pairs<'a>(left: &'a [Sample], right: &'a [Sample]) -> Vec<[&'a Sample; 2]> {
    let by_key: HashMap<_, _> = right
        .iter()
        .filter_map(|sample| Some(((sample.run, sample.key.as_deref()?), sample)))
        .collect();
    let pair = |sample: &'a Sample| {
        let other = by_key.get(&(sample.run, sample.key.as_deref()?))?;
        Some([sample, *other])
    };
    left.iter().filter_map(pair).collect()
}

/// Everything the comparison is made over.
pub(super) struct Scene<'a> {
    pub(super) left: &'a [Sample],
    pub(super) right: &'a [Sample],
    /// Pairs, where the sides have the same data set.
    pub(super) pairs: Option<Vec<[&'a Sample; 2]>>,
    pub(super) seed: Seed,
}

/// All figures that exist on both sides.
pub(super) fn metrics(scene: &Scene<'_>) -> Vec<MetricDifference> {
    let mut all = Vec::new();
    all.extend(scene.latency(Quantity::TtftMs, |sample| sample.ttft_ms));
    all.extend(scene.latency(Quantity::TpotMs, |sample| sample.tpot_ms));
    let gaps = |sample: &Sample| {
        (sample.ok && sample.gaps > 0).then_some([sample.gaps_ms, sample.gaps as f64])
    };
    all.extend(scene.ratio((Quantity::ItlMs, Statistic::Mean), gaps));
    all.extend(scene.latency(Quantity::E2elMs, |sample| sample.e2el_ms));
    all.extend(scene.rate(Quantity::RequestsPerSecond, |sample| {
        (sample.ended_s, sample.ended_s, 1.0)
    }));
    // A rate without the tokens of some requests would be too low, not unknown.
    let counted = |sample: &Sample| !sample.ok || sample.output_tokens.is_some();
    if scene.left.iter().chain(scene.right).all(counted) {
        all.extend(scene.rate(Quantity::OutputTokensPerSecond, |sample| {
            let first = sample.sent_s + sample.ttft_ms.unwrap_or(0.0) / 1e3;
            (
                first.min(sample.ended_s),
                sample.ended_s,
                sample.output_tokens.unwrap_or(0) as f64,
            )
        }));
    }
    let cached = |sample: &Sample| {
        let [prompt, cached] = sample.cached.filter(|_| sample.ok)?;
        Some([cached as f64, prompt as f64])
    };
    all.extend(scene.ratio((Quantity::HitRate, Statistic::Overall), cached));
    let success = |sample: &Sample| Some([f64::from(u8::from(sample.ok)), 1.0]);
    all.extend(scene.ratio((Quantity::SuccessRate, Statistic::Overall), success));
    all
}

impl Scene<'_> {
    /// What `pick` gives for both sides; of a pair, both or none.
    fn both<T: Copy>(&self, pick: impl Fn(&Sample) -> Option<T>) -> Sides<T> {
        let of = |sample: &Sample| Some((sample.run, pick(sample)?));
        let Some(pairs) = &self.pairs else {
            let side = |samples: &[Sample]| samples.iter().filter_map(of).collect();
            return Sides {
                rows: [side(self.left), side(self.right)],
                pairing: Pairing::Apart,
            };
        };
        let both = pairs
            .iter()
            .filter_map(|[left, right]| of(left).zip(of(right)));
        let (left, right) = both.unzip();
        Sides {
            rows: [left, right],
            pairing: Pairing::Paired,
        }
    }

    fn latency(
        &self,
        quantity: Quantity,
        pick: fn(&Sample) -> Option<f64>,
    ) -> Vec<MetricDifference> {
        let sides = self.both(|sample| pick(sample).filter(|_| sample.ok));
        let label = format!("compare/{quantity:?}");
        let mut stream = self.seed.stream(&label);
        let mean = sides.mean(&mut stream);
        let percents = [50.0, 99.0].map(|percent| Percent::new(percent).expect("a percent"));
        let [p50, p99] = sides.percentiles(percents, &mut stream);
        let all = [
            (Statistic::Mean, mean),
            (Statistic::P50, p50),
            (Statistic::P99, p99),
        ];
        all.into_iter()
            .filter_map(|(statistic, difference)| {
                let figure = (quantity, statistic);
                let counts = sides.counts();
                Some(MetricDifference::new(
                    figure,
                    sides.pairing,
                    counts,
                    difference?,
                ))
            })
            .collect()
    }

    /// A ratio of sums over requests.
    fn ratio(
        &self,
        figure: (Quantity, Statistic),
        pick: impl Fn(&Sample) -> Option<[f64; 2]>,
    ) -> Option<MetricDifference> {
        self.quotients(figure, &self.both(pick))
    }

    /// An amount a second, from where each success spreads its own in time. Runs of
    /// one data set are alike slice by slice: what ramping up and draining cost
    /// cancels out.
    fn rate(
        &self,
        quantity: Quantity,
        spread: fn(&Sample) -> (f64, f64, f64),
    ) -> Option<MetricDifference> {
        let rows = [self.left, self.right].map(|samples| slices(samples, spread));
        let are_alike = self.pairs.is_some() && rows[0].len() == rows[1].len();
        let pairing = if are_alike {
            Pairing::Paired
        } else {
            Pairing::Apart
        };
        self.quotients((quantity, Statistic::Overall), &Sides { rows, pairing })
    }

    fn quotients(
        &self,
        figure: (Quantity, Statistic),
        sides: &Sides<[f64; 2]>,
    ) -> Option<MetricDifference> {
        let mut stream = self.seed.stream(&format!("compare/{:?}", figure.0));
        let difference = sides.ratio(&mut stream)?;
        Some(MetricDifference::new(
            figure,
            sides.pairing,
            sides.counts(),
            difference,
        ))
    }
}

/// Run, amount and seconds of equal slices from each run's first send to its
/// last end, so that the ratio of their sums is the rate of the whole.
fn slices(samples: &[Sample], spread: fn(&Sample) -> (f64, f64, f64)) -> Vec<(u32, [f64; 2])> {
    samples
        .chunk_by(|one, next| one.run == next.run)
        .flat_map(|run| {
            let slices = run_slices(run, spread).into_iter();
            slices.map(|slice| (run[0].run, slice))
        })
        .collect()
}

fn run_slices(run: &[Sample], spread: fn(&Sample) -> (f64, f64, f64)) -> Vec<[f64; 2]> {
    let start = run
        .iter()
        .map(|sample| sample.sent_s)
        .fold(f64::INFINITY, f64::min);
    let end = run
        .iter()
        .map(|sample| sample.ended_s)
        .fold(start, f64::max);
    if end <= start {
        return Vec::new();
    }
    let count = (run.len() / SLICE_REQUESTS).clamp(2, SLICES_MAX);
    let width = (end - start) / count as f64;
    let mut slices = vec![[0.0, width]; count];
    for (from, to, amount) in run.iter().filter(|sample| sample.ok).map(spread) {
        let place = |at: f64| ((at - start) / width).clamp(0.0, count as f64);
        deposit(&mut slices, place(from), place(to), amount);
    }
    slices
}

/// Spreads `amount` evenly over the slices from place `from` to place `to`.
fn deposit(slices: &mut [[f64; 2]], from: f64, to: f64, amount: f64) {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "places are within the slices"
    )]
    let index = |place: f64| (place as usize).min(slices.len() - 1);
    let (first, last) = (index(from), index(to));
    if first == last {
        slices[first][0] += amount;
        return;
    }
    for (slice, row) in slices.iter_mut().enumerate().take(last + 1).skip(first) {
        let inside = to.min(slice as f64 + 1.0) - from.max(slice as f64);
        row[0] += amount * inside.max(0.0) / (to - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_keep_every_token_and_every_second() {
        let samples: Vec<Sample> = (0..40_u32)
            .map(|index| Sample {
                run: index / 20,
                sent_s: f64::from(index % 20),
                ended_s: f64::from(index % 20) + 3.5,
                ok: index != 7,
                ttft_ms: Some(500.0),
                output_tokens: Some(10),
                ..Sample::default()
            })
            .collect();
        let spread = |sample: &Sample| {
            let tokens = sample.output_tokens.unwrap() as f64;
            (sample.sent_s + 0.5, sample.ended_s, tokens)
        };
        let slices = slices(&samples, spread);
        let sum = |place: usize| slices.iter().map(|(_, slice)| slice[place]).sum::<f64>();
        assert!((sum(0) - 390.0).abs() < 1e-9, "{}", sum(0));
        assert!((sum(1) - 2.0 * 22.5).abs() < 1e-9, "{}", sum(1));
        assert_eq!(slices.len(), 10);
    }

    #[test]
    fn only_requests_of_both_sides_are_pairs() {
        let sample = |run, key: &str| Sample {
            run,
            key: Some(key.to_owned()),
            ..Sample::default()
        };
        let left = [sample(0, "a"), sample(0, "b"), sample(1, "a")];
        let right = [sample(1, "a"), sample(0, "c"), sample(0, "a")];
        let pairs = pairs(&left, &right);
        let keys: Vec<_> = pairs
            .iter()
            .map(|[left, right]| (left.run, right.run))
            .collect();
        assert_eq!(keys, [(0, 0), (1, 1)]);
    }
}
