//! The pooled gaps between content chunks of all requests that count: sorted
//! while they are few, in a histogram when they are many. Made once, asked often.

use rayon::prelude::*;

use super::rows::Row;
use crate::measure::gaps;
use crate::stats::{
    Histogram, Percent, RELATIVE_ERROR, RESOLUTION_NS, percentile_of_sorted, summarize,
};

use super::latency::{ItlMethod, ItlSummary};

/// Gaps kept one by one; beyond, they are counted in a histogram.
const EXACT_MAX: usize = 1_000_000;
/// Requests whose gaps are counted together. A fixed number, so that sums are
/// added up in the same order on every machine.
const CHUNK: usize = 16_384;

/// All gaps.
pub(super) enum PooledGaps {
    /// One by one, ascending, ms.
    Exact(Vec<f64>),
    /// Counted, ns.
    Counted(Box<Histogram>),
}

impl PooledGaps {
    /// Gaps of the rows at `order`.
    pub(super) fn of(rows: &[Row<'_>], order: &[usize]) -> Self {
        Self::with_limit(rows, order, EXACT_MAX)
    }

    fn with_limit(rows: &[Row<'_>], order: &[usize], exact_max: usize) -> Self {
        let records = |order: &[usize]| -> Vec<_> {
            order
                .iter()
                .filter_map(|&index| rows[index].record)
                .collect()
        };
        let count: usize = records(order)
            .into_iter()
            .map(|record| gaps(record).len())
            .sum();
        if count <= exact_max {
            let each = records(order).into_iter().flat_map(gaps);
            let mut samples: Vec<f64> = each.map(|nanos| nanos as f64 / 1e6).collect();
            samples.sort_unstable_by(f64::total_cmp);
            return Self::Exact(samples);
        }
        let parts: Vec<Histogram> = order
            .par_chunks(CHUNK)
            .map(|chunk| {
                let mut histogram = Histogram::new();
                for record in records(chunk) {
                    gaps(record).for_each(|nanos| histogram.record(nanos));
                }
                histogram
            })
            .collect();
        let mut whole = Histogram::new();
        for part in &parts {
            whole.merge(part);
        }
        Self::Counted(Box::new(whole))
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Exact(samples) => samples.len() as u64,
            Self::Counted(histogram) => histogram.count(),
        }
    }

    /// Percentiles, ms.
    pub(super) fn percentiles(&self, percents: &[Percent]) -> Vec<Option<f64>> {
        match self {
            Self::Exact(samples) => percents
                .iter()
                .map(|&percent| percentile_of_sorted(samples, percent))
                .collect(),
            Self::Counted(histogram) => histogram.percentiles_ms(percents),
        }
    }

    /// The summary with its method and error.
    pub(super) fn summary(&self, extra: &[Percent]) -> ItlSummary {
        match self {
            Self::Exact(samples) => ItlSummary {
                summary: summarize(samples, extra),
                method: ItlMethod::Exact,
                relative_error_max: 0.0,
                resolution_ms: 0.0,
            },
            Self::Counted(histogram) => ItlSummary {
                summary: histogram.summary_ms(extra),
                method: ItlMethod::Histogram,
                relative_error_max: RELATIVE_ERROR,
                resolution_ms: RESOLUTION_NS as f64 / 1e6,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::fixture::{planned, rows_of};
    use crate::measure::sample::stream;

    #[test]
    fn a_histogram_of_gaps_agrees_with_the_exact_ones() {
        let records = [
            stream(&[100.0, 110.0, 120.0, 130.0], 4),
            stream(&[200.0, 250.0], 2),
            stream(&[300.0, 320.0, 360.0], 3),
        ];
        let plan: Vec<_> = (0..3).map(|index| planned(index, 64, 0)).collect();
        let rows = rows_of(&plan, &records);
        let of = |exact_max| PooledGaps::with_limit(&rows, &[0, 1, 2], exact_max).summary(&[]);
        let exact = of(6);
        assert_eq!((exact.method, exact.summary.count), (ItlMethod::Exact, 6));
        assert_eq!(exact.summary.p50, Some(15.0));
        let counted = of(5);
        assert_eq!(counted.method, ItlMethod::Histogram);
        for (left, right) in [
            (exact.summary.p50, counted.summary.p50),
            (exact.summary.p90, counted.summary.p90),
            (exact.summary.p99, counted.summary.p99),
            (exact.summary.mean, counted.summary.mean),
            (exact.summary.max, counted.summary.max),
        ] {
            assert!((left.unwrap() / right.unwrap() - 1.0).abs() < RELATIVE_ERROR);
        }
    }
}
