//! What special tokens do to blocks: a request as the server's cache sees it.

use crate::units::BlockSize;

/// How the server sees a prompt: special tokens in front (a BOS) and behind.
///
/// Blocks are cut from the first token on, special tokens included, so a BOS
/// shifts every block by one: of `n` special and `s` shared tokens
/// `⌊(n + s) / B⌋ · B` can be found. The engine computes at least the last
/// token of a prompt of `L` itself, so it never finds more than
/// `⌊(L − 1) / B⌋ · B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// Prefix-cache block of the server.
    pub block_size: BlockSize,
    /// Special tokens in front of each prompt, the same for all.
    pub special_prefix_tokens: u64,
    /// Special tokens behind each prompt.
    pub special_suffix_tokens: u64,
}

impl ServerView {
    /// A server that adds nothing.
    pub const fn plain(block_size: BlockSize) -> Self {
        Self {
            block_size,
            special_prefix_tokens: 0,
            special_suffix_tokens: 0,
        }
    }

    /// Tokens the server sees of a prompt of `input_tokens`.
    pub const fn input_tokens(&self, input_tokens: u64) -> u64 {
        self.special_prefix_tokens + input_tokens + self.special_suffix_tokens
    }

    /// Cached tokens of a prefix of `shared_tokens` prompt tokens that some
    /// earlier request brought: whole blocks of the specials and the prefix.
    pub const fn cached_tokens(&self, shared_tokens: u64) -> u64 {
        self.block_size
            .floor(self.special_prefix_tokens + shared_tokens)
    }

    /// Most tokens that can be found of a prompt of `input_tokens`: its last
    /// token is always computed.
    pub const fn findable_tokens(&self, input_tokens: u64) -> u64 {
        self.block_size
            .findable_tokens(self.input_tokens(input_tokens))
    }

    /// Tokens found of a prompt of `input_tokens` whose first `shared_tokens`
    /// are the group's, when the longest prefix of the group that was sent
    /// before has `watermark_tokens`.
    pub fn hit_tokens(&self, shared_tokens: u64, watermark_tokens: u64, input_tokens: u64) -> u64 {
        self.cached_tokens(shared_tokens.min(watermark_tokens))
            .min(self.findable_tokens(input_tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bos() -> ServerView {
        ServerView {
            special_prefix_tokens: 1,
            ..ServerView::plain(BlockSize::new(16).unwrap())
        }
    }

    #[test]
    fn a_bos_shifts_blocks_by_one() {
        // 64 shared tokens and a BOS: 65 common tokens, four whole blocks.
        assert_eq!(bos().hit_tokens(64, 64, 80), 64);
        // One token less in common than four blocks need.
        assert_eq!(bos().hit_tokens(62, 64, 80), 48);
        assert_eq!(bos().hit_tokens(63, 64, 80), 64);
        assert_eq!(bos().input_tokens(80), 81);
    }

    #[test]
    fn the_last_token_is_always_computed() {
        let plain = ServerView::plain(BlockSize::new(16).unwrap());
        assert_eq!(plain.hit_tokens(64, 64, 64), 48);
        assert_eq!(plain.hit_tokens(64, 64, 65), 64);
        // With a BOS the prompt of 64 is one of 65.
        assert_eq!(bos().hit_tokens(64, 64, 64), 64);
        assert_eq!(plain.findable_tokens(0), 0);
        assert_eq!(plain.hit_tokens(100, 100, 500), 96);
    }
}
