//! One rank's KV pool under least-recently-used eviction, as vLLM keeps it: a
//! request's blocks become findable when it is admitted, are pinned while it
//! runs, and are freed tail first when it ends; the block freed longest ago is
//! taken first.
//!
//! Only shared prefixes can ever be found again, so whatever a request has of its
//! own is a number. All blocks of a prefix below a used one are used with it, so
//! the free part of a group is a few runs of blocks, the highest the oldest.

use std::collections::BTreeMap;

use crate::units::GroupIndex;

/// What one request needs, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) group: GroupIndex,
    /// Whole blocks of the group's prefix.
    pub(super) shared: u64,
    /// All blocks, prompt and output; at least `shared`.
    pub(super) total: u64,
    /// The most it may take from the cache.
    pub(super) hit_most: u64,
}

/// The pool.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    /// Blocks never used so far.
    blank: u64,
    /// Free blocks of all kinds.
    free: u64,
    /// Free blocks that hold something, by the time they were freed.
    queue: BTreeMap<u64, Freed>,
    groups: BTreeMap<GroupIndex, Group>,
    clock: u64,
    /// Prefix blocks that had to go.
    pub(super) evicted: u64,
}

#[derive(Clone, Copy, Debug)]
enum Freed {
    Own(u64),
    Prefix(GroupIndex),
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// Blocks in the pool: `0..present`.
    present: u64,
    /// Of running requests, how long their prefixes are.
    pinned: BTreeMap<u64, u32>,
    /// Free runs above the pinned ones: stamp and first block, ascending by
    /// block; each reaches to the next one's first, the last to `present`.
    runs: Vec<(u64, u64)>,
}

impl Group {
    fn pinned_most(&self) -> u64 {
        self.pinned
            .last_key_value()
            .map_or(0, |(length, _)| *length)
    }
}

impl Pool {
    pub(super) fn new(blocks: u64) -> Self {
        Self {
            blank: blocks,
            free: blocks,
            queue: BTreeMap::new(),
            groups: BTreeMap::new(),
            clock: 0,
            evicted: 0,
        }
    }

    /// Takes the blocks of one request and says how many were hits; `None`
    /// (and no change) when they do not fit before another request ends.
    pub(super) fn admit(&mut self, need: Need) -> Option<u64> {
        let group = self.groups.entry(need.group).or_default();
        let found = need.shared.min(group.present);
        let hit = found.min(need.hit_most);
        let pinned = group.pinned_most().min(group.present);
        let unfrozen = found.saturating_sub(pinned);
        let wanted = need.total - found;
        if wanted > self.free - unfrozen {
            return None;
        }
        self.freeze(need.group, found);
        self.take(wanted);
        let group = self.groups.entry(need.group).or_default();
        group.present = group.present.max(need.shared);
        *group.pinned.entry(need.shared).or_default() += 1;
        Some(hit)
    }

    /// Gives the blocks of an admitted request back, its own before its prefix.
    pub(super) fn release(&mut self, need: Need) {
        let own = need.total - need.shared;
        if own > 0 {
            self.clock += 1;
            self.queue.insert(self.clock, Freed::Own(own));
            self.free += own;
        }
        let group = self.groups.entry(need.group).or_default();
        let before = group.pinned_most();
        if let Some(count) = group.pinned.get_mut(&need.shared) {
            *count -= 1;
            if *count == 0 {
                group.pinned.remove(&need.shared);
            }
        }
        let after = group.pinned_most();
        if after < before {
            self.clock += 1;
            group.runs.insert(0, (self.clock, after));
            self.queue.insert(self.clock, Freed::Prefix(need.group));
            self.free += before - after;
        }
    }

    /// Blocks `0..found` of the group are free no longer.
    fn freeze(&mut self, group: GroupIndex, found: u64) {
        let state = self.groups.entry(group).or_default();
        while let Some(&(stamp, first)) = state.runs.first() {
            if first >= found {
                break;
            }
            let end = state.runs.get(1).map_or(state.present, |run| run.1);
            if end <= found {
                state.runs.remove(0);
                self.queue.remove(&stamp);
                self.free -= end - first;
            } else {
                state.runs[0].1 = found;
                self.free -= found - first;
                break;
            }
        }
    }

