//! Deals requests to groups: shares by largest remainder, every request dealt.

use crate::rng::Seed;
use crate::scenario::{Assignment, GroupsConfig};
use crate::units::GroupIndex;

use super::PlanError;

/// The group of each position before ordering: group-0's first, then
/// group-1's, and so on; shuffled for a Zipf distribution.
pub(super) fn deal(
    groups: &GroupsConfig,
    count: usize,
    seed: &Seed,
) -> Result<Vec<GroupIndex>, PlanError> {
    let mut dealt = Vec::with_capacity(count);
    for (index, size) in (0..).zip(sizes(groups, count)?) {
        dealt.extend(std::iter::repeat_n(GroupIndex(index), size));
    }
    assert_eq!(dealt.len(), count, "every request is dealt once");
    if matches!(groups.assignment, Assignment::Zipf { .. }) {
        seed.stream("groups/zipf").shuffle(&mut dealt);
    }
    Ok(dealt)
}

fn sizes(groups: &GroupsConfig, count: usize) -> Result<Vec<usize>, PlanError> {
    let group_count = usize::try_from(groups.count).expect("a usize has 32 bits");
    match &groups.assignment {
        Assignment::Uniform => {
            // Groups beyond the requests are empty; they need no entry.
            let most = group_count.min(count);
            let one_more = count.checked_rem(group_count).unwrap_or(0);
            let size = |index| count / group_count + usize::from(index < one_more);
            Ok((0..most).map(size).collect())
        }
        Assignment::Zipf { exponent } => {
            let weight = |index| 1.0 / libm::pow(f64::from(index) + 1.0, *exponent);
            largest_remainder(&(0..groups.count).map(weight).collect::<Vec<_>>(), count)
        }
        Assignment::Weights(weights) if weights.len() != group_count => {
            Err(PlanError::WeightCount {
                weights: weights.len(),
                groups: group_count,
            })
        }
        Assignment::Weights(weights) => largest_remainder(weights, count),
    }
}

/// Whole shares of `count` in proportion to `weights`: each gets its quota
/// rounded down, and what is left goes to the largest fractions, ties to the
/// lower index.
fn largest_remainder(weights: &[f64], count: usize) -> Result<Vec<usize>, PlanError> {
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let proper = weights
        .iter()
        .all(|weight| weight.is_finite() && *weight >= 0.0);
    if !proper || largest <= 0.0 {
        return Err(PlanError::WeightsUnusable);
    }
    // Only weights near the end of the range need scaling; elsewhere it would
    // change the last digit of a quota.
    let scale = if (1e-250..=1e250).contains(&largest) {
        1.0
    } else {
        largest
    };
    let total: f64 = weights.iter().map(|weight| weight / scale).sum();
    let quotas: Vec<f64> = weights
        .iter()
        .map(|weight| count as f64 * (weight / scale) / total)
        .collect();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a quota is in 0..=count, and rounding down is meant"
    )]
    let mut sizes: Vec<usize> = quotas.iter().map(|quota| *quota as usize).collect();
    let dealt: usize = sizes.iter().sum();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let fraction = |index: usize| quotas[index] - quotas[index].floor();
    order.sort_by(|&a, &b| fraction(b).total_cmp(&fraction(a)).then(a.cmp(&b)));
    for &index in order.iter().cycle().take(count.saturating_sub(dealt)) {
        sizes[index] += 1;
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn config(count: u32, assignment: Assignment) -> GroupsConfig {
        GroupsConfig {
            count,
            assignment,
            overrides: BTreeMap::new(),
        }
    }

    fn check(count: u32, assignment: Assignment, requests: usize, expected: &[usize]) {
        let dealt = deal(&config(count, assignment), requests, &Seed::from(42)).unwrap();
        let size = |index| dealt.iter().filter(|group| group.0 == index).count();
        let sizes: Vec<usize> = (0..u32::try_from(expected.len()).unwrap())
            .map(size)
            .collect();
        assert_eq!((dealt.len(), sizes.as_slice()), (requests, expected));
    }

    #[test]
    fn shares_are_dealt_by_largest_remainder() {
        check(3, Assignment::Zipf { exponent: 1.0 }, 10, &[5, 3, 2]);
        check(3, Assignment::Zipf { exponent: 1.2 }, 10, &[6, 2, 2]);
        let weights = Assignment::Weights(vec![0.5, 0.3, 0.15, 0.05]);
        check(4, weights, 10, &[5, 3, 2, 0]);
        check(3, Assignment::Uniform, 10, &[4, 3, 3]);
        check(5, Assignment::Uniform, 3, &[1, 1, 1, 0, 0]);
    }

    #[test]
    fn extreme_weights_still_deal_everything() {
        check(2, Assignment::Weights(vec![f64::MAX, f64::MAX]), 5, &[3, 2]);
        check(2, Assignment::Weights(vec![5e-324, 5e-324]), 4, &[2, 2]);
        check(
            3,
            Assignment::Weights(vec![0.0, 1e-300, 0.0]),
            4,
            &[0, 4, 0],
        );
        check(2, Assignment::Zipf { exponent: 1e9 }, 4, &[4, 0]);
        check(u32::MAX, Assignment::Uniform, 2, &[1, 1]);
    }

    #[test]
    fn only_zipf_is_shuffled() {
        let zipf = config(3, Assignment::Zipf { exponent: 1.0 });
        let dealt = deal(&zipf, 100, &Seed::from(42)).unwrap();
        assert!(!dealt.is_sorted());
        assert_eq!(dealt, deal(&zipf, 100, &Seed::from(42)).unwrap());
        let uniform = deal(&config(3, Assignment::Uniform), 100, &Seed::from(42)).unwrap();
        assert!(uniform.is_sorted());
    }

    #[test]
    fn weights_that_deal_nothing_are_refused() {
        for weights in [vec![0.0, 0.0], vec![f64::NAN, 1.0], vec![-1.0, 2.0]] {
            let groups = config(2, Assignment::Weights(weights));
            let refused = deal(&groups, 4, &Seed::from(1));
            assert_eq!(refused, Err(PlanError::WeightsUnusable));
        }
        let groups = config(3, Assignment::Weights(vec![1.0]));
        let refused = deal(&groups, 4, &Seed::from(1));
        assert_eq!(
            refused,
            Err(PlanError::WeightCount {
                weights: 1,
                groups: 3
            })
        );
    }
}
