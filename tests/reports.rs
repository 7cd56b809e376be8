//! The real program's `report` and `compare` on recorded files: a set of the
//! reference plugin, results of `vllm bench serve` and of AISBench.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stderr,
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

/// A recorded AISBench run laid out as AISBench leaves it, its time points in the
/// database or beside the details.
fn aisbench_folder(root: &std::path::Path, with_database: bool) -> PathBuf {
    let source = data("aisbench-3.1/basic");
    let run = root.join("20261129_134503");
    let tables = run.join("performances/pcload-model");
    fs::create_dir_all(tables.join("db_data")).unwrap();
    fs::create_dir_all(run.join("configs")).unwrap();
    let copy = |from: &str, to: PathBuf| fs::copy(source.join(from), to).unwrap();
    copy("effective_config.py", run.join("configs/20261129_1.py"));
    for name in ["pcload.csv", "pcload.json", "pcload_details.jsonl"] {
        copy(name, tables.join(name));
    }
    if with_database {
        copy("302ec464.db", tables.join("db_data/302ec464.db"));
    } else {
        copy("time_points.jsonl", tables.join("time_points.jsonl"));
    }
    run
}

fn compared(left: &std::path::Path, right: &std::path::Path) -> Value {
    let (left, right) = (left.to_str().unwrap(), right.to_str().unwrap());
    let compared = pcload(&["compare", left, right]);
    let words = text(&compared.stderr);
    assert_eq!(compared.status.code(), Some(0), "{words}");
    serde_json::from_slice(&compared.stdout).unwrap()
}

fn setting<'d>(document: &'d Value, aspect: &str) -> Option<&'d Value> {
    let settings = document["settings"].as_array().unwrap();
    settings.iter().find(|one| one["aspect"] == aspect)
}

#[test]
fn a_result_folder_of_aisbench_is_a_side() {
    let folder = tempfile::tempdir().unwrap();
    let run = aisbench_folder(folder.path(), false);
    let bench = data("vllm-0.32.0/bench_serve.conc8.json");
    let document = compared(&run, &bench);
    assert_eq!(document["requests"], serde_json::json!([16, 120]));
    assert_eq!(document["pairs"], Value::Null);
    assert_eq!(setting(&document, "model").unwrap()["left"], "mock");
    let profile = setting(&document, "profile").unwrap();
    assert_eq!(profile["left"], "closed, 4 in flight");
    assert_eq!(setting(&document, "data_set"), None);
    // By AISBench's own table, which has steps of 0.1 ms.
    let table = fs::read_to_string(data("aisbench-3.1/basic/pcload.csv")).unwrap();
    let row = table
        .lines()
        .find(|line| line.starts_with("TTFT,"))
        .unwrap();
    let mean: f64 = row
        .split(',')
        .nth(2)
        .unwrap()
        .trim_end_matches(" ms")
        .parse()
        .unwrap();
    let metrics = document["metrics"].as_array().unwrap();
    let ttft = metrics
        .iter()
        .find(|one| one["quantity"] == "ttft_ms" && one["statistic"] == "mean")
        .unwrap();
    assert!(
        (ttft["left"].as_f64().unwrap() - mean).abs() < 0.051,
        "{ttft}"
    );
    // It keeps no cached tokens.
    assert!(metrics.iter().all(|one| one["quantity"] != "hit_rate"));
}

#[test]
fn two_result_folders_of_equal_prompts_are_paired() {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no python3 to read the database with");
        return;
    }
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let beside = aisbench_folder(one.path(), false);
    let stored = aisbench_folder(other.path(), true);
    let document = compared(&beside, &stored.join("performances/pcload-model"));
    assert_eq!(document["pairs"], 16);
    for metric in document["metrics"].as_array().unwrap() {
        assert_eq!(metric["judgment"], "same", "{metric}");
    }
}

#[test]
fn a_result_folder_without_its_times_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let run = aisbench_folder(folder.path(), false);
    fs::remove_file(run.join("performances/pcload-model/time_points.jsonl")).unwrap();
    let run = run.to_str().unwrap();
    let refused = pcload(&["compare", run, run, "--python", "/nowhere/python"]);
    assert_eq!(refused.status.code(), Some(3));
    let words = text(&refused.stderr);
    assert!(words.starts_with("ERROR: AISBENCH_FILES: "), "{words}");
    let empty = tempfile::tempdir().unwrap();
    fs::create_dir(empty.path().join("performances")).unwrap();
    let empty = empty.path().to_str().unwrap();
    let refused = pcload(&["compare", empty, run]);
    assert_eq!(refused.status.code(), Some(2));
    let words = text(&refused.stderr);
    assert!(
        words.starts_with("ERROR: AISBENCH_RESULT_UNREADABLE: "),
        "{words}"
    );
}
