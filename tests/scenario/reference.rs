//! Scenarios against what the reference plugin decided about the same inputs,
//! and the effective configurations it stored. Data of the reference that is
//! not part of this repository is looked for beside it (`PCLOAD_SHARED`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pcload::scenario::{Code, Problems, Scenario, load};
use serde_json::Value;

/// The folder of recorded reference data, when it is there.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let folder = std::env::var_os("PCLOAD_SHARED").map_or_else(beside, PathBuf::from);
    let path = folder.join("golden").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not there", path.display());
    None
}

fn load_in(folder: &Path, scenario: &Value) -> Result<Scenario, Problems> {
    let bytes = serde_json::to_vec(scenario).unwrap();
    load(
        &bytes,
        &folder.join("scenario.json"),
        None,
        &|path: &Path| fs::read(path),
    )
}

/// Inputs the reference takes and pcload refuses, and why.
const STRICTER: &[(&str, Code, &str)] = &[
    (
        "corpus.selection={\"mode\": \"random\", \"values\": [1]}",
        Code::ForeignKey,
        "a key of another mode would be ignored without a word",
    ),
    (
        "requests.input_length={\"mode\": \"fixed\", \"value\": 64, \"min\": 3}",
        Code::ForeignKey,
        "a key of another mode would be ignored without a word",
    ),
    (
        "prefix_cache.groups={\"count\": 2, \"overrides\": {\"group-0\": {\"corpus_selection\": \
         {\"mode\": \"random\", \"zz\": 1}}}}",
        Code::UnknownKey,
        "unknown keys are refused at every level",
    ),
    (
        "service.timeout_seconds=\"abc\"",
        Code::WrongType,
        "the reference fails only when it sends",
    ),
    (
        "service.timeout_seconds=-5",
        Code::OutOfRange,
        "the reference fails only when it sends",
    ),
    (
        "service.engine_label_map=[]",
        Code::WrongType,
        "the reference fails only when it reads metrics",
    ),
    (
        "service.engine_label_map=\"x\"",
        Code::WrongType,
        "the reference fails only when it reads metrics",
    ),
    (
        "validation.target_warning_pp=-1",
        Code::OutOfRange,
        "a distance is never below 0",
    ),
];

/// Inputs the reference refuses and the scenario room does not, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("corpus.path=\"blank.jsonl\"", "the corpus room reads it"),
    ("corpus.path=\"emptyq.jsonl\"", "the corpus room reads it"),
    ("corpus.path=\"nofield.jsonl\"", "the corpus room reads it"),
    ("corpus.path=\"badjson.jsonl\"", "the corpus room reads it"),
    ("corpus.path=\"latin1.jsonl\"", "the corpus room reads it"),
    (
        "corpus.path=\"surrogate.jsonl\"",
        "the corpus room reads it",
    ),
    ("corpus.path=\"ls.jsonl\"", "the corpus room reads it"),
    ("corpus.field=\"zz\"", "the corpus room reads it"),
    (
        "corpus.selection={\"mode\": \"indices\", \"values\": [0, 99]}",
        "the corpus room knows the number of lines",
    ),
    (
        "empty object (all defaults)",
        "the default corpus is not there; the corpus room says so",
    ),
    (
        "aisbench.extra_args={\"--num-warmups\": 0}",
        "the object form of newer plugin versions is accepted",
    ),
];

#[test]
fn decisions_agree_with_the_reference_or_are_stricter_for_a_reason() {
    let (Some(cases), Some(files)) = (
        shared("scenario-errors.jsonl"),
        shared("scenario-errors-files"),
    ) else {
        return;
    };
    let mut wrong = Vec::new();
    let mut met = BTreeSet::new();
    for line in fs::read_to_string(cases).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["case"].as_str().unwrap();
        let reference_takes = case["exit"] == 0;
        let result = load_in(&files, &case["scenario"]);
        met.insert(name.to_owned());
        let stricter = STRICTER.iter().find(|(stricter, _, _)| *stricter == name);
        let elsewhere = ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == name);
        match (&result, stricter) {
            (Err(problems), Some((_, code, _))) => {
                let codes: Vec<Code> = problems.iter().map(|problem| problem.code).collect();
                if codes != [*code] || !reference_takes {
                    wrong.push(format!("{name}: {problems}"));
                }
            }
            (Ok(_), Some(_)) => wrong.push(format!("{name}: not refused")),
            (Ok(_), None) if reference_takes == elsewhere => wrong.push(format!("{name}: taken")),
            (Err(problems), None) if reference_takes || elsewhere => {
                wrong.push(format!("{name}: {problems}"));
            }
            // One thing is wrong in each of the inputs, so one problem is right;
            // but for one input, whose mode is wrong and whose key fits no mode.
            (Err(problems), None)
                if problems.len() != 1 && !name.contains("explicit\", \"values\": [1,") =>
            {
                wrong.push(format!("{name}: {problems}"));
            }
            _ => {}
        }
    }
    let named = STRICTER.iter().map(|(name, _, _)| name);
    for name in named.chain(ELSEWHERE.iter().map(|(name, _)| name)) {
        if !met.contains(*name) {
            wrong.push(format!("{name}: no such case"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A manifest's effective configuration, made relative as the recorded ones are.
fn relative_to(folder: &Path, mut config: Value) -> Value {
    let prefixes = [
        (format!("{}/", folder.display()), ""),
        (format!("{}/", folder.parent().unwrap().display()), "../"),
    ];
    let shorten = |value: &mut Value| {
        if let Value::String(path) = value {
            for (prefix, short) in &prefixes {
                if let Some(rest) = path.strip_prefix(prefix.as_str()) {
                    *path = format!("{short}{rest}");
                    break;
                }
            }
        }
    };
    shorten(&mut config["run"]["output_dir"]);
    shorten(&mut config["corpus"]["path"]);
    for rule in ["input_length", "output_length"] {
        if let Some(path) = config["requests"][rule].get_mut("path") {
            shorten(path);
        }
    }
    config
}

#[test]
fn effective_configurations_are_what_the_reference_stored() {
    let Some(golden) = shared("") else {
        return;
    };
    let mut compared = 0;
    for entry in fs::read_dir(&golden).unwrap() {
        let folder = fs::canonicalize(entry.unwrap().path()).unwrap();
        let read = |name: &str| fs::read(folder.join(name)).ok();
        let (Some(scenario), Some(manifest)) = (read("scenario.json"), read("manifest.json"))
        else {
            continue;
        };
        let read_file = |path: &Path| fs::read(path);
        let loaded = load(&scenario, &folder.join("scenario.json"), None, &read_file).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let stored = &manifest["effective_config"];
        let run_id = stored["run"]["run_id"].as_str().unwrap();
        let output_dir = folder.join(stored["run"]["output_dir"].as_str().unwrap());
        let stamped = loaded.stamped_effective_config(run_id, &output_dir);
        assert_eq!(
            &relative_to(&folder, stamped),
            stored,
            "{}",
            folder.display()
        );
        // The recorded scenarios of `run-*` had their paths shortened.
        if !folder
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("run-")
        {
            assert_eq!(
                loaded.sha256,
                manifest["scenario_sha256"],
                "{}",
                folder.display()
            );
        }
        compared += 1;
    }
    assert!(compared >= 20, "only {compared} manifests");
}
