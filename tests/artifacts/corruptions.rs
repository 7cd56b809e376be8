//! Every corruption of `golden/validate-corruptions.tsv`, made on a recorded
//! set: what the reference's check finds, the plain check finds.

use std::fs;

use pcload::artifacts::validate;
use serde_json::{Value, json};

use crate::golden::{GoldenSet, read};

/// The set on which the corruptions were recorded.
const SET: &str = "tiny-cold-dp2-3g-asc";

/// A corruption: its name, how it is made, and the code of the plain check's
/// error; `None` where the reference notices nothing.
pub(crate) type Corruption = (&'static str, fn(&GoldenSet), Option<&'static str>);

pub(crate) const CORRUPTIONS: [Corruption; 32] = [
    ("untouched", |_| {}, None),
    (
        "full: one field edited",
        |set| edit_full(set, |rows| rows[3]["theoretical_hit_tokens"] = 7.into()),
        Some("SHA256_MISMATCH"),
    ),
    (
        "full: last row removed",
        |set| {
            edit_full(set, |rows| {
                rows.pop();
            });
        },
        Some("ROW_COUNTS_DIFFER"),
    ),
    (
        "full: cut mid-row",
        |set| {
            let text = read(set.full());
            fs::write(set.full(), &text[..text.len() - 200]).unwrap();
        },
        Some("ARTIFACT_UNREADABLE"),
    ),
    (
        "both: last row removed",
        |set| {
            for file in ["full.jsonl", "requests.jsonl"] {
                set.edit_rows(file, |rows| {
                    rows.pop();
                });
            }
        },
        Some("ROW_COUNTS_DIFFER"),
    ),
    (
        "both: rows 2 and 3 swapped",
        |set| {
            for file in ["full.jsonl", "requests.jsonl"] {
                set.edit_rows(file, |rows| rows.swap(2, 3));
            }
        },
        Some("SEQUENCE_INDEX"),
    ),
    (
        "both: rows swapped and renumbered",
        |set| {
            set.edit_rows("requests.jsonl", |rows| rows.swap(2, 3));
            edit_full(set, |rows| {
                rows.swap(2, 3);
                rows[2]["sequence_index"] = 2.into();
                rows[3]["sequence_index"] = 3.into();
            });
        },
        Some("SHA256_MISMATCH"),
    ),
    (
        "requests: extra key",
        |set| edit_requests(set, |rows| rows[0]["extra"] = 1.into()),
        Some("REQUEST_FIELDS"),
    ),
    (
        "requests: key order changed",
        |set| {
            edit_requests(set, |rows| {
                let row = rows[0].take();
                rows[0] = json!({"answer": row["answer"], "question": row["question"],
                                 "max_tokens": row["max_tokens"]});
            });
        },
        Some("REQUEST_FIELDS"),
    ),
    (
        "requests: question edited",
        |set| edit_requests(set, |rows| rows[0]["question"] = "another".into()),
        Some("ROWS_DIFFER"),
    ),
    (
        "requests: blank line appended",
        |set| fs::write(set.requests(), read(set.requests()) + "\n").unwrap(),
        Some("SHA256_MISMATCH"),
    ),
    (
        "requests: CRLF line ends",
        |set| {
            let text = read(set.requests()).replace('\n', "\r\n");
            fs::write(set.requests(), text).unwrap();
        },
        Some("SHA256_MISMATCH"),
    ),
    (
        "requests: output key missing on a row",
        |set| {
            edit_requests(set, |rows| {
                let row = rows[0].take();
                rows[0] = json!({"question": row["question"], "answer": row["answer"]});
            });
        },
        Some("REQUEST_FIELDS"),
    ),
    (
        "full edited and digest refreshed (theory wrong)",
        |set| {
            edit_full(set, |rows| rows[3]["theoretical_hit_tokens"] = 7.into());
            set.refresh_digests();
        },
        None,
    ),
    (
        "full: lanes scrambled and digest refreshed",
        |set| {
            edit_full(set, |rows| {
                for row in rows {
                    row["dp_rank"] = (1 - row["dp_rank"].as_u64().unwrap()).into();
                    row["lane_sequence"] = (row["lane_sequence"].as_u64().unwrap() + 1).into();
                }
            });
            set.refresh_digests();
        },
        None,
    ),
    (
        "manifest: theoretical_hit_rate edited",
        |set| set.edit_manifest(|all| all["prefix_cache"]["theoretical_hit_rate"] = 0.9.into()),
        None,
    ),
    (
        "manifest: effective_config edited",
        |set| set.edit_manifest(|all| all["effective_config"]["service"]["model"] = "x".into()),
        None,
    ),
    (
        "manifest: warmup plan and groups emptied",
        |set| {
            set.edit_manifest(|all| {
                all["warmup"]["plan"] = json!([]);
                all["groups"] = json!({});
            });
        },
        None,
    ),
    (
        "manifest: bytes and rows wrong",
        |set| {
            set.edit_manifest(|all| {
                all["artifacts"]["full"]["bytes"] = 1.into();
                all["artifacts"]["full"]["rows"] = 1.into();
            });
        },
        None,
    ),
    (
        "manifest: requests.count wrong",
        |set| set.edit_manifest(|all| all["requests"]["count"] = 23.into()),
        Some("ROW_COUNTS_DIFFER"),
    ),
    (
        "manifest: run_id missing",
        |set| set.edit_manifest(|all| remove(all, "run_id")),
        Some("ARTIFACT_FIELD"),
    ),
    (
        "manifest: output_key invalid",
        |set| set.edit_manifest(|all| all["effective_config"]["output"]["output_key"] = "x".into()),
        Some("ARTIFACT_FIELD"),
    ),
    (
        "manifest: not JSON",
        |set| fs::write(set.manifest(), "{").unwrap(),
        Some("ARTIFACT_UNREADABLE"),
    ),
    (
        "manifest: a list",
        |set| fs::write(set.manifest(), "[]").unwrap(),
        Some("ARTIFACT_UNREADABLE"),
    ),
    (
        "manifest: status unknown",
        |set| set.edit_manifest(|all| all["status"] = "zzz".into()),
        None,
    ),
    (
        "analysis: edited",
        |set| {
            let text = read(set.analysis()).replace("0.5645582854155776", "0.7");
            fs::write(set.analysis(), text).unwrap();
        },
        None,
    ),
    (
        "analysis: deleted",
        |set| fs::remove_file(set.analysis()).unwrap(),
        None,
    ),
    (
        "requests: deleted",
        |set| fs::remove_file(set.requests()).unwrap(),
        Some("ARTIFACT_MISSING"),
    ),
    (
        "full: row is a number",
        |set| edit_full(set, |rows| rows[0] = 1.into()),
        Some("ARTIFACT_UNREADABLE"),
    ),
    (
        "full: sequence_index missing",
        |set| edit_full(set, |rows| remove(&mut rows[0], "sequence_index")),
        Some("ARTIFACT_UNREADABLE"),
    ),
    (
        "full: sequence_index a float",
        |set| edit_full(set, |rows| rows[0]["sequence_index"] = 0.0.into()),
        Some("ARTIFACT_UNREADABLE"),
    ),
    (
        "full: duplicate seed and digest refreshed",
        |set| {
            edit_full(set, |rows| {
                for field in ["seed_sha256", "divergence_block_sha256"] {
                    rows[1][field] = rows[0][field].clone();
                }
            });
            set.refresh_digests();
        },
        None,
    ),
];