    /// Takes `wanted` free blocks: blank ones, then those freed longest ago.
    fn take(&mut self, wanted: u64) {
        self.free -= wanted;
        let blank = wanted.min(self.blank);
        self.blank -= blank;
        let mut left = wanted - blank;
        while left > 0 {
            let mut oldest = self
                .queue
                .first_entry()
                .expect("free blocks are blank or in the queue");
            match *oldest.get() {
                Freed::Own(count) if count > left => {
                    oldest.insert(Freed::Own(count - left));
                    left = 0;
                }
                Freed::Own(count) => {
                    oldest.remove();
                    left -= count;
                }
                Freed::Prefix(group) => {
                    let state = self.groups.entry(group).or_default();
                    let first = state.runs.last().expect("a queued prefix has a run").1;
                    let taken = left.min(state.present - first);
                    state.present -= taken;
                    if state.present == first {
                        state.runs.pop();
                        oldest.remove();
                    }
                    self.evicted += taken;
                    left -= taken;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// Block by block: a queue of free blocks and a table of what each holds.
    struct Naive {
        holds: Vec<Option<(GroupIndex, u64)>>,
        uses: Vec<u32>,
        free: VecDeque<usize>,
    }

    impl Naive {
        fn new(blocks: usize) -> Self {
            Self {
                holds: vec![None; blocks],
                uses: vec![0; blocks],
                free: (0..blocks).collect(),
            }
        }

        fn find(&self, group: GroupIndex, index: u64) -> Option<usize> {
            self.holds
                .iter()
                .position(|held| *held == Some((group, index)))
        }

        fn admit(&mut self, need: Need) -> Option<(u64, Vec<usize>)> {
            let mut found: Vec<usize> = (0..need.shared)
                .map_while(|index| self.find(need.group, index))
                .collect();
            let hit = (found.len() as u64).min(need.hit_most);
            let idle = found.iter().filter(|&&block| self.uses[block] == 0).count();
            let wanted = usize::try_from(need.total).unwrap() - found.len();
            if wanted > self.free.len() - idle {
                return None;
            }
            self.free.retain(|block| !found.contains(block));
            for index in found.len() as u64..need.total {
                let block = self.free.pop_front().unwrap();
                self.holds[block] = (index < need.shared).then_some((need.group, index));
                found.push(block);
            }
            for &block in &found {
                self.uses[block] += 1;
            }
            Some((hit, found))
        }

        fn release(&mut self, blocks: &[usize]) {
            for &block in blocks.iter().rev() {
                self.uses[block] -= 1;
                if self.uses[block] == 0 {
                    self.free.push_back(block);
                }
            }
        }
    }

    fn needs() -> impl Strategy<Value = Vec<(Need, usize)>> {
        let need =
            (0..3_u32, 0..8_u64, 1..6_u64, 0..4_usize).prop_map(|(group, shared, own, ends)| {
                let need = Need {
                    group: GroupIndex(group),
                    shared,
                    total: shared + own,
                    hit_most: u64::MAX,
                };
                (need, ends)
            });
        prop::collection::vec(need, 1..60)
    }

    proptest! {
        #[test]
        fn the_pool_is_the_same_as_block_by_block(needs in needs(), blocks in 13..40_usize) {
            let mut pool = Pool::new(blocks as u64);
            let mut naive = Naive::new(blocks);
            let mut running: VecDeque<(Need, Vec<usize>)> = VecDeque::new();
            for (need, ends) in needs {
                for _ in 0..ends {
                    if let Some((need, held)) = running.pop_front() {
                        pool.release(need);
                        naive.release(&held);
                    }
                }
                let expected = naive.admit(need);
                let hit = pool.admit(need);
                prop_assert_eq!(hit, expected.as_ref().map(|(hit, _)| *hit));
                prop_assert_eq!(pool.free, naive.free.len() as u64);
                if let Some((_, held)) = expected {
                    running.push_back((need, held));
                }
            }
        }
    }

    #[test]
    fn the_tail_goes_before_the_head() {
        // As seen on a real server: an intruder costs one block of the tail.
        let mut pool = Pool::new(63);
        let long = Need {
            group: GroupIndex(0),
            shared: 20,
            total: 20,
            hit_most: 20,
        };
        assert_eq!(pool.admit(long), Some(0));
        pool.release(long);
        let intruder = Need {
            group: GroupIndex(1),
            shared: 0,
            total: 44,
            hit_most: 0,
        };
        assert_eq!(pool.admit(intruder), Some(0));
        pool.release(intruder);
        assert_eq!(pool.evicted, 1);
        assert_eq!(pool.admit(long), Some(19));
    }
}
