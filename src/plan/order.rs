//! The send order: five strategies, all of them permutations of the dealt
//! positions. Groups count in numeric order.

use std::collections::BTreeMap;

use crate::rng::Seed;
use crate::scenario::OrderStrategy;
use crate::units::GroupIndex;

/// Positions in send order.
pub(super) fn arrange(
    strategy: OrderStrategy,
    groups: &[GroupIndex],
    input_tokens: &[u64],
    seed: &Seed,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    match strategy {
        OrderStrategy::Sequential => order,
        OrderStrategy::GlobalShuffle => {
            seed.stream("order").shuffle(&mut order);
            order
        }
        OrderStrategy::WithinGroupShuffle => {
            let mut stream = seed.stream("order");
            let mut members = by_group(groups);
            for positions in members.values_mut() {
                stream.shuffle(positions);
            }
            members.into_values().flatten().collect()
        }
        OrderStrategy::Interleave => round_robin(by_group(groups).values()),
        OrderStrategy::InputLenAsc => {
            let mut members = by_group(groups);
            for positions in members.values_mut() {
                positions.sort_by_key(|&position| (input_tokens[position], position));
            }
            round_robin(members.values())
        }
    }
}

/// Positions of each group, ascending.
pub(super) fn by_group(groups: &[GroupIndex]) -> BTreeMap<GroupIndex, Vec<usize>> {
    let mut members: BTreeMap<GroupIndex, Vec<usize>> = BTreeMap::new();
    for (position, group) in groups.iter().enumerate() {
        members.entry(*group).or_default().push(position);
    }
    members
}

/// One of each list in turn; exhausted lists drop out.
fn round_robin<'a>(lists: impl Iterator<Item = &'a Vec<usize>>) -> Vec<usize> {
    let mut turns: Vec<(usize, usize, usize)> = lists
        .enumerate()
        .flat_map(|(list, positions)| {
            let turn = move |(turn, &position)| (turn, list, position);
            positions.iter().enumerate().map(turn)
        })
        .collect();
    turns.sort_unstable();
    turns.into_iter().map(|(_, _, position)| position).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [OrderStrategy; 5] = [
        OrderStrategy::Sequential,
        OrderStrategy::WithinGroupShuffle,
        OrderStrategy::Interleave,
        OrderStrategy::GlobalShuffle,
        OrderStrategy::InputLenAsc,
    ];

    fn example() -> (Vec<GroupIndex>, Vec<u64>) {
        let groups = [0, 0, 0, 0, 2, 2, 2, 10, 10].map(GroupIndex).to_vec();
        (groups, vec![30, 20, 10, 40, 15, 25, 5, 50, 45])
    }

    fn check(strategy: OrderStrategy, expected: &[usize]) {
        let (groups, lengths) = example();
        let order = arrange(strategy, &groups, &lengths, &Seed::from(46));
        assert_eq!(order, expected);
    }

    #[test]
    fn orders_without_chance_are_as_written() {
        check(OrderStrategy::Sequential, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        check(OrderStrategy::Interleave, &[0, 4, 7, 1, 5, 8, 2, 6, 3]);
        check(OrderStrategy::InputLenAsc, &[2, 6, 8, 1, 4, 7, 0, 5, 3]);
    }

    #[test]
    fn a_shuffle_within_groups_keeps_the_groups_apart() {
        let (groups, lengths) = example();
        let strategy = OrderStrategy::WithinGroupShuffle;
        let order = arrange(strategy, &groups, &lengths, &Seed::from(46));
        assert!(order.iter().map(|&position| groups[position]).is_sorted());
    }

    proptest! {
        #[test]
        fn every_order_is_a_permutation(
            requests in prop::collection::vec((0_u32..12, 1_u64..9), 0..60),
            seed in 0_u64..9,
        ) {
            let (groups, lengths): (Vec<_>, Vec<_>) =
                requests.into_iter().map(|(group, length)| (GroupIndex(group), length)).unzip();
            for strategy in ALL {
                let mut order = arrange(strategy, &groups, &lengths, &Seed::from(seed));
                order.sort_unstable();
                prop_assert_eq!(order, (0..groups.len()).collect::<Vec<_>>());
            }
        }
    }
}
