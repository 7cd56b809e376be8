//! The prefix cache of a serving engine, as block arithmetic: a chain of block
//! hashes, reference counts, and least-recently-used eviction over the blocks
//! that nobody holds. Pure; it refuses to know requests, time and text.
//!
//! The rules are those of vLLM's block pool (seen on 0.24.0 and 0.32.0):
//! - only whole blocks are shared, and the last token of a prompt is always
//!   computed, so a lookup goes over `prompt − 1` tokens ([`lookup_blocks`]);
//! - a block can be found from the moment it is scheduled, not computed;
//! - of one sequence the tail is evicted before the head;
//! - one block of the pool (the null block) is never usable.

mod free_list;
mod hash;
#[cfg(test)]
mod naive;
mod pool;

pub use hash::{BlockHash, ChainHasher, chain};
pub use pool::{Lease, PrefixCache};

use crate::units::BlockSize;

/// Blocks of a prompt of `tokens` that a lookup may return: whole blocks of
/// all tokens but the last, which has to be computed to sample from.
pub const fn lookup_blocks(block: BlockSize, tokens: u64) -> u64 {
    block.whole_blocks(tokens.saturating_sub(1))
}

/// Tokens an exact repeat of a prompt of `tokens` finds in the cache.
pub const fn replay_hit(block: BlockSize, tokens: u64) -> u64 {
    lookup_blocks(block, tokens) * block.tokens()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded on a real vLLM, and the replay values of vllm-ascend.
    #[test]
    fn an_exact_repeat_hits_whole_blocks_short_of_the_last_token() {
        let cases = [
            (32, 32, 0),
            (32, 33, 32),
            (32, 64, 32),
            (32, 128, 96),
            (32, 129, 128),
            (32, 512, 480),
            (32, 1024, 992),
            (32, 1025, 1024),
            (16, 512, 496),
            (16, 1024, 1008),
            (128, 128, 0),
            (128, 256, 128),
            (128, 257, 256),
            (1024, 1024, 0),
            (1024, 2047, 1024),
            (1024, 4096, 3072),
            (16, 0, 0),
        ];
        for (block, tokens, hit) in cases {
            let block = BlockSize::new(block).unwrap();
            assert_eq!(replay_hit(block, tokens), hit, "{block:?} {tokens}");
        }
    }
}
