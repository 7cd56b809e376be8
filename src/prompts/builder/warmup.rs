//! The warm-up plan: for each group and rank the group's longest prefix and a
//! seed of its own. It refuses to know the formal requests.

use rayon::prelude::*;

use crate::plan::PlannedGroup;
use crate::prompts::builder::{ATTEMPTS_MAX, Builder, no_round_trip};
use crate::prompts::context::Mismatch;
use crate::prompts::passage::Passage;
use crate::prompts::seeds::Registry;
use crate::prompts::words::WordIndex;
use crate::prompts::{PromptError, WarmupPrompt, tokens};
use crate::rng::{Seed, Stream};
use crate::scenario::CacheMode;
use crate::units::{DpRank, GroupIndex};

impl Builder<'_> {
    /// Draws the seeds of all warm-up items in order, proves their texts in
    /// parallel, and draws again where a text does not give its ids.
    pub(super) fn make_warmup(&mut self, seed: &Seed) -> Result<(), PromptError> {
        if self.plan.mode != CacheMode::Warmup {
            return Ok(());
        }
        let mut items: Vec<WarmupItem> = self
            .plan
            .groups
            .iter()
            .flat_map(|group| (0..self.plan.dp_size).map(move |rank| (group, DpRank(rank))))
            .map(|(group, rank)| WarmupItem::new(group, rank, seed))
            .collect();
        let mut registry = self.take_registry();
        let drawn: Result<Vec<_>, PromptError> = items
            .iter_mut()
            .map(|item| self.draw_warmup(&mut registry, item))
            .collect();
        let drawn = drawn?;
        let built: Vec<_> = items
            .par_iter()
            .zip(&drawn)
            .map(|(item, seed)| self.warmup_prompt(item, seed))
            .collect();
        for (item, built) in items.iter_mut().zip(built) {
            let prompt = match built? {
                Ok(prompt) => prompt,
                Err(mismatch) => self.warm_again(item, mismatch, &mut registry)?,
            };
            self.warmup.push(prompt);
        }
        self.registry = registry;
        Ok(())
    }

    fn warmup_prompt(
        &self,
        item: &WarmupItem,
        seed: &[WordIndex],
    ) -> Result<Result<WarmupPrompt, Mismatch>, PromptError> {
        let (text, ids) = self.join(item.group, item.shared, seed, &Passage::default());
        let proof = self.context.prove(&text, &ids)?;
        Ok(proof.map(|()| WarmupPrompt {
            request_id: item.request_id.clone(),
            group: item.group,
            dp_rank: item.dp_rank,
            text,
            ids,
            shared_prefix_tokens: item.shared as u64,
        }))
    }

    fn warm_again(
        &self,
        item: &mut WarmupItem,
        mut mismatch: Mismatch,
        registry: &mut Registry,
    ) -> Result<WarmupPrompt, PromptError> {
        for _ in 1..ATTEMPTS_MAX {
            let seed = self.draw_warmup(registry, item)?;
            match self.warmup_prompt(item, &seed)? {
                Ok(prompt) => return Ok(prompt),
                Err(found) => mismatch = found,
            }
        }
        Err(no_round_trip(&item.request_id, mismatch))
    }

    fn draw_warmup(
        &self,
        registry: &mut Registry,
        item: &mut WarmupItem,
    ) -> Result<Vec<WordIndex>, PromptError> {
        let WarmupItem {
            request_id,
            stream,
            group,
            shared,
            ..
        } = item;
        self.draw(registry, *group, *shared, stream, request_id)
    }
}

/// A warm-up item before its text.
struct WarmupItem {
    request_id: String,
    group: GroupIndex,
    dp_rank: DpRank,
    /// Tokens of the group's prefix.
    shared: usize,
    stream: Stream,
}

impl WarmupItem {
    fn new(group: &PlannedGroup, dp_rank: DpRank, seed: &Seed) -> Self {
        let request_id = format!("warmup:{}:{dp_rank}", group.group);
        Self {
            stream: seed.stream(&request_id),
            request_id,
            group: group.group,
            dp_rank,
            shared: tokens(group.max_shared_prefix_tokens),
        }
    }
}
