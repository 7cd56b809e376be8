//! Whole plans built from scenarios.

use pcload::plan::{self, AdjustmentReason, LengthKind, LengthScope, Plan, PlanError};
use pcload::scenario::{
    Assignment, CacheMode, GroupOverride, InputLength, OrderStrategy, Scenario, TruncatedNormal,
};
use pcload::solver;
use pcload::units::{DpRank, GroupIndex};

use crate::recorded::{self, Recorded, float};
use crate::scenarios;

/// Whether the reference drew nothing that decides groups, lanes and input
/// lengths.
fn without_chance(set: &Recorded) -> bool {
    let scenario = scenarios::of(set);
    let cache = &scenario.prefix_cache;
    let lengths = &scenario.requests.input_length;
    matches!(lengths, InputLength::Fixed(_) | InputLength::Explicit(_))
        && !matches!(cache.groups.assignment, Assignment::Zipf { .. })
        && cache.order != OrderStrategy::GlobalShuffle
}

#[test]
fn plans_without_chance_are_the_references() {
    let mut compared = 0;
    for set in recorded::all().into_iter().filter(without_chance) {
        let scenario = scenarios::of(&set);
        let plan = plan::build(&scenario).unwrap();
        let theirs = &set.manifest["prefix_cache"];
        let outcome = plan.target_outcome(set.target_rate());
        let same = |ours: f64, theirs: &serde_json::Value| {
            assert_eq!(ours.to_bits(), float(theirs).to_bits(), "{}", set.name);
        };
        same(outcome.effective_rate, &theirs["effective_target_hit_rate"]);
        same(outcome.reachable_max_rate, &theirs["reachable_max"]);
        let minimum = scenario.prefix_cache.minimum_non_shared_length;
        for (group, reach) in plan.group_reachability(minimum) {
            let theirs = &set.manifest["groups"][group.to_string()];
            same(reach.max_rate(), &theirs["reachable_max"]);
        }
        if set.rows.is_empty() {
            continue;
        }
        let routing = |plan: &Plan| -> Vec<_> {
            let row = |r: &plan::PlannedRequest| {
                let lane = (r.group, r.occurrence, r.dp_rank, r.lane_sequence);
                (r.request_id.clone(), lane, r.input_tokens)
            };
            plan.requests.iter().map(row).collect()
        };
        assert_eq!(routing(&plan), routing(&set.plan()), "{}", set.name);
        compared += 1;
    }
    assert!(compared >= 10, "only {compared} sets compared");
}

#[test]
fn every_recorded_scenario_has_a_proper_plan() {
    for set in recorded::all() {
        let scenario = scenarios::of(&set);
        let plan = plan::build(&scenario).unwrap();
        check(&scenario, &plan);
        let again = plan::build(&scenario).unwrap();
        assert_eq!(again.requests, plan.requests);
    }
}

/// What holds of every plan.
fn check(scenario: &Scenario, plan: &Plan) {
    let cache = &scenario.prefix_cache;
    let instance = plan.instance(cache.target_hit_rate, cache.minimum_non_shared_length);
    solver::verify(&instance, &plan.solution).unwrap();
    assert_eq!(plan.requests.len(), scenario.requests.count);
    let mut counted = 0;
    for group in &plan.groups {
        let members: Vec<_> = plan
            .requests
            .iter()
            .filter(|r| r.group == group.group)
            .collect();
        let longest = members.iter().map(|r| r.shared_prefix_tokens).max();
        assert_eq!(longest, Some(group.max_shared_prefix_tokens));
        assert_eq!(members.len(), group.request_count);
        for (occurrence, request) in (0..).zip(&members) {
            assert_eq!(request.occurrence, occurrence);
            let lane = (plan.mode == CacheMode::Cold).then(|| {
                let rank = DpRank(occurrence % plan.dp_size);
                (rank, occurrence / plan.dp_size)
            });
            assert_eq!(request.dp_rank.zip(request.lane_sequence), lane);
            let shared = request.shared_prefix_tokens;
            assert!(
                shared + cache.minimum_non_shared_length <= request.input_tokens || shared == 0
            );
        }
        counted += members.len();
    }
    assert_eq!(counted, plan.requests.len());
    let mut seeds: Vec<u64> = plan.requests.iter().map(|r| r.random_seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), plan.requests.len());
}

