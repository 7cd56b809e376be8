//! Writing sets: the documents that come out, what a crash or a failure leaves,
//! and credentials.

use std::fs;
use std::path::{Path, PathBuf};

use pcload::artifacts::{
    ArtifactError, Decision, FullRow, PreparedSet, Purpose, pyjson, validate, validate_deep,
};
use pcload::scenario::PromptFormat;
use pcload::secret::Secret;
use serde_json::Value;

use crate::golden::{folder, read, read_json};
use crate::handmade::{Handmade, PREPARE, RUN, begin, fresh, look, now, prepare, stamp};
use crate::reuse::directory;

const SET: &str = "tiny-cold-dp2-3g-asc";

fn handmade(folder: &Path) -> Handmade {
    Handmade::new(SET, "tiny-bytelevel", folder)
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

/// The states a crash can leave between the renames: whatever stands there, the
/// set is not taken for a whole one, and the next prepare makes it whole.
#[test]
fn no_state_between_the_renames_is_taken_for_a_set() {
    for renamed in 0..=3 {
        let temporary = tempfile::tempdir().unwrap();
        let set = handmade(temporary.path());
        let claim = fresh(&set, now());
        let incomplete = set.data_set().incomplete_manifest(claim.location());
        let files = prepare(&set, claim);
        fs::write(&files.manifest, pyjson::document(&incomplete)).unwrap();
        for path in [&files.full, &files.requests, &files.analysis]
            .into_iter()
            .skip(renamed)
        {
            let name = path.file_name().unwrap().to_str().unwrap();
            fs::rename(path, path.with_file_name(format!(".{name}.tmp-1"))).unwrap();
        }
        let error = validate(&files.manifest).unwrap_err();
        assert_eq!(error.code(), "ARTIFACTS_INCOMPLETE");
        let Decision::Prepare { claim, .. } = look(&set, PREPARE, stamp("20260901_000000")) else {
            panic!("an incomplete set was used");
        };
        assert_eq!(prepare(&set, claim), files);
        validate_deep(&files.manifest, Some(&set.tokenizer)).unwrap();
        let left = fs::read_dir(files.full.parent().unwrap()).unwrap().count();
        assert_eq!(left, 4, "{renamed} files renamed");
    }
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

/// `run-after-inspect` was recorded with the scenario of `run-warm`.
#[test]
fn inspect_says_what_the_reference_says() {
    let temporary = tempfile::tempdir().unwrap();
    let set = Handmade::new("run-warm", "tiny-bytelevel", temporary.path());
    let claim = fresh(&set, now());
    let expected = read_json(folder("run-after-inspect").join("manifest.json"));
    let log = expected["inspect"]["summary"]["log"].as_str().unwrap();
    let manifest = set
        .data_set()
        .inspect_manifest(claim.location(), Some(Path::new(log)));
    let mut summary = manifest["inspect"]["summary"].clone();
    assert_eq!(summary["run_id"], "run-warm");
    summary["run_id"] = "run-after-inspect".into();
    assert_eq!(summary, expected["inspect"]["summary"]);
    assert_eq!(
        manifest["inspect"]["timestamp"],
        expected["inspect"]["timestamp"]
    );
    let keys: Vec<&String> = summary.as_object().unwrap().keys().collect();
    assert_eq!(
        (
            keys[0].as_str(),
            keys[1].as_str(),
            keys[keys.len() - 1].as_str()
        ),
        ("run_id", "mode", "log")
    );
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
