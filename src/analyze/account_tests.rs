//! The account and its findings on runs with known answers.

use super::attribution::Cause;
use super::fixture::{Run, moved, planned, served};
use super::*;
use crate::engine::RankDelta;
use crate::measure::FailureKind;
use crate::measure::sample::failed;
use crate::scenario::CacheMode;
use crate::units::{DpRank, GroupIndex};

/// Three requests of 128 tokens in one lane, 64 of them shared: planned hits
/// 0, 64, 64.
fn lane_of_three() -> Vec<PlannedRow> {
    (0..3)
        .map(|index| {
            let mut row = planned(index, 128, 64);
            row.theory_hit_tokens = if index == 0 { 0 } else { 64 };
            row
        })
        .collect()
}

fn rate(line: Option<HitLine>) -> f64 {
    line.unwrap().hit_rate.unwrap()
}

/// Request `which` of the lane fails before any token.
fn lane_with_failure(which: u32, kind: FailureKind, code: Option<u16>, cached: &[u64]) -> Run {
    let plan = lane_of_three();
    let mut cached = cached.iter();
    let records = plan
        .iter()
        .map(|row| {
            let sent = f64::from(row.sequence_index) * 100.0;
            if row.sequence_index != which {
                return served(row, sent, cached.next().copied());
            }
            let mut record = failed(kind, code, sent, sent + 5.0);
            record.sequence_index = which;
            record.request_id.clone_from(&row.request_id);
            record
        })
        .collect();
    Run::new(plan, records)
}

#[test]
fn a_failed_request_is_not_in_the_executed_theory() {
    let refused = lane_with_failure(0, FailureKind::Connect, None, &[0, 64]);
    let inside = lane_with_failure(1, FailureKind::HttpStatus, Some(500), &[0, 64]);
    for run in [inside, refused] {
        let run = run.counted(moved(256, 64));
        let analysis = run.analyze();
        let overall = &analysis.hits.overall;
        assert!((rate(overall.planned) - 128.0 / 384.0).abs() < 1e-12);
        assert_eq!(overall.executed, Some(HitLine::new(256, 64)));
        assert_eq!(overall.executed.unwrap().hit_rate, Some(0.25));
        assert_eq!(analysis.hits.actual.unwrap().source, RateSource::Counters);
        assert_eq!(analysis.hits.actual_minus_executed_pp, Some(0.0));
        assert_eq!(run.codes(), [Code::RequestsFailed]);
        assert_eq!(analysis.attribution.gap_tokens, 0);
    }
}

/// Ten requests of 1,024 tokens, six tenths of them served from the cache.
fn recounted(delta: RankDelta) -> Analysis {
    let plan: Vec<_> = (0..10)
        .map(|index| {
            let mut row = planned(index, 1_024, if index < 8 { 704 } else { 608 });
            row.theory_hit_tokens = if index == 0 {
                0
            } else {
                row.shared_prefix_tokens
            };
            row
        })
        .collect();
    let cached: Vec<_> = plan.iter().map(|row| Some(row.theory_hit_tokens)).collect();
    assert_eq!(cached.iter().flatten().sum::<u64>(), 6_144);
    let run = Run::served(plan, &cached).counted(delta);
    run.analyze()
}

#[test]
fn queries_counted_twice_are_flagged_and_not_rescaled() {
    let analysis = recounted(RankDelta {
        queries: 14_336,
        hits: 9_216,
        preemptions: Some(3),
        ..RankDelta::default()
    });
    let hits = &analysis.hits;
    let counted = hits.counters.as_ref().unwrap().local.hit_rate.unwrap();
    assert!((counted - 0.642_857).abs() < 1e-6);
    assert_eq!(hits.overall.usage.unwrap().hit_rate, Some(0.6));
    let actual = hits.actual.unwrap();
    assert_eq!(
        (actual.source, actual.line.hit_rate),
        (RateSource::Usage, Some(0.6))
    );
    let mismatch = analysis
        .findings
        .iter()
        .find(|finding| finding.code == Code::QueriesMismatch)
        .unwrap();
    assert_eq!(
        mismatch.message,
        "cache queries: expected 10240, counted 14336 (+40.0 %)"
    );
    assert_eq!(mismatch.evidence["preemptions"], 3);
    let codes: Vec<_> = analysis
        .findings
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert!(codes.contains(&Code::Preemptions) && !codes.contains(&Code::ActualDeviation));
}

