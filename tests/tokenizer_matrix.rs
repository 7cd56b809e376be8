//! The tokenizers of real models against corpora that are hard on them: every
//! prompt exact, every first block unique, for both modes and three block
//! sizes. The files are too large and not ours to keep beside the tests:
//! `tests/fetch_tokenizers.sh FOLDER` gets them, and `PCLOAD_TOKENIZERS=FOLDER`
//! names them. Without it the test says that it is skipped.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "edge: the folder of tokenizers; a test fails where it cannot go on"
)]

mod prompt_checks;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use pcload::plan::Plan;
use pcload::scenario::{CacheMode, Selection};
use pcload::units::id_list_sha256;
use prompt_checks::{Built, Shape, build, check, load_corpus, load_tokenizer, own, plan, shared};
use serde_json::json;

/// Every `tokenizer.json` below the folder, by name.
fn tokenizers(folder: PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .file_name()
                .is_some_and(|name| name == "tokenizer.json")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn shapes() -> impl Iterator<Item = Shape> {
    let modes = [CacheMode::Warmup, CacheMode::Cold];
    modes.into_iter().flat_map(|mode| {
        [16, 64, 128].map(|block| Shape {
            mode,
            block,
            seed_blocks: 1,
            requests: 40,
            groups: 4,
            dp_size: 2,
            input_tokens: 5 * block + 40,
        })
    })
}

/// Leaves the set behind for `tests/tokenizer_matrix.py`, in the fields of the
/// artifacts that the script reads.
fn dump(tokenizer: &Path, corpus: &Path, plan: &Plan, built: &Built) {
    let Some(folder) = env::var_os("PCLOAD_MATRIX_OUT").map(PathBuf::from) else {
        return;
    };
    fs::create_dir_all(&folder).unwrap();
    let mut rows = String::new();
    for (request, prompt) in plan.requests.iter().zip(&built.prompts) {
        let row = json!({
            "request_id": request.request_id,
            "group_id": request.group,
            "target_input_tokens": request.input_tokens,
            "actual_input_tokens": prompt.ids.len(),
            "shared_prefix_tokens": request.shared_prefix_tokens,
            "seed_tokens": plan.seed_tokens,
            "natural_suffix_tokens": prompt.natural_suffix_tokens,
            "question": prompt.text,
            "seed_sha256": prompt.seed_sha256,
        });
        writeln!(rows, "{row}").unwrap();
    }
    let items = built.warmup.iter().map(|item| {
        json!({
            "request_id": item.request_id,
            "group_id": item.group,
            "prompt": item.text,
            "input_tokens": item.ids.len(),
            "shared_prefix_tokens": item.shared_prefix_tokens,
        })
    });
    let groups = plan
        .groups
        .iter()
        .zip(&built.prefixes)
        .map(|(group, (_, ids))| {
            let entry = json!({
                "canonical_prefix_sha256": id_list_sha256(ids),
                "canonical_prefix_tokens": ids.len(),
                "max_shared_prefix_tokens": group.max_shared_prefix_tokens,
            });
            (group.group.to_string(), entry)
        });
    let manifest = json!({
        "tokenizer": {"path": tokenizer, "block_size": plan.block_size},
        "warmup": {"plan": items.collect::<Vec<_>>()},
        "groups": groups.collect::<serde_json::Map<_, _>>(),
    });
    let name = format!(
        "{}-{}-{:?}-{}",
        tokenizer.parent().unwrap().file_name().unwrap().display(),
        corpus.file_stem().unwrap().display(),
        plan.mode,
        plan.block_size.tokens()
    );
    fs::write(folder.join(format!("{name}.full.jsonl")), rows).unwrap();
    let text = serde_json::to_string(&manifest).unwrap();
    fs::write(folder.join(format!("{name}.manifest.json")), text).unwrap();
}

#[test]
fn real_tokenizers_are_exact() {
    let Some(folder) = env::var_os("PCLOAD_TOKENIZERS") else {
        eprintln!("skipped: PCLOAD_TOKENIZERS names no folder of tokenizers");
        return;
    };
    let mut corpora = vec![
        own("assets/demo/corpus.jsonl"),
        own("assets/demo/unicode.jsonl"),
        own("tests/data/prompts/tiny-unicode.jsonl"),
    ];
    match shared() {
        Some(shared) => corpora.push(shared.join("golden/corpus/GSM8K.test.jsonl")),
        None => eprintln!("skipped: no GSM8K corpus is beside the project"),
    }
    let tokenizers = tokenizers(folder.into());
    assert!(!tokenizers.is_empty(), "the folder holds no tokenizer.json");
    let mut broken = Vec::new();
    for path in tokenizers {
        let tokenizer = load_tokenizer(&path);
        for corpus_path in &corpora {
            let corpus = load_corpus(corpus_path);
            for shape in shapes() {
                let plan = plan(shape);
                let place = format!("{} {} {shape:?}", path.display(), corpus_path.display());
                match build(&plan, &corpus, &Selection::Random, &tokenizer) {
                    Ok(built) => {
                        check(&plan, &corpus, &tokenizer, &built);
                        dump(&path, corpus_path, &plan, &built);
                    }
                    Err(error) => broken.push(format!("{place}: {error}")),
                }
            }
        }
        eprintln!("done: {}", path.display());
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
