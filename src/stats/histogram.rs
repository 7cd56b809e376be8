//! HDR histogram of nanoseconds for series too long to keep: 1 µs resolution,
//! three significant digits, growing to whatever is recorded. It refuses to
//! clamp; count, sum, minimum and maximum are exact.
//!
//! Cost: about 8 ns a record, 24 K counters (192 KiB) up to one hour.

use std::ops::RangeInclusive;

use super::summary::{Percent, Summary, interpolate};

/// Smallest difference that is kept apart.
pub const RESOLUTION_NS: u64 = 1_000;
/// Largest relative error of a value above a thousand resolutions.
pub const RELATIVE_ERROR: f64 = 0.001;

const SIGNIFICANT_DIGITS: u8 = 3;

/// A mergeable histogram of durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    sum: u128,
    /// Sum of squares in µs², so that 10⁹ hours fit.
    squares: f64,
    range: Option<(u64, u64)>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        let mut counts = hdrhistogram::Histogram::new_with_bounds(
            RESOLUTION_NS,
            2 * RESOLUTION_NS,
            SIGNIFICANT_DIGITS,
        )
        .expect("the bounds are constants that fit");
        counts.auto(true);
        Self::around(counts)
    }

    fn around(counts: hdrhistogram::Histogram<u64>) -> Self {
        Self {
            counts,
            sum: 0,
            squares: 0.0,
            range: None,
        }
    }

    /// Counts one duration of `nanos`.
    pub fn record(&mut self, nanos: u64) {
        self.counts
            .record(nanos)
            .expect("an auto-resizing histogram takes every value");
        self.note(nanos, 1);
    }

    fn note(&mut self, nanos: u64, count: u64) {
        self.sum += u128::from(nanos) * u128::from(count);
        self.squares += (nanos as f64 / 1e3).powi(2) * count as f64;
        let (low, high) = self.range.unwrap_or((nanos, nanos));
        self.range = Some((low.min(nanos), high.max(nanos)));
    }

    /// Adds everything `other` holds.
    pub fn merge(&mut self, other: &Self) {
        self.counts
            .add(&other.counts)
            .expect("an auto-resizing histogram takes every value");
        self.sum += other.sum;
        self.squares += other.squares;
        for end in other.range.into_iter().flat_map(|(low, high)| [low, high]) {
            let (low, high) = self.range.unwrap_or((end, end));
            self.range = Some((low.min(end), high.max(end)));
        }
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Smallest and largest duration, exact.
    pub fn range(&self) -> Option<RangeInclusive<u64>> {
        self.range.map(|(low, high)| low..=high)
    }

    /// Mean in milliseconds, exact.
    pub fn mean_ms(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64 / 1e6)
    }

    /// Percentiles in milliseconds, interpolated between the closest ranks as
    /// for exact samples; each rank is known to the histogram's resolution.
    pub fn percentiles_ms(&self, percents: &[Percent]) -> Vec<Option<f64>> {
        let ranks = Ranks::of(self);
        percents.iter().map(|&percent| ranks.at(percent)).collect()
    }

    /// Summary in milliseconds; count, mean, std, min and max are exact.
    pub fn summary_ms(&self, extra: &[Percent]) -> Summary {
        let ranks = Ranks::of(self);
        let mean = self.mean_ms();
        let count = self.count();
        Summary {
            count,
            mean,
            std: mean.map(|mean| {
                let squares = self.squares / count as f64 / 1e6;
                (squares - mean * mean).max(0.0).sqrt()
            }),
            min: self.range.map(|(low, _)| low as f64 / 1e6),
            max: self.range.map(|(_, high)| high as f64 / 1e6),
            ..Summary::default()
        }
        .with_percentiles(extra, |percent| ranks.at(percent))
    }

    pub(super) fn counts(&self) -> &hdrhistogram::Histogram<u64> {
        &self.counts
    }

    /// The value that stands for each non-empty bucket, ascending, with its
    /// count: the middle of the bucket, but 0 for the first, because a gap of
    /// zero (two events in one read) must stay zero.
    fn buckets(&self) -> Vec<(u64, u64)> {
        let standing = |value| match self.counts.lowest_equivalent(value) {
            0 => 0,
            _ => self.counts.median_equivalent(value),
        };
        self.counts
            .iter_recorded()
            .map(|step| (standing(step.value_iterated_to()), step.count_at_value()))
            .collect()
    }
}

/// Bucket values with the number of samples up to and including each.
struct Ranks {
    buckets: Vec<(f64, u64)>,
}

