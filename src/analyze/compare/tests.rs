//! Comparisons of synthetic runs whose difference is known.

use super::*;
use crate::measure::sample::{at, failed, stream};
use crate::measure::{FailureKind, RequestRecord};
use crate::rng::Stream;
use crate::stats::Pairing;

/// Records of a closed loop with 8 slots: prompts of several lengths (the same
/// in every run), decode steps of `step_ms`, and noise that drifts slowly, as a
/// busy machine does.
fn records(seed: u64, side: &str, count: u32, step_ms: f64) -> Vec<RequestRecord> {
    let mut noise = Seed::from(seed).stream(side);
    let mut drift = 0.0;
    let mut free = [0.0_f64; 8];
    (0..count)
        .map(|index| {
            drift = 0.5 * drift + 0.87 * noise.normal();
            let slot = (0..8).min_by(|&a, &b| free[a].total_cmp(&free[b])).unwrap();
            let sent = free[slot];
            let record = record(
                index,
                sent,
                20.0 + f64::from(index % 7) * 15.0 + drift,
                step_ms,
                &mut noise,
            );
            free[slot] = record.stream_end_ns.unwrap().seconds() * 1e3;
            record
        })
        .collect()
}

fn record(index: u32, sent: f64, first: f64, step_ms: f64, noise: &mut Stream) -> RequestRecord {
    let tokens = 16 + index % 5 * 4;
    // One request's pace differs from another's by some 5 %.
    let step = step_ms * (1.0 + 0.05 * noise.normal());
    let stamps: Vec<f64> = (0..tokens)
        .map(|token| sent + first + f64::from(token) * step)
        .collect();
    let mut record = stream(&stamps, u64::from(tokens));
    record.sequence_index = index;
    record.request_id = format!("request-{index:08}");
    record.t_sched_ns = at(sent);
    record.t_ready_ns = at(sent);
    record.t_send_ns = at(sent);
    record
}

fn side(name: &str, records: &[RequestRecord]) -> Side {
    Side {
        name: name.to_owned(),
        aspects: vec![
            (Aspect::DataSet, "abc".to_owned()),
            (Aspect::Engine, "vllm".to_owned()),
        ],
        verdicts: vec![],
        samples: Sample::of_records(records, 0),
    }
}

fn find(comparison: &RunComparison, quantity: Quantity, statistic: Statistic) -> &MetricDifference {
    let mut metrics = comparison.metrics.iter();
    let found = metrics.find(|one| one.quantity == quantity && one.statistic == statistic);
    found.unwrap()
}

fn compared(seed: u64, step_ms: f64) -> RunComparison {
    let left = side("A", &records(seed, "left", 240, 10.0));
    let right = side("B", &records(seed, "right", 240, step_ms));
    compare(&left, &right).unwrap()
}

#[test]
fn five_percent_of_decode_speed_are_found_and_covered() {
    let mut covered = 0;
    for seed in 0..20 {
        let comparison = compared(seed, 10.5);
        let tpot = find(&comparison, Quantity::TpotMs, Statistic::Mean);
        assert_eq!(tpot.judgment, Judgment::Worse, "seed {seed}");
        assert_eq!(tpot.pairing, Pairing::Paired);
        let told = tpot.told();
        assert!(
            !told.interval.covers(0.0) && told.detectable < 0.03,
            "seed {seed}"
        );
        covered += u32::from(told.interval.covers(0.05));
        let rate = find(
            &comparison,
            Quantity::OutputTokensPerSecond,
            Statistic::Overall,
        );
        assert!(rate.told().value < 0.0, "seed {seed}");
    }
    assert!(covered >= 17, "{covered} of 20");
}

#[test]
fn equal_runs_differ_in_nothing() {
    let figures = [
        (Quantity::TtftMs, Statistic::Mean),
        (Quantity::TtftMs, Statistic::P50),
        (Quantity::TpotMs, Statistic::Mean),
        (Quantity::E2elMs, Statistic::P99),
        (Quantity::OutputTokensPerSecond, Statistic::Overall),
    ];
    let comparisons: Vec<_> = (0..20).map(|seed| compared(seed, 10.0)).collect();
    for (quantity, statistic) in figures {
        let covers = |comparison: &&RunComparison| {
            find(comparison, quantity, statistic)
                .told()
                .interval
                .covers(0.0)
        };
        let misses = 20 - comparisons.iter().filter(covers).count();
        assert!(misses <= 3, "{quantity:?} {statistic:?}: {misses} of 20");
    }
}

#[test]
fn a_run_is_the_same_as_itself() {
    let run = side("A", &records(1, "left", 60, 10.0));
    let comparison = compare(&run, &run).unwrap();
    assert_eq!(comparison.pairs, Some(60));
    assert!(comparison.cautions.is_empty(), "{:?}", comparison.cautions);
    let hit = find(&comparison, Quantity::HitRate, Statistic::Overall);
    assert_eq!(hit.judgment, Judgment::Same);
    let tpot = find(&comparison, Quantity::TpotMs, Statistic::Mean);
    assert_eq!((tpot.judgment, tpot.indicative), (Judgment::Same, true));
}

#[test]
fn what_differs_about_the_runs_is_said_and_ends_the_pairing() {
    let left = side("A", &records(1, "left", 60, 10.0));
    let mut records = records(1, "right", 60, 10.0);
    records.push(failed(FailureKind::Connect, None, 1.0, 2.0));
    let mut right = side("B", &records);
    right.aspects = vec![
        (Aspect::DataSet, "other".to_owned()),
        (Aspect::Model, "m".to_owned()),
    ];
    right.verdicts = vec![Verdict::Invalid];
    let comparison = compare(&left, &right).unwrap();
    let codes: Vec<_> = comparison
        .cautions
        .iter()
        .map(|one| one.code.as_str())
        .collect();
    assert_eq!(
        codes,
        [
            "DATA_SET_DIFFERS",
            "RUN_INVALID",
            "REQUESTS_FAILED",
            "NOT_PAIRED"
        ]
    );
    let model = comparison
        .settings
        .iter()
        .find(|one| one.aspect == Aspect::Model)
        .unwrap();
    assert_eq!((model.left.as_deref(), model.same), (None, None));
    assert_eq!(
        find(&comparison, Quantity::TtftMs, Statistic::P50).pairing,
        Pairing::Apart
    );
}

#[test]
fn a_side_without_successes_is_refused() {
    let left = side("A", &records(1, "left", 10, 10.0));
    let right = side("B", &[failed(FailureKind::Connect, None, 1.0, 2.0)]);
    let error = compare(&left, &right).unwrap_err();
    assert_eq!(
        error,
        CompareError::TooFew {
            name: "B".to_owned(),
            successes: 0
        }
    );
}

#[test]
fn the_document_reads_back() {
    let comparison = compared(1, 10.5);
    let text = serde_json::to_string(&comparison).unwrap();
    assert_eq!(
        serde_json::from_str::<RunComparison>(&text).unwrap(),
        comparison
    );
}
