//! A difference of two sides and how sure it is: from resamples, and from rounds
//! of two endpoints, where those differ by more than the samples within them: a
//! machine has good and bad minutes.
//!
//! What can be missed: an effect of `(z₀.₉₇₅ + z₀.₈₀) · σ` is found four times
//! out of five, where σ is the standard deviation of the resampled difference
//! (Bloom 1995, "minimum detectable effects").

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bootstrap::Interval;
use super::student::{NORMAL_80, NORMAL_975, student};

/// Normal quantiles of two-sided 5 % and of a power of 80 %, added.
const DETECTABLE_SIGMAS: f64 = NORMAL_975 + NORMAL_80;
/// Rounds from which on they tell how much they differ.
pub const ROUNDS_MIN: usize = 3;

/// One figure about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The difference itself.
    pub value: f64,
    /// Its 95 % interval.
    pub interval: Interval,
    /// Smallest difference that is found four times out of five.
    pub detectable: f64,
}

impl Estimate {
    /// Whether the interval leaves out 0.
    pub fn is_found(&self) -> bool {
        !self.interval.covers(0.0)
    }

    /// The same, at least as uncertain as the differences in single rounds say:
    /// Student's interval of their mean, around the value.
    fn over_rounds(self, rounds: &[f64]) -> Self {
        let count = rounds.len() as f64;
        let freedom = count - 1.0;
        let error = deviation(rounds) / freedom.sqrt();
        let upper = student(NORMAL_975, freedom);
        let half = upper * error;
        Self {
            value: self.value,
            interval: Interval {
                low: self.interval.low.min(self.value - half),
                high: self.interval.high.max(self.value + half),
            },
            detectable: self
                .detectable
                .max((upper + student(NORMAL_80, freedom)) * error),
        }
    }
}

/// A statistic on both sides, and the difference right − left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Of the left side.
    pub left: f64,
    /// Of the right side.
    pub right: f64,
    /// Right − left, in the statistic's own unit.
    pub absolute: Estimate,
    /// (Right − left) / left; absent where the left is not above 0, also when
    /// only resamples of it are not.
    pub relative: Option<Estimate>,
}

impl Difference {
    /// The same, at least as uncertain as its rounds say. Each is the statistic
    /// on both sides in one round of the two; fewer than [`ROUNDS_MIN`] say
    /// nothing.
    #[must_use]
    pub fn over_rounds(self, rounds: &[[f64; 2]]) -> Self {
        if rounds.len() < ROUNDS_MIN {
            return self;
        }
        let of = |figure: fn(&[f64; 2]) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
        let is_positive = rounds.iter().all(|[left, _]| *left > 0.0);
        Self {
            absolute: self.absolute.over_rounds(&of(|[left, right]| right - left)),
            relative: self
                .relative
                .filter(|_| is_positive)
                .map(|one| one.over_rounds(&of(|[left, right]| right / left - 1.0))),
            ..self
        }
    }

    pub(super) fn new(
        [left, right]: [f64; 2],
        replicates: &[[f64; 2]],
        stretch: f64,
    ) -> Option<Self> {
        let absolute = |[left, right]: [f64; 2]| right - left;
        let relative = |[left, right]: [f64; 2]| right / left - 1.0;
        let is_positive = left > 0.0 && replicates.iter().all(|pair| pair[0] > 0.0);
        let estimate = |of: fn([f64; 2]) -> f64| {
            let all: Vec<f64> = replicates.iter().copied().map(of).collect();
            Some(Estimate {
                value: of([left, right]),
                detectable: DETECTABLE_SIGMAS * stretch * deviation(&all),
                interval: stretched(Interval::of(all)?, stretch),
            })
        };
        Some(Self {
            left,
            right,
            absolute: estimate(absolute)?,
            relative: if is_positive {
                estimate(relative)
            } else {
                None
            },
        })
    }
}

/// The interval, wider by `factor` on both sides.
fn stretched(interval: Interval, factor: f64) -> Interval {
    let more = (interval.high - interval.low) * (factor - 1.0) / 2.0;
    Interval {
        low: interval.low - more,
        high: interval.high + more,
    }
}

fn deviation(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    (squares.sum::<f64>() / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(value: f64) -> Estimate {
        Estimate {
            value,
            interval: Interval {
                low: value,
                high: value,
            },
            detectable: 0.0,
        }
    }

    #[test]
    fn rounds_that_differ_widen_what_their_samples_say() {
        let alone = Difference {
            left: 10.0,
            right: 10.0,
            absolute: exact(0.0),
            relative: Some(exact(0.0)),
        };
        // Differences −1, 0, 1: a standard deviation of 1, its error 1 / √3,
        // Student's quantile with two degrees 4.303.
        let rounds = [[10.0, 9.0], [10.0, 10.0], [10.0, 11.0]];
        let wide = alone.over_rounds(&rounds).absolute;
        let half = 4.303 / 3.0_f64.sqrt();
        assert!((wide.interval.high - half).abs() < 0.02, "{wide:?}");
        assert!((wide.interval.low + half).abs() < 0.02, "{wide:?}");
        assert!((wide.detectable - (4.303 + 1.061) / 3.0_f64.sqrt()).abs() < 0.03);
        let relative = alone.over_rounds(&rounds).relative.unwrap();
        assert!((relative.interval.high - half / 10.0).abs() < 0.002);
        // Rounds that agree, or too few of them, change nothing.
        assert_eq!(alone.over_rounds(&[[10.0, 10.5]; 4]), alone);
        assert_eq!(alone.over_rounds(&rounds[..2]), alone);
    }
}
