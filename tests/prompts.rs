//! Prompts on the small tokenizers that lie beside the tests: exactness and
//! uniqueness of whole data sets, and independence of the number of threads.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod prompt_checks;

use std::collections::BTreeSet;
use std::path::PathBuf;

use pcload::corpus::{self, Corpus};
use pcload::prompts::PromptError;
use pcload::scenario::{CacheMode, Selection};
use pcload::tokenizer::Tokenizer as _;
use prompt_checks::{Shape, build, check, load_corpus, load_tokenizer, own, plan};
use proptest::prelude::*;

const SHAPE: Shape = Shape {
    mode: CacheMode::Warmup,
    block: 16,
    seed_blocks: 1,
    requests: 60,
    groups: 3,
    dp_size: 2,
    input_tokens: 150,
};

fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for mode in [CacheMode::Warmup, CacheMode::Cold] {
        for (block, seed_blocks, input_tokens) in [
            (2, 1, 40),
            (16, 1, 150),
            (16, 3, 200),
            (64, 1, 400),
            (128, 2, 700),
        ] {
            shapes.push(Shape {
                mode,
                block,
                seed_blocks,
                input_tokens,
                ..SHAPE
            });
        }
    }
    shapes
}

fn data(name: &str) -> PathBuf {
    own("tests/data/prompts").join(name)
}

fn corpus_of(texts: &[&str]) -> Corpus {
    let lines: Vec<String> = texts
        .iter()
        .map(|text| serde_json::json!({ "question": text }).to_string())
        .collect();
    corpus::parse(lines.join("\n").as_bytes(), "question").unwrap()
}

#[test]
fn the_demo_tokenizer_is_exact_on_both_demo_corpora() {
    let tokenizer = load_tokenizer(&own("assets/demo/tokenizer"));
    for name in ["corpus", "unicode"] {
        let corpus = load_corpus(&own(&format!("assets/demo/{name}.jsonl")));
        for shape in shapes() {
            let plan = plan(shape);
            let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
            check(&plan, &corpus, &tokenizer, &built);
        }
    }
}

