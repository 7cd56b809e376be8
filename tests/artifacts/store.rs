//! Writing sets and finding them again: the documents that come out, crashes,
//! and every input that decides whether a set is used again.

use std::fs;
use std::path::{Path, PathBuf};

use pcload::artifacts::{
    ArtifactError, Claim, Decision, FullRow, Inputs, PreparedSet, Purpose, SetFiles, SetWriter,
    Stamp, TokenizerFacts, decide, pyjson, validate, validate_deep,
};
use pcload::scenario::{InputLength, PromptFormat, Secret};
use serde_json::Value;

use crate::golden::{folder, read, read_json};
use crate::handmade::Handmade;

const SET: &str = "tiny-cold-dp2-3g-asc";

fn stamp(text: &str) -> Stamp {
    text.parse().unwrap()
}

fn now() -> Stamp {
    stamp("20260825_123456")
}

fn handmade(folder: &Path) -> Handmade {
    Handmade::new(SET, "tiny-bytelevel", folder)
}

fn fresh(set: &Handmade, stamp: Stamp) -> Claim {
    Claim::fresh(
        &set.scenario.run.output_dir,
        &set.scenario.run.run_id,
        stamp,
    )
    .unwrap()
}

fn begin(set: &Handmade, claim: Claim) -> SetWriter {
    let incomplete = set.data_set().incomplete_manifest(claim.location());
    SetWriter::begin(claim, incomplete, set.scenario.output_key).unwrap()
}

/// Writes the whole set into a claimed directory.
fn prepare(set: &Handmade, claim: Claim) -> SetFiles {
    let data_set = set.data_set();
    let location = claim.location().clone();
    let mut writer = begin(set, claim);
    for prompt in &set.prompts {
        writer.push(&data_set.row(prompt)).unwrap();
    }
    let analysis = data_set.analysis(&location);
    writer.finish(set.manifest(&location), &analysis).unwrap()
}

fn look(set: &Handmade, purpose: Purpose, now: Stamp) -> Decision {
    let facts = TokenizerFacts::from(&set.tokenizer as &dyn pcload::tokenizer::Tokenizer);
    let inputs = Inputs {
        corpus_sha256: &set.corpus_sha256,
        tokenizer: &facts,
    };
    decide(&set.scenario, inputs, purpose, now).unwrap()
}

const RUN: Purpose = Purpose::Run { overwrite: false };
const PREPARE: Purpose = Purpose::Prepare { overwrite: false };

fn directory(decision: &Decision) -> PathBuf {
    match decision {
        Decision::Reuse(manifest) => manifest.parent().unwrap().parent().unwrap().to_owned(),
        Decision::Prepare { claim, .. } => claim.location().directory().to_owned(),
    }
}

#[test]
fn a_written_set_says_what_the_reference_says() {
    for (name, tokenizer) in [
        (SET, "tiny-bytelevel"),
        ("tiny-cold-overrides", "tiny-bytelevel"),
        ("tiny-warm-default", "tiny-bytelevel"),
        ("tiny-cold-target1", "tiny-bytelevel-bos"),
    ] {
        let temporary = tempfile::tempdir().unwrap();
        let set = Handmade::new(name, tokenizer, temporary.path());
        let files = prepare(&set, fresh(&set, now()));
        let expected = read_json(folder(name).join("manifest.json"));
        assert_eq!(
            read(&files.requests),
            read(folder(name).join("requests.jsonl"))
        );
        assert_eq!(
            read(&files.analysis),
            read(folder(name).join("analysis.json"))
        );
        for (line, expected) in read(&files.full)
            .lines()
            .zip(read(folder(name).join("full.jsonl")).lines())
        {
            let mut row: FullRow = serde_json::from_str(line).unwrap();
            row.pcload = None;
            assert_eq!(pyjson::line(&row), expected);
        }
        let manifest = read_json(&files.manifest);
        for section in [
            "groups",
            "prefix_cache",
            "requests",
            "warmup",
            "dp",
            "divergence",
        ] {
            assert_eq!(manifest[section], expected[section], "{name}: {section}");
        }
        let keys = |value: &Value| {
            let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys
        };
        let mut expected_keys = keys(&expected);
        expected_keys.push("pcload".to_owned());
        expected_keys.sort();
        assert_eq!(keys(&manifest), expected_keys);
        assert_eq!(keys(&manifest["tokenizer"]), keys(&expected["tokenizer"]));
        let report = validate_deep(&files.manifest, Some(&set.tokenizer))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(report.retokenized >= report.plain.rows);
    }
}

