//! The chain of block hashes: a block is known by its own tokens and all
//! before it, so equal hashes mean equal prefixes. Refuses to know the pool.
//!
//! 64 bits of a folded multiply. For a pool of 100,000 blocks the chance that
//! any two differing prefixes collide is below 10⁻⁹; the hash is no defence
//! against prompts that were made to collide.

use crate::units::BlockSize;

/// Hash of a whole block and everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(u64);

/// Odd constants without structure (digits of π and e).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const ROOT: u64 = 0x243f_6a88_85a3_08d3;
const STEP: u64 = 0xb7e1_5162_8aed_2a6b;

/// Product of 128 bits, folded to 64.
const fn fold(left: u64, right: u64) -> u64 {
    let product = (left as u128) * (right as u128);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    let folded = (product as u64) ^ ((product >> 64) as u64);
    folded
}

/// Hashes a sequence token by token and says a hash whenever a block is full.
#[derive(Clone, Debug)]
pub struct ChainHasher {
    block: BlockSize,
    state: u64,
    in_block: u64,
}

impl ChainHasher {
    /// A chain for blocks of `block` tokens. Sequences with different salts
    /// share nothing; no salt is a salt of its own.
    pub fn new(block: BlockSize, salt: Option<&str>) -> Self {
        let mut state = ROOT;
        for byte in salt.into_iter().flat_map(str::bytes) {
            state = fold(state ^ u64::from(byte).wrapping_add(STEP), MULTIPLIER);
        }
        if salt.is_some() {
            state = fold(state ^ ROOT, STEP);
        }
        Self {
            block,
            state,
            in_block: 0,
        }
    }

    /// Takes the next token; the block's hash when it is full.
    pub fn push(&mut self, token: u32) -> Option<BlockHash> {
        let mixed = fold(self.state ^ u64::from(token), MULTIPLIER);
        self.state = mixed.wrapping_add(STEP);
        self.in_block += 1;
        if self.in_block < self.block.tokens() {
            return None;
        }
        self.in_block = 0;
        self.state = fold(self.state ^ ROOT, STEP);
        Some(BlockHash(self.state))
    }
}

/// Hashes of the whole blocks of `tokens`.
pub fn chain(block: BlockSize, salt: Option<&str>, tokens: &[u32]) -> Vec<BlockHash> {
    let mut hasher = ChainHasher::new(block, salt);
    tokens
        .iter()
        .filter_map(|&token| hasher.push(token))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const BLOCK: BlockSize = BlockSize::new(4).unwrap();

    #[test]
    fn only_whole_blocks_have_a_hash() {
        for (tokens, blocks) in [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2)] {
            let ids: Vec<u32> = (0..tokens).collect();
            assert_eq!(chain(BLOCK, None, &ids).len(), blocks);
        }
    }

    #[test]
    fn a_hash_speaks_for_everything_before_it() {
        let first = chain(BLOCK, None, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let other = chain(BLOCK, None, &[1, 2, 3, 9, 5, 6, 7, 8]);
        let longer = chain(BLOCK, None, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(first, longer);
        assert_ne!(first[0], other[0]);
        assert_ne!(first[1], other[1]);
    }

    #[test]
    fn salts_share_nothing() {
        let ids = [1, 2, 3, 4];
        let all: BTreeSet<_> = [None, Some(""), Some("a"), Some("b"), Some("ab")]
            .into_iter()
            .map(|salt| chain(BLOCK, salt, &ids)[0])
            .collect();
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn many_small_blocks_do_not_collide() {
        let block = BlockSize::new(1).unwrap();
        let mut all = BTreeSet::new();
        for first in 0..300 {
            all.extend(chain(
                block,
                None,
                &(first..first + 300).collect::<Vec<_>>(),
            ));
        }
        assert_eq!(all.len(), 300 * 300);
    }
}
