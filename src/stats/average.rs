//! Averages that are not the plain mean. It refuses to average what has no
//! weight: the answer is then absent.

use crate::units::RunOffset;

/// `Σ weight · value / Σ weight`; `None` when the weights sum to nothing.
pub fn weighted_mean(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weights) = pairs
        .into_iter()
        .fold((0.0, 0.0), |(sum, weights), (value, weight)| {
            (sum + value * weight, weights + weight)
        });
    (weights > 0.0).then(|| sum / weights)
}

/// The average of a gauge sampled at ascending moments, each value holding until
/// the next sample, the last one until `end`. Samples that are alone in time
/// (no width at all) count equally. `None` without samples.
pub fn time_weighted_mean(samples: &[(RunOffset, f64)], end: RunOffset) -> Option<f64> {
    let ends = samples
        .iter()
        .skip(1)
        .map(|(at, _)| *at)
        .chain(std::iter::once(end));
    let held = samples
        .iter()
        .zip(ends)
        .map(|(&(at, value), until)| (value, until.millis_since(at).max(0.0)));
    weighted_mean(held).or_else(|| weighted_mean(samples.iter().map(|&(_, value)| (value, 1.0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_counts_for_as_long_as_it_held() {
        let at = |seconds: u64| RunOffset(seconds * 1_000_000_000);
        let samples = [(at(0), 0.0), (at(1), 1.0), (at(4), 0.5)];
        // 1 s of 0, 3 s of 1, 2 s of 0.5.
        assert_eq!(time_weighted_mean(&samples, at(6)), Some(4.0 / 6.0));
        assert_eq!(
            time_weighted_mean(&samples, at(4)),
            Some(0.75),
            "the last sample has no width"
        );
        assert_eq!(time_weighted_mean(&samples[..1], at(0)), Some(0.0));
        assert_eq!(time_weighted_mean(&[], at(6)), None);
    }

    #[test]
    fn weights_of_nothing_average_to_nothing() {
        assert_eq!(weighted_mean([(1.0, 1.0), (4.0, 3.0)]), Some(3.25));
        assert_eq!(weighted_mean([(1.0, 0.0)]), None);
    }
}
