//! Scenarios, corpora, tokenizers and places that cannot be used: one clear
//! error line that names what is wrong, the right exit status, nothing written.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::folder::{Folder, scenario, with};

const PREPARE: [&str; 3] = ["prepare", "--scenario", "scenario.json"];

/// Prepares, inspects and runs a folder that cannot be: each says the same and
/// writes nothing.
#[track_caller]
fn refused(folder: &Folder, code: &str, words: &[&str]) {
    let before = folder.listing();
    for command in ["prepare", "inspect", "run"] {
        let ran = folder.run(&[command, "--scenario", "scenario.json"]);
        ran.fails(2, code, words);
        assert_eq!(folder.listing(), before, "{command} wrote something");
    }
}

#[track_caller]
fn refused_with(path: &str, value: serde_json::Value, code: &str, words: &[&str]) {
    let folder = Folder::new();
    folder.write_scenario(&with(scenario(), path, value));
    refused(&folder, code, words);
}

#[test]
fn scenarios_that_are_not_there() {
    let folder = Folder::new();
    fs::remove_file(folder.path("scenario.json")).unwrap();
    refused(&folder, "FILE_UNREADABLE", &["scenario.json", "hint: "]);
    fs::create_dir(folder.path("scenario.json")).unwrap();
    refused(
        &folder,
        "FILE_UNREADABLE",
        &["scenario.json", "directory", "hint: "],
    );
}

#[test]
fn scenarios_that_are_no_scenario() {
    let folder = Folder::new();
    for (text, code, words) in [
        (&b""[..], "BAD_JSON", &["line 1"][..]),
        (b"{\"run\": {", "BAD_JSON", &["line 1"]),
        (b"[]", "WRONG_TYPE", &["object"]),
        (b"{\"run\": \"\xff\"}", "BAD_JSON", &["UTF-8"]),
        (
            b"{\"prefix_cache\": {\"target_hit_rate\": NaN}}",
            "NOT_FINITE",
            &["`NaN`", "line 1"],
        ),
        (
            b"{\"requests\": {\"count\": 10, \"count\": 100}}",
            "DUPLICATE_KEY",
            &["requests.count"],
        ),
    ] {
        fs::write(folder.path("scenario.json"), text).unwrap();
        refused(&folder, code, words);
    }
}

#[test]
fn values_that_cannot_be() {
    refused_with(
        "prefix_cache.seed_block",
        json!(2),
        "UNKNOWN_KEY",
        &["prefix_cache.seed_block", "did you mean `seed_blocks`"],
    );
    refused_with(
        "requests.input_length",
        json!({"mode": "fixed", "value": 64, "values": [64]}),
        "FOREIGN_KEY",
        &["requests.input_length.values"],
    );
    refused_with(
        "requests.input_length",
        json!({"mode": "fixed", "value": 8}),
        "TOO_SHORT",
        &["requests.input_length", "at least 16"],
    );
    refused_with(
        "requests.input_length",
        json!({"mode": "truncated_normal", "min": 64, "max": 32}),
        "OUT_OF_RANGE",
        &["requests.input_length", "32"],
    );
    refused_with(
        "requests.count",
        json!(1_000_000_000_000_u64),
        "OUT_OF_RANGE",
        &["requests.count", "1000000000000"],
    );
    refused_with(
        "run.run_id",
        json!("a/b"),
        "BAD_VALUE",
        &["run.run_id", "a/b"],
    );
    refused_with("run.run_id", json!(".."), "BAD_VALUE", &["run.run_id"]);
    refused_with(
        "aisbench.model.generation_kwargs",
        json!({"stream": false}),
        "CONFLICT",
        &["generation_kwargs.stream"],
    );
}

/// All problems are said at once, a line for each.
#[test]
fn several_problems_are_said_together() {
    let folder = Folder::new();
    let wrong = with(scenario(), "requests.count", json!(0));
    let wrong = with(wrong, "tokenizer.block_size", json!("16"));
    folder.write_scenario(&with(wrong, "servise", json!({})));
    let ran = folder.run(&PREPARE);
    assert_eq!(ran.status, 2);
    let errors = ran.errors().join("\n");
    assert_eq!(ran.errors().len(), 3, "{errors}");
    for part in [
        "OUT_OF_RANGE: requests.count",
        "WRONG_TYPE: tokenizer.block_size",
        "UNKNOWN_KEY: servise",
    ] {
        assert!(errors.contains(part), "{errors}");
    }
    assert!(ran.stderr.contains("`service`"), "{}", ran.stderr);
}

#[test]
fn tokenizers_that_cannot_be_used() {
    let folder = Folder::new();
    fs::create_dir(folder.path("empty")).unwrap();
    fs::create_dir(folder.path("broken")).unwrap();
    fs::write(folder.path("broken/tokenizer.json"), "{").unwrap();
    for (path, code, words) in [
        (
            "./nowhere",
            "TOKENIZER_NOT_FOUND",
            &["./nowhere", "HF_HOME"][..],
        ),
        (
            "./empty",
            "TOKENIZER_JSON_MISSING",
            &["empty", "save_pretrained"],
        ),
        ("./broken", "TOKENIZER_INVALID", &["broken/tokenizer.json"]),
        ("./corpus.jsonl", "TOKENIZER_INVALID", &["corpus.jsonl"]),
    ] {
        folder.write_scenario(&with(scenario(), "tokenizer.path", json!(path)));
        refused(&folder, code, words);
    }
}

