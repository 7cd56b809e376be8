//! Builds the prompts of a whole plan, in parallel and in order. The bytes do
//! not depend on the number of threads: all choices come from labelled streams,
//! and whatever one request takes from the others is taken in send order.

mod warmup;

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::corpus::Corpus;
use crate::plan::{Plan, PlannedRequest};
use crate::prompts::canonical::{Group, make_groups, sources};
use crate::prompts::context::{Context, Mismatch, Place};
use crate::prompts::passage::{Materials, Order, Passage, compose, compose_words};
use crate::prompts::pieces::Library;
use crate::prompts::seeds::{Blocks, Registry, draw_seed, ids};
use crate::prompts::tokens;
use crate::prompts::words::{WordIndex, Words};
use crate::prompts::{BuiltPrompt, CanonicalPrefix, PromptError, WarmupPrompt};
use crate::rng::{Seed, Stream};
use crate::scenario::Selection;
use crate::tokenizer::Tokenizer;
use crate::units::{GroupIndex, id_tuple_sha256};

/// Prompts that are in memory at once. At 4,096 tokens one takes some 40 kB.
const CHUNK: usize = 256;

/// Attempts at one prompt. On nine real tokenizers and four corpora the first was
/// always the last; toy vocabularies need some.
const ATTEMPTS_MAX: usize = 32;

/// Attempts after which the suffix is made of words alone.
const NATURAL_ATTEMPTS_MAX: usize = 6;

/// What the plan does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Special tokens that the server puts in front of each prompt.
    pub server_prefix_tokens: usize,
}

impl Options {
    /// What a server does that applies the tokenizer's post-processor.
    pub fn of(tokenizer: &dyn Tokenizer) -> Self {
        Self {
            server_prefix_tokens: tokenizer.prefix_ids().len(),
        }
    }
}

/// All that prompts are made of. Making one draws the pools, the canonical
/// prefixes and all seeds; [`Builder::build_all`] then writes the prompts.
pub struct Builder<'a> {
    plan: &'a Plan,
    context: Context,
    words: Words,
    library: Library<'a>,
    blocks: Blocks,
    groups: BTreeMap<GroupIndex, Group>,
    registry: Registry,
    seeds: Vec<Vec<WordIndex>>,
    warmup: Vec<WarmupPrompt>,
}

/// A seed or a suffix under trial: which one to use.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    seed: &'a [WordIndex],
    /// Places by which the suffix's records are moved on.
    rotation: usize,
    /// Whether the suffix is made of records.
    natural: bool,
}

impl<'a> Builder<'a> {
    /// Gets everything ready. `selection` says which records a group may use.
    pub fn new(
        plan: &'a Plan,
        corpus: &'a Corpus,
        selection: &dyn Fn(GroupIndex) -> &'a Selection,
        tokenizer: Arc<dyn Tokenizer>,
        seed: &Seed,
        options: Options,
    ) -> Result<Self, PromptError> {
        let texts = (0..corpus.len()).map(|record| corpus.text(record));
        let context = Context::new(tokenizer, texts)?;
        let block_size = tokens(plan.block_size.tokens());
        let blocks = Blocks::new(block_size, options.server_prefix_tokens);
        let words = Words::find(&context, blocks.head_tokens(), taken_heads(plan))?;
        let library = Library::new(corpus);
        let mut registry = Registry::new(blocks);
        let materials = Materials {
            context: &context,
            words: &words,
            library: &library,
        };
        let groups = make_groups(materials, plan, selection, &mut registry, seed)?;
        let mut builder = Self {
            plan,
            context,
            words,
            library,
            blocks,
            groups,
            registry,
            seeds: Vec::new(),
            warmup: Vec::new(),
        };
        builder.make_warmup(seed)?;
        builder.draw_seeds()?;
        Ok(builder)
    }

    /// The prefix of each group that has requests, by group.
    pub fn canonical_prefixes(&self) -> impl Iterator<Item = &CanonicalPrefix> {
        self.groups.values().map(|group| &group.canonical.prefix)
    }

