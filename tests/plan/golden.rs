//! Every set the reference prepared: its own lengths and lanes, solved and
//! played here.

use std::collections::BTreeMap;

use pcload::plan::{LengthSummary, Plan, summarize};
use pcload::scenario::CacheMode;
use pcload::solver::{self, Instance, Optimality, Solution};
use pcload::theory::{self, HitAccount};
use serde_json::{Value, json};

use crate::recorded::{self, Recorded, float, uint};
use crate::two_pass;

/// Rounding of sums of one term a request.
const ROUNDING: f64 = 1e-9;

fn sets_with_rows() -> Vec<Recorded> {
    let mut sets = recorded::all();
    sets.retain(|set| !set.rows.is_empty());
    sets
}

/// The plan solved afresh, with the reference's schedule beside it.
fn solve(set: &Recorded) -> (Plan, Instance, Solution) {
    let mut plan = set.plan();
    let instance = plan.instance(set.target_rate(), set.minimum_non_shared());
    let block = plan.block_size.tokens();
    let theirs = plan.requests.iter().map(|r| r.shared_prefix_tokens / block);
    let theirs = solver::assess(&instance, theirs.collect()).unwrap();
    plan.solution = solver::solve(&instance).unwrap();
    solver::verify(&instance, &plan.solution).unwrap();
    (plan, instance, theirs)
}

fn assert_same(name: &str, what: &str, ours: f64, theirs: &Value) {
    assert_eq!(
        ours.to_bits(),
        float(theirs).to_bits(),
        "{name}: {what} {ours} {theirs}"
    );
}

#[test]
fn totals_and_reachable_rates_are_the_references() {
    for set in sets_with_rows() {
        let (plan, instance, theirs) = solve(&set);
        let manifest = &set.manifest["prefix_cache"];
        let outcome = plan.target_outcome(set.target_rate());
        let name = &set.name;
        // On these sets the reference's total is the nearest one.
        solver::verify(&instance, &theirs).unwrap();
        assert_eq!(plan.solution.total_blocks, theirs.total_blocks, "{name}");
        let effective = &manifest["effective_target_hit_rate"];
        assert_same(name, "effective", outcome.effective_rate, effective);
        assert_same(
            name,
            "reachable",
            outcome.reachable_max_rate,
            &manifest["reachable_max"],
        );
        assert_eq!(
            outcome.target_reachable, manifest["target_reachable"],
            "{name}"
        );
        assert_eq!(outcome.adjusted, manifest["adjusted"], "{name}");
        let reason = outcome.reason.map(|reason| reason.to_string());
        assert_eq!(json!(reason), manifest["reason"], "{name}");
    }
}

#[test]
fn group_reachability_is_the_references() {
    for set in sets_with_rows() {
        let groups = set.plan().group_reachability(set.minimum_non_shared());
        let theirs = set.manifest["groups"].as_object().unwrap();
        assert_eq!(groups.len(), theirs.len());
        for (group, reach) in groups {
            let theirs = &theirs[&group.to_string()]["reachable_max"];
            assert_same(&set.name, "group", reach.max_rate(), theirs);
        }
    }
}

#[test]
fn warm_schedules_are_the_references() {
    for set in sets_with_rows() {
        let (plan, _, theirs) = solve(&set);
        if plan.mode == CacheMode::Warmup {
            assert_eq!(
                plan.solution.prefix_blocks, theirs.prefix_blocks,
                "{}",
                set.name
            );
        }
    }
}

