//! `pcload doctor` against a simulated server, and without one.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::pages::root;
use crate::simulated::{Simulated, pcload};

/// A scenario of the demo's tokenizer and corpus, for a server at `url`.
fn scenario(url: &str) -> Value {
    json!({
        "run": {"run_id": "doctor"},
        "tokenizer": {"path": root().join("assets/demo/tokenizer"), "block_size": 16},
        "corpus": {"path": root().join("assets/demo/corpus.jsonl")},
        "requests": {"count": 10, "input_length": {"mode": "fixed", "value": 128}},
        "service": {
            "inference_url": format!("{url}/v1/completions"),
            "metrics_url": format!("{url}/metrics"),
            "reset_url": format!("{url}/reset_prefix_cache"),
            "model": "sim",
            "dp_size": 1,
        },
    })
}

fn write(folder: &Path, scenario: &Value) -> PathBuf {
    let path = folder.join("scenario.json");
    fs::write(&path, scenario.to_string()).unwrap();
    path
}

/// Exit status and the checks as `(check, state, code)`.
fn doctor(scenario: &Path) -> (Option<i32>, Vec<(String, String, String)>) {
    let output = pcload()
        .args(["doctor", "--scenario"])
        .arg(scenario)
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let checks = document["checks"].as_array().unwrap();
    let checks = checks
        .iter()
        .map(|one| (text(&one["check"]), text(&one["state"]), text(&one["code"])));
    (output.status.code(), checks.collect())
}

fn has(checks: &[(String, String, String)], check: &str, state: &str, code: &str) -> bool {
    let wanted = (check.to_owned(), state.to_owned(), code.to_owned());
    checks.contains(&wanted)
}

#[test]
fn a_server_that_is_ready_is_fine_and_keeps_its_cache() {
    let folder = tempfile::tempdir().unwrap();
    let server = Simulated::sim(&[], folder.path());
    let path = write(folder.path(), &scenario(&server.url));
    let (exit, checks) = doctor(&path);
    assert_eq!(exit, Some(0), "{checks:?}");
    assert!(
        checks.iter().all(|(_, state, _)| state == "fine"),
        "{checks:?}"
    );
    for check in [
        "tokenizer",
        "prompts",
        "service",
        "ranks",
        "block size",
        "reset",
    ] {
        assert!(has(&checks, check, "fine", ""), "{check}: {checks:?}");
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "it leaves only the scenario: {left:?}");
}

#[test]
fn every_fault_is_named_and_the_input_s_decides() {
    let folder = tempfile::tempdir().unwrap();
    let server = Simulated::sim(&["--block-size", "32"], folder.path());
    let mut wrong = scenario(&server.url);
    wrong["tokenizer"]["path"] = json!("./nowhere");
    wrong["prefix_cache"] = json!({"mode": "cold", "target_hit_rate": 1.0});
    wrong["service"]["reset_url"] = json!(null);
    let (exit, checks) = doctor(&write(folder.path(), &wrong));
    assert_eq!(exit, Some(2), "{checks:?}");
    assert!(
        has(&checks, "tokenizer", "failed", "TOKENIZER_NOT_FOUND"),
        "{checks:?}"
    );
    assert!(has(&checks, "prompts", "not_checked", ""), "{checks:?}");
    assert!(
        has(&checks, "plan", "doubtful", "TARGET_UNREACHABLE"),
        "{checks:?}"
    );
    assert!(has(&checks, "service", "fine", ""), "{checks:?}");
    assert!(
        has(&checks, "service", "doubtful", "BLOCK_SIZE_MISMATCH"),
        "{checks:?}"
    );
    assert!(
        has(&checks, "reset", "failed", "RESET_UNAVAILABLE"),
        "{checks:?}"
    );
}

#[test]
fn a_server_that_is_not_there_is_the_world_s_fault() {
    let folder = tempfile::tempdir().unwrap();
    // The port of a server that has gone.
    let url = Simulated::sim(&[], folder.path()).url.clone();
    let (exit, checks) = doctor(&write(folder.path(), &scenario(&url)));
    assert_eq!(exit, Some(3), "{checks:?}");
    assert!(
        has(&checks, "service", "failed", "SERVICE_UNREACHABLE"),
        "{checks:?}"
    );
    assert!(has(&checks, "prompts", "fine", ""), "{checks:?}");
}

#[test]
fn a_scenario_that_cannot_be_read_is_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = pcload()
        .args(["doctor", "--quiet", "--scenario", "absent.json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("ERROR: FILE_UNREADABLE: "), "{stderr}");
}
