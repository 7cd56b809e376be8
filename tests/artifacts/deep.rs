//! The deep check: silent on intact sets, and loud on every corruption that the
//! reference does not notice.

use std::fs;
use std::path::Path;

use pcload::artifacts::{ArtifactError, Finding, pyjson, validate_deep};
use pcload::tokenizer::Tokenizer;
use pcload::units::id_tuple_sha256;
use serde_json::{Value, json};

use crate::corruptions::CORRUPTIONS;
use crate::golden::{GOLDEN_PREPARED, GoldenSet, GoldenTokenizer, read, read_json};

const SET: &str = "tiny-cold-dp2-3g-asc";

/// Codes of what the deep check finds; empty for an intact set.
fn codes(set: &GoldenSet, tokenizer: Option<&dyn Tokenizer>) -> Vec<&'static str> {
    let mut codes: Vec<_> = findings(set, tokenizer)
        .into_iter()
        .map(|finding| finding.code)
        .collect();
    codes.dedup();
    codes
}

fn findings(set: &GoldenSet, tokenizer: Option<&dyn Tokenizer>) -> Vec<Finding> {
    match validate_deep(&set.manifest(), tokenizer) {
        Ok(_) => Vec::new(),
        Err(ArtifactError::Inconsistent { findings, .. }) => findings,
        Err(other) => panic!("{other}"),
    }
}

fn tokenizer_of(set: &GoldenSet) -> GoldenTokenizer {
    let path = read_json(set.manifest())["tokenizer"]["path"].clone();
    GoldenTokenizer::load(path.as_str().unwrap().rsplit('/').next().unwrap())
}

#[test]
fn intact_sets_survive_with_and_without_their_tokenizer() {
    for name in GOLDEN_PREPARED {
        let set = GoldenSet::copy(name);
        assert_eq!(findings(&set, None), [], "{name}");
        let tokenizer = tokenizer_of(&set);
        assert_eq!(findings(&set, Some(&tokenizer)), [], "{name}");
        let report = validate_deep(&set.manifest(), Some(&tokenizer)).unwrap();
        assert!(report.retokenized >= report.plain.rows, "{name}");
    }
}

/// The larger recorded sets hold questions of others and are not copied here.
#[test]
fn the_larger_recorded_sets_survive_too() {
    let shared = std::env::var("PCLOAD_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(shared)
        .join("golden");
    let Ok(entries) = fs::read_dir(&golden) else {
        eprintln!("skipped: {} is not there", golden.display());
        return;
    };
    for folder in entries.map(|entry| entry.unwrap().path()) {
        if folder.join("full.jsonl").exists() {
            let set = GoldenSet::copy_from(&folder);
            assert_eq!(findings(&set, None), [], "{}", folder.display());
        }
    }
}

#[test]
fn what_the_plain_check_misses_is_found() {
    let expected: [(&str, &[&str]); 10] = [
        ("untouched", &[]),
        (
            "full edited and digest refreshed (theory wrong)",
            &["THEORY_MISMATCH", "MANIFEST_FIELD", "ANALYSIS_FIELD"],
        ),
        (
            "full: lanes scrambled and digest refreshed",
            &["LANE_ORDER"],
        ),
        ("manifest: theoretical_hit_rate edited", &["MANIFEST_FIELD"]),
        ("manifest: effective_config edited", &["CONFIG_DIGEST"]),
        (
            "manifest: warmup plan and groups emptied",
            &["MANIFEST_FIELD"],
        ),
        ("manifest: bytes and rows wrong", &["MANIFEST_FIELD"]),
        ("manifest: status unknown", &["MANIFEST_FIELD"]),
        ("analysis: edited", &["ANALYSIS_FIELD"]),
        ("analysis: deleted", &["ANALYSIS_MISSING"]),
    ];
    for (name, corrupt, _) in CORRUPTIONS.iter().filter(|one| one.2.is_none()) {
        let set = GoldenSet::copy(SET);
        corrupt(&set);
        let found = codes(&set, None);
        match expected.iter().find(|one| one.0 == *name) {
            Some((_, codes)) => assert!(
                codes.iter().all(|code| found.contains(code))
                    && found.is_empty() == codes.is_empty(),
                "{name}: {found:?}"
            ),
            None => assert_eq!(found, ["SEED_COLLISION"], "{name}"),
        }
    }
}

/// A warm set whose plan lost an item, or warms the wrong length.
#[test]
fn warm_up_coverage_is_checked() {
    let edits: [fn(&mut Value); 3] = [
        |plan| {
            plan.as_array_mut().unwrap().pop();
        },
        |plan| plan[0]["shared_prefix_tokens"] = 16.into(),
        |plan| {
            let twice = plan[0].clone();
            plan.as_array_mut().unwrap().push(twice);
        },
    ];
    for edit in edits {
        let set = GoldenSet::copy("tiny-warm-default");
        set.edit_manifest(|all| edit(&mut all["warmup"]["plan"]));
        assert_eq!(codes(&set, None), ["WARMUP_COVERAGE"]);
    }
}

/// Prompts edited with every digest refreshed: only the tokenizer can tell.
#[test]
fn layout_is_proved_with_the_tokenizer() {
    let set = GoldenSet::copy(SET);
    for file in ["full.jsonl", "requests.jsonl"] {
        set.edit_rows(file, |rows| {
            let longer = format!("{} and more", rows[4]["question"].as_str().unwrap());
            rows[4]["question"] = longer.into();
        });
    }
    set.refresh_digests();
    assert_eq!(codes(&set, None), Vec::<&str>::new());
    let found = findings(&set, Some(&tokenizer_of(&set)));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code, "PROMPT_LAYOUT");
    assert!(found[0].message.starts_with("request-00000004: encodes to"));
}

