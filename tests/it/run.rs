//! `run` and `demo` against the simulated server, to each of the exit statuses.

use std::fs;
use std::path::Path;

use pcload::sim::{Config, Faults};
use serde_json::{Value, json};

use crate::folder::{Folder, Ran, read_json, with};
use crate::server::{Simulated, instant};

const RUN: [&str; 3] = ["run", "--scenario", "scenario.json"];

#[test]
fn a_run_agrees_with_theory_and_writes_its_files() {
    let server = Simulated::start(instant());
    for mode in ["cold", "warmup"] {
        let folder = Folder::new();
        folder.write_scenario(&with(server.scenario(), "prefix_cache.mode", json!(mode)));
        let ran = folder.done(&RUN);
        let analysis = ran.json();
        assert_eq!(analysis["status"], "complete");
        assert_eq!(analysis["actual"]["global_queries"], 12 * 128);
        assert_eq!(analysis["actual"]["global_hits"], 12 * 64, "{mode}");
        assert_eq!(analysis["actual"]["global_hit_rate"], 0.5);
        let run = Path::new(
            ran.stderr
                .lines()
                .last()
                .unwrap()
                .trim_start_matches("files: "),
        );
        for file in [
            "records.jsonl",
            "metrics-baseline.prom",
            "metrics-after.prom",
            "kv.jsonl",
        ] {
            assert!(run.join(file).is_file(), "{file}");
        }
        let records = fs::read_to_string(run.join("records.jsonl")).unwrap();
        assert_eq!(records.lines().count(), 12);
        let result = run.ancestors().nth(2).unwrap();
        let on_disk = fs::read_dir(result)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().ends_with(".analysis.json"));
        assert_eq!(read_json(on_disk.unwrap()), analysis);
    }
}

#[test]
fn stderr_tells_the_phases_in_order_and_quiet_none() {
    let server = Simulated::start(instant());
    let folder = Folder::new();
    folder.write_scenario(&with(
        server.scenario(),
        "prefix_cache.mode",
        json!("warmup"),
    ));
    let ran = folder.done(&RUN);
    let mut rest = ran.stderr.as_str();
    for phase in [
        "precheck: ",
        "reset: ",
        "warm-up: ",
        "baseline: ",
        "formal: ",
        "after: ",
        "Verdict: ",
    ] {
        let (_, after) = rest
            .split_once(phase)
            .unwrap_or_else(|| panic!("no {phase}: {rest}"));
        rest = after;
    }
    assert!(!ran.stderr.contains('\u{1b}'), "colors without a terminal");
    let quiet = folder.done(&[&RUN[..], &["--quiet"]].concat());
    assert_eq!(quiet.stderr, "");
    assert_eq!(quiet.json()["status"], "complete");
}

#[test]
fn a_second_run_uses_the_set_and_keeps_the_records_of_the_first() {
    let server = Simulated::start(instant());
    let folder = Folder::new();
    folder.write_scenario(&server.scenario());
    folder.done(&RUN);
    let second = folder.done(&RUN);
    assert!(second.stderr.contains("using the prepared set"));
    let names: Vec<String> = folder.listing().into_keys().collect();
    let records: Vec<&String> = names
        .iter()
        .filter(|name| name.ends_with("records.jsonl"))
        .collect();
    assert_eq!(records.len(), 2, "{records:?}");
    assert!(records[0].contains("/runs/1/") && records[1].contains("/runs/2/"));
    assert_eq!(second.json()["actual"]["global_hits"], 12 * 64);
    let warnings = second.json()["warnings"].as_array().unwrap().len();
    let third = folder.done(&RUN).json();
    assert_eq!(third["warnings"].as_array().unwrap().len(), warnings);
}

/// 1: done, and the answer is no.
#[test]
fn a_missed_objective_is_exit_1_with_everything_written() {
    let server = Simulated::start(instant());
    let folder = Folder::new();
    folder.write_scenario(&server.scenario());
    let ran = folder.run(&[&RUN[..], &["--slo", "ttft=0.000001ms"]].concat());
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.errors().is_empty(), "{}", ran.stderr);
    assert_eq!(ran.json()["status"], "complete");
    let met = folder.run(&[&RUN[..], &["--slo", "ttft=1000s"]].concat());
    assert_eq!(met.status, 0, "{}", met.stderr);
}

/// 3: no request succeeded; the report is written all the same, with null where
/// nothing was measured.
#[test]
fn a_run_in_which_every_request_fails_is_exit_3_with_a_report() {
    let faults = Faults {
        error_event: 1.0,
        ..Faults::default()
    };
    let server = Simulated::start(Config {
        faults,
        ..instant()
    });
    let folder = Folder::new();
    let scenario = with(server.scenario(), "aisbench.model.retry", json!(0));
    let long = json!({"mode": "fixed", "value": 64});
    folder.write_scenario(&with(scenario, "requests.output_length", long));
    let ran = folder.run(&[&RUN[..], &["--quiet"]].concat());
    assert_eq!(ran.status, 3, "{}", ran.stderr);
    assert_eq!(ran.errors().len(), 1, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("NO_REQUEST_SUCCEEDED"),
        "{}",
        ran.stderr
    );
    let analysis = ran.json();
    assert!(finite(&analysis));
    let succeeded = &analysis["pcload"]["latency"]["ttft_ms"]["count"];
    assert!(succeeded.is_null() || *succeeded == 0, "{succeeded}");
}

/// JSON has no other numbers; a text that stands in for one would be as bad.
fn finite(value: &Value) -> bool {
    match value {
        Value::String(text) => !["NaN", "inf", "-inf", "Infinity"].contains(&text.as_str()),
        Value::Array(items) => items.iter().all(finite),
        Value::Object(fields) => fields.values().all(finite),
        _ => true,
    }
}

#[test]
fn the_demo_needs_nothing_and_says_that_it_is_simulated() {
    let folder = Folder::empty();
    let ran = folder.done(&["demo", "--out", "demo"]);
    let summary = ran.json();
    assert_eq!(summary["simulated"], true);
    assert_eq!(summary["actual_hit_rate"], summary["theoretical_hit_rate"]);
    assert!(ran.stderr.contains("SIMULATED"));
    assert!(folder.path("demo/scenario.json").is_file());
}

/// The key comes from the scenario or the environment, and stands nowhere
/// afterwards.
#[test]
fn a_key_is_sent_and_never_written() {
    const KEY: &str = "sk-test-0123456789abcdef";
    let server = Simulated::start(Config {
        api_key: Some(KEY.to_owned()),
        ..instant()
    });
    let folder = Folder::new();
    folder.write_scenario(&server.scenario());
    let mut command = folder.command(&[&RUN[..], &["-vvv"]].concat());
    command.env("PCLOAD_API_KEY", KEY);
    let ran = Ran::of(command);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(!(ran.stdout + &ran.stderr).contains(KEY));
    for (name, digest) in folder.listing() {
        if digest != "directory" {
            let bytes = fs::read(folder.path(&name)).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(KEY), "{name}");
        }
    }
}
