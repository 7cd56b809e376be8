//! Length summaries as the manifest has them. Numbers only; how they are
//! written is not its business.

/// What a list of lengths looks like, in tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthSummary {
    /// Shortest.
    pub min: u64,
    /// Longest.
    pub max: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Up to ten bins of equal width, empty ones left out.
    pub bins: Vec<LengthBin>,
}

/// The lengths within one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthBin {
    /// Shortest length that is there, not the bin's border.
    pub min: u64,
    /// Longest length that is there.
    pub max: u64,
    /// Number of lengths.
    pub count: usize,
}

/// Most bins of a summary.
const BINS: u64 = 10;

/// Summarizes `lengths`; `None` when there are none.
pub fn summarize(lengths: &[u64]) -> Option<LengthSummary> {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let (&min, &max) = (sorted.first()?, sorted.last()?);
    let sum: u128 = sorted.iter().map(|&length| u128::from(length)).sum();
    Some(LengthSummary {
        min,
        max,
        mean: sum as f64 / sorted.len() as f64,
        p50: percentile(&sorted, 0.50),
        p90: percentile(&sorted, 0.90),
        p95: percentile(&sorted, 0.95),
        p99: percentile(&sorted, 0.99),
        bins: bins(&sorted, min, max),
    })
}

/// Linear interpolation at rank `(n − 1) · quantile` of an ascending list, in
/// the reference's order of operations, so that the last digit agrees.
fn percentile(sorted: &[u64], quantile: f64) -> f64 {
    let rank = (sorted.len() - 1) as f64 * quantile;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank is in 0..n, and rounding down is meant"
    )]
    let below = rank as usize;
    let low = sorted[below] as f64;
    let high = sorted[(below + 1).min(sorted.len() - 1)] as f64;
    let weight = rank - below as f64;
    low * (1.0 - weight) + high * weight
}

/// Bins of width `max(1, ⌈(max − min + 1) / 10⌉)` from `min` on.
fn bins(sorted: &[u64], min: u64, max: u64) -> Vec<LengthBin> {
    let width = (max - min).div_euclid(BINS) + 1;
    let bin = |length: u64| (length - min) / width;
    sorted
        .chunk_by(|&a, &b| bin(a) == bin(b))
        .map(|members| LengthBin {
            min: members[0],
            max: members[members.len() - 1],
            count: members.len(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "the reference's digits, to the last")]
    fn five_lengths_as_the_reference_summarizes_them() {
        let summary = summarize(&[104, 64, 72, 88, 80]).unwrap();
        assert_eq!((summary.min, summary.max), (64, 104));
        assert_eq!(
            [summary.mean, summary.p50, summary.p90, summary.p95],
            [81.6, 80.0, 97.6, 100.800_000_000_000_01]
        );
        assert_eq!(summary.p99, 103.360_000_000_000_01);
        let bins: Vec<u64> = summary.bins.iter().map(|bin| bin.min).collect();
        assert_eq!(bins, [64, 72, 80, 88, 104]);
    }

    #[test]
    fn bins_are_as_wide_as_a_tenth_rounded_up() {
        // 1..=20: width 2, ten bins of two.
        let summary = summarize(&(1..=20).collect::<Vec<_>>()).unwrap();
        assert_eq!(summary.bins.len(), 10);
        // 1..=21: width 3, seven bins.
        let summary = summarize(&(1..=21).collect::<Vec<_>>()).unwrap();
        assert_eq!(
            (summary.bins.len(), summary.bins[6]),
            (
                7,
                LengthBin {
                    min: 19,
                    max: 21,
                    count: 3
                }
            )
        );
        let one = summarize(&[7, 7]).unwrap();
        assert_eq!((one.bins.len(), one.bins[0].count), (1, 2));
    }

    #[test]
    fn extremes_do_not_overflow() {
        let summary = summarize(&[0, u64::MAX]).unwrap();
        assert_eq!(summary.bins.len(), 2);
        assert_eq!(summarize(&[]), None);
    }
}
