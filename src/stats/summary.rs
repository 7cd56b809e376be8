//! Exact percentiles and the summary every latency is reported by. It works on
//! samples held in memory; pooled series of any size are `histogram`'s.
//!
//! Percentiles interpolate linearly between the two closest ranks, numpy's
//! default, and the standard deviation is the population's, so the figures
//! compare one to one with `vllm bench serve`.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A percentile's argument in percent, 0..=100.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Percent(f64);

impl Percent {
    /// `percent`, or `None` outside 0..=100.
    pub fn new(percent: f64) -> Option<Self> {
        (0.0..=100.0).contains(&percent).then_some(Self(percent))
    }

    /// The number, 0..=100.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// The same as a fraction, 0..=1.
    pub fn fraction(self) -> f64 {
        self.0 / 100.0
    }
}

impl fmt::Display for Percent {
    /// The label, e.g. `p99.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// The statistics of one series. Of an empty series everything but the count is
/// absent: nothing was measured, which is not 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Population standard deviation.
    pub std: Option<f64>,
    /// Smallest sample.
    pub min: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 75th percentile.
    pub p75: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: Option<f64>,
    /// Largest sample.
    pub max: Option<f64>,
    /// Percentiles asked for besides, by label (`p99.99`).
    #[serde(flatten)]
    pub extra: BTreeMap<String, Option<f64>>,
}

impl Summary {
    /// Fills the percentiles from `at`, which answers for each percent.
    pub(super) fn with_percentiles(
        mut self,
        extra: &[Percent],
        at: impl Fn(Percent) -> Option<f64>,
    ) -> Self {
        self.p50 = at(Percent(50.0));
        self.p75 = at(Percent(75.0));
        self.p90 = at(Percent(90.0));
        self.p95 = at(Percent(95.0));
        self.p99 = at(Percent(99.0));
        self.p99_9 = at(Percent(99.9));
        let standard = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9];
        self.extra = extra
            .iter()
            .filter(|percent| !standard.contains(&percent.0))
            .map(|&percent| (percent.to_string(), at(percent)))
            .collect();
        self
    }
}

/// Summary of `samples`, with the `extra` percentiles. Samples are finite.
pub fn summarize(samples: &[f64], extra: &[Percent]) -> Summary {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let mean = mean(samples);
    let std = mean.map(|mean| {
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        (squares / samples.len() as f64).sqrt()
    });
    Summary {
        count: samples.len() as u64,
        mean,
        std,
        min: sorted.first().copied(),
        max: sorted.last().copied(),
        ..Summary::default()
    }
    .with_percentiles(extra, |percent| percentile_of_sorted(&sorted, percent))
}

fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// The percentile of samples in any order; `None` without samples.
pub fn percentile(samples: &[f64], percent: Percent) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    percentile_of_sorted(&sorted, percent)
}

/// The percentile of ascending samples; `None` without samples.
pub fn percentile_of_sorted(sorted: &[f64], percent: Percent) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let (below, share) = rank(last, percent);
    Some(interpolate(
        sorted[below],
        sorted[(below + 1).min(last)],
        share,
    ))
}

/// The rank at or below the percentile among ranks `0..=last`, and how far
/// towards the next one it lies, 0..1.
pub(super) fn rank(last: usize, percent: Percent) -> (usize, f64) {
    let position = last as f64 * percent.fraction();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0..=last, rounded down"
    )]
    let below = position as usize;
    (below, position - below as f64)
}

/// Between `low` and `high`, from whichever end is nearer, as numpy does it, so
/// that the result stays inside and is monotone.
pub(super) fn interpolate(low: f64, high: f64, share: f64) -> f64 {
    let width = high - low;
    if share >= 0.5 {
        high - width * (1.0 - share)
    } else {
        low + width * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(actual: Option<f64>, expected: f64) {
        let actual = actual.unwrap();
        assert!(
            (actual - expected).abs() < 1e-3,
            "{actual} is not {expected}"
        );
    }

    #[test]
    fn latencies_aggregate_as_numpy_does() {
        let ttft = summarize(&[100.0, 200.0, 300.0], &[]);
        near(ttft.mean, 200.0);
        near(ttft.p50, 200.0);
        near(ttft.p90, 280.0);
        near(ttft.p99, 298.0);
        near(ttft.std, 81.650);
        let tpot = summarize(&[10.0, 50.0, 30.0], &[]);
        near(tpot.mean, 30.0);
        near(tpot.p90, 46.0);
        near(tpot.p99, 49.6);
        let itl = summarize(&[10.0, 10.0, 10.0, 50.0, 20.0, 40.0], &[]);
        near(itl.mean, 23.333);
        near(itl.p50, 15.0);
        near(itl.p90, 45.0);
        near(itl.p99, 49.5);
        let e2el = summarize(&[130.0, 250.0, 360.0], &[]);
        near(e2el.mean, 246.667);
        near(e2el.p50, 250.0);
        near(e2el.p90, 338.0);
        near(e2el.p99, 357.8);
    }

    #[test]
    fn extreme_samples_are_neither_clamped_nor_lost() {
        let extra: Vec<_> = [0.0, 50.0, 90.0, 99.0, 99.9, 100.0]
            .into_iter()
            .filter_map(Percent::new)
            .collect();
        let e2el = summarize(&[0.4, 12.0, 9_000_000.0], &extra);
        assert_eq!(e2el.count, 3);
        assert_eq!((e2el.min, e2el.max), (Some(0.4), Some(9_000_000.0)));
        assert_eq!(e2el.p50, Some(12.0));
        assert_eq!(e2el.extra["p0"], e2el.min);
        assert_eq!(e2el.extra["p100"], e2el.max);
        assert_eq!(e2el.extra.len(), 2, "the standard ones stand once");
    }

    #[test]
    fn arguments_are_percent() {
        let samples: Vec<f64> = (0..=1_000).map(f64::from).collect();
        assert_eq!(
            percentile(&samples, Percent::new(0.5).unwrap()),
            Some(5.0),
            "0.5 is the half percent, not the median"
        );
        assert_eq!(Percent::new(100.1), None);
        assert_eq!(Percent::new(-0.1), None);
        assert_eq!(Percent::new(f64::NAN), None);
    }

    #[test]
    fn an_empty_series_has_no_statistics() {
        let json = serde_json::to_value(summarize(&[], &[Percent(25.0)])).unwrap();
        let fields = json.as_object().unwrap();
        assert_eq!(fields["count"], 0);
        assert_eq!(fields.len(), 12);
        for (name, value) in fields.iter().filter(|(name, _)| *name != "count") {
            assert!(value.is_null(), "{name} is {value}");
        }
    }

    #[test]
    fn one_sample_is_every_percentile() {
        let one = summarize(&[7.5], &[]);
        for value in [one.mean, one.min, one.p50, one.p99, one.p99_9, one.max] {
            assert_eq!(value, Some(7.5));
        }
        assert_eq!(one.std, Some(0.0));
    }
}
