//! Every field of a recorded set changed in turn: the deep check notices, and
//! nothing panics, whatever stands there.

use pcload::artifacts::validate_deep;
use serde_json::{Value, json};

use crate::golden::{GoldenSet, read, read_json};

/// Fields of a manifest that nothing in the set can contradict.
const FREE_MANIFEST_FIELDS: [&str; 8] = [
    "/plugin_version",
    "/scenario_path",
    "/scenario_sha256",
    "/corpus_sha256",
    "/artifacts/full/path",
    "/artifacts/requests/path",
    "/artifacts/analysis/path",
    "/artifacts/analysis/bytes",
];

/// Pointers to all members and items of `value`.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, one)| (key.clone(), one)).collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, one)| (index.to_string(), one))
            .collect(),
        _ => Vec::new(),
    };
    for (name, child) in children {
        let pointer = format!("{at}/{name}");
        pointers(child, &pointer, found);
        found.push(pointer);
    }
}

fn strange_values() -> [Value; 7] {
    [
        Value::Null,
        json!(-1),
        json!(u64::MAX),
        json!(1e308),
        json!("strange"),
        json!([]),
        json!({}),
    ]
}

#[test]
fn no_field_of_a_manifest_can_change_unnoticed() {
    let set = GoldenSet::copy("tiny-warm-target1");
    let manifest = read_json(set.manifest());
    let mut all = Vec::new();
    pointers(&manifest, "", &mut all);
    assert!(all.len() > 150, "{}", all.len());
    let mut unnoticed = Vec::new();
    for pointer in all {
        for strange in strange_values() {
            let mut edited = manifest.clone();
            let place = edited.pointer_mut(&pointer).unwrap();
            if *place == strange {
                continue;
            }
            *place = strange.clone();
            set.write_manifest(&edited);
            let is_noticed = validate_deep(&set.manifest(), None).is_err();
            // The sources of a prefix are the corpus's to contradict, the text
            // of a warm-up prompt the tokenizer's; a prefix may be longer than
            // what is shared of it.
            let is_longer =
                pointer.ends_with("/canonical_prefix_tokens") && strange.as_u64().is_some();
            let is_free = FREE_MANIFEST_FIELDS.contains(&pointer.as_str())
                || pointer.contains("/gsm_")
                || is_longer
                || pointer.ends_with("/prompt");
            if !is_noticed && !is_free {
                unnoticed.push(format!("{pointer} = {strange}"));
            }
        }
    }
    assert_eq!(unnoticed, Vec::<String>::new());
}

#[test]
fn no_field_of_a_row_can_change_unnoticed() {
    let set = GoldenSet::copy("tiny-cold-dp1-seq");
    let lines = read(set.full());
    let row: Value = serde_json::from_str(lines.lines().nth(4).unwrap()).unwrap();
    let mut all = Vec::new();
    pointers(&row, "", &mut all);
    for pointer in all {
        for strange in strange_values() {
            let set = GoldenSet::copy("tiny-cold-dp1-seq");
            let mut is_changed = true;
            set.edit_rows("full.jsonl", |rows| {
                let place = rows[4].pointer_mut(&pointer).unwrap();
                is_changed = *place != strange;
                *place = strange.clone();
            });
            set.refresh_digests();
            let is_noticed = validate_deep(&set.manifest(), None).is_err();
            // Its sources are the corpus's to contradict.
            let is_free = pointer == "/request_random_seed" || pointer.contains("/gsm_");
            assert!(
                is_noticed || is_free || !is_changed,
                "{pointer} = {strange}"
            );
        }
    }
}