    /// The warm-up plan, by group and rank; empty for a cold start.
    pub fn warmup(&self) -> &[WarmupPrompt] {
        &self.warmup
    }

    /// Records that random drawing passed over because their text holds a
    /// special token, ascending.
    pub fn skipped_records(&self) -> Vec<u64> {
        let mut skipped: Vec<u64> = self
            .groups
            .values()
            .flat_map(|group| &group.pool.skipped)
            .map(|record| *record as u64)
            .collect();
        skipped.sort_unstable();
        skipped.dedup();
        skipped
    }

    /// Builds every prompt and hands it to `sink`, in send order. An error of
    /// the sink ends the work.
    pub fn build_all<E: From<PromptError>>(
        &self,
        mut sink: impl FnMut(BuiltPrompt) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut registry = self.registry.clone();
        let count = self.plan.requests.len();
        for first in (0..count).step_by(CHUNK) {
            let chunk = first..count.min(first + CHUNK);
            let built: Vec<Result<Result<BuiltPrompt, Mismatch>, PromptError>> = chunk
                .clone()
                .into_par_iter()
                .map(|index| self.try_prompt(index, Attempt::first(&self.seeds[index])))
                .collect();
            for (index, built) in chunk.zip(built) {
                let prompt = match built? {
                    Ok(prompt) => prompt,
                    Err(mismatch) => self.try_again(index, mismatch, &mut registry)?,
                };
                sink(prompt)?;
            }
        }
        Ok(())
    }

