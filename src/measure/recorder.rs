//! A histogram that many threads fill while others look: for live progress and
//! the client's own health. Exact percentiles come from the records instead.
//! It has never heard of what it counts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps within one power of two; the relative error is at most 1/16.
const STEPS_BITS: u32 = 4;
const STEPS: usize = 1 << STEPS_BITS;
const BUCKETS: usize = STEPS * (64 - STEPS_BITS as usize + 1);

/// A log-linear histogram of unsigned numbers (nanoseconds, usually). Numbers
/// below 16 are exact, others are known within 6.25 %; the maximum is exact.
/// Recording takes two atomic additions and never waits.
pub struct LiveHistogram {
    buckets: Box<[AtomicU64]>,
    max: AtomicU64,
}

impl Default for LiveHistogram {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for LiveHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveHistogram")
            .field("count", &self.count())
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

impl LiveHistogram {
    /// Counts `value`.
    pub fn record(&self, value: u64) {
        self.buckets[bucket(value)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    /// Values counted so far.
    pub fn count(&self) -> u64 {
        let counts = self.buckets.iter().map(|n| n.load(Ordering::Relaxed));
        counts.sum()
    }

    /// The largest value, exact; 0 when there is none.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// The value at or below which a share `q` (0..=1) of the values lies: the
    /// upper end of its step. `None` when there is none.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let counts: Vec<u64> = self
            .buckets
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect();
        let total: u64 = counts.iter().sum();
        let rank = (q.clamp(0.0, 1.0) * total as f64).ceil().max(1.0);
        let mut seen = 0_u64;
        let index = counts.iter().position(|count| {
            seen += count;
            *count > 0 && seen as f64 >= rank
        })?;
        Some(highest(index).min(self.max()))
    }
}

/// Which step `value` falls into.
fn bucket(value: u64) -> usize {
    let magnitude = (value | (STEPS as u64 - 1)).ilog2() - (STEPS_BITS - 1);
    // Below 16 the magnitude is 0; above, the four bits behind the leading one
    // choose the step.
    let Some(shift) = magnitude.checked_sub(1) else {
        return usize::try_from(value).expect("below 16");
    };
    let step = usize::try_from((value >> shift) & (STEPS as u64 - 1)).expect("four bits");
    STEPS * (shift as usize + 1) + step
}

/// The largest value of step `index`.
fn highest(index: usize) -> u64 {
    let (row, step) = (index / STEPS, (index % STEPS) as u64);
    let Some(shift) = row.checked_sub(1) else {
        return step;
    };
    let low = (STEPS as u64 + step) << shift;
    low + ((1_u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_step_holds_its_values_within_a_sixteenth(value in any::<u64>()) {
            let top = highest(bucket(value));
            prop_assert!(top >= value);
            prop_assert!(top - value <= value / 16);
            prop_assert_eq!(bucket(top), bucket(value));
            if top < u64::MAX {
                prop_assert_eq!(bucket(top + 1), bucket(value) + 1);
            }
        }
    }

    #[test]
    fn quantiles_are_the_upper_ends_of_their_steps() {
        let histogram = LiveHistogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.count()), (None, 0));
        for value in [0, 5, 5, 5, 9_000_000_000_000] {
            histogram.record(value);
        }
        assert_eq!(histogram.quantile(0.0), Some(0));
        assert_eq!(histogram.quantile(0.5), Some(5));
        assert_eq!(histogram.quantile(1.0), Some(9_000_000_000_000));
        assert_eq!((histogram.count(), histogram.max()), (5, 9_000_000_000_000));
    }
}
