//! Findings about the run: the client, the cap, failures, lengths, order.

use super::fixture::{Run, planned, served};
use super::*;
use crate::engine::RankDelta;
use crate::measure::sample::at;
use crate::measure::{Attempt, Failure, FailureKind, StatsPhase};
use crate::scenario::CacheMode;
use crate::units::RunOffset;

/// `count` requests without lanes or hits, 100 ms apart.
fn plain(count: u32) -> Run {
    let plan: Vec<_> = (0..count)
        .map(|index| {
            let mut row = planned(index, 64, 0);
            row.lane_sequence = None;
            row
        })
        .collect();
    let cached = vec![Some(0); plan.len()];
    let total = u64::from(count) * 64;
    Run::served(plan, &cached).counted(RankDelta {
        queries: total,
        ..RankDelta::default()
    })
}

fn open(rate: f64, max_in_flight: Option<u32>) -> ProfileFacts {
    ProfileFacts {
        stages: vec![StageFacts {
            load: StageLoad::Open {
                rate: Some(rate),
                max_in_flight,
            },
            dropped: 0,
        }],
    }
}

#[test]
fn a_clean_run_is_valid() {
    let run = plain(100);
    let analysis = run.analyze();
    assert_eq!(
        (analysis.verdict, analysis.status),
        (Verdict::Valid, RunStatus::Complete)
    );
    assert_eq!(analysis.findings, []);
}

#[test]
fn waiting_for_the_cap_is_saturation_and_not_a_late_client() {
    // 10 a second, one slot, 500 ms each.
    let mut run = plain(8);
    for (index, record) in (0_u32..).zip(&mut run.records) {
        let sent = f64::from(index) * 500.0;
        record.t_sched_ns = at(f64::from(index) * 100.0);
        record.t_ready_ns = record.t_sched_ns;
        record.t_send_ns = at(sent);
        record.content_ns = vec![at(sent + 500.0)];
        record.last_choice_ns = Some(at(sent + 500.0));
        record.stream_end_ns = Some(at(sent + 500.0));
    }
    run.profile = open(10.0, Some(1));
    assert_eq!(run.codes(), [Code::SaturatedByCap]);
    let analysis = run.analyze();
    let latency = &analysis.latency;
    assert_eq!(latency.queue_delay_ms.mean, Some(1_400.0));
    assert_eq!(latency.e2el_ms.summary.mean, Some(500.0));
    assert_eq!(latency.e2el_from_schedule_ms.mean, Some(1_900.0));
    assert!((latency.e2el_from_schedule_ms.p99.unwrap() - 3_272.0).abs() < 1e-9);
    assert_eq!(analysis.stages[0].offered_per_second, Some(10.0));

    // The same delays without a cap are the client's fault.
    run.profile = open(10.0, None);
    assert_eq!(run.codes(), [Code::ClientLate]);
}

#[test]
fn a_busy_client_is_named() {
    let mut run = plain(100);
    run.client.cpu_share = Some(0.93);
    assert_eq!(run.codes(), [Code::ClientLate]);
    let message = &run.analyze().findings[0].message;
    assert!(message.contains("93 %"), "{message}");
}

#[test]
fn retries_lengths_and_unsent_requests_are_named() {
    let mut run = plain(100);
    let failure = Failure {
        kind: FailureKind::Connect,
        code: None,
        message: String::new(),
    };
    let attempt = |from: f64, to: f64, failure| Attempt {
        t_send_ns: at(from),
        t_end_ns: at(to),
        body_started: false,
        failure,
    };
    run.records[0].t_send_ns = at(10.0);
    run.records[0].attempts = vec![attempt(0.0, 10.0, Some(failure)), attempt(10.0, 60.0, None)];
    run.records[1].usage.as_mut().unwrap().completion_tokens = 1;
    run.records.pop();
    run = Run {
        counters: Counters::Delta {
            ranks: BTreeMap::from([(crate::units::DpRank(0), super::fixture::moved(99 * 64, 0))]),
            regressions: vec![],
        },
        ..run
    };
    let expected = [
        Code::RequestsNotSent,
        Code::RetriedRequests,
        Code::OutputLengthDiffers,
    ];
    assert_eq!(run.codes(), expected);
    assert_eq!(run.analyze().latency.retry_wasted_ms.mean, Some(10.0));
}

