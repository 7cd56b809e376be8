//! What every data set of prompts must fulfil, checked with nothing but the
//! tokenizer and counting. It refuses to know how prompts are built.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "edge: test tools that read fixtures; not every test uses every one"
)]

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pcload::corpus::{self, Corpus};
use pcload::plan::{Plan, PlannedGroup, PlannedRequest};
use pcload::prompts::{Builder, BuiltPrompt, Options, PromptError, WarmupPrompt};
use pcload::rng::Seed;
use pcload::scenario::{CacheMode, Selection};
use pcload::solver::Solution;
use pcload::tokenizer::{self, HfTokenizer, Tokenizer as _};
use pcload::units::{BlockSize, DpRank, GroupIndex};

/// The specification's folder, where it is at hand.
pub(crate) fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let folder = env::var_os("PCLOAD_SHARED").map_or(beside, PathBuf::from);
    folder.join("golden").is_dir().then_some(folder)
}

/// A file or folder of this project.
pub(crate) fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(crate) fn load_tokenizer(path: &Path) -> Arc<HfTokenizer> {
    let name = path.display().to_string();
    Arc::new(tokenizer::load(&name, Path::new("/"), None).unwrap())
}

pub(crate) fn load_corpus(path: &Path) -> Corpus {
    corpus::load(path, "question").unwrap()
}

/// Shape of a plan that is made by hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) mode: CacheMode,
    pub(crate) block: u64,
    pub(crate) seed_blocks: u64,
    pub(crate) requests: usize,
    pub(crate) groups: u32,
    pub(crate) dp_size: u32,
    pub(crate) input_tokens: u64,
}

/// A plan whose requests share prefixes of many different lengths, 0 and the
/// longest possible among them, with lengths that end anywhere in a block.
pub(crate) fn plan(shape: Shape) -> Plan {
    let block_size = BlockSize::new(shape.block).unwrap();
    let seed_tokens = shape.seed_blocks * shape.block;
    let mut occurrences: BTreeMap<u32, u32> = BTreeMap::new();
    let requests: Vec<PlannedRequest> = (0..shape.requests)
        .map(|index| {
            let number = index as u64;
            let group = u32::try_from(index).unwrap() % shape.groups;
            let occurrence = occurrences.entry(group).or_default();
            *occurrence += 1;
            let input_tokens = shape.input_tokens + number * 7 % 23;
            let room = block_size.whole_blocks(input_tokens - seed_tokens);
            let is_cold = shape.mode == CacheMode::Cold;
            let lane = (*occurrence - 1) / shape.dp_size;
            PlannedRequest {
                request_id: format!("request-{index:08}"),
                group: GroupIndex(group),
                occurrence: *occurrence - 1,
                dp_rank: is_cold.then_some(DpRank((*occurrence - 1) % shape.dp_size)),
                lane_sequence: is_cold.then_some(lane),
                input_tokens,
                output_tokens: 4,
                shared_prefix_tokens: number * 5 % (room + 1) * shape.block,
                random_seed: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            }
        })
        .collect();
    let groups = (0..shape.groups)
        .map(GroupIndex)
        .map(|group| {
            let own = || requests.iter().filter(|request| request.group == group);
            PlannedGroup {
                group,
                request_count: own().count(),
                max_shared_prefix_tokens: own().map(|r| r.shared_prefix_tokens).max().unwrap(),
            }
        })
        .collect();
    Plan {
        mode: shape.mode,
        block_size,
        dp_size: shape.dp_size,
        seed_tokens,
        solution: Solution {
            prefix_blocks: requests
                .iter()
                .map(|r| r.shared_prefix_tokens / shape.block)
                .collect(),
            total_blocks: 0,
            max_blocks: 0,
            ..Solution::default()
        },
        requests,
        groups,
    }
}

/// Everything a builder gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) prefixes: Vec<(GroupIndex, Vec<u32>)>,
    pub(crate) warmup: Vec<WarmupPrompt>,
    pub(crate) prompts: Vec<BuiltPrompt>,
    pub(crate) skipped: Vec<u64>,
}

pub(crate) fn build(
    plan: &Plan,
    corpus: &Corpus,
    selection: &Selection,
    tokenizer: &Arc<HfTokenizer>,
) -> Result<Built, PromptError> {
    let options = Options::of(&**tokenizer);
    let builder = Builder::new(
        plan,
        corpus,
        &|_| selection,
        tokenizer.clone(),
        &Seed::from(42),
        options,
    )?;
    let mut prompts = Vec::new();
    builder.build_all(|prompt| {
        prompts.push(prompt);
        Ok::<(), PromptError>(())
    })?;
    Ok(Built {
        prefixes: builder
            .canonical_prefixes()
            .map(|prefix| (prefix.group, prefix.ids.clone()))
            .collect(),
        warmup: builder.warmup().to_vec(),
        skipped: builder.skipped_records(),
        prompts,
    })
}

