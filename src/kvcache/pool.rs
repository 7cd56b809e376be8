//! The pool of blocks and the index of what they hold. Sequences hold leases;
//! the pool refuses to know what a sequence is, or when it speaks.
//!
//! Cost: a lookup is one map access a block, everything else constant time a
//! block; a pool of 100,000 blocks takes some 5 MB.

use std::collections::HashMap;

use crate::kvcache::free_list::FreeList;
use crate::kvcache::hash::BlockHash;
use crate::units::BlockSize;

/// No slot.
const NONE: u32 = u32::MAX;

/// Blocks that one sequence holds, head first. It must be given back to the
/// pool that made it.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Lease {
    slots: Vec<u32>,
    published: usize,
}

impl Lease {
    /// Number of blocks held.
    pub fn blocks(&self) -> usize {
        self.slots.len()
    }

    /// How many of them, from the first on, can be found by their hash.
    pub fn published(&self) -> usize {
        self.published
    }
}

/// What one block holds.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: Option<BlockHash>,
    holders: u32,
    /// The next younger block with the same hash.
    twin: u32,
}

/// A pool of blocks with prefix lookup.
#[derive(Clone, Debug)]
pub struct PrefixCache {
    block: BlockSize,
    slots: Vec<Slot>,
    free: FreeList,
    index: HashMap<BlockHash, Twins>,
}

/// The blocks with one hash: the oldest is the one found, the others follow
/// by [`Slot::twin`] up to the youngest.
#[derive(Clone, Copy, Debug)]
struct Twins {
    oldest: u32,
    youngest: u32,
}

impl PrefixCache {
    /// A pool of `pool_blocks` blocks, of which one is never usable, as in
    /// vLLM's `num_gpu_blocks`.
    pub fn new(block: BlockSize, pool_blocks: u32) -> Self {
        let count = pool_blocks.max(1);
        let empty = Slot {
            hash: None,
            holders: 0,
            twin: NONE,
        };
        let mut free = FreeList::new(count as usize);
        for slot in 1..count {
            free.push(slot);
        }
        Self {
            block,
            slots: vec![empty; count as usize],
            free,
            index: HashMap::new(),
        }
    }

    /// Tokens of one block.
    pub fn block(&self) -> BlockSize {
        self.block
    }

    /// Blocks that sequences can hold together.
    pub fn usable_blocks(&self) -> usize {
        self.slots.len() - 1
    }

    /// Blocks held by some sequence.
    pub fn held_blocks(&self) -> usize {
        self.usable_blocks() - self.free.len()
    }

    /// Held share of the pool, 0..=1; a pool without usable blocks is full.
    pub fn usage(&self) -> f64 {
        match self.usable_blocks() {
            0 => 1.0,
            usable => self.held_blocks() as f64 / usable as f64,
        }
    }

    /// Whether a block with this hash is in the pool.
    pub fn contains(&self, hash: BlockHash) -> bool {
        self.index.contains_key(&hash)
    }

    /// How many of `hashes`, from the first on, are in the pool. The caller
    /// limits the slice to what it may reuse ([`BlockSize::findable_tokens`]).
    pub fn find(&self, hashes: &[BlockHash]) -> usize {
        hashes
            .iter()
            .take_while(|&&hash| self.contains(hash))
            .count()
    }

    /// Holds the found blocks `hits` and as many fresh ones as make `blocks`
    /// together; `None` (and nothing changed) where the pool is too full.
    /// Every hash of `hits` must be in the pool.
    pub fn admit(&mut self, hits: &[BlockHash], blocks: usize) -> Option<Lease> {
        let found: Vec<u32> = hits
            .iter()
            .map(|hash| self.index.get(hash).expect("a hit is in the pool").oldest)
            .collect();
        let idle = found
            .iter()
            .filter(|&&slot| self.slots[slot as usize].holders == 0)
            .count();
        let fresh = blocks.saturating_sub(found.len());
        if fresh + idle > self.free.len() {
            return None;
        }
        for &slot in &found {
            let entry = &mut self.slots[slot as usize];
            entry.holders += 1;
            if entry.holders == 1 {
                self.free.remove(slot);
            }
        }
        let mut lease = Lease {
            published: found.len(),
            slots: found,
        };
        let grown = self.grow(&mut lease, blocks);
        assert!(grown, "the free blocks were counted before");
        Some(lease)
    }

