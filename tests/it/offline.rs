//! `inspect`, `prepare` and `validate` where nothing is wrong: stdout is the
//! result and nothing else, files are where the contract says, and equal inputs
//! give equal bytes.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::folder::{Folder, Prepared, Ran, scenario, with};

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn inspect_says_what_is_reachable_and_writes_its_manifest_alone() {
    let folder = Folder::new();
    let ran = folder.done(&["inspect", "--scenario", "scenario.json"]);
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.starts_with("{\n  \"run_id\": \"small\","));
    assert!(ran.stdout.ends_with("}\n"));
    let result = ran.json();
    assert_eq!(
        keys(&result),
        [
            "run_id",
            "mode",
            "requested_target_hit_rate",
            "effective_target_hit_rate",
            "theoretical_hit_rate",
            "reachable_min",
            "reachable_max",
            "target_reachable",
            "group_reachability",
            "groups",
            "input_tokens",
            "output_tokens",
            "dp_route_counts",
            "sends_requests",
            "log",
            "manifest",
        ]
    );
    // Two lanes of six requests of 8 blocks, one block of each its own: the
    // first of a lane finds nothing, each other one 7 blocks at most.
    assert_eq!(result["reachable_max"], json!(10.0 * 7.0 / (12.0 * 8.0)));
    assert_eq!(result["theoretical_hit_rate"], 0.5);
    assert_eq!(result["groups"], json!({"group-0": 6, "group-1": 6}));
    assert_eq!(result["dp_route_counts"], json!({"0": 12}));
    assert_eq!(result["sends_requests"], false);
    assert_eq!(result["input_tokens"]["total"], 12 * 128);

    let manifest = Path::new(result["manifest"].as_str().unwrap());
    let beside: Vec<_> = fs::read_dir(manifest.parent().unwrap()).unwrap().collect();
    assert_eq!(
        beside.len(),
        1,
        "inspect writes a manifest and nothing else"
    );
    let manifest = crate::folder::read_json(manifest);
    assert_eq!(manifest["status"], "inspected");
    assert_eq!(manifest["inspect"]["base_run_id"], "small");
}

#[test]
fn prepare_prints_one_line_with_five_paths() {
    let folder = Folder::new();
    let ran = folder.done(&["prepare", "--scenario", "scenario.json"]);
    assert_eq!(ran.stdout.lines().count(), 1);
    assert!(ran.stdout.starts_with("{\"full\": \""), "{}", ran.stdout);
    assert_eq!(ran.stderr.lines().last(), Some("prompts: 12/12"));
    let result = ran.json();
    assert_eq!(
        keys(&result),
        ["full", "requests", "manifest", "analysis", "log"]
    );
    let prepared = Prepared(result);
    let run_id = prepared.read_manifest()["run_id"].clone();
    let run_id = run_id.as_str().unwrap();
    let directory = folder.path(format!("out/{run_id}"));
    for (file, ending) in [
        ("full", "full.jsonl"),
        ("requests", "requests.jsonl"),
        ("manifest", "manifest.json"),
        ("analysis", "analysis.json"),
    ] {
        let expected = directory.join(format!("result/{run_id}.{ending}"));
        assert_eq!(Path::new(prepared.path(file)), expected);
        assert!(expected.is_file());
    }
    let log = directory.join(format!("log/{run_id}.prepare.log"));
    assert_eq!(Path::new(prepared.path("log")), log);
    assert!(log.is_file());
}

#[test]
fn validate_prints_one_line() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    let manifest = prepared.manifest();
    let run_id = prepared.read_manifest()["run_id"].clone();
    let ran = folder.done(&["validate", "--manifest", manifest]);
    assert_eq!(
        ran.stdout,
        format!("{{\"ok\": true, \"rows\": 12, \"run_id\": {run_id}}}\n")
    );
    assert_eq!(ran.stderr, "");
    let deep = folder.done(&["validate", "--deep", "--manifest", manifest]);
    assert_eq!(deep.json()["ok"], true);
    assert_eq!(deep.json()["deep"]["retokenized"], 12);
}

#[test]
fn a_set_may_be_moved_and_named_from_anywhere() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    let name = Path::new(prepared.manifest()).file_name().unwrap();
    let result = Path::new(prepared.manifest()).parent().unwrap();
    fs::rename(result, folder.path("moved")).unwrap();
    let manifest = Path::new("moved").join(name);
    let ran = folder.done(&["validate", "--manifest", manifest.to_str().unwrap()]);
    assert_eq!(ran.json()["rows"], 12);
}