impl Ranks {
    fn of(histogram: &Histogram) -> Self {
        let Some((low, high)) = histogram.range else {
            return Self { buckets: vec![] };
        };
        let mut up_to = 0;
        let buckets = histogram
            .buckets()
            .into_iter()
            .map(|(nanos, count)| {
                up_to += count;
                (nanos.clamp(low, high) as f64 / 1e6, up_to)
            })
            .collect();
        let mut ranks = Self { buckets };
        // The ends are known exactly.
        if let Some(last) = ranks.buckets.last_mut() {
            last.0 = high as f64 / 1e6;
        }
        if let Some(first) = ranks.buckets.first_mut() {
            first.0 = low as f64 / 1e6;
        }
        ranks
    }

    fn at(&self, percent: Percent) -> Option<f64> {
        let last = self.buckets.last()?.1 - 1;
        let position = last as f64 * percent.fraction();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0..=last, rounded down"
        )]
        let below = position as u64;
        let low = self.value(below);
        let high = self.value((below + 1).min(last));
        Some(interpolate(low, high, position - below as f64))
    }

    fn value(&self, rank: u64) -> f64 {
        let bucket = self.buckets.partition_point(|&(_, up_to)| up_to <= rank);
        self.buckets[bucket].0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::percentile;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for &value in values {
            histogram.record(value);
        }
        histogram
    }

    #[test]
    fn long_samples_are_not_clamped_and_zero_stays_zero() {
        let hours = 9_000_000_000_000;
        let gaps = of(&[0, 0, 5_000, hours]);
        assert_eq!(gaps.count(), 4);
        assert_eq!(gaps.range(), Some(0..=hours));
        let summary = gaps.summary_ms(&[Percent::new(0.0).unwrap(), Percent::new(100.0).unwrap()]);
        assert_eq!(summary.max, Some(9_000_000.0));
        assert_eq!(summary.extra["p100"], summary.max);
        assert_eq!(summary.extra["p0"], Some(0.0));
        let short = of(&[0, 0, 5_000]).summary_ms(&[]);
        assert_eq!(short.p50, Some(0.0));
        assert_eq!(short.max, Some(0.005));
        assert!((short.mean.unwrap() - 0.005 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn percentiles_agree_with_exact_samples() {
        let nanos = [10, 10, 10, 50, 20, 40].map(|ms: u64| ms * 1_000_000);
        let summary = of(&nanos).summary_ms(&[]);
        for (actual, expected) in [
            (summary.p50, 15.0),
            (summary.p90, 45.0),
            (summary.p99, 49.5),
        ] {
            assert!((actual.unwrap() / expected - 1.0).abs() < RELATIVE_ERROR);
        }
        assert!((summary.mean.unwrap() - 23.333).abs() < 1e-3);
        let std = ((3.0 * 13.333_f64.powi(2)
            + 26.667_f64.powi(2)
            + 3.333_f64.powi(2)
            + 16.667_f64.powi(2))
            / 6.0)
            .sqrt();
        assert!((summary.std.unwrap() - std).abs() < 1e-2);
    }

    #[test]
    fn an_empty_histogram_has_no_statistics() {
        let empty = Histogram::new();
        assert_eq!(empty.summary_ms(&[]), Summary::default());
    }

    /// Durations from 0 to half a day, most of them short.
    fn nanos() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(
            prop_oneof![Just(0), 0..1_000_000_u64, 0..43_200_000_000_000_u64],
            1..60,
        )
    }

    proptest! {
        #[test]
        fn merging_in_any_grouping_is_recording_it_all(
            (a, b, c) in (nanos(), nanos(), nanos())
        ) {
            let mut left = of(&a);
            left.merge(&of(&b));
            left.merge(&of(&c));
            let mut tail = of(&b);
            tail.merge(&of(&c));
            let mut right = of(&a);
            right.merge(&tail);
            let whole = of(&[a, b, c].concat());
            prop_assert_eq!(left.buckets(), whole.buckets());
            prop_assert_eq!(right.buckets(), whole.buckets());
            prop_assert_eq!((left.sum, left.range), (whole.sum, whole.range));
            prop_assert_eq!((right.sum, right.range), (whole.sum, whole.range));
        }

        #[test]
        fn every_percentile_is_within_the_stated_error(
            values in nanos(), percent in 0.0..=100.0_f64
        ) {
            let percent = Percent::new(percent).unwrap();
            let exact: Vec<f64> = values.iter().map(|&n| n as f64 / 1e6).collect();
            let exact = percentile(&exact, percent).unwrap();
            let actual = of(&values).percentiles_ms(&[percent])[0].unwrap();
            let allowed = (RESOLUTION_NS as f64 / 1e6).max(exact * RELATIVE_ERROR);
            // Interpolation adds the errors of two ranks at most.
            let top = *values.iter().max().unwrap() as f64 / 1e6;
            prop_assert!(
                (actual - exact).abs() <= allowed.max(top * RELATIVE_ERROR),
                "{} is not {}", actual, exact
            );
        }
    }
}