    /// Adds fresh blocks until the lease has `blocks`; false (and nothing
    /// changed) where the pool is too full. A lease never shrinks.
    pub fn grow(&mut self, lease: &mut Lease, blocks: usize) -> bool {
        let fresh = blocks.saturating_sub(lease.slots.len());
        if fresh > self.free.len() {
            return false;
        }
        for _ in 0..fresh {
            let slot = self.free.pop().expect("the free blocks were counted");
            self.forget(slot);
            self.slots[slot as usize].holders = 1;
            lease.slots.push(slot);
        }
        true
    }

    /// Makes the first blocks of the lease findable under `hashes`, which
    /// names the sequence's whole blocks from its start. Blocks published
    /// before stay as they are.
    pub fn publish(&mut self, lease: &mut Lease, hashes: &[BlockHash]) {
        assert!(
            hashes.len() <= lease.slots.len(),
            "{} hashes for {} blocks",
            hashes.len(),
            lease.slots.len()
        );
        for (at, &hash) in hashes.iter().enumerate().skip(lease.published) {
            let slot = lease.slots[at];
            self.slots[slot as usize].hash = Some(hash);
            let twins = self.index.entry(hash).or_insert(Twins {
                oldest: slot,
                youngest: slot,
            });
            if twins.youngest != slot {
                self.slots[twins.youngest as usize].twin = slot;
                twins.youngest = slot;
            }
        }
        lease.published = lease.published.max(hashes.len());
    }

    /// Gives the blocks back, tail first: the tail will be evicted first.
    /// What they hold stays findable until then.
    pub fn release(&mut self, lease: Lease) {
        for slot in lease.slots.into_iter().rev() {
            let entry = &mut self.slots[slot as usize];
            assert!(entry.holders > 0, "a lease was given back twice");
            entry.holders -= 1;
            if entry.holders == 0 {
                self.free.push(slot);
            }
        }
    }

    /// Forgets everything cached; refused (false, nothing changed) while any
    /// block is held.
    pub fn reset(&mut self) -> bool {
        if self.held_blocks() > 0 {
            return false;
        }
        self.index.clear();
        for slot in &mut self.slots {
            slot.hash = None;
            slot.twin = NONE;
        }
        true
    }

