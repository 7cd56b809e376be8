//! Samples of both sides with the round they come from: what a figure is over
//! all of them, and what it is round by round.

use crate::rng::Stream;
use crate::stats::{
    Difference, Pairing, Percent, percentile, percentile_differences, ratio_difference,
};

/// One value per sample, run by run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sides<T> {
    /// Of each side: the run, and the value.
    pub(super) rows: [Vec<(u32, T)>; 2],
    pub(super) pairing: Pairing,
}

impl<T: Copy> Sides<T> {
    /// Samples of each side.
    pub(super) fn counts(&self) -> [usize; 2] {
        self.rows.each_ref().map(Vec::len)
    }

    fn values(&self) -> [Vec<T>; 2] {
        self.rows
            .each_ref()
            .map(|side| side.iter().map(|(_, value)| *value).collect())
    }

    /// A figure of both sides in each round that has it on both.
    fn rounds(&self, figure: impl Fn(&[T]) -> Option<f64>) -> Vec<[f64; 2]> {
        let of = |side: &[(u32, T)]| -> Vec<(u32, Option<f64>)> {
            side.chunk_by(|one, next| one.0 == next.0)
                .map(|run| {
                    let values: Vec<T> = run.iter().map(|(_, value)| *value).collect();
                    (run[0].0, figure(&values))
                })
                .collect()
        };
        let [left, right] = self.rows.each_ref().map(|side| of(side));
        left.into_iter()
            .filter_map(|(run, value)| {
                let (_, other) = right.iter().find(|(other, _)| *other == run)?;
                Some([value?, (*other)?])
            })
            .collect()
    }
}

impl Sides<[f64; 2]> {
    /// The difference in the ratio of the sums of `[part, whole]`.
    pub(super) fn ratio(&self, stream: &mut Stream) -> Option<Difference> {
        let [left, right] = self.values();
        let difference = ratio_difference([&left, &right], self.pairing, stream)?;
        let ratio = |rows: &[[f64; 2]]| {
            let sum = |place: usize| rows.iter().map(|row| row[place]).sum::<f64>();
            (sum(1) > 0.0).then(|| sum(0) / sum(1))
        };
        Some(difference.over_rounds(&self.rounds(ratio)))
    }
}

impl Sides<f64> {
    /// The difference in the mean.
    pub(super) fn mean(&self, stream: &mut Stream) -> Option<Difference> {
        let rows = self.rows.each_ref().map(|side| {
            side.iter()
                .map(|&(run, value)| (run, [value, 1.0]))
                .collect()
        });
        Sides {
            rows,
            pairing: self.pairing,
        }
        .ratio(stream)
    }

    /// The differences in `percents`.
    pub(super) fn percentiles<const COUNT: usize>(
        &self,
        percents: [Percent; COUNT],
        stream: &mut Stream,
    ) -> [Option<Difference>; COUNT] {
        let [left, right] = self.values();
        let all = percentile_differences([&left, &right], percents, self.pairing, stream);
        std::array::from_fn(|place| {
            let rounds = self.rounds(|values| percentile(values, percents[place]));
            Some(all[place]?.over_rounds(&rounds))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_counts_where_both_sides_have_it() {
        let sides = Sides {
            rows: [
                vec![(0, 1.0), (0, 3.0), (1, 5.0), (2, 7.0)],
                vec![(0, 4.0), (2, 8.0), (2, 10.0)],
            ],
            pairing: Pairing::Apart,
        };
        let mean = |values: &[f64]| Some(values.iter().sum::<f64>() / values.len() as f64);
        assert_eq!(sides.rounds(mean), [[2.0, 4.0], [7.0, 9.0]]);
    }
}
