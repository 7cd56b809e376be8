//! Manifests and metrics pages that cannot be used: `validate`, `run` and
//! `analyze` say what is wrong with which file, and write nothing but logs.

use std::fs;

use serde_json::{Value, json};

use crate::folder::{Folder, Prepared, read_json};

/// Files that are no logs.
fn files(folder: &Folder) -> Vec<(String, String)> {
    let all = folder.listing().into_iter();
    all.filter(|(name, _)| !name.contains("/log/")).collect()
}

/// Every command that takes a manifest refuses it in the same way.
#[track_caller]
fn refused(folder: &Folder, manifest: &str, code: &str, words: &[&str]) {
    let before = files(folder);
    for more in [&["validate"][..], &["validate", "--deep"], &["run"]] {
        let ran = folder.run(&[more, &["--manifest", manifest]].concat());
        ran.fails(2, code, words);
    }
    let pages = ["--baseline", "corpus.jsonl", "--after", "corpus.jsonl"];
    let analyze = [&["analyze", "--manifest", manifest], &pages[..]].concat();
    folder.run(&analyze).fails(2, code, words);
    assert_eq!(files(folder), before);
}

fn edited(prepared: &Prepared, edit: impl FnOnce(&mut Value)) {
    let mut manifest = prepared.read_manifest();
    edit(&mut manifest);
    fs::write(prepared.manifest(), manifest.to_string()).unwrap();
}

#[test]
fn manifests_that_are_not_there() {
    let folder = Folder::new();
    refused(
        &folder,
        "nothing.json",
        "ARTIFACT_MISSING",
        &["nothing.json"],
    );
    refused(
        &folder,
        "tokenizer",
        "FILE_ACCESS",
        &["tokenizer", "directory"],
    );
}

#[test]
fn manifests_that_are_no_manifest() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    let whole = fs::read(prepared.manifest()).unwrap();
    let cut = &whole[..whole.len() / 2];
    let texts: [&[u8]; 7] = [b"", b"[]", b"3", b"null", b"{\"a\": 1", b"\xff\xfe", cut];
    for text in texts {
        fs::write(prepared.manifest(), text).unwrap();
        refused(
            &folder,
            prepared.manifest(),
            "ARTIFACT_UNREADABLE",
            &["manifest.json"],
        );
    }
}

#[test]
fn manifests_that_lack_what_is_needed() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    let whole = prepared.read_manifest();
    for (field, named) in [
        ("run_id", "run_id"),
        ("artifacts", "artifacts.full"),
        ("requests", "requests.count"),
    ] {
        edited(&prepared, |manifest| {
            manifest.as_object_mut().unwrap().shift_remove(field);
        });
        refused(&folder, prepared.manifest(), "ARTIFACT_FIELD", &[named]);
        fs::write(prepared.manifest(), whole.to_string()).unwrap();
    }
}

#[test]
fn manifests_of_another_kind() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    let whole = prepared.read_manifest();
    for (field, value, code, words) in [
        (
            "status",
            json!("inspected"),
            "MANIFEST_INSPECT_ONLY",
            "hint: ",
        ),
        (
            "status",
            json!("incomplete"),
            "ARTIFACTS_INCOMPLETE",
            "hint: ",
        ),
        ("schema_version", json!("2.0"), "ARTIFACT_VERSION", "`2.0`"),
        (
            "pcload",
            json!({"format_version": 99}),
            "ARTIFACT_VERSION",
            "`99`",
        ),
    ] {
        edited(&prepared, |manifest| manifest[field] = value);
        refused(&folder, prepared.manifest(), code, &[words]);
        fs::write(prepared.manifest(), whole.to_string()).unwrap();
    }
}

/// A configuration that makes no sense is told with its file and place.
#[test]
fn a_configuration_that_makes_no_sense_is_named() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    for (pointer, value, word) in [
        ("/effective_config", json!(3), "effective_config"),
        ("/effective_config/service", json!([]), "service"),
    ] {
        let mut manifest = prepared.read_manifest();
        // The plain check needs the output key and nothing else.
        *manifest.pointer_mut(pointer).unwrap() = value;
        fs::write(folder.path("edited.json"), manifest.to_string()).unwrap();
        for file in ["full", "requests", "analysis"] {
            let path = prepared.path(file);
            let name = path.rsplit('/').next().unwrap();
            fs::copy(path, folder.path(name)).unwrap();
        }
        let ran = folder.run(&["run", "--manifest", "edited.json"]);
        ran.fails(2, "WRONG_TYPE", &["edited.json", word]);
    }
}

