//! A normal distribution rounded to whole numbers and cut to bounds, by
//! inversion: one uniform number a draw, so it can neither loop nor come up
//! short, however little of the distribution lies within the bounds.
//!
//! `P(k) ∝ Φ((k + ½ − mean) / std) − Φ((k − ½ − mean) / std)` for `k` in
//! `min..=max`: what rounding each normal number and keeping those within the
//! bounds gives. Φ comes from `libm`, because the system's functions round
//! differently from machine to machine.

use crate::scenario::TruncatedNormal;

/// Below this width in standard deviations the density varies by less than
/// 10⁻¹⁰ within the bounds, and differences of Φ lose more than that.
const FLAT_WIDTH: f64 = 1e-5;

/// The distribution, ready to be inverted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounded {
    min: u64,
    max: u64,
    mean: f64,
    std: f64,
    /// Φ at the lower border and the mass up to the upper one; `None` where the
    /// density is flat.
    mass: Option<(f64, f64)>,
}

impl Rounded {
    pub(super) fn new(rule: &TruncatedNormal) -> Self {
        let mut this = Self {
            min: rule.min,
            max: rule.max,
            mean: rule.mean,
            std: rule.std,
            mass: None,
        };
        let width = (rule.max - rule.min) as f64 + 1.0;
        let lower = this.below(rule.min as f64 - 0.5);
        let mass = this.below(rule.max as f64 + 0.5) - lower;
        if width / rule.std > FLAT_WIDTH && mass > 0.0 {
            this.mass = Some((lower, mass));
        }
        this
    }

    /// The value at `unit` in `[0, 1)` of the distribution: the least one whose
    /// share up to and with it exceeds `unit`.
    pub(super) fn at(&self, unit: f64) -> u64 {
        let (mut low, mut high) = (self.min, self.max);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.share_up_to(middle) > unit {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    fn share_up_to(&self, value: u64) -> f64 {
        match self.mass {
            Some((lower, mass)) => (self.below(value as f64 + 0.5) - lower) / mass,
            None => ((value - self.min) as f64 + 1.0) / ((self.max - self.min) as f64 + 1.0),
        }
    }

    /// Φ of `x`, standardized.
    fn below(&self, x: f64) -> f64 {
        0.5 * libm::erfc((self.mean - x) / self.std / std::f64::consts::SQRT_2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;

    fn draws(min: u64, max: u64, mean: f64, std: f64, count: usize) -> Vec<u64> {
        let rule = TruncatedNormal {
            min,
            max,
            mean,
            std,
        };
        let distribution = Rounded::new(&rule);
        let mut stream = Seed::from(42).stream("normal");
        (0..count).map(|_| distribution.at(stream.unit())).collect()
    }

    fn mean(values: &[u64]) -> f64 {
        values.iter().sum::<u64>() as f64 / values.len() as f64
    }

    #[test]
    fn equal_bounds_leave_one_value() {
        assert_eq!(draws(64, 64, 64.0, 1.0, 3), [64, 64, 64]);
    }

    #[test]
    fn a_huge_deviation_is_uniform_within_the_bounds() {
        for std in [1e4, 1e9, 1e300] {
            let values = draws(64, 128, 96.0, std, 65_000);
            let mut counts = [0_u32; 65];
            for value in values {
                counts[usize::try_from(value).unwrap() - 64] += 1;
            }
            // 1000 each; five standard deviations of a count are 158.
            assert!(counts.iter().all(|count| (840..1160).contains(count)));
        }
    }

    #[test]
    fn a_tiny_deviation_stays_at_the_mean() {
        assert!(
            draws(1, 1_000_000, 1000.0, 1e-9, 50)
                .iter()
                .all(|&v| v == 1000)
        );
        assert!(draws(1, 100, 1.0, 0.1, 50).iter().all(|&v| v == 1));
        assert!(draws(1, 100, 100.0, 0.1, 50).iter().all(|&v| v == 100));
    }

    #[test]
    fn moments_are_those_of_the_distribution() {
        // Hardly cut: mean 400, standard deviation 50.
        let values = draws(128, 768, 400.0, 50.0, 40_000);
        let variance = values
            .iter()
            .map(|&v| (v as f64 - 400.0).powi(2))
            .sum::<f64>()
            / 40_000.0;
        assert!((mean(&values) - 400.0).abs() < 1.0, "{}", mean(&values));
        assert!((variance.sqrt() - 50.0).abs() < 0.8, "{variance}");
        // Half of it is cut away at the mean: mean + std · √(2/π).
        let half = draws(1000, 2000, 1000.0, 100.0, 40_000);
        assert!((mean(&half) - 1079.8).abs() < 1.5, "{}", mean(&half));
    }

    #[test]
    fn the_ends_of_the_unit_interval_give_the_bounds() {
        let rule = TruncatedNormal {
            min: 10,
            max: 20,
            mean: 15.0,
            std: 2.5,
        };
        let distribution = Rounded::new(&rule);
        assert_eq!(distribution.at(0.0), 10);
        assert_eq!(distribution.at(1.0 - f64::EPSILON / 2.0), 20);
        assert_eq!(distribution.at(0.5 - 1e-9), 15);
    }
}