    fn materials(&self) -> Materials<'_> {
        Materials {
            context: &self.context,
            words: &self.words,
            library: &self.library,
        }
    }

    /// The group's prefix of `shared` tokens: text and ids.
    fn prefix(&self, group: GroupIndex, shared: usize) -> (&str, &[u32]) {
        let canonical = &self.groups[&group].canonical;
        let text = canonical.passage.text_before(shared);
        (text, &canonical.prefix.ids[..shared])
    }

    fn take_registry(&mut self) -> Registry {
        std::mem::replace(&mut self.registry, Registry::new(self.blocks))
    }

    fn draw_seeds(&mut self) -> Result<(), PromptError> {
        let mut registry = self.take_registry();
        let drawn: Result<Vec<_>, PromptError> = self
            .plan
            .requests
            .iter()
            .map(|request| {
                let shared = tokens(request.shared_prefix_tokens);
                let mut stream = request_stream(request, "seed");
                self.draw(
                    &mut registry,
                    request.group,
                    shared,
                    &mut stream,
                    &request.request_id,
                )
            })
            .collect();
        self.registry = registry;
        self.seeds = drawn?;
        Ok(())
    }

    fn draw(
        &self,
        registry: &mut Registry,
        group: GroupIndex,
        shared: usize,
        stream: &mut Stream,
        request_id: &str,
    ) -> Result<Vec<WordIndex>, PromptError> {
        let (_, prefix) = self.prefix(group, shared);
        let count = tokens(self.plan.seed_tokens);
        draw_seed(registry, &self.words, prefix, count, stream, request_id)
    }

    /// Prefix, seed and suffix as one text and its ids.
    fn join(
        &self,
        group: GroupIndex,
        shared: usize,
        seed: &[WordIndex],
        suffix: &Passage,
    ) -> (String, Vec<u32>) {
        let (prefix_text, prefix) = self.prefix(group, shared);
        let mut text = prefix_text.to_owned();
        for (place, word) in seed.iter().enumerate() {
            let place = if shared == 0 && place == 0 {
                Place::Start
            } else {
                Place::Inner
            };
            text.push_str(self.words.text(*word, place).expect("drawn for its place"));
        }
        text.push_str(&suffix.text);
        let ids = [prefix, &ids(&self.words, seed), &suffix.ids].concat();
        (text, ids)
    }

    fn suffix(
        &self,
        request: &PlannedRequest,
        length: usize,
        attempt: Attempt<'_>,
    ) -> Result<Passage, PromptError> {
        let stops: &[usize] = if length == 0 { &[] } else { &[length] };
        let mut stream = request_stream(request, "suffix");
        if !attempt.natural {
            return Ok(compose_words(&self.words, Place::Inner, stops, &mut stream));
        }
        let rotation = request.occurrence as usize + attempt.rotation;
        let records = self.groups[&request.group].pool.rotated(rotation);
        let order = Order {
            place: Place::Inner,
            stops,
            followed: false,
            lead_words: 0,
        };
        compose(self.materials(), records, order, &mut stream)
    }

    fn try_prompt(
        &self,
        index: usize,
        attempt: Attempt<'_>,
    ) -> Result<Result<BuiltPrompt, Mismatch>, PromptError> {
        let request = &self.plan.requests[index];
        let shared = tokens(request.shared_prefix_tokens);
        let fixed = shared + attempt.seed.len();
        let length = tokens(request.input_tokens)
            .checked_sub(fixed)
            .expect("the plan leaves room for the seed");
        let suffix = self.suffix(request, length, attempt)?;
        let (text, ids) = self.join(request.group, shared, attempt.seed, &suffix);
        if let Err(mismatch) = self.context.prove(&text, &ids)? {
            return Ok(Err(mismatch));
        }
        let (source_indices, source_sha256) = sources(self.materials(), &suffix.records);
        let seed_sha256 = id_tuple_sha256(&ids[shared..fixed]);
        let block = self.blocks.behind(&ids, shared);
        Ok(Ok(BuiltPrompt {
            index,
            natural_suffix_tokens: length as u64,
            source_indices,
            source_sha256,
            canonical_prefix_sha256: self.groups[&request.group].canonical.prefix.sha256.clone(),
            divergence_block_sha256: seed_sha256.clone(),
            first_divergent_block_sha256: id_tuple_sha256(block.expect("a seed fills its block")),
            seed_sha256,
            text,
            ids,
        }))
    }

    /// Tries a prompt again whose first text did not give its ids: with another
    /// seed where the fault lies at the seed, with other records where it lies
    /// in the suffix.
    fn try_again(
        &self,
        index: usize,
        mut mismatch: Mismatch,
        registry: &mut Registry,
    ) -> Result<BuiltPrompt, PromptError> {
        let request = &self.plan.requests[index];
        let shared = tokens(request.shared_prefix_tokens);
        let mut stream = request_stream(request, "seed again");
        let mut seed = self.seeds[index].clone();
        let mut rotation = 0;
        for attempt in 1..ATTEMPTS_MAX {
            let at_suffix = mismatch.position >= shared + seed.len();
            if at_suffix && attempt <= NATURAL_ATTEMPTS_MAX {
                rotation += 1;
            } else {
                let id = &request.request_id;
                seed = self.draw(registry, request.group, shared, &mut stream, id)?;
            }
            let attempt = Attempt {
                seed: &seed,
                rotation,
                natural: attempt < NATURAL_ATTEMPTS_MAX,
            };
            match self.try_prompt(index, attempt)? {
                Ok(prompt) => return Ok(prompt),
                Err(found) => mismatch = found,
            }
        }
        Err(no_round_trip(&request.request_id, mismatch))
    }
}

impl<'a> Attempt<'a> {
    fn first(seed: &'a [WordIndex]) -> Self {
        Self {
            seed,
            rotation: 0,
            natural: true,
        }
    }
}

fn no_round_trip(name: &str, mismatch: Mismatch) -> PromptError {
    PromptError::NoRoundTrip {
        name: name.to_owned(),
        attempts: ATTEMPTS_MAX,
        position: mismatch.position,
    }
}

/// The request's own randomness, re-derivable from what its row records.
fn request_stream(request: &PlannedRequest, label: &str) -> Stream {
    Seed::from(request.random_seed).stream(&format!("{label}/{}", request.request_id))
}

/// Heads that the plan's requests, warm-up items and prefixes take.
fn taken_heads(plan: &Plan) -> usize {
    let blocks: u64 = plan
        .groups
        .iter()
        .map(|group| 1 + plan.block_size.whole_blocks(group.max_shared_prefix_tokens))
        .sum();
    plan.requests.len() + plan.groups.len() * plan.dp_size as usize + 2 * tokens(blocks)
}