/// One special token in front: the server sees one token more on each prompt,
/// and the same hits.
#[test]
fn the_server_view_stands_beside_the_reference() {
    let temporary = tempfile::tempdir().unwrap();
    let set = Handmade::new("tiny-cold-target1", "tiny-bytelevel-bos", temporary.path());
    let files = prepare(&set, fresh(&set, now()));
    let open = PreparedSet::open(&files.manifest).unwrap();
    for row in open.load_rows().unwrap() {
        let server = row.pcload.unwrap();
        assert_eq!(server.server_input_tokens, row.actual_input_tokens + 1);
        assert_eq!(server.server_hit_tokens, row.theoretical_hit_tokens);
    }
    let view = &open.extension()["server_view"]["total"];
    assert_eq!(view["input_tokens"], 9 * 113);
    assert_eq!(view["hit_tokens"], 768);
}

#[test]
fn ids_are_stored_where_ids_are_sent() {
    let temporary = tempfile::tempdir().unwrap();
    let mut set = Handmade::new("tiny-warm-default", "tiny-bytelevel", temporary.path());
    set.scenario.pcload.prompt_format = PromptFormat::TokenIds;
    let files = prepare(&set, fresh(&set, now()));
    let open = PreparedSet::open(&files.manifest).unwrap();
    for (row, prompt) in open.load_rows().unwrap().iter().zip(&set.prompts) {
        let extension = row.pcload.as_ref().unwrap();
        assert_eq!(extension.prompt_token_ids.as_ref(), Some(&prompt.ids));
    }
    for (item, prompt) in open.warmup_plan().unwrap().iter().zip(&set.warmup) {
        assert_eq!(item.token_ids.as_ref(), Some(&prompt.ids));
    }
    validate_deep(&files.manifest, Some(&set.tokenizer)).unwrap();
}

#[test]
fn two_sets_in_one_second_take_two_seconds() {
    let temporary = tempfile::tempdir().unwrap();
    let set = handmade(temporary.path());
    let first = prepare(&set, fresh(&set, stamp("20261231_235959")));
    let second = prepare(&set, fresh(&set, stamp("20261231_235959")));
    assert!(
        first
            .full
            .ends_with(format!("{SET}_20261231_235959.full.jsonl"))
    );
    assert!(
        second
            .full
            .ends_with(format!("{SET}_20270101_000000.full.jsonl"))
    );
    assert_eq!(read(first.full), read(second.full));
    assert_eq!(read(first.requests), read(second.requests));
}

