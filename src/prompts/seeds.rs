//! Seeds: words in random order, no two of them alike where the server first
//! tells requests apart. It refuses to know what stands around them.

use std::collections::HashSet;

use crate::prompts::PromptError;
use crate::prompts::context::Place;
use crate::prompts::words::{WordIndex, Words};
use crate::rng::Stream;

/// Random draws before seeds are counted through.
const DRAWS_MAX: usize = 64;

/// How the server cuts a prompt into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Tokens of one block.
    size: usize,
    /// Tokens by which what stands in front of the prompt moves it out of step
    /// with the blocks; below `size`.
    shift: usize,
}

impl Blocks {
    /// Blocks of `size` tokens, with `front` special tokens before the prompt.
    pub(super) fn new(size: usize, front: usize) -> Self {
        Self {
            size,
            shift: front % size,
        }
    }

    /// Tokens behind a shared prefix (a multiple of the block size) that are in
    /// the first block which is not shared as a whole.
    pub(super) fn head_tokens(self) -> usize {
        self.size - self.shift
    }

    /// The first block behind `shared` tokens of `ids`, without the special
    /// tokens that may be in it; `None` where the prompt ends before the block
    /// does.
    pub(super) fn behind(self, ids: &[u32], shared: usize) -> Option<&[u32]> {
        ids.get(shared.saturating_sub(self.shift)..shared + self.head_tokens())
    }

    /// All whole blocks of `ids`.
    fn of(self, ids: &[u32]) -> impl Iterator<Item = &[u32]> {
        (0..)
            .map(move |block| self.behind(ids, block * self.size))
            .map_while(|block| block)
    }
}

/// Blocks that no further request may have behind its prefix: those of the
/// requests so far and of all canonical prefixes, each as the server cuts them
/// with and without special tokens in front.
#[derive(Clone)]
pub(super) struct Registry {
    blocks: Blocks,
    taken: HashSet<Box<[u32]>>,
}

impl Registry {
    pub(super) fn new(blocks: Blocks) -> Self {
        Self {
            blocks,
            taken: HashSet::new(),
        }
    }

    /// Tokens of a seed that tell it from another one.
    pub(super) fn head_tokens(&self) -> usize {
        self.blocks.head_tokens()
    }

    /// Bars the blocks of a canonical prefix.
    pub(super) fn add_canonical(&mut self, ids: &[u32]) {
        let plain = Blocks::new(self.blocks.size, 0);
        let all = self.blocks.of(ids).chain(plain.of(ids));
        self.taken.extend(all.map(Into::into));
    }

    /// Takes `seed` behind `prefix`, if the block that it makes there is free.
    fn take(&mut self, prefix: &[u32], seed: &[u32]) -> bool {
        let Blocks { size, shift } = self.blocks;
        let tail = &prefix[prefix.len().saturating_sub(shift)..];
        let block = [tail, &seed[..self.blocks.head_tokens()]].concat();
        let is_free = !self.taken.contains(&*block) && !self.taken.contains(&seed[..size]);
        if is_free {
            self.taken.insert(block.into());
            self.taken.insert(seed[..size].into());
        }
        is_free
    }
}

/// Draws a seed of `count` words that may stand behind `prefix`, and takes it.
pub(super) fn draw_seed(
    registry: &mut Registry,
    words: &Words,
    prefix: &[u32],
    count: usize,
    stream: &mut Stream,
    request_id: &str,
) -> Result<Vec<WordIndex>, PromptError> {
    let place = if prefix.is_empty() {
        Place::Start
    } else {
        Place::Inner
    };
    let head_tokens = registry.head_tokens();
    let draw = |stream: &mut Stream| -> Vec<WordIndex> {
        (0..count)
            .map(|token| {
                let place = if token == 0 { place } else { Place::Inner };
                words.draw(stream, place)
            })
            .collect()
    };
    let mut seed = draw(stream);
    for _ in 0..DRAWS_MAX {
        if registry.take(prefix, &ids(words, &seed)) {
            return Ok(seed);
        }
        seed = draw(stream);
    }
    // Hardly any seed is left: count through the heads, as through numbers.
    let limit = head_count(words.len(), head_tokens);
    for _ in 0..limit {
        if words.text(seed[0], place).is_some() && registry.take(prefix, &ids(words, &seed)) {
            return Ok(seed);
        }
        for word in &mut seed[..head_tokens] {
            *word = (*word + 1) % words.len();
            if *word != 0 {
                break;
            }
        }
    }
    Err(PromptError::SeedsExhausted {
        request_id: request_id.to_owned(),
        word_count: words.len(),
        head_tokens,
    })
}

/// Different heads there are, up to a bound that is far above all requests of a
/// data set and the blocks of its prefixes.
fn head_count(words: usize, head_tokens: usize) -> usize {
    let power = u32::try_from(head_tokens).unwrap_or(u32::MAX);
    words.saturating_pow(power).min(1 << 24)
}

/// The words' ids.
pub(super) fn ids(words: &Words, seed: &[WordIndex]) -> Vec<u32> {
    seed.iter().map(|word| words.id(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_special_token_in_front_moves_the_blocks() {
        let ids: Vec<u32> = (0..12).collect();
        let plain = Blocks::new(4, 0);
        assert_eq!(plain.behind(&ids, 8), Some(&ids[8..12]));
        let shifted = Blocks::new(4, 1);
        assert_eq!(shifted.head_tokens(), 3);
        // The server's third block is the eighth token and the three behind it.
        assert_eq!(shifted.behind(&ids, 8), Some(&ids[7..11]));
        // Its first block is the special token and three of ours.
        assert_eq!(shifted.behind(&ids, 0), Some(&ids[..3]));
        assert_eq!(shifted.of(&ids).count(), 3);
        assert_eq!(Blocks::new(1, 1), Blocks::new(1, 0));
    }

    /// Case O-TOK-6: equal first blocks collide though the seeds differ behind
    /// them, and so does a seed that continues its group's canonical prefix.
    #[test]
    fn seeds_that_agree_in_their_first_block_collide() {
        let mut registry = Registry::new(Blocks::new(4, 0));
        let canonical: Vec<u32> = (0..12).collect();
        registry.add_canonical(&canonical);
        let shared = &canonical[..8];
        assert!(registry.take(shared, &[11, 12, 13, 14, 21, 22, 23, 24]));
        assert!(!registry.take(shared, &[11, 12, 13, 14, 31, 32, 33, 34]));
        assert!(!registry.take(&canonical[..4], &[4, 5, 6, 7, 31, 32, 33, 34]));
        assert!(registry.take(&canonical[..4], &[4, 5, 6, 8, 31, 32, 33, 34]));
    }

    /// The same with a BOS: the block behind four shared tokens is the fourth
    /// one and three of the seed.
    #[test]
    fn the_blocks_that_count_are_the_servers() {
        let mut registry = Registry::new(Blocks::new(4, 1));
        let canonical: Vec<u32> = (0..12).collect();
        registry.add_canonical(&canonical);
        assert!(!registry.take(&canonical[..4], &[4, 5, 6, 90]));
        assert!(registry.take(&canonical[..8], &[4, 5, 6, 90]));
        // Refused without the BOS, where the block is the seed's alone.
        assert!(!registry.take(&[70, 71, 72, 73], &[4, 5, 6, 90]));
        assert!(registry.take(&[70, 71, 72, 73], &[4, 5, 6, 91]));
    }
}
