//! `pcload schema` against what the program reads and writes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::conform::conforms;
use crate::pages::root;
use crate::simulated::pcload;

fn schema(kind: &str) -> Value {
    let output = pcload().args(["schema", kind]).output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn only_file(folder: &Path, ending: &str) -> PathBuf {
    let mut names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    names
        .find(|path| path.to_string_lossy().ends_with(ending))
        .unwrap()
}

#[test]
fn a_run_writes_what_the_schemas_describe() {
    let folder = tempfile::tempdir().unwrap();
    let demo = pcload()
        .args(["demo", "--quiet", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(demo.status.success(), "{demo:?}");
    let summary: Value = serde_json::from_slice(&demo.stdout).unwrap();
    let run = PathBuf::from(summary["run"].as_str().unwrap());

    let analysis = schema("analysis");
    let newest = only_file(run.ancestors().nth(2).unwrap(), ".analysis.json");
    for path in [run.join("analysis.json"), newest] {
        let document = read(&path);
        assert!(conforms(&analysis, &document), "{path:?}");
        unknown_fields(&analysis, &document);
    }

    let record = schema("record");
    let records = fs::read_to_string(run.join("records.jsonl")).unwrap();
    let mut lines = 0;
    for line in records.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert!(conforms(&record, &row), "{line}");
        unknown_fields(&record, &row);
        lines += 1;
    }
    assert_eq!(lines, 160);
    let scenario = read(&folder.path().join("scenario.json"));
    assert!(conforms(&schema("scenario"), &scenario));
}

/// The top level and the `pcload` section hold nothing undescribed.
fn unknown_fields(schema: &Value, document: &Value) {
    for (schema, document) in [
        (schema, document),
        (&schema["properties"]["pcload"], &document["pcload"]),
    ] {
        for key in document.as_object().into_iter().flat_map(|all| all.keys()) {
            assert!(
                schema["properties"].get(key).is_some(),
                "{key} is not described"
            );
        }
    }
}

#[test]
fn analyses_of_the_reference_conform() {
    let schema = schema("analysis");
    let golden = root().join("tests/data/golden");
    let mut seen = 0;
    for entry in fs::read_dir(golden).unwrap() {
        let path = entry.unwrap().path().join("analysis.json");
        if path.exists() {
            let document = read(&path);
            assert!(conforms(&schema, &document), "{path:?}");
            unknown_fields(&schema, &document);
            seen += 1;
        }
    }
    assert!(seen >= 5, "only {seen}");
}

#[test]
fn a_record_of_every_outcome_conforms() {
    let schema = schema("record");
    let row = serde_json::json!({
        "sequence_index": 0, "request_id": "request-00000000", "group_id": "group-0",
        "dp_rank": null, "lane_sequence": null, "stage": 0, "phase": "measure",
        "t_sched_ns": 0, "t_ready_ns": 0, "t_send_ns": 0, "first_byte_ns": null,
        "first_event_ns": null, "first_choice_ns": null, "last_choice_ns": null,
        "stream_end_ns": null, "content_ns": [], "coalesced_events": 0,
        "timestamp_source": "read", "streamed": true, "usage": null,
        "counted_output_tokens": null, "planned_prompt_tokens": 1, "max_tokens": 1,
        "finish_reason": null,
        "outcome": {"status": "failure", "kind": "connect", "code": null, "message": "gone"},
        "attempts": [],
    });
    let record: pcload::measure::RequestRecord = serde_json::from_value(row.clone()).unwrap();
    let written = serde_json::to_value(record).unwrap();
    assert!(conforms(&schema, &row));
    assert!(conforms(&schema, &written));
    let mut wrong = written;
    wrong["outcome"]["kind"] = "bored".into();
    assert!(!conforms(&schema, &wrong));
}

#[test]
fn manual_pages_are_written_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let output = pcload()
        .args(["man", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    for page in ["pcload.1", "pcload-run.1", "pcload-doctor.1"] {
        let text = fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
}