    /// Takes a slot out of the index, keeping its twins.
    fn forget(&mut self, slot: u32) {
        let at = slot as usize;
        let twin = std::mem::replace(&mut self.slots[at].twin, NONE);
        let Some(hash) = self.slots[at].hash.take() else {
            return;
        };
        let twins = self.index.get_mut(&hash).expect("a hashed block is known");
        if twins.oldest == slot && twins.youngest == slot {
            self.index.remove(&hash);
            return;
        }
        if twins.oldest == slot {
            twins.oldest = twin;
            return;
        }
        let mut before = twins.oldest;
        while self.slots[before as usize].twin != slot {
            before = self.slots[before as usize].twin;
        }
        self.slots[before as usize].twin = twin;
        if twins.youngest == slot {
            twins.youngest = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvcache::chain;

    fn tokens(from: u32, count: u32) -> Vec<u32> {
        (from..from + count).collect()
    }

    /// Sends a prompt through and returns the tokens it found.
    fn send(cache: &mut PrefixCache, ids: &[u32]) -> u64 {
        let block = cache.block();
        let hashes = chain(block, None, ids);
        let most =
            usize::try_from(block.findable_tokens(ids.len() as u64) / block.tokens()).unwrap();
        let hits = cache.find(&hashes[..most.min(hashes.len())]);
        let blocks = ids.len().div_ceil(usize::try_from(block.tokens()).unwrap());
        let mut lease = cache.admit(&hashes[..hits], blocks).unwrap();
        cache.publish(&mut lease, &hashes);
        cache.release(lease);
        hits as u64 * block.tokens()
    }

    fn cache(block: u64, usable: u32) -> PrefixCache {
        PrefixCache::new(BlockSize::new(block).unwrap(), usable + 1)
    }

    #[test]
    fn a_shared_prefix_hits_its_whole_blocks() {
        for (shared, hit) in [(33, 32), (100, 96), (31, 0)] {
            let mut cache = cache(32, 64);
            let mut first = tokens(0, shared);
            let mut second = first.clone();
            first.extend(tokens(10_000, 50));
            second.extend(tokens(20_000, 50));
            assert_eq!(send(&mut cache, &first), 0);
            assert_eq!(send(&mut cache, &second), hit, "shared {shared}");
        }
    }

    /// Seen on a real server with 64 usable blocks: when the pool is so full
    /// that a 129-token intruder has to take two blocks of a 641-token prompt,
    /// they are its partial last block and its tail, and 608 of 640 are left.
    #[test]
    fn an_intruder_takes_the_tail_first() {
        let mut cache = cache(32, 64);
        let prompt = tokens(0, 641);
        send(&mut cache, &prompt);
        send(&mut cache, &tokens(10_000, 1_280));
        send(&mut cache, &tokens(20_000, 129));
        assert_eq!(send(&mut cache, &prompt), 608);
    }

    #[test]
    fn a_hit_refreshes() {
        let mut cache = cache(4, 4);
        let (kept, lost) = (tokens(0, 8), tokens(100, 8));
        send(&mut cache, &kept);
        send(&mut cache, &lost);
        assert_eq!(send(&mut cache, &tokens(0, 9)[..8]), 4);
        send(&mut cache, &tokens(200, 8));
        assert_eq!(send(&mut cache, &tokens(0, 9)[..5]), 4);
        assert_eq!(cache.find(&chain(cache.block(), None, &lost)), 0);
    }

    #[test]
    fn blocks_are_findable_as_soon_as_they_are_published() {
        let mut cache = cache(4, 8);
        let hashes = chain(cache.block(), None, &tokens(0, 9));
        let mut first = cache.admit(&[], 3).unwrap();
        cache.publish(&mut first, &hashes);
        assert_eq!(cache.find(&hashes), 2);
        let second = cache.admit(&hashes, 3).unwrap();
        assert_eq!(cache.held_blocks(), 4);
        cache.release(first);
        cache.release(second);
        assert_eq!(cache.held_blocks(), 0);
    }

    #[test]
    fn a_full_pool_admits_nothing_and_stays_as_it_was() {
        let mut cache = cache(4, 4);
        let hashes = chain(cache.block(), None, &tokens(0, 8));
        let mut lease = cache.admit(&[], 2).unwrap();
        cache.publish(&mut lease, &hashes);
        cache.release(lease);
        let holder = cache.admit(&[], 2).unwrap();
        assert!(cache.admit(&hashes, 3).is_none());
        assert_eq!((cache.held_blocks(), cache.find(&hashes)), (2, 2));
        let mut shared = cache.admit(&hashes, 2).unwrap();
        assert!(!cache.grow(&mut shared, 3));
        assert!((cache.usage() - 1.0).abs() < f64::EPSILON);
        cache.release(holder);
        assert!(cache.grow(&mut shared, 3));
        cache.release(shared);
    }

    #[test]
    fn a_reset_waits_for_every_lease() {
        let mut cache = cache(4, 4);
        let hashes = chain(cache.block(), None, &tokens(0, 4));
        let mut lease = cache.admit(&[], 1).unwrap();
        cache.publish(&mut lease, &hashes);
        assert!(!cache.reset());
        assert_eq!(cache.find(&hashes), 1);
        cache.release(lease);
        assert!(cache.reset());
        assert_eq!(cache.find(&hashes), 0);
    }

    /// An exact repeat of whole blocks computes the last one anew: two blocks
    /// then hold the same prefix, and one survives the other's eviction.
    #[test]
    fn twins_survive_each_other() {
        let mut cache = cache(4, 3);
        let hashes = chain(cache.block(), None, &tokens(0, 4));
        let mut first = cache.admit(&[], 1).unwrap();
        let mut second = cache.admit(&[], 1).unwrap();
        cache.publish(&mut first, &hashes);
        cache.publish(&mut second, &hashes);
        cache.release(first);
        cache.release(second);
        let fill = cache.admit(&[], 2).unwrap();
        assert_eq!(cache.find(&hashes), 1);
        let rest = cache.admit(&[], 1).unwrap();
        assert_eq!(cache.find(&hashes), 0);
        cache.release(fill);
        cache.release(rest);
    }
}
