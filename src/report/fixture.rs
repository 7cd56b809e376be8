//! Analyses to report on: a run with something to explain, and one that failed.

use std::collections::BTreeMap;

use crate::analyze::compare::{Aspect, RunComparison, Sample, Side, compare};
use crate::analyze::fixture::{Run, planned, served};
use crate::analyze::{Analysis, Counters, KvGauges, KvSample, ProfileFacts, StageFacts, StageLoad};
use crate::engine::RankDelta;
use crate::measure::FailureKind;
use crate::measure::sample::{at, failed};
use crate::units::{DpRank, GroupIndex};

/// 120 cold requests in two groups on two ranks; on rank 1 the pool is full and
/// every fifth request loses a block.
pub(super) fn explained() -> Analysis {
    explained_run(120).analyze()
}

/// The same with any number of requests.
pub(super) fn explained_run(count: u32) -> Run {
    let mut lanes: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let plan: Vec<_> = (0..count)
        .map(|index| {
            let (group, rank) = (index % 2, index / 2 % 2);
            let sequence = lanes.entry((group, rank)).or_default();
            let mut row = planned(index, 512, 256 + u64::from(group) * 64);
            row.group = GroupIndex(group);
            row.dp_rank = Some(DpRank(rank));
            row.lane_sequence = Some(*sequence);
            row.theory_hit_tokens = if *sequence == 0 {
                0
            } else {
                row.shared_prefix_tokens
            };
            *sequence += 1;
            row
        })
        .collect();
    let mut deltas = BTreeMap::from([(DpRank(0), (0, 0)), (DpRank(1), (0, 0))]);
    let records = plan
        .iter()
        .map(|row| {
            let lost = row.dp_rank == Some(DpRank(1)) && row.sequence_index % 5 == 0;
            let cached = row
                .theory_hit_tokens
                .saturating_sub(if lost { 16 } else { 0 });
            let delta = deltas.entry(row.dp_rank.unwrap_or_default()).or_default();
            *delta = (delta.0 + 512, delta.1 + cached);
            let sent = f64::from(row.sequence_index) * 20.0;
            let mut record = served(row, sent, Some(cached));
            let first = 10.0 + (512 - cached) as f64 / 20.0;
            record.content_ns = vec![at(sent + first), at(sent + first + 10.0)];
            record.first_choice_ns = Some(at(sent + first));
            record.last_choice_ns = Some(at(sent + first + 10.0));
            record.stream_end_ns = Some(at(sent + first + 10.5));
            record
        })
        .collect();
    let mut run = Run::new(plan, records);
    run.counters = Counters::Delta {
        ranks: deltas
            .into_iter()
            .map(|(rank, (queries, hits))| {
                let delta = RankDelta {
                    queries,
                    hits,
                    prompt_tokens: Some(queries),
                    ..RankDelta::default()
                };
                (rank, delta)
            })
            .collect(),
        regressions: vec![],
    };
    run.kv.samples = (0..24_u32)
        .map(|second| {
            let usage = |rank: u32| KvGauges {
                usage: Some(f64::from(second) / 24.0 * (0.5 + 0.5 * f64::from(rank)) + 0.02),
                running: Some(2),
                waiting: Some(0),
            };
            KvSample {
                at: at(f64::from(second) * 100.0),
                ranks: BTreeMap::from([(DpRank(0), usage(0)), (DpRank(1), usage(1))]),
            }
        })
        .collect();
    run.profile = ProfileFacts {
        stages: vec![StageFacts {
            load: StageLoad::Closed { concurrency: 2 },
            dropped: 0,
        }],
    };
    run
}

/// Five requests, all of them refused.
pub(super) fn hopeless() -> Analysis {
    let plan: Vec<_> = (0..5).map(|index| planned(index, 64, 0)).collect();
    let records = plan
        .iter()
        .map(|row| {
            let sent = f64::from(row.sequence_index) * 10.0;
            let mut record = failed(FailureKind::Connect, None, sent, sent + 1.0);
            record.sequence_index = row.sequence_index;
            record.request_id.clone_from(&row.request_id);
            record
        })
        .collect();
    Run::new(plan, records).analyze()
}

/// A run against one that decodes 5 % slower.
pub(super) fn comparison() -> RunComparison {
    let side = |name: &str, step_ms: f64| Side {
        name: name.to_owned(),
        aspects: vec![
            (Aspect::DataSet, "abc".to_owned()),
            (Aspect::Engine, "vllm".to_owned()),
        ],
        verdicts: vec![],
        samples: (0..120_u32)
            .map(|index| {
                let sent_s = f64::from(index) * 0.02;
                let ttft_ms = 20.0 + f64::from(index * 7 % 11);
                let tpot_ms = step_ms + f64::from(index * 5 % 7) / 10.0;
                let e2el_ms = ttft_ms + 15.0 * tpot_ms;
                Sample {
                    key: Some(format!("request-{index:08}")),
                    run: 0,
                    sent_s,
                    ended_s: sent_s + e2el_ms / 1e3,
                    ok: true,
                    ttft_ms: Some(ttft_ms),
                    tpot_ms: Some(tpot_ms),
                    e2el_ms: Some(e2el_ms),
                    gaps: 15,
                    gaps_ms: 15.0 * tpot_ms,
                    output_tokens: Some(16),
                    cached: Some([512, 256]),
                }
            })
            .collect(),
    };
    let sides = (side("run 1", 10.0), side("run 2", 10.5));
    compare(&sides.0, &sides.1).expect("two sides with successes")
}
