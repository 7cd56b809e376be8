//! Which set a command works on: inspect then run, overwrite, two commands in
//! one second, and every input that decides whether a prepared set still fits.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::folder::{Folder, Ran, scenario, with};

/// The directories of sets, sorted.
fn sets(folder: &Folder) -> Vec<PathBuf> {
    let out = folder.path("out");
    if !out.exists() {
        return Vec::new();
    }
    let mut found: Vec<_> = fs::read_dir(out)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}

/// `run` against a service that is not there: it prepares or reuses, then stops
/// at the precheck.
fn run_nowhere(folder: &Folder) -> Ran {
    let ran = folder.run(&["run", "--scenario", "scenario.json"]);
    ran.fails(3, "SERVICE_UNREACHABLE", &[]);
    ran
}

fn nowhere() -> Value {
    let url = |path: &str| json!(format!("http://127.0.0.1:1{path}"));
    let scenario = with(scenario(), "service.inference_url", url("/v1/completions"));
    with(scenario, "service.metrics_url", url("/metrics"))
}

#[test]
fn inspect_then_run_uses_the_inspected_directory() {
    let folder = Folder::new();
    folder.write_scenario(&nowhere());
    folder.done(&["inspect", "-q", "--scenario", "scenario.json"]);
    let inspected = sets(&folder);
    run_nowhere(&folder);
    assert_eq!(sets(&folder), inspected);
    let ran = run_nowhere(&folder);
    assert_eq!(sets(&folder), inspected);
    assert!(
        ran.stderr.contains("using the prepared set"),
        "{}",
        ran.stderr
    );
}

#[test]
fn overwrite_rebuilds_the_newest_set() {
    let folder = Folder::new();
    folder.prepare();
    folder.prepare();
    let before = sets(&folder);
    assert_eq!(before.len(), 2, "a second prepare makes a second set");
    let mark = before[1].join("result/mark");
    fs::write(folder.path("corpus.jsonl"), other_corpus(&folder)).unwrap();
    fs::write(&mark, "a file of the user's").unwrap();
    let ran = folder.done(&["prepare", "--overwrite", "--scenario", "scenario.json"]);
    assert_eq!(sets(&folder), before);
    assert!(mark.exists(), "only the set's own files are replaced");
    let manifest = ran.json()["manifest"].as_str().unwrap().to_owned();
    assert!(Path::new(&manifest).starts_with(&before[1]));
    let corpus = fs::read(folder.path("corpus.jsonl")).unwrap();
    assert_eq!(
        crate::folder::read_json(&manifest)["corpus_sha256"],
        pcload::units::sha256_hex(&corpus)
    );
    folder.done(&["validate", "--deep", "--manifest", &manifest]);
}

/// The corpus with one word of one question changed.
fn other_corpus(folder: &Folder) -> String {
    let text = fs::read_to_string(folder.path("corpus.jsonl")).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut record: Value = serde_json::from_str(first).unwrap();
    let changed = format!("Changed {}", record["question"].as_str().unwrap());
    record["question"] = changed.into();
    format!("{record}\n{rest}")
}

/// A scenario file that stays as it is does not make a set fit: the corpus and
/// the tokenizer count, the time of a file does not.
#[test]
fn every_input_decides_whether_a_set_is_used_again() {
    let folder = Folder::new();
    folder.write_scenario(&nowhere());
    run_nowhere(&folder);
    let count = || sets(&folder).len();
    assert_eq!(count(), 1);

    let corpus = folder.path("corpus.jsonl");
    let bytes = fs::read(&corpus).unwrap();
    fs::remove_file(&corpus).unwrap();
    fs::write(&corpus, &bytes).unwrap();
    run_nowhere(&folder);
    assert_eq!(count(), 1, "(c) the same bytes, written anew");

    fs::write(&corpus, other_corpus(&folder)).unwrap();
    let ran = run_nowhere(&folder);
    assert_eq!(count(), 2, "(a) a question changed");
    assert!(
        ran.stderr.contains("the corpus has changed"),
        "{}",
        ran.stderr
    );
    fs::write(&corpus, &bytes).unwrap();

    let tokenizer = folder.path("tokenizer/tokenizer.json");
    let text = fs::read_to_string(&tokenizer).unwrap();
    fs::write(&tokenizer, format!("{text} ")).unwrap();
    let ran = run_nowhere(&folder);
    assert_eq!(count(), 3, "(b) another tokenizer at the same path");
    assert!(
        ran.stderr.contains("the tokenizer has changed"),
        "{}",
        ran.stderr
    );
    fs::write(&tokenizer, text).unwrap();

    run_nowhere(&folder);
    assert_eq!(count(), 3, "the first set fits again");

    let shuffled = with(
        nowhere(),
        "prefix_cache.order",
        json!({"strategy": "sequential"}),
    );
    folder.write_scenario(&shuffled);
    run_nowhere(&folder);
    assert_eq!(count(), 4, "(d) another order");

    let newest = sets(&folder).pop().unwrap();
    let run_id = newest.file_name().unwrap().to_str().unwrap();
    let manifest = newest.join(format!("result/{run_id}.manifest.json"));
    let edit = |pointer: &str, value: Value| {
        let mut document = crate::folder::read_json(&manifest);
        *document.pointer_mut(pointer).unwrap() = value;
        fs::write(&manifest, document.to_string()).unwrap();
    };
    edit("/plugin_version", json!("pcload/0.0.1"));
    run_nowhere(&folder);
    assert_eq!(count(), 4, "(e) another version, the same format");
    edit("/pcload/format_version", json!(0));
    run_nowhere(&folder);
    assert_eq!(count(), 5, "(e) another format");
}

/// A directory of that second which is there already is left alone, and the
/// next free second taken.
#[test]
fn commands_of_the_same_second_do_not_collide() {
    let folder = Folder::new();
    let children: Vec<_> = (0..4)
        .map(|_| {
            std::process::Command::new(env!("CARGO_BIN_EXE_pcload"))
                .args(["prepare", "-q", "--scenario", "scenario.json"])
                .current_dir(folder.path(""))
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut manifests = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        manifests.push(result["manifest"].as_str().unwrap().to_owned());
    }
    manifests.sort();
    manifests.dedup();
    assert_eq!(manifests.len(), 4);
    for manifest in manifests {
        folder.done(&["validate", "--manifest", &manifest]);
    }
}
