//! The real program's `report` and `compare` on recorded files: a set of the
//! reference plugin, and a result of `vllm bench serve`.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "edge: this test reads recorded files, and fails where it cannot"
)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(path)
}

fn pcload(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcload"));
    command.env("COLUMNS", "80").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The recorded set under the names that its manifest gives its files.
fn recorded_set(folder: &std::path::Path) -> PathBuf {
    let source = data("golden/run-cold");
    let manifest: Value =
        serde_json::from_slice(&fs::read(source.join("manifest.json")).unwrap()).unwrap();
    let name = |kind: &str| {
        let path = manifest["artifacts"][kind]["path"]
            .as_str()
            .unwrap()
            .to_owned();
        path.rsplit(['/', '\\']).next().unwrap().to_owned()
    };
    fs::copy(source.join("analysis.json"), folder.join(name("analysis"))).unwrap();
    let path = folder.join("set.manifest.json");
    fs::copy(source.join("manifest.json"), &path).unwrap();
    path
}

#[test]
fn a_set_of_the_reference_plugin_shows_its_rates_and_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = recorded_set(folder.path());
    let manifest = manifest.to_str().unwrap();
    let shown = pcload(&["report", "--manifest", manifest]);
    let words = text(&shown.stderr);
    assert!(shown.status.success(), "{words}");
    assert!(
        words.contains("theoretical hit rate") && words.contains("missing:"),
        "{words}"
    );
    let printed: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(printed["actual"]["global_hit_rate"].is_number());

    let page = folder.path().join("x.html");
    let refused = pcload(&[
        "report",
        "--manifest",
        manifest,
        "--html",
        page.to_str().unwrap(),
    ]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).starts_with("ERROR: NO_JUDGMENT: "));
    assert!(!page.exists());
    let no_run = pcload(&["report", "--manifest", manifest, "--run", "3"]);
    assert_eq!(no_run.status.code(), Some(2));
    assert!(text(&no_run.stderr).starts_with("ERROR: NO_RUN: "));
}

#[test]
fn a_result_of_vllm_is_the_same_as_itself() {
    let result = data("vllm-0.32.0/bench_serve.conc8.json");
    let result = result.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("ab.html");
    let html = page.to_str().unwrap();
    let compared = pcload(&["compare", result, result, "--strict", "--html", html]);
    let words = text(&compared.stderr);
    assert_eq!(compared.status.code(), Some(0), "{words}");
    let document: Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!(document["kind"], "pcload.comparison");
    assert_eq!(document["pairs"], Value::Null);
    for metric in document["metrics"].as_array().unwrap() {
        let judgment = metric["judgment"].as_str().unwrap();
        assert!(["not_found", "same"].contains(&judgment), "{metric}");
    }
    assert!(
        words
            .lines()
            .all(|line| line.chars().count() <= 80 || line.contains('/')),
        "{words}"
    );
    assert!(fs::read_to_string(page).unwrap().contains("TTFT p50"));
}

#[test]
fn a_file_that_is_neither_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.json");
    fs::write(&empty, r#"{"model_id": "m", "request_throughput": 1.0}"#).unwrap();
    let path = empty.to_str().unwrap();
    let refused = pcload(&["compare", path, path]);
    assert_eq!(refused.status.code(), Some(2));
    let words = text(&refused.stderr);
    assert!(
        words.starts_with("ERROR: BENCH_RESULT_UNREADABLE: "),
        "{words}"
    );
    assert!(words.contains("--save-detailed"), "{words}");
    let folder = folder.path().to_str().unwrap();
    let refused = pcload(&["compare", folder, folder]);
    assert!(text(&refused.stderr).starts_with("ERROR: NO_RUN: "));
}
