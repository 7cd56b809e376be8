//! Random arrival times, drawn before the run and portable to the bit. It knows
//! laws and rates and no profile.

use std::time::Duration;

use crate::rng::{Seed, Stream};

/// A law of arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalLaw {
    /// Equal gaps.
    Constant,
    /// Exponential gaps: a Poisson process.
    Poisson,
    /// Gamma gaps of shape `burstiness`: below 1 burstier than Poisson, above 1
    /// steadier.
    Gamma {
        /// Shape, greater than 0.
        burstiness: f64,
    },
}

/// Arrivals at `rate_per_second` (positive; infinite for all at once): the
/// first at 0, then a gap before each. Ends after `count` or at `limit`,
/// whichever comes first. Returns the offsets and the length of the stage in
/// nanoseconds: the limit, or one gap behind the last arrival.
pub fn draw(
    law: ArrivalLaw,
    rate_per_second: f64,
    count: usize,
    limit: Option<Duration>,
    seed: &Seed,
    label: &str,
) -> (Vec<u64>, u64) {
    assert!(rate_per_second > 0.0, "a rate must be positive");
    let mut stream = seed.stream(label);
    let limit_ns = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    let mut arrivals = Vec::new();
    // Gaps are summed in units of the mean gap and scaled once, so that no
    // rounding accumulates: arrival i of a constant rate is i / rate exactly.
    let mut passed = 0.0_f64;
    loop {
        let at = nanos(passed / rate_per_second);
        if limit_ns.is_some_and(|limit| at >= limit) {
            return (arrivals, limit_ns.unwrap_or(at));
        }
        if arrivals.len() == count {
            return (arrivals, limit_ns.unwrap_or(at));
        }
        arrivals.push(at);
        passed += unit_gap(law, &mut stream);
    }
}

/// Seconds to nanoseconds, rounded to the nearest.
fn nanos(seconds: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float's cast saturates, and no gap is negative"
    )]
    let nanos = (seconds * 1e9).round() as u64;
    nanos
}

/// A gap with mean 1.
fn unit_gap(law: ArrivalLaw, stream: &mut Stream) -> f64 {
    match law {
        ArrivalLaw::Constant => 1.0,
        ArrivalLaw::Poisson => -libm::log(1.0 - stream.unit()),
        ArrivalLaw::Gamma { burstiness } => gamma(burstiness, stream) / burstiness,
    }
}

/// A gamma number of this shape and scale 1 (Marsaglia and Tsang 2000; below
/// shape 1 by their boost: a number of shape + 1 times a power of a uniform).
fn gamma(shape: f64, stream: &mut Stream) -> f64 {
    if shape < 1.0 {
        let uniform = 1.0 - stream.unit();
        return gamma(shape + 1.0, stream) * libm::pow(uniform, 1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (3.0 * d.sqrt());
    loop {
        let normal = stream.normal();
        let base = 1.0 + c * normal;
        if base <= 0.0 {
            continue;
        }
        let v = base * base * base;
        let uniform = 1.0 - stream.unit();
        if libm::log(uniform) < 0.5 * normal * normal + d - d * v + d * libm::log(v) {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(arrivals: &[u64]) -> Vec<f64> {
        arrivals
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 / 1e9)
            .collect()
    }

    fn mean_and_cv(gaps: &[f64]) -> (f64, f64) {
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        let (arrivals, length) = draw(
            ArrivalLaw::Constant,
            200.0,
            1_000,
            None,
            &Seed::from(1),
            "a",
        );
        assert_eq!(arrivals.len(), 1_000);
        assert!((0..).zip(&arrivals).all(|(i, at)| *at == i * 5_000_000));
        assert_eq!((arrivals[999], length), (4_995_000_000, 5_000_000_000));
    }

    #[test]
    fn a_duration_cuts_and_the_data_set_ends() {
        let second = Some(Duration::from_secs(1));
        let (arrivals, length) = draw(ArrivalLaw::Constant, 10.0, 99, second, &Seed::from(1), "a");
        assert_eq!(
            (arrivals.len(), arrivals[9], length),
            (10, 900_000_000, 1_000_000_000)
        );
        let (arrivals, length) = draw(ArrivalLaw::Constant, 10.0, 3, second, &Seed::from(1), "a");
        assert_eq!((arrivals.len(), length), (3, 1_000_000_000));
        let (arrivals, length) = draw(
            ArrivalLaw::Constant,
            f64::INFINITY,
            3,
            None,
            &Seed::from(1),
            "a",
        );
        assert_eq!((arrivals, length), (vec![0, 0, 0], 0));
    }

    #[test]
    fn random_laws_have_their_mean_and_spread() {
        // The coefficient of variation is 1 for Poisson, 1 / sqrt(shape) for
        // gamma.
        for (law, cv) in [
            (ArrivalLaw::Poisson, 1.0),
            (ArrivalLaw::Gamma { burstiness: 1.0 }, 1.0),
            (ArrivalLaw::Gamma { burstiness: 0.25 }, 2.0),
            (ArrivalLaw::Gamma { burstiness: 16.0 }, 0.25),
        ] {
            let (arrivals, _) = draw(law, 50.0, 40_000, None, &Seed::from(9), "a");
            assert!(arrivals.is_sorted());
            let (mean, measured) = mean_and_cv(&gaps(&arrivals));
            assert!((mean * 50.0 - 1.0).abs() < 0.04, "{law:?}: mean {mean}");
            assert!((measured / cv - 1.0).abs() < 0.04, "{law:?}: cv {measured}");
        }
    }

    #[test]
    fn arrivals_follow_the_seed_and_the_label() {
        let drawn =
            |seed: u64, label| draw(ArrivalLaw::Poisson, 3.0, 20, None, &Seed::from(seed), label);
        assert_eq!(drawn(1, "a"), drawn(1, "a"));
        assert_ne!(drawn(1, "a"), drawn(2, "a"));
        assert_ne!(drawn(1, "a"), drawn(1, "b"));
    }
}