/// Names in a manifest lead nowhere else: neither to files nor to logs.
#[test]
fn names_in_a_manifest_lead_nowhere_else() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    let before: Vec<String> = folder.listing().into_keys().collect();
    edited(&prepared, |manifest| {
        manifest["run_id"] = json!("../../../x");
    });
    folder.run(&["validate", "--manifest", prepared.manifest()]);
    let ran = folder.run(&["validate", "--deep", "--manifest", prepared.manifest()]);
    assert_eq!(ran.status, 2, "{}", ran.stderr);
    let after: Vec<String> = folder.listing().into_keys().collect();
    assert_eq!(after, before);
    edited(&prepared, |manifest| {
        manifest["artifacts"]["full"]["name"] = json!("../../../corpus.jsonl");
    });
    refused(
        &folder,
        prepared.manifest(),
        "ARTIFACT_FIELD",
        &["artifacts.full.name"],
    );
}

#[test]
fn metrics_pages_that_cannot_be_used() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    let page = |hits: u64| {
        format!(
            "vllm:prefix_cache_queries_total{{engine=\"0\",model_name=\"model-name\"}} 1536\n\
             vllm:prefix_cache_hits_total{{engine=\"0\",model_name=\"model-name\"}} {hits}\n"
        )
    };
    fs::write(folder.path("good.prom"), page(768)).unwrap();
    fs::write(folder.path("less.prom"), page(700)).unwrap();
    fs::write(folder.path("bytes.prom"), b"\xff").unwrap();
    fs::write(folder.path("empty.prom"), "").unwrap();
    let before = files(&folder);
    for (baseline, after, code, words) in [
        (
            "nothing.prom",
            "good.prom",
            "FILE_UNREADABLE",
            "nothing.prom",
        ),
        ("good.prom", "tokenizer", "FILE_UNREADABLE", "tokenizer"),
        (
            "bytes.prom",
            "good.prom",
            "METRICS_UNREADABLE",
            "bytes.prom",
        ),
        (
            "good.prom",
            "empty.prom",
            "METRICS_UNKNOWN_ENGINE",
            "empty.prom",
        ),
        ("good.prom", "less.prom", "COUNTER_REGRESSED", "rank 0"),
    ] {
        let ran = folder.run(&[
            "analyze",
            "--manifest",
            prepared.manifest(),
            "--baseline",
            baseline,
            "--after",
            after,
        ]);
        ran.fails(2, code, &[words]);
        assert_eq!(files(&folder), before);
    }
}

/// Two pages of a server that did what theory says: the analysis says so, on
/// stdout as in its file.
#[test]
fn analyze_judges_two_pages() {
    let folder = Folder::new();
    let prepared = folder.prepare();
    let page = |queries: u64, hits: u64| {
        format!(
            "vllm:prefix_cache_queries_total{{engine=\"0\",model_name=\"model-name\"}} {queries}\n\
             vllm:prefix_cache_hits_total{{engine=\"0\",model_name=\"model-name\"}} {hits}\n"
        )
    };
    fs::write(folder.path("before.prom"), page(1_000, 500)).unwrap();
    fs::write(folder.path("after.prom"), page(2_536, 1_268)).unwrap();
    let ran = folder.done(&[
        "analyze",
        "--manifest",
        prepared.manifest(),
        "--baseline",
        "before.prom",
        "--after",
        "after.prom",
    ]);
    let analysis = ran.json();
    assert_eq!(analysis, read_json(prepared.path("analysis")));
    assert_eq!(analysis["status"], "analyzed");
    assert_eq!(analysis["actual"]["global_queries"], 1_536);
    assert_eq!(analysis["actual"]["global_hits"], 768);
    assert_eq!(analysis["actual"]["global_hit_rate"], 0.5);
    assert_eq!(analysis["theory_actual_difference_pp"], 0.0);
}
