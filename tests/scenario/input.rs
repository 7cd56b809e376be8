//! Small scenarios to start from, with one value put in as text.

use std::io;
use std::path::Path;

use pcload::scenario::{Problems, Scenario, load};
use serde_json::{Value, json};

/// A small scenario that is sound.
pub(crate) fn base() -> Value {
    json!({
        "run": {"run_id": "e", "output_dir": "./out"},
        "tokenizer": {"path": "../tokenizer", "block_size": 8},
        "corpus": {"path": "../corpus.jsonl"},
        "requests": {
            "count": 4,
            "input_length": {"mode": "fixed", "value": 64},
            "output_length": {"mode": "fixed", "value": 2},
        },
        "prefix_cache": {"target_hit_rate": 0.5, "groups": {"count": 2}},
        "service": {"dp_size": 2},
    })
}

/// `base` with `raw` (JSON text, which no parser has touched) at `path`.
pub(crate) fn with(base: &Value, path: &str, raw: &str) -> String {
    const MARK: &str = "@@ here @@";
    let mut scenario = base.clone();
    let mut place = &mut scenario;
    for key in path.split('.') {
        place = &mut place[key];
    }
    *place = json!(MARK);
    serde_json::to_string_pretty(&scenario)
        .unwrap()
        .replace(&format!("\"{MARK}\""), raw)
}

/// Loads a scenario that stands in `/s/scenario.json`, without other files.
pub(crate) fn load_text(text: &str) -> Result<Scenario, Problems> {
    load_with(text, &[])
}

/// The same with other files, by absolute path.
pub(crate) fn load_with(text: &str, files: &[(&str, &str)]) -> Result<Scenario, Problems> {
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, content)| content.as_bytes().to_vec())
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    load(text.as_bytes(), Path::new("/s/scenario.json"), None, &read)
}

/// `CODE path` of each problem, or nothing for a scenario that is taken.
pub(crate) fn outcome(result: &Result<Scenario, Problems>) -> Vec<String> {
    match result {
        Ok(_) => Vec::new(),
        Err(problems) => {
            assert!(!problems.is_empty(), "an error without a problem");
            let line =
                |problem: &pcload::scenario::Problem| format!("{} {}", problem.code, problem.path);
            problems.iter().map(line).collect()
        }
    }
}

/// Puts each value of a table at its path and compares the outcome: `ok`, or
/// one problem a `;`, each as `CODE path` or, when its path is the value's own,
/// as the `CODE` alone.
pub(crate) fn check_table(table: &[(&str, &str, &str)]) {
    let mut wrong = Vec::new();
    for (path, raw, expected) in table {
        let found = outcome(&load_text(&with(&base(), path, raw)));
        let expected: Vec<String> = expected
            .split(';')
            .filter(|word| *word != "ok")
            .map(|word| {
                if word.contains(' ') {
                    word.to_owned()
                } else {
                    format!("{word} {path}")
                }
            })
            .collect();
        if found != expected {
            wrong.push(format!(
                "{path} = {raw}\n  expected {expected:?}\n  found    {found:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
