//! The analysis of prepared sets that the reference plugin ran: the same plan and
//! counters must give the same rates.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "edge: this test reads its recorded sets, and fails where it cannot"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use pcload::analyze::{
    Analysis, BlockFacts, ClientHealth, Code, ControlFacts, Counters, HitLine, Inputs, KvFacts,
    Limits, PlannedRow, ProfileFacts, analyze,
};
use pcload::engine::{EngineFacts, RankSnapshot, Snapshot};
use pcload::rng::Seed;
use pcload::scenario::CacheMode;
use pcload::units::{BlockSize, DpRank};
use serde_json::Value;

fn read(set: &str, name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join("tests/data/golden").join(set).join(name)).unwrap()
}

fn json(set: &str, name: &str) -> Value {
    serde_json::from_str(&read(set, name)).unwrap()
}

fn planned(set: &str) -> Vec<PlannedRow> {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| row[key].as_u64();
        let small = |key: &str| number(key).map(|value| u32::try_from(value).unwrap());
        PlannedRow {
            sequence_index: small("sequence_index").unwrap(),
            request_id: row["request_id"].as_str().unwrap().to_owned(),
            group: row["group_id"].as_str().unwrap().parse().unwrap(),
            dp_rank: small("dp_rank").map(DpRank),
            lane_sequence: small("lane_sequence"),
            input_tokens: number("actual_input_tokens").unwrap(),
            shared_prefix_tokens: number("shared_prefix_tokens").unwrap(),
            max_tokens: number("max_tokens").unwrap(),
            theory_hit_tokens: number("theoretical_hit_tokens").unwrap(),
        }
    };
    read(set, "full.jsonl").lines().map(row).collect()
}

fn snapshot(metrics: &Value) -> Snapshot {
    let ranks = metrics["by_dp"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(rank, counters)| {
            let snapshot = RankSnapshot {
                queries: counters["queries"].as_u64().unwrap(),
                hits: counters["hits"].as_u64().unwrap(),
                ..RankSnapshot::default()
            };
            (DpRank(rank.parse().unwrap()), snapshot)
        });
    Snapshot {
        ranks: ranks.collect(),
        ..Snapshot::default()
    }
}

fn judge(set: &str) -> (Analysis, Value) {
    let (manifest, reference) = (json(set, "manifest.json"), json(set, "analysis.json"));
    let runtime = &reference["runtime"];
    let counters = Counters::between(
        &snapshot(&runtime["metrics_baseline"]),
        &snapshot(&runtime["metrics_after"]),
    );
    let mode = match manifest["prefix_cache"]["mode"].as_str().unwrap() {
        "cold" => CacheMode::Cold,
        _ => CacheMode::Warmup,
    };
    let block = manifest["tokenizer"]["block_size"].as_u64().unwrap();
    let validation = &manifest["effective_config"]["validation"];
    let analysis = analyze(&Inputs {
        mode,
        block: BlockFacts::configured(BlockSize::new(block).unwrap()),
        server_prefix_tokens: 0,
        server_suffix_tokens: 0,
        planned: &planned(set),
        records: &[],
        counters: &counters,
        engine: &EngineFacts::default(),
        control: &ControlFacts::default(),
        kv: &KvFacts::default(),
        profile: &ProfileFacts::default(),
        client: &ClientHealth::default(),
        limits: Limits {
            actual_warning_pp: validation["actual_warning_pp"].as_f64().unwrap(),
            ..Limits::default()
        },
        slo: &BTreeMap::new(),
        percentiles: &[],
        seed: &Seed::from(1),
    });
    (analysis.unwrap(), reference)
}

/// A line of ours against `input`/`hit` tokens and the rate of the reference.
fn agree(line: Option<HitLine>, theirs: &Value, input: &str, hit: &str) {
    let line = line.unwrap();
    assert_eq!(Some(line.input_tokens), theirs[input].as_u64());
    assert_eq!(Some(line.hit_tokens), theirs[hit].as_u64());
    assert_eq!(line.hit_rate, theirs["hit_rate"].as_f64());
}

fn check(set: &str) -> Analysis {
    let (analysis, reference) = judge(set);
    let hits = &analysis.hits;
    let counters = hits.counters.as_ref().unwrap().local;
    let actual = &reference["actual"];
    assert_eq!(
        Some(counters.input_tokens),
        actual["global_queries"].as_u64()
    );
    assert_eq!(Some(counters.hit_tokens), actual["global_hits"].as_u64());
    assert_eq!(counters.hit_rate, actual["global_hit_rate"].as_f64());
    for row in &hits.ranks {
        let rank = row.rank.unwrap().to_string();
        agree(row.counters, &actual["by_dp"][&rank], "queries", "hits");
        if row.planned.is_some() {
            let theory = &reference["theory"]["dp"][&rank];
            agree(row.planned, theory, "input_tokens", "hit_tokens");
        }
    }
    for row in &hits.groups {
        let theory = &reference["theory"]["groups"][row.group.as_ref().unwrap()];
        agree(row.planned, theory, "input_tokens", "hit_tokens");
    }
    let difference = hits.actual_minus_planned_pp.unwrap();
    let theirs = reference["theory_actual_signed_difference_pp"]
        .as_f64()
        .unwrap();
    assert!((difference - theirs).abs() < 1e-9, "{difference} {theirs}");
    let warned = reference["warnings"].as_array().unwrap().iter();
    let warned = warned
        .filter(|warning| warning["code"] == "ACTUAL_DEVIATION")
        .count()
        > 0;
    let found = analysis
        .findings
        .iter()
        .any(|finding| finding.code == Code::ActualDeviation);
    assert_eq!(found, warned);
    analysis
}

#[test]
fn a_cold_run_agrees_with_the_reference() {
    let analysis = check("run-cold");
    let codes: Vec<_> = analysis
        .findings
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(codes, [Code::RecordsUnavailable]);
}

#[test]
fn a_warm_run_agrees_with_the_reference() {
    check("run-warm");
}

#[test]
fn a_bos_that_nobody_planned_shows_in_the_queries() {
    let analysis = check("run-bos");
    let codes: Vec<_> = analysis
        .findings
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert!(codes.contains(&Code::QueriesMismatch), "{codes:?}");
}