#[test]
fn prompt_counters_that_agree_stand_in_for_the_queries() {
    let analysis = recounted(RankDelta {
        prompt_tokens: Some(10_240),
        prompt_tokens_cached: Some(6_144),
        ..moved(14_336, 9_216)
    });
    let actual = analysis.hits.actual.unwrap();
    assert_eq!(actual.source, RateSource::PromptCounters);
    assert_eq!(actual.line.hit_rate, Some(0.6));
}

#[test]
fn foreign_and_missing_traffic_are_told_apart() {
    let codes = |prompt: u64, queries: u64| {
        let plan = lane_of_three();
        let run = Run::served(plan, &[Some(0), Some(64), Some(64)]).counted(RankDelta {
            prompt_tokens: Some(prompt),
            ..moved(queries, 128)
        });
        run.codes()
    };
    assert_eq!(codes(384, 384), []);
    assert_eq!(codes(400, 400), [Code::ForeignTraffic]);
    assert_eq!(codes(384, 500), [Code::QueriesMismatch]);
    assert_eq!(codes(300, 300)[0], Code::CountersIncomplete);
}

#[test]
fn counters_that_went_backwards_give_no_rate_and_keep_the_latencies() {
    let mut run = Run::served(lane_of_three(), &[None, None, None]);
    run.counters = Counters::Delta {
        ranks: BTreeMap::from([(DpRank(0), moved(1_000, 500))]),
        regressions: vec![Regression {
            rank: 1,
            counter: "queries".to_owned(),
            before: Some(50_000),
            after: Some(300),
        }],
    };
    let analysis = run.analyze();
    assert_eq!(
        (analysis.hits.actual, analysis.hits.counters.as_ref()),
        (None, None)
    );
    assert_eq!(analysis.hits.counters_by_rank[&0].local.hit_rate, Some(0.5));
    assert_eq!(analysis.latency.ttft_ms.summary.count, 3);
    assert_eq!(analysis.verdict, Verdict::Invalid);
    let finding = &analysis.findings[0];
    assert_eq!(finding.code, Code::CounterRegressed);
    assert!(
        finding.message.contains("rank 1 queries 50000 -> 300"),
        "{}",
        finding.message
    );
}

#[test]
fn nothing_is_derived_from_no_queries() {
    let analysis = Run::new(lane_of_three(), vec![])
        .counted(moved(0, 0))
        .analyze();
    let hits = &analysis.hits;
    assert_eq!(hits.actual.unwrap().line.hit_rate, None);
    assert_eq!(hits.actual_minus_executed_pp, None);
    let codes: Vec<_> = analysis
        .findings
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert!(!codes.contains(&Code::ActualDeviation));
    assert_eq!(
        analysis.latency.ttft_ms.summary,
        crate::stats::Summary::default()
    );
}

#[test]
fn five_failures_leave_every_statistic_null() {
    let plan: Vec<_> = (0..5).map(|index| planned(index, 64, 0)).collect();
    let records = (0..5)
        .map(|index| {
            let mut record = failed(FailureKind::HttpStatus, Some(500), 0.0, 1.0);
            record.sequence_index = index;
            record.request_id = format!("request-{index:08}");
            record
        })
        .collect();
    let mut run = Run::new(plan, records);
    run.planned
        .iter_mut()
        .for_each(|row| row.lane_sequence = None);
    let analysis = run.analyze();
    assert_eq!(analysis.findings[0].code, Code::NoSuccess);
    assert_eq!(
        analysis.failures,
        BTreeMap::from([("http_status".to_owned(), 5)])
    );
    let json = serde_json::to_value(&analysis).unwrap();
    for field in ["mean", "min", "p50", "p99.9", "max"] {
        assert!(json["latency"]["e2el_ms"][field].is_null(), "{field}");
    }
    assert!(json["hits"]["actual"].is_null());
}

#[test]
fn one_success_is_its_own_percentile() {
    let analysis = Run::served(vec![planned(0, 64, 0)], &[Some(0)]).analyze();
    let ttft = &analysis.latency.ttft_ms;
    assert_eq!(
        (ttft.summary.p50, ttft.summary.p99),
        (Some(50.0), Some(50.0))
    );
    assert_eq!(ttft.interval, None);
}