/// Panics where a promise about the prompts of `plan` is broken.
pub(crate) fn check(plan: &Plan, corpus: &Corpus, tokenizer: &HfTokenizer, built: &Built) {
    assert_eq!(built.prompts.len(), plan.requests.len());
    let prefixes: BTreeMap<GroupIndex, &[u32]> = built
        .prefixes
        .iter()
        .map(|(group, ids)| (*group, ids.as_slice()))
        .collect();
    let corpus_has_mark = (0..corpus.len()).any(|record| corpus.text(record).contains('\u{fffd}'));
    let fits = |name: &str, text: &str, ids: &[u32]| {
        assert_eq!(
            tokenizer.encode_by_reference(text).unwrap(),
            ids,
            "{name}: {text:?}"
        );
        assert!(
            !ids.iter().any(|id| tokenizer.special_ids().contains(id)),
            "{name} has a special token"
        );
        assert!(
            corpus_has_mark || !text.contains('\u{fffd}'),
            "{name}: {text:?}"
        );
        let framed = [tokenizer.prefix_ids(), ids, tokenizer.suffix_ids()].concat();
        framed[..tokenizer.prefix_ids().len() + ids.len()].to_vec()
    };
    let mut sent: Vec<(Vec<u32>, u64)> = Vec::new();
    for (index, (request, prompt)) in plan.requests.iter().zip(&built.prompts).enumerate() {
        let shared = usize::try_from(request.shared_prefix_tokens).unwrap();
        let seed = usize::try_from(plan.seed_tokens).unwrap();
        assert_eq!(prompt.index, index);
        assert_eq!(prompt.ids.len() as u64, request.input_tokens);
        assert_eq!(prompt.ids[..shared], prefixes[&request.group][..shared]);
        assert_eq!(
            prompt.natural_suffix_tokens,
            request.input_tokens - request.shared_prefix_tokens - plan.seed_tokens
        );
        assert_eq!(
            prompt.seed_sha256,
            pcload::units::id_tuple_sha256(&prompt.ids[shared..shared + seed])
        );
        assert_eq!(prompt.source_indices.len(), prompt.source_sha256.len());
        let framed = fits(&request.request_id, &prompt.text, &prompt.ids);
        sent.push((framed, request.shared_prefix_tokens));
    }
    for item in &built.warmup {
        let shared = usize::try_from(item.shared_prefix_tokens).unwrap();
        assert_eq!(item.ids[..shared], prefixes[&item.group][..shared]);
        assert_eq!(
            item.ids.len() as u64,
            item.shared_prefix_tokens + plan.seed_tokens
        );
        let framed = fits(&item.request_id, &item.text, &item.ids);
        sent.push((framed, item.shared_prefix_tokens));
    }
    check_blocks(plan, tokenizer, &prefixes, &sent);
}

/// The first block behind each shared prefix, as the server cuts blocks, is
/// like no other one and like no block of any canonical prefix; the first
/// blocks of the prefixes differ; no request finds more than it shares.
fn check_blocks(
    plan: &Plan,
    tokenizer: &HfTokenizer,
    prefixes: &BTreeMap<GroupIndex, &[u32]>,
    sent: &[(Vec<u32>, u64)],
) {
    let size = usize::try_from(plan.block_size.tokens()).unwrap();
    let front = tokenizer.prefix_ids();
    let mut canonical: HashSet<Vec<u32>> = HashSet::new();
    let mut first_blocks: HashSet<Vec<u32>> = HashSet::new();
    for ids in prefixes.values() {
        let framed = [front, ids].concat();
        canonical.extend(framed.chunks_exact(size).map(<[u32]>::to_vec));
        assert!(first_blocks.insert(framed[..size].to_vec()));
    }
    let mut divergent = HashSet::new();
    for (framed, shared) in sent {
        let shared = usize::try_from(*shared).unwrap();
        let start = (front.len() + shared) / size * size;
        let block = framed[start..start + size].to_vec();
        assert!(!canonical.contains(&block), "a canonical block: {block:?}");
        assert!(divergent.insert(block), "two equal blocks");
    }
}
