//! Deals requests to groups: shares by largest remainder, every request dealt.

use crate::rng::Seed;
use crate::scenario::{Assignment, GroupsConfig};
use crate::units::GroupIndex;

/// The group of each position before ordering: group-0's first, then
/// group-1's, and so on; shuffled for a Zipf distribution.
pub(super) fn deal(groups: &GroupsConfig, count: usize, seed: &Seed) -> Vec<GroupIndex> {
    let mut dealt = Vec::with_capacity(count);
    for (index, size) in (0..).zip(groups.assignment.request_counts(count, groups.count)) {
        dealt.extend(std::iter::repeat_n(GroupIndex(index), size));
    }
    assert_eq!(dealt.len(), count, "every request is dealt once");
    if matches!(groups.assignment, Assignment::Zipf { .. }) {
        seed.stream("groups/zipf").shuffle(&mut dealt);
    }
    dealt
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
        let dealt = deal(&config(count, assignment), requests, &Seed::from(42));
        let size = |index| dealt.iter().filter(|group| group.0 == index).count();
        let sizes: Vec<usize> = (0..u32::try_from(expected.len()).unwrap())
            .map(size)
            .collect();
        assert_eq!((dealt.len(), sizes.as_slice()), (requests, expected));
    }

    #[test]
    fn each_group_gets_its_share() {
        check(3, Assignment::Zipf { exponent: 1.2 }, 10, &[6, 2, 2]);
        let weights = Assignment::Weights(vec![0.5, 0.3, 0.15, 0.05]);
        check(4, weights, 10, &[5, 3, 2, 0]);
        check(5, Assignment::Uniform, 3, &[1, 1, 1, 0, 0]);
    }

    #[test]
    fn only_zipf_is_shuffled() {
        let zipf = config(3, Assignment::Zipf { exponent: 1.0 });
        let dealt = deal(&zipf, 100, &Seed::from(42));
        assert!(!dealt.is_sorted());
        assert_eq!(dealt, deal(&zipf, 100, &Seed::from(42)));
        let uniform = deal(&config(3, Assignment::Uniform), 100, &Seed::from(42));
        assert!(uniform.is_sorted());
    }
}
