//! Prompts as the server sees them: with special tokens around, cut into
//! blocks from the very first token. Numbers and ids only.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::artifacts::figures::{RequestFacts, account};
use crate::scenario::{CacheMode, PcloadConfig, PromptFormat, SpecialTokens};
use crate::theory::HitAccount;
use crate::tokenizer::Tokenizer;
use crate::units::BlockSize;

/// Special tokens that the server puts around each prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerView {
    /// Ids in front, a BOS usually.
    pub front: Vec<u32>,
    /// Ids behind.
    pub behind: Vec<u32>,
}

impl ServerView {
    /// What a server adds to a prompt that is sent as `config` says. Ids are
    /// taken as they are.
    pub fn new(config: &PcloadConfig, tokenizer: &dyn Tokenizer) -> Self {
        let omitted = config.prompt_format == PromptFormat::TokenIds
            || config.add_special_tokens == SpecialTokens::Omit;
        if omitted {
            return Self::default();
        }
        Self {
            front: tokenizer.prefix_ids().to_vec(),
            behind: tokenizer.suffix_ids().to_vec(),
        }
    }

    /// Prompt length in the server's view, in tokens.
    pub fn input_tokens(&self, tokens: u64) -> u64 {
        (self.front.len() + self.behind.len()) as u64 + tokens
    }

    /// The theory of each request in the server's view, in send order.
    ///
    /// Tokens in front shift the blocks; a hit of `h` tokens becomes the whole
    /// blocks of `front + h`. Where the front alone fills a block, it is shared
    /// by all prompts of a rank that has seen one.
    pub fn accounts(
        &self,
        mode: CacheMode,
        block_size: BlockSize,
        requests: &[RequestFacts],
    ) -> Vec<HitAccount> {
        let front = self.front.len() as u64;
        let mut seen = BTreeSet::new();
        requests
            .iter()
            .map(|request| {
                let first = seen.insert(request.dp_rank) && mode == CacheMode::Cold;
                let found = if first { 0 } else { front + request.hit_tokens };
                HitAccount {
                    input_tokens: self.input_tokens(request.input_tokens),
                    hit_tokens: block_size.floor(found),
                }
            })
            .collect()
    }

    /// Ids, in the prompt's own numbering, of the first block that holds a
    /// token behind `shared` common ones: where it begins (0 when it reaches
    /// into the front) and ends.
    pub fn first_divergent_block(
        &self,
        block_size: BlockSize,
        shared: u64,
        tokens: u64,
    ) -> std::ops::Range<u64> {
        let front = self.front.len() as u64;
        let start = block_size.floor(front + shared);
        let end = start + block_size.tokens();
        start.saturating_sub(front)..end.saturating_sub(front).min(tokens)
    }

    /// `manifest.pcload.server_view`: the sums of `accounts`.
    pub fn summary(&self, requests: &[RequestFacts], accounts: &[HitAccount]) -> Value {
        let mut total = HitAccount::default();
        let mut groups = std::collections::BTreeMap::<_, HitAccount>::new();
        let mut ranks = std::collections::BTreeMap::<_, HitAccount>::new();
        for (request, one) in requests.iter().zip(accounts) {
            let rank = request.dp_rank.map(|rank| ranks.entry(rank).or_default());
            let group = groups.entry(request.group).or_default();
            for sum in [&mut total, group].into_iter().chain(rank) {
                sum.input_tokens += one.input_tokens;
                sum.hit_tokens += one.hit_tokens;
            }
        }
        let named = |key: String, one: &HitAccount| (key, account(*one));
        json!({
            "special_token_ids_front": self.front,
            "special_token_ids_behind": self.behind,
            "total": account(total),
            "groups": groups.iter().map(|(key, one)| named(key.to_string(), one)).collect::<Map<_, _>>(),
            "dp": ranks.iter().map(|(key, one)| named(key.to_string(), one)).collect::<Map<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{DpRank, GroupIndex};

    fn facts(rank: u32, shared: u64, hit: u64) -> RequestFacts {
        RequestFacts {
            group: GroupIndex(0),
            dp_rank: Some(DpRank(rank)),
            input_tokens: 80,
            output_tokens: 1,
            shared_prefix_tokens: shared,
            hit_tokens: hit,
        }
    }

    fn hits(front: usize, block: u64, requests: &[RequestFacts]) -> Vec<(u64, u64)> {
        let view = ServerView {
            front: vec![1; front],
            behind: vec![],
        };
        view.accounts(CacheMode::Cold, BlockSize::new(block).unwrap(), requests)
            .into_iter()
            .map(|one| (one.input_tokens, one.hit_tokens))
            .collect()
    }

    #[test]
    fn a_bos_lengthens_the_prompt_and_not_the_hit() {
        let requests = [facts(0, 48, 0), facts(0, 32, 32)];
        assert_eq!(hits(1, 16, &requests), [(81, 0), (81, 32)]);
        assert_eq!(hits(0, 16, &requests), [(80, 0), (80, 32)]);
    }

    #[test]
    fn a_front_of_a_whole_block_is_shared_by_the_rank() {
        let requests = [facts(0, 4, 0), facts(0, 4, 4), facts(1, 4, 0)];
        assert_eq!(hits(1, 1, &requests), [(81, 0), (81, 5), (81, 0)]);
    }

    #[test]
    fn the_divergent_block_is_cut_as_the_server_cuts_it() {
        let block = BlockSize::new(16).unwrap();
        let bos = ServerView {
            front: vec![1],
            behind: vec![],
        };
        let none = ServerView::default();
        assert_eq!(none.first_divergent_block(block, 32, 80), 32..48);
        assert_eq!(bos.first_divergent_block(block, 32, 80), 31..47);
        assert_eq!(bos.first_divergent_block(block, 0, 80), 0..15);
    }
}
