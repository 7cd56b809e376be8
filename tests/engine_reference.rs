//! Metrics pages against the reference plugin's own decisions
//! (`golden/metrics-golden.json`), where they are at hand. Where pcload decides
//! otherwise, the reason stands here.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::panic,
    reason = "edge: reads the golden data, and says so where there is none"
)]

use std::path::Path;

use pcload::engine::{ReadOptions, Snapshot, difference, read};
use pcload::units::DpRank;
use serde_json::Value;

/// Cases that pcload reads and the reference does not, or the other way
/// round.
const BETTER: &[(&str, &str, &str)] = &[
    (
        "NaN sample is skipped",
        "METRICS_NOT_A_COUNT",
        "the line is named instead of a missing metric",
    ),
    (
        "+Inf skipped",
        "METRICS_NOT_A_COUNT",
        "the line is named instead of a missing metric",
    ),
    (
        "negative counter",
        "METRICS_NOT_A_COUNT",
        "a counter below 0 is no count; the reference goes on with -1",
    ),
    (
        "brace inside a label value",
        "5/1",
        "a brace inside quotes is legal; the reference drops the line",
    ),
    (
        "exemplar after value (OpenMetrics)",
        "5/1",
        "exemplars are legal; the reference drops the line",
    ),
    (
        "spaces before brace",
        "5/1",
        "blanks before the brace are legal; the reference drops the line",
    ),
];

fn counts(snapshot: &Snapshot) -> String {
    let one = &snapshot.ranks[&DpRank(0)];
    format!("{}/{}", one.queries, one.hits)
}

fn golden() -> Option<Value> {
    let shared = std::env::var("PCLOAD_SHARED")
        .unwrap_or_else(|_| format!("{}/../shared", env!("CARGO_MANIFEST_DIR")));
    let path = Path::new(&shared).join("golden/metrics-golden.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: no {}", path.display());
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

fn case_options(case: &Value) -> ReadOptions {
    let mut options = ReadOptions {
        dp_size: u32::try_from(case["dp_size"].as_u64().unwrap()).unwrap(),
        ..ReadOptions::default()
    };
    if let Some(map) = case.get("engine_label_map").and_then(Value::as_object) {
        for (label, rank) in map {
            // The scenario turns `"0"` into a rank before it comes here.
            let rank = rank
                .as_u64()
                .or_else(|| rank.as_str().and_then(|text| text.parse().ok()));
            let rank = DpRank(u32::try_from(rank.unwrap()).unwrap());
            options.engine_label_map.insert(label.clone(), rank);
        }
    }
    options
}

#[test]
fn pages_give_the_same_snapshot_or_a_better_one() {
    let Some(golden) = golden() else { return };
    let mut better = 0;
    for case in golden["parse"].as_array().unwrap() {
        let name = case["case"].as_str().unwrap();
        let found = read(case["page"].as_str().unwrap(), &case_options(case));
        if let Some((_, expected, _)) = BETTER.iter().find(|(known, _, _)| *known == name) {
            better += 1;
            let text = match &found {
                Ok(snapshot) => counts(snapshot),
                Err(error) => error.code().to_owned(),
            };
            assert_eq!(&text, expected, "{name}");
            continue;
        }
        match (found, case["result"].as_object()) {
            (Err(_), None) => {}
            (Ok(snapshot), Some(expected)) => same(name, &snapshot, expected),
            (found, _) => panic!("{name}: {found:?}, the reference: {}", case["error"]),
        }
    }
    assert_eq!(better, BETTER.len());
}

fn same(name: &str, snapshot: &Snapshot, expected: &serde_json::Map<String, Value>) {
    let by_dp = expected["by_dp"].as_object().unwrap();
    assert_eq!(snapshot.ranks.len(), by_dp.len(), "{name}");
    for (rank, expected) in by_dp {
        let one = &snapshot.ranks[&DpRank(rank.parse().unwrap())];
        assert_eq!(Some(one.queries), expected["queries"].as_u64(), "{name}");
        assert_eq!(Some(one.hits), expected["hits"].as_u64(), "{name}");
        assert_eq!(
            one.kv_cache_usage,
            expected["kv_cache_usage"].as_f64(),
            "{name}"
        );
    }
    let names = serde_json::to_value(&snapshot.metric_names).unwrap();
    assert_eq!(names, expected["metric_names"], "{name}");
}

#[test]
fn differences_are_the_same() {
    let Some(golden) = golden() else { return };
    for case in golden["diff"].as_array().unwrap() {
        let name = case["case"].as_str().unwrap();
        let options = case_options(case);
        let one = |key: &str| read(case[key].as_str().unwrap(), &options).unwrap();
        let found = difference(&one("baseline"), &one("after"));
        let expected = &case["actual"];
        match found {
            Err(error) => assert!(expected.is_null(), "{name}: {error}"),
            Ok(delta) => {
                let total = delta.total();
                assert_eq!(
                    Some(total.queries),
                    expected["global_queries"].as_u64(),
                    "{name}"
                );
                assert_eq!(Some(total.hits), expected["global_hits"].as_u64(), "{name}");
                assert_eq!(
                    total.hit_rate(),
                    expected["global_hit_rate"].as_f64(),
                    "{name}"
                );
                for (rank, expected) in expected["by_dp"].as_object().unwrap() {
                    let one = &delta.ranks[&DpRank(rank.parse().unwrap())];
                    assert_eq!(Some(one.queries), expected["queries"].as_u64(), "{name}");
                    assert_eq!(Some(one.hits), expected["hits"].as_u64(), "{name}");
                    assert_eq!(one.hit_rate(), expected["hit_rate"].as_f64(), "{name}");
                }
            }
        }
    }
}