#[test]
fn an_eos_behind_lengthens_the_prompt_and_moves_no_block() {
    let mut run = Run::served(lane_of_three(), &[Some(0), Some(64), Some(64)]);
    run.server_suffix_tokens = 1;
    for record in &mut run.records {
        record.usage.as_mut().unwrap().prompt_tokens = 129;
    }
    let analysis = run.analyze();
    assert_eq!(
        analysis.hits.overall.planned_server,
        Some(HitLine::new(387, 128))
    );
    assert_eq!(run.codes(), [Code::CountersUnavailable]);
}

#[test]
fn a_bos_in_front_changes_the_view_of_the_server_alone() {
    // Blocks of 16: the BOS shifts every block border by one token.
    let mut run = Run::served(lane_of_three(), &[Some(0), Some(64), Some(64)]);
    run.server_prefix_tokens = 1;
    for record in &mut run.records {
        record.usage.as_mut().unwrap().prompt_tokens = 129;
    }
    let analysis = run.analyze();
    assert_eq!(analysis.hits.overall.planned, Some(HitLine::new(384, 128)));
    assert_eq!(
        analysis.hits.overall.planned_server,
        Some(HitLine::new(387, 128))
    );
    assert_eq!(run.codes(), [Code::CountersUnavailable]);

    run.server_prefix_tokens = 0;
    let analysis = run.analyze();
    let finding = &analysis.findings[0];
    let differ = analysis
        .findings
        .iter()
        .find(|f| f.code == Code::PromptTokensDiffer);
    assert_eq!(
        differ.unwrap().evidence["likely_cause"],
        "bos",
        "{finding:?}"
    );
}

#[test]
fn every_row_of_the_account_is_a_ratio_of_sums() {
    let mut plan = lane_of_three();
    plan.push(planned(3, 100, 32));
    plan[3].group = GroupIndex(10);
    plan[3].dp_rank = Some(DpRank(1));
    plan[3].lane_sequence = Some(0);
    let analysis = Run::served(plan, &[Some(0), Some(64), Some(48), Some(0)]).analyze();
    let hits = &analysis.hits;
    let groups: Vec<_> = hits
        .groups
        .iter()
        .map(|row| row.group.clone().unwrap())
        .collect();
    assert_eq!(groups, ["group-0", "group-10"]);
    assert_eq!(hits.ranks[0].usage, Some(HitLine::new(384, 112)));
    assert_eq!(hits.ranks[1].usage, Some(HitLine::new(100, 0)));
    assert_eq!(hits.lanes.len(), 2);
    assert_eq!(hits.overall.usage, Some(HitLine::new(484, 112)));
    assert_eq!(analysis.attribution.gap_tokens, 16);
    assert_eq!(analysis.attribution.causes[0].cause, Cause::Unexplained);
    assert_eq!(
        analysis.attribution.cold_as_planned.unwrap().lost_tokens,
        64 + 32
    );
}

#[test]
fn warm_lanes_start_from_the_longest_prefix_of_their_group() {
    let mut plan: Vec<_> = [32, 64]
        .into_iter()
        .zip(0..)
        .map(|(s, i)| planned(i, 100, s))
        .collect();
    for row in &mut plan {
        row.dp_rank = None;
        row.lane_sequence = None;
    }
    let mut run = Run::served(plan, &[Some(32), Some(64)]);
    run.mode = CacheMode::Warmup;
    let analysis = run.analyze();
    assert_eq!(analysis.hits.overall.executed, Some(HitLine::new(200, 96)));
    assert_eq!(analysis.hits.overlap.unwrap().low, HitLine::new(200, 96));
}

#[test]
fn records_of_another_plan_are_refused() {
    let plan = lane_of_three();
    let other = served(&planned(7, 1, 0), 0.0, None);
    let twice = vec![served(&plan[0], 0.0, None), served(&plan[0], 0.0, None)];
    let seed = crate::rng::Seed::from(1);
    let mut run = Run::new(plan, vec![other]);
    let result = |run: &Run| {
        analyze(&Inputs {
            mode: run.mode,
            block: run.block,
            server_prefix_tokens: 0,
            server_suffix_tokens: 0,
            planned: &run.planned,
            records: &run.records,
            counters: &run.counters,
            engine: &run.engine,
            control: &run.control,
            kv: &run.kv,
            profile: &run.profile,
            client: &run.client,
            limits: Limits::default(),
            slo: &run.slo,
            percentiles: &[],
            seed: &seed,
        })
    };
    assert!(matches!(
        result(&run),
        Err(AnalyzeError::UnknownRequest { .. })
    ));
    run.records = twice;
    assert!(matches!(
        result(&run),
        Err(AnalyzeError::DuplicateRecord { .. })
    ));
}
