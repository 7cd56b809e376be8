//! The reference's recorded scenarios, prepared by the program: the figures that
//! no drawing of lengths changes are the recorded ones, and what the reference
//! could not build is built. Real tokenizers are taken from `PCLOAD_TOKENIZERS`
//! (a folder for each, as `tests/fetch_tokenizers.sh` makes them), recorded data
//! that is not part of this repository from `PCLOAD_SHARED`, else `../shared`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::folder::{Folder, Prepared, Ran, read_json};
use crate::golden::folder;

/// A folder that holds what the recorded scenarios name: `corpus`,
/// `tokenizers`, and one folder a scenario.
struct Recorded {
    root: Folder,
}

impl Recorded {
    fn new() -> Self {
        let root = Folder::empty();
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        fs::create_dir(root.path("corpus")).unwrap();
        for corpus in ["tiny.jsonl", "tiny-unicode.jsonl"] {
            let from = own.join("prompts").join(corpus);
            fs::copy(from, root.path("corpus").join(corpus)).unwrap();
        }
        for tokenizer in ["tiny-bytelevel", "tiny-bytelevel-bos", "tiny-metaspace"] {
            let from = own.join(format!("prompts/{tokenizer}.json"));
            let to = root.path("tokenizers").join(tokenizer);
            fs::create_dir_all(&to).unwrap();
            fs::copy(from, to.join("tokenizer.json")).unwrap();
        }
        Self { root }
    }

    /// Prepares the scenario of `recorded`, checks the set deeply, and returns
    /// the manifest.
    fn prepare(&self, recorded: &Path) -> Value {
        let name = recorded.file_name().unwrap().to_str().unwrap();
        let place = self.root.path(name);
        fs::create_dir(&place).unwrap();
        for file in ["scenario.json", "lengths.csv"] {
            if recorded.join(file).exists() {
                fs::copy(recorded.join(file), place.join(file)).unwrap();
            }
        }
        let scenario = place.join("scenario.json");
        let scenario = scenario.to_str().unwrap();
        let ran = self.root.run(&["prepare", "-q", "--scenario", scenario]);
        assert_eq!(ran.status, 0, "{name}: {}", ran.stderr);
        let prepared = Prepared(ran.json());
        let deep: Ran = self
            .root
            .run(&["validate", "--deep", "--manifest", prepared.manifest()]);
        assert_eq!(deep.status, 0, "{name}: {}", deep.stderr);
        let manifest = prepared.read_manifest();
        let count = |value: &Value| value.as_u64().unwrap();
        let warmup = manifest["warmup"]["plan"].as_array().unwrap().len() as u64;
        assert_eq!(
            count(&deep.json()["deep"]["retokenized"]),
            count(&manifest["requests"]["count"]) + warmup
        );
        manifest
    }
}

/// Compares the figures that no drawing of lengths changes.
#[track_caller]
fn check(name: &str, manifest: &Value, recorded: &Path) {
    let golden = read_json(recorded.join("manifest.json"));
    let length = &golden["effective_config"]["requests"]["input_length"];
    let drawn =
        |length: &Value| ["range", "truncated_normal"].contains(&length["mode"].as_str().unwrap());
    let overrides = &golden["effective_config"]["prefix_cache"]["groups"]["overrides"];
    let any_drawn = drawn(length)
        || overrides
            .as_object()
            .into_iter()
            .flatten()
            .any(|(_, one)| one.get("input_length").is_some_and(drawn));
    let figures = [
        "effective_target_hit_rate",
        "theoretical_hit_rate",
        "reachable_min",
        "reachable_max",
        "target_reachable",
    ];
    for figure in figures {
        let (found, expected) = (
            &manifest["prefix_cache"][figure],
            &golden["prefix_cache"][figure],
        );
        if any_drawn && found.is_number() {
            // Other draws of the same distribution, some tens of requests.
            let difference = found.as_f64().unwrap() - expected.as_f64().unwrap();
            assert!(
                difference.abs() < 0.05,
                "{name}: {figure}: {found}, {expected}"
            );
        } else {
            assert_eq!(found, expected, "{name}: {figure}");
        }
    }
    assert_eq!(manifest["requests"]["count"], golden["requests"]["count"]);
}

fn recorded_below(root: &Path, beginning: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(beginning) && path.join("scenario.json").exists()
        })
        .collect();
    found.sort();
    found
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn tiny_scenarios_have_the_recorded_figures() {
    let recorded = Recorded::new();
    let all = recorded_below(&folder(""), "tiny-");
    assert_eq!(all.len(), 11);
    for path in all {
        let manifest = recorded.prepare(&path);
        check(&name_of(&path), &manifest, &path);
    }
}

/// Metaspace with a dummy prefix, and characters of several tokens.
#[test]
fn what_the_reference_could_not_build_is_built() {
    let recorded = Recorded::new();
    for name in ["fail-metaspace-tiny", "fail-unicode-tiny"] {
        let manifest = recorded.prepare(&folder(name));
        assert_eq!(manifest["status"], "prepared", "{name}");
    }
}

#[test]
fn real_scenarios_have_the_recorded_figures_and_failures_succeed() {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let shared = std::env::var_os("PCLOAD_SHARED").map_or_else(beside, PathBuf::from);
    let golden = shared.join("golden");
    let Some(tokenizers) = std::env::var_os("PCLOAD_TOKENIZERS").map(PathBuf::from) else {
        eprintln!("skipped: PCLOAD_TOKENIZERS names no folder of tokenizers");
        return;
    };
    let corpus = golden.join("corpus/GSM8K.test.jsonl");
    if !corpus.exists() {
        eprintln!("skipped: {} is not there", corpus.display());
        return;
    }
    let recorded = Recorded::new();
    fs::copy(&corpus, recorded.root.path("corpus/GSM8K.test.jsonl")).unwrap();
    let all = [
        recorded_below(&golden, "gsm-"),
        recorded_below(&golden, "fail-"),
        recorded_below(&golden, "run-"),
    ];
    for path in all.concat() {
        let scenario = read_json(path.join("scenario.json"));
        let tokenizer = scenario["tokenizer"]["path"].as_str().unwrap();
        let tokenizer = Path::new(tokenizer).file_name().unwrap();
        let to = recorded.root.path("tokenizers").join(tokenizer);
        if !to.exists() {
            let from = tokenizers.join(tokenizer).join("tokenizer.json");
            if !from.exists() {
                eprintln!(
                    "skipped: {}: {} is not there",
                    name_of(&path),
                    from.display()
                );
                continue;
            }
            fs::create_dir(&to).unwrap();
            fs::copy(from, to.join("tokenizer.json")).unwrap();
        }
        let manifest = recorded.prepare(&path);
        let has_figures = path.join("manifest.json").exists()
            && read_json(path.join("manifest.json"))["prefix_cache"].is_object();
        if has_figures {
            check(&name_of(&path), &manifest, &path);
        }
        eprintln!("prepared: {}", name_of(&path));
    }
}
