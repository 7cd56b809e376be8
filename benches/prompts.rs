//! Prompt building against the floor: the time the same tokenizer needs to
//! encode the finished prompts once, on the same threads.
//!
//! `PCLOAD_TOKENIZER=FOLDER cargo bench --bench prompts` measures a real
//! tokenizer instead of the demo's; `PCLOAD_CORPUS=FILE` another corpus.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "edge: names of files; a bench fails where it cannot go on"
)]

use std::env;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pcload::corpus::{self, Corpus};
use pcload::plan::{Plan, PlannedGroup, PlannedRequest};
use pcload::prompts::{Builder, Options, PromptError};
use pcload::rng::Seed;
use pcload::scenario::{CacheMode, Selection};
use pcload::solver::Solution;
use pcload::tokenizer::{self, Tokenizer};
use pcload::units::{BlockSize, DpRank, GroupIndex};
use rayon::prelude::*;

const BLOCK: u64 = 16;
const GROUPS: u32 = 4;

/// A cold plan of equal lengths in which every request shares 60% of its tokens.
fn cold_plan(requests: u32, input_tokens: u64) -> Plan {
    let block_size = BlockSize::new(BLOCK).unwrap();
    let shared = block_size.floor(input_tokens * 6 / 10);
    let requests: Vec<PlannedRequest> = (0..requests)
        .map(|index| PlannedRequest {
            request_id: format!("request-{index:08}"),
            group: GroupIndex(index % GROUPS),
            occurrence: index / GROUPS,
            dp_rank: Some(DpRank(index / GROUPS % 4)),
            lane_sequence: Some(index / GROUPS / 4),
            input_tokens,
            output_tokens: 32,
            shared_prefix_tokens: shared,
            random_seed: u64::from(index),
        })
        .collect();
    Plan {
        mode: CacheMode::Cold,
        block_size,
        dp_size: 4,
        seed_tokens: BLOCK,
        groups: (0..GROUPS)
            .map(|group| PlannedGroup {
                group: GroupIndex(group),
                request_count: requests.len() / GROUPS as usize,
                max_shared_prefix_tokens: shared,
            })
            .collect(),
        solution: Solution {
            prefix_blocks: vec![shared / BLOCK; requests.len()],
            total_blocks: 0,
            max_blocks: 0,
            ..Solution::default()
        },
        requests,
    }
}

fn texts(plan: &Plan, corpus: &Corpus, tokenizer: &Arc<dyn Tokenizer>) -> Vec<String> {
    let options = Options::of(&**tokenizer);
    let select = |_| &Selection::Random;
    let seed = Seed::from(42);
    let builder = Builder::new(plan, corpus, &select, tokenizer.clone(), &seed, options).unwrap();
    let mut texts = Vec::new();
    builder
        .build_all(|prompt| {
            texts.push(prompt.text);
            Ok::<(), PromptError>(())
        })
        .unwrap();
    texts
}

fn prompts(criterion: &mut Criterion) {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo");
    let path = |variable: &str, default: &str| {
        env::var_os(variable).map_or_else(|| demo.join(default), PathBuf::from)
    };
    let name = path("PCLOAD_TOKENIZER", "tokenizer").display().to_string();
    let tokenizer: Arc<dyn Tokenizer> =
        Arc::new(tokenizer::load(&name, Path::new("/"), None).unwrap());
    let corpus = corpus::load(&path("PCLOAD_CORPUS", "corpus.jsonl"), "question").unwrap();
    for (requests, input_tokens) in [(1000, 1024), (500, 4096)] {
        let plan = cold_plan(requests, input_tokens);
        let prompts = texts(&plan, &corpus, &tokenizer);
        let mut group = criterion.benchmark_group(format!("prompts/{requests}x{input_tokens}"));
        group.sample_size(10);
        group.throughput(Throughput::Elements(u64::from(requests) * input_tokens));
        group.bench_function("build", |bench| {
            bench.iter(|| black_box(texts(&plan, &corpus, &tokenizer)));
        });
        group.bench_function("encode once", |bench| {
            bench.iter(|| {
                prompts
                    .par_iter()
                    .map(|text| tokenizer.encode(text).unwrap().len())
                    .sum::<usize>()
            });
        });
        group.finish();
    }
}

criterion_group!(benches, prompts);
criterion_main!(benches);
