//! The same pool written as plainly as possible (whole prefixes in lists, no
//! hashes, no links), and the property that both agree on every answer.

use proptest::prelude::*;

use crate::kvcache::{Lease, PrefixCache, chain};
use crate::units::BlockSize;

/// A pool as a list of blocks; the free ones stand in their order of use.
struct Naive {
    block: usize,
    /// The prefix each block holds.
    held: Vec<Option<Vec<u32>>>,
    holders: Vec<u32>,
    /// When each block got its prefix; the oldest twin is the one found.
    born: Vec<u64>,
    free: Vec<usize>,
    clock: u64,
}

impl Naive {
    fn new(block: usize, usable: usize) -> Self {
        Self {
            block,
            held: vec![None; usable],
            holders: vec![0; usable],
            born: vec![0; usable],
            free: (0..usable).collect(),
            clock: 0,
        }
    }

    fn slot_of(&self, prefix: &[u32]) -> Option<usize> {
        (0..self.held.len())
            .filter(|&slot| self.held[slot].as_deref() == Some(prefix))
            .min_by_key(|&slot| self.born[slot])
    }

    fn find(&self, ids: &[u32], most: usize) -> Vec<usize> {
        (1..=most)
            .map_while(|count| self.slot_of(&ids[..count * self.block]))
            .collect()
    }

    fn admit(&mut self, ids: &[u32], hits: &[usize]) -> Option<Vec<usize>> {
        let blocks = ids.len().div_ceil(self.block);
        let idle = hits.iter().filter(|&&slot| self.holders[slot] == 0).count();
        if blocks - hits.len() + idle > self.free.len() {
            return None;
        }
        let mut lease = hits.to_vec();
        for &slot in hits {
            self.holders[slot] += 1;
            self.free.retain(|&other| other != slot);
        }
        while lease.len() < blocks {
            let slot = self.free.remove(0);
            self.held[slot] = None;
            self.holders[slot] = 1;
            lease.push(slot);
        }
        for count in hits.len() + 1..=ids.len() / self.block {
            let slot = lease[count - 1];
            self.clock += 1;
            self.born[slot] = self.clock;
            self.held[slot] = Some(ids[..count * self.block].to_vec());
        }
        Some(lease)
    }

    fn release(&mut self, lease: Vec<usize>) {
        for slot in lease.into_iter().rev() {
            self.holders[slot] -= 1;
            if self.holders[slot] == 0 {
                self.free.push(slot);
            }
        }
    }

    fn reset(&mut self) -> bool {
        let idle = self.free.len() == self.held.len();
        if idle {
            self.held.fill(None);
        }
        idle
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Send this prompt and keep it running.
    Start(Vec<u32>),
    /// End the n-th running one.
    End(usize),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    // Few distinct tokens, so that prompts share prefixes often.
    let prompt = prop::collection::vec(0_u32..2, 1..14);
    prop_oneof![
        6 => prompt.prop_map(Step::Start),
        6 => (0_usize..8).prop_map(Step::End),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    #[test]
    fn the_pool_agrees_with_the_plain_one(
        block in 1_usize..4,
        usable in 1_usize..12,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let size = BlockSize::new(block as u64).unwrap();
        let mut pool = PrefixCache::new(size, u32::try_from(usable).unwrap() + 1);
        let mut plain = Naive::new(block, usable);
        let mut running: Vec<(Lease, Vec<usize>)> = Vec::new();
        for step in steps {
            match step {
                Step::Start(ids) => {
                    let hashes = chain(size, None, &ids);
                    let most = usize::try_from(size.findable_tokens(ids.len() as u64) / size.tokens()).unwrap();
                    let hits = pool.find(&hashes[..most]);
                    let found = plain.find(&ids, most);
                    prop_assert_eq!(hits, found.len());
                    let lease = pool.admit(&hashes[..hits], ids.len().div_ceil(block));
                    let expected = plain.admit(&ids, &found);
                    prop_assert_eq!(lease.is_some(), expected.is_some());
                    if let (Some(mut lease), Some(expected)) = (lease, expected) {
                        pool.publish(&mut lease, &hashes);
                        running.push((lease, expected));
                    }
                }
                Step::End(at) if at < running.len() => {
                    let (lease, expected) = running.remove(at);
                    pool.release(lease);
                    plain.release(expected);
                }
                Step::End(_) => {}
                Step::Reset => prop_assert_eq!(pool.reset(), plain.reset()),
            }
            prop_assert_eq!(pool.held_blocks(), usable - plain.free.len());
        }
    }
}