/// Overshoot no worse than the reference's, gaps no worse than the better of
/// the reference's and the two-pass method's.
#[test]
fn cold_schedules_are_as_good_as_any_known() {
    for set in sets_with_rows() {
        let (plan, instance, theirs) = solve(&set);
        if plan.mode == CacheMode::Warmup {
            continue;
        }
        let ours = plan.solution.certificate.objective;
        let two_pass = two_pass::gap_sum(&instance, plan.solution.total_blocks);
        let theirs = theirs.certificate.objective;
        eprintln!(
            "{:30} {:?} overshoot {:.4} (reference {:.4}) gaps {:.4} ({:.4}, two-pass {two_pass:.4}) \
             declines {:.4} ({:.4})",
            set.name,
            plan.solution.certificate.optimality,
            ours.overshoot_sum,
            theirs.overshoot_sum,
            ours.gap_sum,
            theirs.gap_sum,
            ours.decline_sum,
            theirs.decline_sum,
        );
        assert!(
            ours.overshoot_max <= theirs.overshoot_max + ROUNDING,
            "{}",
            set.name
        );
        assert!(
            ours.overshoot_sum <= theirs.overshoot_sum + ROUNDING,
            "{}",
            set.name
        );
        assert!(
            ours.gap_sum <= theirs.gap_sum.min(two_pass) + ROUNDING,
            "{}",
            set.name
        );
        let lengths = set.rows.iter().map(|row| uint(&row["target_input_tokens"]));
        if lengths.clone().min() == lengths.max() {
            assert_eq!(plan.solution.certificate.optimality, Optimality::Proved);
        }
    }
}

#[test]
fn played_theory_is_the_references() {
    for set in sets_with_rows() {
        let theory = theory::play(&set.plan());
        for (row, entry) in set.rows.iter().zip(&theory.requests) {
            assert_eq!(
                uint(&row["watermark_before"]),
                entry.watermark_before,
                "{}",
                set.name
            );
            assert_eq!(
                uint(&row["theoretical_hit_tokens"]),
                entry.hit_tokens,
                "{}",
                set.name
            );
            assert_eq!(
                uint(&row["watermark_after"]),
                entry.watermark_after,
                "{}",
                set.name
            );
        }
        let theirs = &set.analysis["theory"];
        assert_eq!(theory.total, account(theirs));
        let named = |name: String, account: HitAccount| (name, account);
        let groups = theory
            .groups
            .iter()
            .map(|(group, account)| named(group.to_string(), *account));
        let ranks = theory
            .ranks
            .iter()
            .map(|(rank, account)| named(rank.to_string(), *account));
        assert_eq!(
            groups.collect::<BTreeMap<_, _>>(),
            accounts(&theirs["groups"])
        );
        assert_eq!(ranks.collect::<BTreeMap<_, _>>(), accounts(&theirs["dp"]));
    }
}

fn account(value: &Value) -> HitAccount {
    HitAccount {
        input_tokens: uint(&value["input_tokens"]),
        hit_tokens: uint(&value["hit_tokens"]),
    }
}

fn accounts(value: &Value) -> BTreeMap<String, HitAccount> {
    let entries = value.as_object().unwrap().iter();
    entries
        .map(|(name, value)| (name.clone(), account(value)))
        .collect()
}

#[test]
fn length_summaries_are_the_references() {
    for set in sets_with_rows() {
        let requests = &set.manifest["requests"];
        for (column, key) in [
            ("target_input_tokens", "input_length_summary"),
            ("max_tokens", "output_length_summary"),
        ] {
            let lengths: Vec<u64> = set.rows.iter().map(|row| uint(&row[column])).collect();
            let summary = summarize(&lengths).unwrap();
            assert_eq!(as_json(&summary), requests[key], "{} {key}", set.name);
        }
    }
}

fn as_json(summary: &LengthSummary) -> Value {
    let bins: Vec<Value> = summary
        .bins
        .iter()
        .map(|bin| json!({"min": bin.min, "max": bin.max, "count": bin.count}))
        .collect();
    json!({
        "min": summary.min,
        "max": summary.max,
        "mean": summary.mean,
        "p50": summary.p50,
        "p90": summary.p90,
        "p95": summary.p95,
        "p99": summary.p99,
        "bins": bins,
    })
}