#[test]
fn quiet_says_nothing_and_verbose_says_more() {
    let folder = Folder::new();
    let prepare = ["prepare", "--scenario", "scenario.json"];
    let quiet = folder.done(&[&prepare[..], &["--quiet"]].concat());
    assert_eq!(quiet.stderr, "");
    let verbose = folder.done(&[&prepare[..], &["-v"]].concat());
    assert!(verbose.stderr.contains(" INFO "), "{}", verbose.stderr);
    let json = folder.done(&[&["-q"], &prepare[..], &["-v", "--log-format", "json"]].concat());
    assert_eq!(json.stderr, "", "quiet wins over verbose");
}

#[test]
fn log_lines_may_be_json() {
    let folder = Folder::new();
    let ran = folder.done(&[
        "inspect",
        "-v",
        "--log-format",
        "json",
        "--scenario",
        "scenario.json",
    ]);
    assert!(!ran.stderr.is_empty());
    for line in ran.stderr.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "INFO");
        assert!(line["fields"]["message"].is_string());
    }
}

#[test]
fn the_log_holds_no_prompt_and_no_question() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    folder.done(&["validate", "--deep", "--manifest", prepared.manifest()]);
    let directory = Path::new(prepared.path("log")).parent().unwrap();
    let mut logs = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        logs += &fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    assert!(logs.contains("[INFO] pcload "), "{logs}");
    assert!(logs.lines().count() <= 2 * 12, "more than a line a request");
    let corpus = fs::read_to_string(folder.path("corpus.jsonl")).unwrap();
    for line in corpus.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let question = record["question"].as_str().unwrap();
        let beginning: String = question.chars().take(20).collect();
        assert!(!logs.contains(&beginning), "{beginning}");
    }
}

/// The reason of a failure stands in the log too.
#[test]
fn the_log_says_why_a_command_failed() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    fs::write(prepared.path("full"), "").unwrap();
    let ran = folder.run(&["validate", "--manifest", prepared.manifest()]);
    ran.fails(2, "ROW_COUNTS_DIFFER", &["0 in full"]);
    let log = prepared.path("log").replace(".prepare.", ".validate.");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("[ERROR] ROW_COUNTS_DIFFER: "), "{log}");
}

#[test]
fn no_color_where_it_is_not_wanted() {
    let folder = Folder::new();
    for variable in ["NO_COLOR", "CLICOLOR_FORCE"] {
        let mut command = folder.command(&["inspect", "-vv", "--scenario", "scenario.json"]);
        command.env(variable, "1");
        let ran = Ran::of(command);
        assert!(!(ran.stdout + &ran.stderr).contains('\u{1b}'), "{variable}");
    }
}

/// The same scenario, seed, tokenizer and corpus give the same bytes, whatever
/// the number of threads.
#[test]
fn equal_inputs_give_equal_bytes() {
    for mode in ["cold", "warmup"] {
        let folder = Folder::new();
        folder.write_scenario(&with(scenario(), "prefix_cache.mode", json!(mode)));
        let sets: Vec<Prepared> = ["", "1", "3"]
            .iter()
            .map(|threads| {
                let mut command =
                    folder.command(&["prepare", "--quiet", "--scenario", "scenario.json"]);
                if !threads.is_empty() {
                    command.env("RAYON_NUM_THREADS", threads);
                }
                Prepared(Ran::of(command).json())
            })
            .collect();
        for set in &sets[1..] {
            for file in ["full", "requests"] {
                let bytes = |set: &Prepared| fs::read(set.path(file)).unwrap();
                assert!(bytes(set) == bytes(&sets[0]), "{mode}: {file} differs");
            }
            assert_eq!(set.unstamped("analysis"), sets[0].unstamped("analysis"));
        }
    }
}

/// Relative paths are seen from the scenario, not from where one stands.
#[test]
fn paths_are_relative_to_the_scenario() {
    let folder = Folder::new();
    fs::create_dir(folder.path("elsewhere")).unwrap();
    let mut command = folder.command(&["prepare", "-q", "--scenario", "../scenario.json"]);
    command.current_dir(folder.path("elsewhere"));
    let ran = Ran::of(command);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let prepared = Prepared(ran.json());
    let out = folder.path("out").canonicalize().unwrap();
    let manifest = Path::new(prepared.manifest()).canonicalize().unwrap();
    assert!(manifest.starts_with(out), "{}", prepared.manifest());
}