/// The last two of these cannot be used by the reference at all.
#[test]
fn the_golden_tokenizers_are_exact_on_both_golden_corpora() {
    for name in ["tiny-bytelevel", "tiny-bytelevel-bos", "tiny-metaspace"] {
        let tokenizer = load_tokenizer(&data(&format!("{name}.json")));
        for corpus in ["tiny", "tiny-unicode"] {
            let corpus = load_corpus(&data(&format!("{corpus}.jsonl")));
            for shape in shapes() {
                let plan = plan(shape);
                let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
                check(&plan, &corpus, &tokenizer, &built);
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let tokenizer = load_tokenizer(&data("tiny-bytelevel-bos.json"));
    let corpus = load_corpus(&data("tiny-unicode.jsonl"));
    let plan = plan(Shape {
        requests: 300,
        ..SHAPE
    });
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap())
    };
    assert_eq!(with_threads(1), with_threads(5));
}

/// Case O-TOK-1: pieces that would merge at a junction never ship.
#[test]
fn merging_tokens_are_kept_apart() {
    let tokenizer = load_tokenizer(&data("toy-merging.json"));
    assert_eq!(tokenizer.encode("xaby").unwrap(), [0, 4, 3]);
    let corpus = corpus_of(&["xa cy", "bya x", "ab ab ba", "yb cab"]);
    let plan = plan(Shape {
        block: 4,
        input_tokens: 30,
        ..SHAPE
    });
    let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
    check(&plan, &corpus, &tokenizer, &built);
}

/// Case O-TOK-2. Lengths leave special tokens out, as the reference's do; what
/// the server sees is one more, and it is its blocks that are unique.
#[test]
fn a_bos_is_not_counted_but_moves_the_blocks() {
    let tokenizer = load_tokenizer(&data("toy-words-bos.json"));
    let words: Vec<String> = (0..40)
        .map(|n| format!("w{} w{}", n % 30, n * 7 % 30))
        .collect();
    let texts: Vec<&str> = words.iter().map(String::as_str).collect();
    let corpus = corpus_of(&texts);
    let plan = plan(Shape {
        input_tokens: 64,
        ..SHAPE
    });
    let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
    check(&plan, &corpus, &tokenizer, &built);
    let (request, prompt) = plan
        .requests
        .iter()
        .zip(&built.prompts)
        .find(|(request, _)| request.input_tokens == 64 && request.shared_prefix_tokens == 48)
        .unwrap();
    assert_eq!(request.shared_prefix_tokens + plan.seed_tokens, 64);
    let sent = [tokenizer.prefix_ids(), &prompt.ids].concat();
    assert_eq!(sent.len(), 65);
    // BOS and 47 canonical tokens fill three blocks: 48 can be found, and the
    // fourth block is the last canonical token and 15 of the seed.
    assert_eq!(
        prompt.first_divergent_block_sha256,
        pcload::units::id_tuple_sha256(&sent[48..64])
    );
    assert!(!prompt.text.contains("<s>"));
}

/// Case O-TOK-3: a leading space that the tokenizer eats.
#[test]
fn a_dummy_prefix_costs_no_token() {
    let tokenizer = load_tokenizer(&data("toy-metaspace.json"));
    let corpus = corpus_of(&[
        "hello world",
        "world hello hello",
        "  hello   hello",
        "world",
    ]);
    let plan = plan(Shape {
        block: 8,
        input_tokens: 64,
        ..SHAPE
    });
    let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
    check(&plan, &corpus, &tokenizer, &built);
}

/// Case O-TOK-4: a record with a control token is passed over, and refused
/// where it is asked for by name.
#[test]
fn control_tokens_in_the_corpus_are_not_natural_text() {
    let tokenizer = load_tokenizer(&data("toy-words-bos.json"));
    let corpus = corpus_of(&["w0 w1 w2", "w0 <s> w1", "w5 w9", "w8 w7", "w6 w11 w4"]);
    let plan = plan(Shape {
        block: 4,
        groups: 1,
        ..SHAPE
    });
    let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
    check(&plan, &corpus, &tokenizer, &built);
    assert_eq!(built.skipped, [1]);
    let named = Selection::Indices(vec![0, 1]);
    let error = build(&plan, &corpus, &named, &tokenizer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "group-0 selects record 1, whose text holds the special token `<s>`"
    );
    let other = Selection::Indices(vec![0, 2]);
    build(&plan, &corpus, &other, &tokenizer).unwrap();
}

/// Case O-TOK-5: no cut inside a character.
#[test]
fn characters_are_never_cut() {
    let tokenizer = load_tokenizer(&data("toy-bytes.json"));
    let corpus = corpus_of(&["aéb", "éé", "béaaé"]);
    for input_tokens in 20..28 {
        let plan = plan(Shape {
            block: 8,
            groups: 2,
            input_tokens,
            ..SHAPE
        });
        let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
        check(&plan, &corpus, &tokenizer, &built);
    }
}

#[test]
fn long_texts_without_spaces_serve_too() {
    let tokenizer = load_tokenizer(&data("tiny-bytelevel.json"));
    let long = "字".repeat(2000);
    let corpus = corpus_of(&[&long, "语".repeat(900).as_str()]);
    let plan = plan(SHAPE);
    let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
    check(&plan, &corpus, &tokenizer, &built);
}

/// Case O-TOK-6, its last sentence.
#[test]
fn other_random_seeds_give_other_seed_tokens() {
    let tokenizer = load_tokenizer(&data("tiny-bytelevel.json"));
    let corpus = load_corpus(&data("tiny.jsonl"));
    let seeds = |offset: u64| {
        let mut plan = plan(SHAPE);
        for request in &mut plan.requests {
            request.random_seed ^= offset;
        }
        let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
        let seeds = built.prompts.into_iter().map(|prompt| prompt.seed_sha256);
        seeds.collect::<BTreeSet<String>>()
    };
    assert!(seeds(0).is_disjoint(&seeds(1)));
}

#[test]
fn selections_are_held_to_the_corpus() {
    let tokenizer = load_tokenizer(&data("tiny-bytelevel.json"));
    let corpus = corpus_of(&["one apple", "two apples", "one apple"]);
    let plan = plan(SHAPE);
    let refused = |selection: &Selection| {
        build(&plan, &corpus, selection, &tokenizer)
            .unwrap_err()
            .code()
    };
    let twice = corpus.text_sha256(0);
    let once = corpus.text_sha256(1);
    let by_digest = |digest: &str| Selection::QuestionSha256(vec![digest.to_owned()]);
    assert_eq!(
        refused(&Selection::Indices(vec![3])),
        "CORPUS_INDEX_OUT_OF_RANGE"
    );
    assert_eq!(refused(&by_digest(&twice)), "CORPUS_DIGEST_NOT_UNIQUE");
    assert_eq!(refused(&by_digest("00")), "CORPUS_DIGEST_NOT_UNIQUE");
    let mixed = Selection::Mixed {
        indices: vec![2],
        question_sha256: vec![once],
    };
    let built = build(&plan, &corpus, &mixed, &tokenizer).unwrap();
    check(&plan, &corpus, &tokenizer, &built);
    let used = built
        .prompts
        .iter()
        .flat_map(|prompt| &prompt.source_indices);
    assert_eq!(
        used.copied().collect::<BTreeSet<u64>>(),
        BTreeSet::from([1, 2])
    );
}

#[test]
fn a_tokenizer_with_too_few_words_is_named() {
    let tokenizer = load_tokenizer(&data("toy-bytes.json"));
    let corpus = corpus_of(&["aéb"]);
    let plan = plan(Shape {
        block: 1,
        groups: 1,
        input_tokens: 20,
        ..SHAPE
    });
    let error = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap_err();
    assert!(
        matches!(error, PromptError::SeedsExhausted { head_tokens: 1, .. }),
        "{error}"
    );
    assert_eq!(error.code(), "SEEDS_EXHAUSTED");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(48)
    })]

    #[test]
    fn any_text_becomes_exact_prompts(
        texts in prop::collection::vec("\\PC{1,60}", 2..12),
        block in prop::sample::select(vec![4_u64, 16, 32]),
        cold in any::<bool>(),
        groups in 1..4_u32,
        more in 0..20_u64,
    ) {
        let texts: Vec<String> = texts.iter().map(|text| format!("Sum {text} end")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let corpus = corpus_of(&texts);
        let plan = plan(Shape {
            mode: if cold { CacheMode::Cold } else { CacheMode::Warmup },
            block,
            groups,
            requests: 24,
            input_tokens: 3 * block + more,
            ..SHAPE
        });
        for name in ["tiny-bytelevel-bos", "tiny-metaspace"] {
            let tokenizer = load_tokenizer(&data(&format!("{name}.json")));
            let built = build(&plan, &corpus, &Selection::Random, &tokenizer).unwrap();
            check(&plan, &corpus, &tokenizer, &built);
        }
    }
}