#[test]
fn a_broken_lane_is_a_bug_and_invalid() {
    let plan: Vec<_> = (0..2).map(|index| planned(index, 64, 0)).collect();
    let records = vec![
        served(&plan[0], 0.0, Some(0)),
        served(&plan[1], 40.0, Some(0)),
    ];
    let analysis = Run::new(plan, records).analyze();
    assert_eq!(analysis.findings[0].code, Code::LaneOrderBroken);
    assert_eq!(analysis.verdict, Verdict::Invalid);
}

#[test]
fn warmup_requests_of_the_profile_count_for_hits_alone() {
    let mut run = plain(100);
    run.records[0].phase = StatsPhase::Warmup;
    let analysis = run.analyze();
    assert_eq!(analysis.latency.requests, 99);
    assert_eq!(analysis.throughput.requests, 99);
    assert_eq!(analysis.hits.overall.usage_requests, 100);
    assert_eq!(run.codes(), []);
}

#[test]
fn control_facts_become_findings() {
    let mut run = plain(100);
    run.control = ControlFacts {
        cold: ColdProof::NotCold { cached_tokens: 32 },
        assumed_empty: Some("reset_url is not configured".to_owned()),
        routing: Routing::Ignored {
            asked: crate::units::DpRank(1),
            moved: crate::units::DpRank(0),
        },
        warmup_missing: vec![],
        interrupted: true,
    };
    let expected = [
        Code::NotCold,
        Code::RankHeaderIgnored,
        Code::Interrupted,
        Code::AssumeEmptyCache,
    ];
    assert_eq!(run.codes(), expected);
    assert_eq!(run.analyze().status, RunStatus::Interrupted);
}

#[test]
fn an_external_tier_is_named_and_kept_apart() {
    let run = plain(100).counted(RankDelta {
        queries: 6_400,
        external_queries: Some(6_400),
        external_hits: Some(320),
        ..RankDelta::default()
    });
    assert_eq!(run.codes(), [Code::ExternalCacheActive]);
    let counters = run.analyze().hits.counters.unwrap();
    assert_eq!(counters.local.hit_rate, Some(0.0));
    assert_eq!(counters.combined_hit_rate, Some(0.05));
}

#[test]
fn an_unbounded_rate_is_written_as_null_and_a_word() {
    let mut run = plain(100);
    run.profile = open(f64::INFINITY, None);
    let json = serde_json::to_value(run.analyze()).unwrap();
    assert!(json["stages"][0]["offered_per_second"].is_null());
    assert_eq!(json["stages"][0]["arrival"], "unbounded");
}

#[test]
fn the_document_reads_back_and_has_a_schema() {
    let mut run = plain(40);
    run.mode = CacheMode::Warmup;
    run.slo = BTreeMap::from([("ttft".to_owned(), 60.0)]);
    let analysis = run.analyze();
    assert_eq!(analysis.goodput.as_ref().unwrap().met, 40);
    let text = serde_json::to_string(&analysis).unwrap();
    assert_eq!(serde_json::from_str::<Analysis>(&text).unwrap(), analysis);
    let schema = schemars::schema_for!(Analysis);
    assert!(schema.as_value()["properties"]["findings"].is_object());
}

#[test]
fn hits_without_benefit_are_said_only_where_that_is_shown() {
    // A hit for every second request; TTFT is 50 ms, whatever was cached.
    let run = |count: u32| {
        let plan: Vec<_> = (0..count).map(|index| planned(index, 1_024, 512)).collect();
        let cached: Vec<_> = (0..u64::from(count))
            .map(|index| Some(index % 2 * 512))
            .collect();
        Run::served(plan, &cached)
    };
    let says = |run: &Run| run.codes().contains(&Code::HitWithoutBenefit);
    assert!(says(&run(100)));
    assert!(!says(&run(99)), "too few to show that there is nothing");
    // Half a prompt costs as much as all the rest.
    let mut costly = run(100);
    for record in costly.records.iter_mut().step_by(2) {
        for stamp in &mut record.content_ns {
            *stamp = RunOffset(stamp.0 + 50_000_000);
        }
    }
    assert!(!says(&costly));
}