#[test]
fn another_tokenizer_is_refused() {
    let set = GoldenSet::copy(SET);
    let other = GoldenTokenizer::load("tiny-bytelevel-bos");
    assert_eq!(codes(&set, Some(&other)), ["TOKENIZER_DIFFERS"]);
}

/// A tokenizer of single characters: `a` is 97, and so on.
struct Characters(pcload::tokenizer::Identity);

impl Tokenizer for Characters {
    fn encode(&self, text: &str) -> Result<Vec<u32>, pcload::tokenizer::TokenizerError> {
        Ok(text.chars().map(u32::from).collect())
    }

    fn decode(&self, ids: &[u32]) -> Result<String, pcload::tokenizer::TokenizerError> {
        Ok(ids.iter().filter_map(|id| char::from_u32(*id)).collect())
    }

    fn vocab_size(&self) -> usize {
        633
    }

    fn special_ids(&self) -> &[u32] {
        &[0]
    }

    fn prefix_ids(&self) -> &[u32] {
        &[]
    }

    fn suffix_ids(&self) -> &[u32] {
        &[]
    }

    fn identity(&self) -> &pcload::tokenizer::Identity {
        &self.0
    }
}

/// Block size 4, seeds of two blocks that share their first block, and a seed
/// that begins with its group's own continuation: whole seeds differ, but the
/// server would find more than the theory says.
#[test]
fn seeds_must_differ_in_the_first_block() {
    let prompts = [
        ("ABCDEFGH", "abcdefgh"),
        ("ABCDEFGH", "abcdijkl"),
        ("ABCD", "EFGHmnop"),
    ];
    let set = GoldenSet::copy("tiny-warm-target1");
    rewrite(&set, &prompts);
    let tokenizer = Characters(GoldenTokenizer::load("tiny-bytelevel").identity().clone());
    let messages: Vec<String> = findings(&set, Some(&tokenizer))
        .into_iter()
        .filter(|finding| finding.code == "SEED_COLLISION")
        .map(|finding| finding.message)
        .collect();
    assert_eq!(
        messages,
        [
            "request-00000001 and request-00000000 have the same first divergent block",
            "the first divergent block of request-00000002 is part of group-0's prefix",
        ]
    );
}

/// Turns a recorded warm set into one of `prompts` (shared prefix, seed) in
/// blocks of 4 tokens.
fn rewrite(set: &GoldenSet, prompts: &[(&str, &str)]) {
    let ids = |text: &str| text.chars().map(u32::from).collect::<Vec<u32>>();
    let template: Value = serde_json::from_str(read(set.full()).lines().next().unwrap()).unwrap();
    let mut full = String::new();
    let mut requests = String::new();
    for (index, (shared, seed)) in prompts.iter().enumerate() {
        let mut row = template.clone();
        let digest = id_tuple_sha256(&ids(seed));
        let fields = json!({
            "request_id": format!("request-{index:08}"), "sequence_index": index,
            "occurrence_index_within_group": index, "group_id": "group-0",
            "target_input_tokens": shared.len() + seed.len(),
            "actual_input_tokens": shared.len() + seed.len(),
            "shared_prefix_tokens": shared.len(), "seed_tokens": seed.len(),
            "natural_suffix_tokens": 0, "question": format!("{shared}{seed}"),
            "gsm_indices": [], "gsm_hashes": [],
            "seed_sha256": digest, "divergence_block_sha256": digest,
        });
        for (name, value) in fields.as_object().unwrap() {
            row[name] = value.clone();
        }
        full += &(pyjson::line(&row) + "\n");
        let request = json!({"question": row["question"], "answer": "none"});
        requests += &(pyjson::line(&request) + "\n");
    }
    fs::write(set.full(), full).unwrap();
    fs::write(set.requests(), requests).unwrap();
    set.edit_manifest(|all| {
        all["requests"]["count"] = prompts.len().into();
        all["effective_config"]["tokenizer"]["block_size"] = 4.into();
        all["effective_config"]["prefix_cache"]["seed_blocks"] = 2.into();
        all["effective_config"]["output"]["output_key"] = Value::Null;
        all["warmup"]["plan"] = json!([]);
    });
    set.refresh_digests();
}