#[test]
fn reachable_ranges_and_nearest_targets() {
    use CacheMode::{Cold, Warmup};
    let table = [
        // mode, dp, requests, target, reachable maximum, effective
        (Warmup, 1, 3, 0.5, 0.75, 0.5),
        (Cold, 1, 3, 0.6, 0.5, 0.5),
        (Cold, 1, 4, 0.5, 0.5625, 0.5),
        (Cold, 2, 4, 0.5, 0.375, 0.375),
    ];
    for (mode, dp_size, count, target, maximum, effective) in table {
        let plan = plan::build(&scenarios::plain(mode, count, dp_size, target)).unwrap();
        let outcome = plan.target_outcome(target);
        let rates = (outcome.reachable_max_rate, outcome.effective_rate);
        assert_eq!(
            rates,
            (maximum, effective),
            "{mode:?} {dp_size} {count} {target}"
        );
        assert_eq!(outcome.target_reachable, target <= maximum);
        let beyond = (target > maximum).then_some(AdjustmentReason::AboveMaximum);
        assert_eq!(outcome.reason, beyond);
    }
}

fn zipf() -> Scenario {
    let mut scenario = scenarios::plain(CacheMode::Warmup, 10, 1, 0.5);
    scenario.prefix_cache.groups.count = 3;
    scenario.prefix_cache.groups.assignment = Assignment::Zipf { exponent: 1.0 };
    scenario
}

fn with_group_2(mut scenario: Scenario, values: Vec<u64>) -> Scenario {
    let rules = GroupOverride {
        input_length: Some(InputLength::Explicit(values)),
        ..GroupOverride::default()
    };
    scenario
        .prefix_cache
        .groups
        .overrides
        .insert(GroupIndex(2), rules);
    scenario
}

#[test]
fn an_override_gives_as_many_lengths_as_the_group_has_requests() {
    let plan = plan::build(&with_group_2(zipf(), vec![96, 80])).unwrap();
    let of_group_2 = plan.requests.iter().filter(|r| r.group == GroupIndex(2));
    let lengths: Vec<u64> = of_group_2.map(|r| r.input_tokens).collect();
    assert_eq!(lengths, [96, 80]);
    let error = plan::build(&with_group_2(zipf(), vec![96, 80, 64])).unwrap_err();
    assert_eq!(error.code(), "LENGTH_COUNT_MISMATCH");
    assert_eq!(
        error.to_string(),
        "`prefix_cache.groups.overrides.group-2.input_length` gives 3 lengths, but group-2 has 2 \
         requests"
    );
}

#[test]
fn an_override_of_a_group_without_requests_does_not_matter() {
    let mut scenario = zipf();
    scenario.prefix_cache.groups.assignment = Assignment::Weights(vec![1.0, 1.0, 0.0]);
    let plan = plan::build(&with_group_2(scenario, vec![96])).unwrap();
    let groups: Vec<u32> = plan.groups.iter().map(|group| group.group.0).collect();
    assert_eq!(groups, [0, 1]);
}

#[test]
fn general_lists_must_fit_too() {
    let mut scenario = scenarios::plain(CacheMode::Cold, 100, 1, 0.5);
    scenario.requests.input_length = InputLength::Explicit(vec![64; 99]);
    assert_eq!(
        plan::build(&scenario).unwrap_err(),
        PlanError::LengthCount {
            kind: LengthKind::Input,
            scope: LengthScope::All,
            given: 99,
            requests: 100
        }
    );
    scenario.requests.input_length = InputLength::Explicit(vec![15; 100]);
    let error = plan::build(&scenario).unwrap_err();
    assert_eq!(error.code(), "PROMPT_TOO_SHORT");
    assert!(
        error
            .to_string()
            .contains("a prompt of 15 tokens, shorter than the 16")
    );
}

#[test]
fn adding_an_override_moves_no_other_draw() {
    let mut scenario = zipf();
    scenario.requests.input_length = InputLength::TruncatedNormal(TruncatedNormal {
        min: 64,
        max: 640,
        mean: 300.0,
        std: 80.0,
    });
    let before = plan::build(&scenario).unwrap();
    let after = plan::build(&with_group_2(scenario, vec![64, 65])).unwrap();
    let others = |plan: &Plan| -> Vec<_> {
        let kept = plan.requests.iter().filter(|r| r.group != GroupIndex(2));
        kept.map(|r| (r.group, r.input_tokens, r.random_seed))
            .collect()
    };
    assert_eq!(others(&before), others(&after));
}
