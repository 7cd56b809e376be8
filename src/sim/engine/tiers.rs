//! What stands around the local pool: the resume rule of hybrid models and the
//! external tier. Both know block hashes only.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::kvcache::{BlockHash, PrefixCache};
use crate::sim::config::{External, Hybrid};
use crate::units::BlockSize;

/// Which found blocks a model can resume from. A plain transformer resumes
/// anywhere; a hybrid one only where a state was stored, and never at the end
/// of the last matching block.
#[derive(Clone, Debug)]
pub(super) struct ResumeRule {
    hybrid: Option<Hybrid>,
    block: BlockSize,
    points: HashSet<BlockHash>,
    speaking: Option<BlockHash>,
}

impl ResumeRule {
    pub(super) fn new(hybrid: Option<Hybrid>, block: BlockSize) -> Self {
        Self {
            hybrid,
            block,
            points: HashSet::new(),
            speaking: None,
        }
    }

    /// How many of `hashes` may be served back.
    pub(super) fn usable(&self, cache: &PrefixCache, hashes: &[BlockHash]) -> usize {
        let found = cache.find(hashes);
        if self.hybrid.is_none() {
            return found;
        }
        (1..found)
            .rev()
            .find(|&count| self.points.contains(&hashes[count - 1]))
            .unwrap_or(0)
    }

    /// A sequence with this first block is admitted. With the interleaving
    /// loss, the states of every other conversation are gone.
    pub(super) fn speaks(&mut self, first: Option<BlockHash>) {
        let loses = self.hybrid.is_some_and(|hybrid| hybrid.interleaving_loss);
        if loses && first.is_some() && first != self.speaking {
            self.points.clear();
            self.speaking = first;
        }
    }

    /// Blocks `from..` of `hashes` were computed; a cold pass keeps a state
    /// only at multiples of the retention interval.
    pub(super) fn learn(&mut self, hashes: &[BlockHash], from: usize, cold: bool) {
        let Some(hybrid) = self.hybrid else {
            return;
        };
        let every = match hybrid.retention_interval {
            Some(interval) if cold => self.block.whole_blocks(interval).max(1),
            _ => 1,
        };
        for (at, &hash) in hashes.iter().enumerate().skip(from) {
            if (at as u64 + 1).is_multiple_of(every) {
                self.points.insert(hash);
            }
        }
    }

    /// Forgets states whose blocks were evicted, so that the set stays within
    /// a few times the pool.
    pub(super) fn prune(&mut self, cache: &PrefixCache) {
        if self.points.len() > 4 * cache.usable_blocks() {
            self.points.retain(|&hash| cache.contains(hash));
        }
    }

    pub(super) fn clear(&mut self) {
        self.points.clear();
        self.speaking = None;
    }
}

/// A bounded set of blocks outside the pool, first stored first out.
#[derive(Clone, Debug)]
pub(super) struct ExternalTier {
    most: usize,
    stored: HashMap<BlockHash, u64>,
    order: BTreeMap<u64, BlockHash>,
    clock: u64,
}

impl ExternalTier {
    pub(super) fn new(external: External) -> Self {
        Self {
            most: external.blocks,
            stored: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
        }
    }

    /// How many of `hashes`, from the first on, it holds.
    pub(super) fn find(&self, hashes: &[BlockHash]) -> usize {
        hashes
            .iter()
            .take_while(|hash| self.stored.contains_key(hash))
            .count()
    }

    /// Stores blocks; a block stored again counts as recent.
    pub(super) fn store(&mut self, hashes: &[BlockHash]) {
        for &hash in hashes {
            self.clock += 1;
            if let Some(before) = self.stored.insert(hash, self.clock) {
                self.order.remove(&before);
            }
            self.order.insert(self.clock, hash);
        }
        while self.order.len() > self.most {
            if let Some((_, hash)) = self.order.pop_first() {
                self.stored.remove(&hash);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.stored.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvcache::chain;

    fn filled(block: u64, tokens: u32) -> (PrefixCache, Vec<BlockHash>) {
        let block = BlockSize::new(block).unwrap();
        let mut cache = PrefixCache::new(block, 1_000);
        let hashes = chain(block, None, &(0..tokens).collect::<Vec<_>>());
        let mut lease = cache.admit(&[], hashes.len()).unwrap();
        cache.publish(&mut lease, &hashes);
        cache.release(lease);
        (cache, hashes)
    }

    /// The floor rule: `max(0, prev div B − 1) · B`.
    #[test]
    fn a_hybrid_model_gives_back_one_block_less() {
        for (block, prev, back) in [
            (480, 959, 0),
            (480, 960, 480),
            (480, 1439, 480),
            (480, 1440, 960),
            (480, 3040, 2400),
            (448, 8192, 7616),
            (832, 16384, 14976),
            (800, 2501, 1600),
        ] {
            let (cache, hashes) = filled(block, prev);
            let mut rule = ResumeRule::new(Some(Hybrid::default()), cache.block());
            rule.learn(&hashes, 0, true);
            let usable = rule.usable(&cache, &hashes) as u64 * block;
            assert_eq!(usable, back, "block {block}, {prev} tokens");
        }
    }

    #[test]
    fn the_first_reuse_after_a_cold_pass_is_rounded_to_the_interval() {
        let (cache, hashes) = filled(2_176, 20_000);
        let hybrid = Hybrid {
            retention_interval: Some(13_056),
            interleaving_loss: false,
        };
        let mut rule = ResumeRule::new(Some(hybrid), cache.block());
        rule.learn(&hashes, 0, true);
        assert_eq!(rule.usable(&cache, &hashes) * 2_176, 13_056);
        rule.learn(&hashes, 6, false);
        assert_eq!(rule.usable(&cache, &hashes) * 2_176, 17_408);
    }

    #[test]
    fn interleaving_loses_the_silent_conversation() {
        let (cache, hashes) = filled(4, 40);
        let hybrid = Hybrid {
            retention_interval: None,
            interleaving_loss: true,
        };
        let other = chain(cache.block(), Some("other"), &[1, 2, 3, 4]);
        let mut rule = ResumeRule::new(Some(hybrid), cache.block());
        rule.speaks(hashes.first().copied());
        rule.learn(&hashes, 0, true);
        rule.speaks(hashes.first().copied());
        assert_eq!(rule.usable(&cache, &hashes), 9);
        rule.speaks(other.first().copied());
        rule.speaks(hashes.first().copied());
        assert_eq!(rule.usable(&cache, &hashes), 0);
    }

    #[test]
    fn the_external_tier_drops_what_was_stored_first() {
        let (_, hashes) = filled(4, 16);
        let mut tier = ExternalTier::new(External { blocks: 3 });
        tier.store(&hashes);
        assert_eq!((tier.find(&hashes), tier.find(&hashes[1..])), (0, 3));
        tier.clear();
        assert_eq!(tier.find(&hashes[1..]), 0);
    }
}