#[test]
fn corpora_that_cannot_be_used() {
    let folder = Folder::new();
    let question = |text: &str| format!("{{\"question\": {text}}}\n");
    for (bytes, code, words) in [
        (&b""[..], "CORPUS_EMPTY", &[][..]),
        (b"\n \n", "CORPUS_EMPTY", &[]),
        (
            b"{\"question\": \"\xff\"}\n",
            "CORPUS_NOT_UTF8",
            &["line 1"],
        ),
        (b"plain text\n", "CORPUS_INVALID", &["line 1"]),
        (
            b"{\"text\": \"a\"}\n",
            "CORPUS_INVALID",
            &["line 1", "`question`", "corpus.field"],
        ),
        (
            question("7").as_bytes(),
            "CORPUS_INVALID",
            &["line 1", "`7`"],
        ),
        (
            question("\" \\t \"").as_bytes(),
            "CORPUS_INVALID",
            &["line 1", "blank"],
        ),
        (
            question("\"\\ud800\"").as_bytes(),
            "CORPUS_INVALID",
            &["line 1"],
        ),
    ] {
        fs::write(folder.path("corpus.jsonl"), bytes).unwrap();
        let words = [words, &["corpus.jsonl"]].concat();
        refused(&folder, code, &words);
    }
    for path in [".", "./nowhere.jsonl", "./tokenizer/tokenizer.json/x"] {
        folder.write_scenario(&with(scenario(), "corpus.path", json!(path)));
        refused(&folder, "CORPUS_UNREADABLE", &["cannot read"]);
    }
}

#[test]
fn length_files_that_cannot_be_used() {
    let folder = Folder::new();
    let csv = json!({"mode": "csv", "path": "./lengths.csv"});
    folder.write_scenario(&with(scenario(), "requests.input_length", csv));
    refused(&folder, "FILE_UNREADABLE", &["lengths.csv"]);
    for (text, code, word) in [
        ("", "BAD_FILE", "lengths.csv"),
        ("input_tokens\n64\n", "COUNT_MISMATCH", "12"),
        ("tokens\n64\n", "BAD_FILE", "input_tokens"),
        ("input_tokens\nmany\n", "BAD_FILE", "many"),
    ] {
        fs::write(folder.path("lengths.csv"), text).unwrap();
        refused(&folder, code, &[word]);
    }
}

/// Selections that name what the corpus does not have.
#[test]
fn selections_that_find_nothing() {
    refused_with(
        "corpus.selection",
        json!({"mode": "indices", "values": [0, 100_000]}),
        "CORPUS_INDEX_OUT_OF_RANGE",
        &["100000"],
    );
}

/// Places that cannot be written are the world's failure.
#[test]
fn output_directories_that_cannot_be_written() {
    let folder = Folder::new();
    let before = |folder: &Folder| folder.listing();
    for (path, words) in [
        ("/proc/nowhere/out", "/proc/nowhere"),
        ("./corpus.jsonl/out", "corpus.jsonl"),
    ] {
        folder.write_scenario(&with(scenario(), "run.output_dir", json!(path)));
        let listing = before(&folder);
        for command in ["prepare", "inspect", "run"] {
            let ran = folder.run(&[command, "--scenario", "scenario.json"]);
            ran.fails(3, "FILE_ACCESS", &[words]);
        }
        assert_eq!(before(&folder), listing);
    }
    let sealed = folder.path("sealed");
    fs::create_dir(&sealed).unwrap();
    fs::set_permissions(&sealed, fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(sealed.join("probe"), "").is_ok() {
        eprintln!("skipped: this user may write everywhere");
        return;
    }
    folder.write_scenario(&with(scenario(), "run.output_dir", json!("./sealed/out")));
    folder
        .run(&PREPARE)
        .fails(3, "FILE_ACCESS", &["sealed/out"]);
}

/// Prompts that cannot be built leave no set, and no directory that looks like
/// one: only the log that says why.
#[test]
fn a_failed_generation_leaves_no_set() {
    let folder = Folder::new();
    // A vocabulary of a few tokens has no 12 different seeds of one token.
    let scenario = with(scenario(), "tokenizer.block_size", json!(1));
    let scenario = with(scenario, "requests.count", json!(5_000));
    folder.write_scenario(&with(scenario, "requests.input_length.value", json!(4)));
    let ran = folder.run(&PREPARE);
    ran.fails(2, "SEEDS_EXHAUSTED", &["hint: "]);
    let files: Vec<String> = folder
        .listing()
        .into_iter()
        .filter(|(name, digest)| name.starts_with("out/") && digest != "directory")
        .map(|(name, _)| name)
        .collect();
    assert!(
        files.iter().all(|name| name.ends_with(".prepare.log")),
        "{files:?}"
    );
}
