//! The block size a server really uses, out of what it gave back for prefixes
//! it had seen before. Pure arithmetic: the requests are made elsewhere.
//!
//! A prompt of `n` tokens whose prefix is cached gets `((n − 1) div B) · B`
//! tokens from the cache: whole blocks only, and the last token is always
//! computed (vllm-project/vllm#11186, #17999).

use serde::Serialize;

use crate::units::BlockSize;

/// One look at a cache that holds the whole prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens found.
    pub cached_tokens: u64,
}

impl Replay {
    /// The last token is never found.
    fn is_possible(&self) -> bool {
        self.prompt_tokens > self.cached_tokens
            || (self.prompt_tokens, self.cached_tokens) == (0, 0)
    }

    /// Whether a server with this block gives back just that.
    fn fits(&self, block: BlockSize, last_block_withheld: bool) -> bool {
        if !last_block_withheld {
            return block.findable_tokens(self.prompt_tokens) == self.cached_tokens;
        }
        [self.prompt_tokens, self.prompt_tokens.saturating_sub(1)]
            .map(|tokens| block.floor(tokens).saturating_sub(block.tokens()))
            .contains(&self.cached_tokens)
    }
}

/// What a series of replays says of the block size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MeasuredBlock {
    /// Every block size that explains all replays, ascending; empty when none
    /// does or when nothing was ever found.
    pub candidates: Vec<u64>,
    /// The sizes explain the replays only if the server holds back the last
    /// whole block, as models with recurrent layers do: they give back
    /// `max(0, n div B − 1) · B` (syv-ai/qwen38-27b-rtx3090#102), or as much of
    /// `n − 1` tokens.
    pub last_block_withheld: bool,
    /// Sizes that would explain the replays too if the last block were held
    /// back, where they can be explained without.
    pub rivals: Vec<u64>,
    /// The replays.
    pub replays: Vec<Replay>,
}

impl MeasuredBlock {
    /// Block sizes that fit `replays`. A block divides every number of tokens
    /// found and is longer than every rest that was not found; where none is,
    /// every rest is one block longer.
    pub fn of(replays: Vec<Replay>) -> Self {
        let divisor = replays
            .iter()
            .map(|replay| replay.cached_tokens)
            .fold(0, gcd);
        let sane = (1..=TOKENS_MAX).contains(&divisor) && replays.iter().all(Replay::is_possible);
        let found = if sane { divisors(divisor) } else { Vec::new() };
        let explaining = |withheld: bool| -> Vec<u64> {
            let explains = |size: &u64| {
                let block = BlockSize::new(*size);
                block.is_some_and(|block| replays.iter().all(|one| one.fits(block, withheld)))
            };
            found.iter().copied().filter(explains).collect()
        };
        let (plain, withheld) = (explaining(false), explaining(true));
        if plain.is_empty() {
            return Self {
                last_block_withheld: !withheld.is_empty(),
                candidates: withheld,
                rivals: Vec::new(),
                replays,
            };
        }
        Self {
            last_block_withheld: false,
            candidates: plain,
            rivals: withheld,
            replays,
        }
    }

    /// The block size, if the replays leave no choice.
    pub fn certain(&self) -> Option<u64> {
        match self.candidates[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The largest block size that fits: the one to assume while there is a
    /// choice.
    pub fn largest(&self) -> Option<u64> {
        self.candidates.last().copied()
    }

    /// Whether `block` explains every replay. `None` when nothing was found at
    /// all, which says nothing of blocks longer than the prompts.
    pub fn fits(&self, block: BlockSize) -> Option<bool> {
        let found = self.replays.iter().any(|replay| replay.cached_tokens > 0);
        let findable = self
            .replays
            .iter()
            .any(|replay| block.findable_tokens(replay.prompt_tokens) > 0);
        (found || findable).then(|| {
            let withheld = self.last_block_withheld;
            self.replays.iter().all(|one| one.fits(block, withheld))
        })
    }
}

/// Longest prompt that is believed; what a server says is not always sane.
const TOKENS_MAX: u64 = 1 << 32;

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn divisors(number: u64) -> Vec<u64> {
    let mut divisors: Vec<u64> = (1..=number.isqrt())
        .filter(|low| number.is_multiple_of(*low))
        .flat_map(|low| [low, number / low])
        .collect();
    divisors.sort_unstable();
    divisors.dedup();
    divisors
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(tokens: u64) -> BlockSize {
        BlockSize::new(tokens).unwrap()
    }

    fn measured(pairs: &[(u64, u64)]) -> MeasuredBlock {
        let replay = |&(prompt_tokens, cached_tokens)| Replay {
            prompt_tokens,
            cached_tokens,
        };
        MeasuredBlock::of(pairs.iter().map(replay).collect())
    }

    /// vllm-project/vllm-ascend#13750: 128 configured, 1024 in use.
    #[test]
    fn a_configured_block_that_is_not_in_use_does_not_fit() {
        let found = measured(&[(1500, 1024), (2500, 2048), (3100, 3072)]);
        assert_eq!(found.fits(block(128)), Some(false));
        assert_eq!(found.fits(block(1024)), Some(true));
        assert_eq!(found.largest(), Some(1024));
        assert_eq!(found.candidates, [512, 1024]);
        let certain = measured(&[(1500, 1024), (2500, 2048), (3100, 3072), (2040, 1024)]);
        assert_eq!(certain.certain(), Some(1024));
    }

    /// The floor rule of hybrid models, with the numbers of its reports, and
    /// the replays of a server that looks up one token less.
    #[test]
    fn a_model_that_holds_back_its_last_block_is_told_from_one_of_another_block() {
        let reported = measured(&[(959, 0), (1439, 480), (1440, 960), (3040, 2400)]);
        assert_eq!(reported.candidates, [480]);
        assert!(reported.last_block_withheld);
        let one_token_less = measured(&[(466, 384), (233, 128), (257, 192), (256, 128)]);
        assert_eq!(one_token_less.candidates, [64]);
        // Without the third, blocks of 128 would do as well.
        let open = measured(&[(466, 384), (233, 128), (256, 128)]);
        assert_eq!((open.certain(), &open.rivals[..]), (Some(128), &[64][..]));
        assert_eq!(one_token_less.fits(block(64)), Some(true));
        assert_eq!(one_token_less.fits(block(16)), Some(false));
        assert!(!measured(&[(466, 448), (233, 192)]).last_block_withheld);
    }

    #[test]
    fn nothing_found_says_nothing_of_longer_blocks() {
        let nothing = measured(&[(100, 0)]);
        assert_eq!(nothing.largest(), None);
        assert_eq!(nothing.fits(block(128)), None);
        assert_eq!(nothing.fits(block(16)), Some(false));
        let impossible = measured(&[(10, 12)]);
        assert!(impossible.candidates.is_empty());
    }

    proptest! {
        #[test]
        fn the_block_in_use_is_among_the_candidates(
            tokens in 1_u64..600,
            prompts in proptest::collection::vec(1_u64..5_000, 1..8),
        ) {
            let replay = |&prompt_tokens: &u64| Replay {
                prompt_tokens,
                cached_tokens: block(tokens).findable_tokens(prompt_tokens),
            };
            let found = MeasuredBlock::of(prompts.iter().map(replay).collect());
            if found.replays.iter().any(|replay| replay.cached_tokens > 0) {
                prop_assert!(found.candidates.contains(&tokens));
                prop_assert_eq!(found.fits(block(tokens)), Some(true));
            }
            for candidate in &found.candidates {
                prop_assert_eq!(found.fits(block(*candidate)), Some(true));
            }
        }
    }
}