#[test]
fn the_plain_check_decides_as_the_reference_does() {
    for (name, corrupt, expected) in CORRUPTIONS {
        let set = GoldenSet::copy(SET);
        corrupt(&set);
        let found = validate(&set.manifest()).err().map(|error| error.code());
        assert_eq!(found, expected, "{name}");
    }
}

/// A row that contradicts itself late is found, and named.
#[test]
fn an_error_names_its_row() {
    let set = GoldenSet::copy(SET);
    edit_requests(&set, |rows| rows[17]["max_tokens"] = 999.into());
    let error = validate(&set.manifest()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "requests row 17 differs from its full row in `max_tokens`"
    );
}

/// Names in a manifest must not lead out of its directory.
#[test]
fn a_name_is_no_path() {
    let set = GoldenSet::copy(SET);
    set.edit_manifest(|all| all["artifacts"]["full"]["name"] = "../full.jsonl".into());
    assert_eq!(
        validate(&set.manifest()).unwrap_err().code(),
        "ARTIFACT_FIELD"
    );
}

#[test]
fn manifests_without_artifacts_say_why() {
    let set = GoldenSet::copy(SET);
    for (status, code) in [
        ("inspected", "MANIFEST_INSPECT_ONLY"),
        ("incomplete", "ARTIFACTS_INCOMPLETE"),
    ] {
        set.edit_manifest(|all| all["status"] = status.into());
        assert_eq!(validate(&set.manifest()).unwrap_err().code(), code);
    }
    set.edit_manifest(|all| {
        all["status"] = "prepared".into();
        all["pcload"] = json!({"format_version": 999});
    });
    assert_eq!(
        validate(&set.manifest()).unwrap_err().code(),
        "ARTIFACT_VERSION"
    );
}

fn edit_full(set: &GoldenSet, edit: impl FnOnce(&mut Vec<Value>)) {
    set.edit_rows("full.jsonl", edit);
}

fn edit_requests(set: &GoldenSet, edit: impl FnOnce(&mut Vec<Value>)) {
    set.edit_rows("requests.jsonl", edit);
}

fn remove(object: &mut Value, key: &str) {
    object.as_object_mut().unwrap().shift_remove(key);
}
