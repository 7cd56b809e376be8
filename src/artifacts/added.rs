//! Prompts as the server sees them: with special tokens around, cut into
//! blocks from the very first token. Numbers and ids only.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value, json};

use crate::artifacts::figures::{RequestFacts, account};
use crate::scenario::{PcloadConfig, PromptFormat, SpecialTokens};
use crate::theory::HitAccount;
use crate::tokenizer::Tokenizer;
use crate::units::BlockSize;

/// Special tokens that the server puts around each prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedTokens {
    /// Ids in front, a BOS usually.
    pub front: Vec<u32>,
    /// Ids behind.
    pub behind: Vec<u32>,
}

impl AddedTokens {
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
        tokens.saturating_add((self.front.len() + self.behind.len()) as u64)
    }

    /// The theory of each request in the server's view, in send order.
    ///
    /// Tokens in front shift the blocks: a hit of `h` tokens becomes the whole
    /// blocks of `front + h`, and the last token is never looked up.
    pub fn accounts(&self, block_size: BlockSize, requests: &[RequestFacts]) -> Vec<HitAccount> {
        requests
            .iter()
            .map(|request| self.account(block_size, request.input_tokens, request.hit_tokens))
            .collect()
    }

    /// [`accounts`](Self::accounts) of one request.
    pub(crate) fn account(
        &self,
        block_size: BlockSize,
        input_tokens: u64,
        hit_tokens: u64,
    ) -> HitAccount {
        let input_tokens = self.input_tokens(input_tokens);
        let found = hit_tokens.saturating_add(self.front.len() as u64);
        HitAccount {
            input_tokens,
            hit_tokens: block_size.floor(found.min(input_tokens.saturating_sub(1))),
        }
    }

    /// Ids, in the prompt's own numbering, of the first block that holds a
    /// token behind `shared` common ones: where it begins (0 when it reaches
    /// into the front) and ends.
    pub fn first_divergent_block(
        &self,
        block_size: BlockSize,
        shared: u64,
        tokens: usize,
    ) -> Range<usize> {
        let front = self.front.len() as u64;
        let start = block_size.floor(front.saturating_add(shared));
        let place = |server: u64| {
            usize::try_from(server.saturating_sub(front)).map_or(tokens, |at| at.min(tokens))
        };
        place(start)..place(start.saturating_add(block_size.tokens()))
    }

    /// `manifest.pcload.server_view`: the sums of `accounts`.
    pub fn summary(&self, requests: &[RequestFacts], accounts: &[HitAccount]) -> Value {
        let mut total = HitAccount::default();
        let mut groups = BTreeMap::<_, HitAccount>::new();
        let mut ranks = BTreeMap::<_, HitAccount>::new();
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
        let view = AddedTokens {
            front: vec![1; front],
            behind: vec![],
        };
        view.accounts(BlockSize::new(block).unwrap(), requests)
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
    fn the_divergent_block_is_cut_as_the_server_cuts_it() {
        let block = BlockSize::new(16).unwrap();
        let bos = AddedTokens {
            front: vec![1],
            behind: vec![],
        };
        let none = AddedTokens::default();
        assert_eq!(none.first_divergent_block(block, 32, 80), 32..48);
        assert_eq!(bos.first_divergent_block(block, 32, 80), 31..47);
        assert_eq!(bos.first_divergent_block(block, 0, 80), 0..15);
    }
}