/// A process that dies in the middle leaves a set that says so, and the next
/// prepare completes it in its place.
#[test]
fn an_interrupted_set_says_so_and_is_replaced() {
    let temporary = tempfile::tempdir().unwrap();
    let set = handmade(temporary.path());
    let mut writer = begin(&set, fresh(&set, now()));
    let data_set = set.data_set();
    writer.push(&data_set.row(&set.prompts[0])).unwrap();
    let directory_left = temporary.path().join("out_20260825_123456");
    let manifest = directory_left.join(format!("result/{SET}_20260825_123456.manifest.json"));
    assert_eq!(
        validate(&manifest).unwrap_err().code(),
        "ARTIFACTS_INCOMPLETE"
    );
    // While the writer lives, the directory is its own.
    let other = look(&set, PREPARE, stamp("20260825_123457"));
    assert_ne!(directory(&other), directory_left);
    drop(other);
    // A killed process runs no destructors, but its lock ends with it.
    let copy = temporary.path().join("copy");
    copy_tree(&directory_left, &copy);
    drop(writer);
    assert!(!directory_left.exists(), "a failed prepare leaves nothing");
    fs::rename(&copy, &directory_left).unwrap();
    let Decision::Prepare { claim, .. } = look(&set, RUN, stamp("20260901_000000")) else {
        panic!("an incomplete set was used");
    };
    assert_eq!(claim.location().directory(), directory_left);
    let files = prepare(&set, claim);
    validate_deep(&files.manifest, None).unwrap();
    let names: Vec<_> = fs::read_dir(directory_left.join("result"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn a_failed_rebuild_leaves_the_old_set_whole() {
    let temporary = tempfile::tempdir().unwrap();
    let set = handmade(temporary.path());
    let files = prepare(&set, fresh(&set, now()));
    let overwrite = Purpose::Prepare { overwrite: true };
    let Decision::Prepare { claim, .. } = look(&set, overwrite, stamp("20260901_000000")) else {
        panic!("overwrite used a set");
    };
    let mut writer = begin(&set, claim);
    writer.push(&set.data_set().row(&set.prompts[0])).unwrap();
    drop(writer);
    validate_deep(&files.manifest, None).unwrap();
}

#[test]
fn overwrite_rebuilds_the_newest_set_and_prepare_makes_another() {
    let temporary = tempfile::tempdir().unwrap();
    let mut set = handmade(temporary.path());
    prepare(&set, fresh(&set, stamp("20260101_000000")));
    let newest = prepare(&set, fresh(&set, stamp("20260201_000000")));
    set.prompts[0].source_indices[0] = 999;
    let overwrite = Purpose::Prepare { overwrite: true };
    let Decision::Prepare { claim, .. } = look(&set, overwrite, now()) else {
        panic!("overwrite used a set");
    };
    let rebuilt = prepare(&set, claim);
    assert_eq!(rebuilt, newest);
    assert!(read(rebuilt.full).contains("\"gsm_indices\": [999]"));
    let another = look(&set, PREPARE, now());
    assert!(directory(&another).ends_with("out_20260825_123456"));
}

#[test]
fn inspect_then_run_completes_the_inspected_set() {
    let temporary = tempfile::tempdir().unwrap();
    let set = handmade(temporary.path());
    let Decision::Prepare { claim, .. } = look(&set, Purpose::Inspect, now()) else {
        panic!("inspect used a set");
    };
    let location = claim.location().clone();
    let manifest = set.data_set().inspect_manifest(&location, None);
    let path = claim.write_inspected(&manifest).unwrap();
    let error = validate(&path).unwrap_err();
    assert_eq!(error.code(), "MANIFEST_INSPECT_ONLY");
    let Decision::Prepare { claim, .. } = look(&set, RUN, stamp("20260901_000000")) else {
        panic!("an inspected set was run");
    };
    assert_eq!(claim.location(), &location);
    let files = prepare(&set, claim);
    assert_eq!(files.manifest, path);
    validate(&path).unwrap();
    let again = look(&set, RUN, stamp("20260901_000000"));
    assert!(matches!(again, Decision::Reuse(manifest) if manifest == path));
}

/// A prepared set stays in use behind a newer inspected one.
#[test]
fn an_inspected_set_does_not_hide_a_prepared_one() {
    let temporary = tempfile::tempdir().unwrap();
    let set = handmade(temporary.path());
    let files = prepare(&set, fresh(&set, stamp("20260101_000000")));
    let claim = fresh(&set, stamp("20260201_000000"));
    let manifest = set.data_set().inspect_manifest(claim.location(), None);
    claim.write_inspected(&manifest).unwrap();
    let found = look(&set, RUN, now());
    assert!(matches!(found, Decision::Reuse(manifest) if manifest == files.manifest));
}

/// An input: its name, how it is changed, and what is said about it; `None`
/// where the set is used again.
type InputEdit = (&'static str, fn(&mut Handmade), Option<&'static str>);

/// O-ART-4: with the scenario's bytes unchanged, each other input still counts.
#[test]
fn reuse_notices_every_input() {
    let edits: [InputEdit; 6] = [
        ("nothing", |_| {}, None),
        (
            "a question of the corpus",
            |set| set.corpus_sha256 = "0".repeat(64),
            Some("the corpus has changed"),
        ),
        (
            "the tokenizer's file",
            |set| set.tokenizer.set_file_sha256("1".repeat(64)),
            Some("the tokenizer has changed"),
        ),
        (
            "a length in a CSV file",
            |set| set.scenario.requests.input_length = InputLength::Explicit(vec![1, 2]),
            Some("the lengths in CSV files have changed"),
        ),
        (
            "the scenario's bytes",
            |set| set.scenario.sha256 = "2".repeat(64),
            Some(""),
        ),
        (
            "the run id",
            |set| set.scenario.run.run_id = "another".to_owned(),
            Some(""),
        ),
    ];
    for (name, edit, expected) in edits {
        let temporary = tempfile::tempdir().unwrap();
        let mut set = handmade(temporary.path());
        let files = prepare(&set, fresh(&set, stamp("20260101_000000")));
        edit(&mut set);
        match (look(&set, RUN, now()), expected) {
            (Decision::Reuse(manifest), None) => assert_eq!(manifest, files.manifest, "{name}"),
            (Decision::Prepare { claim, changed }, Some(reason)) => {
                assert!(
                    claim
                        .location()
                        .directory()
                        .ends_with("out_20260825_123456"),
                    "{name}"
                );
                let said = changed.join("");
                assert!(
                    said.ends_with(reason) && said.is_empty() == reason.is_empty(),
                    "{said}"
                );
            }
            (other, _) => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn another_format_version_is_not_used() {
    let temporary = tempfile::tempdir().unwrap();
    let set = handmade(temporary.path());
    let files = prepare(&set, fresh(&set, stamp("20260101_000000")));
    let mut manifest = read_json(&files.manifest);
    // The program's own version may differ, the format's may not.
    manifest["plugin_version"] = "pcload/99.0.0".into();
    fs::write(&files.manifest, pyjson::document(&manifest)).unwrap();
    assert!(matches!(look(&set, RUN, now()), Decision::Reuse(_)));
    manifest["pcload"]["format_version"] = 0.into();
    fs::write(&files.manifest, pyjson::document(&manifest)).unwrap();
    let Decision::Prepare { changed, .. } = look(&set, RUN, now()) else {
        panic!("a set of another format was used");
    };
    assert!(changed[0].ends_with("the format version has changed"));
}

/// O-ART-2: none of three credentials gets into any file.
#[test]
fn no_credential_gets_into_a_file() {
    let temporary = tempfile::tempdir().unwrap();
    let mut set = handmade(temporary.path());
    let url = "http://user:pw-0123@127.0.0.1:9/v1/completions?key=qk-0123";
    set.scenario.service.api_key = Secret::new("sk-test-0123456789abcdef");
    url.clone_into(&mut set.scenario.service.inference_url);
    let config = &mut set.scenario.effective_config;
    config["service"]["inference_url"] = url.into();
    config["service"]["api_key_configured"] = true.into();
    config["aisbench"]["extra_args"] = serde_json::json!(["--key", "sk-test-0123456789abcdef"]);
    let claim = fresh(&set, now());
    let log = temporary.path().join("inspect.log");
    let manifest = set
        .data_set()
        .inspect_manifest(claim.location(), Some(&log));
    claim.write_inspected(&manifest).unwrap();
    let files = prepare(&set, fresh(&set, now()));
    validate_deep(&files.manifest, None).unwrap();
    for path in files_below(temporary.path()) {
        let text = read(&path);
        for secret in ["sk-test-0123456789abcdef", "pw-0123", "qk-0123"] {
            assert!(!text.contains(secret), "{} has {secret}", path.display());
        }
    }
    let service = &read_json(&files.manifest)["effective_config"]["service"];
    assert_eq!(service["api_key_configured"], true);
    assert!(
        service["inference_url"]
            .as_str()
            .unwrap()
            .contains("127.0.0.1:9")
    );
}

/// Nothing half-written replaces what is there.
#[test]
fn a_file_that_cannot_be_written_leaves_the_old_one() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("missing").join("analysis.json");
    let error = pcload::artifacts::write_atomic(&path, b"{}").unwrap_err();
    assert!(matches!(error, ArtifactError::Io { .. }));
    assert_eq!(error.code(), "FILE_ACCESS");
    assert!(error.is_world());
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn copy_tree(from: &Path, to: &Path) {
    for path in files_below(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&path, target).unwrap();
    }
}
