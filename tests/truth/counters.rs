//! Counters that count something else than this run: other users, restarts,
//! lookups counted again, ranks without series.

use std::time::Duration;

use pcload::sim::{Config, Faults};
use serde_json::json;

use crate::world::{PROMPT_TOKENS, REQUESTS, World, quick};

fn faulty(ranks: u32, faults: Faults) -> Config {
    Config {
        ranks,
        faults,
        ..quick()
    }
}

/// SemiAnalysisAI/InferenceX#2696: a server that does not know the header
/// answers 200 all the same.
#[test]
fn an_ignored_rank_header_stops_the_run_before_anything_is_reset() {
    let judged = World::new(faulty(
        2,
        Faults {
            ignore_rank_header: true,
            ..Faults::default()
        },
    ))
    .run();
    judged.assert_stopped_by("DP_ROUTING_NOT_HONORED");
    assert!(judged.stderr.contains("RANK_HEADER_IGNORED"));
    assert!(!judged.stderr.contains("reset:"));
}

#[test]
fn a_rank_without_series_is_named() {
    let judged = World::new(faulty(
        2,
        Faults {
            missing_rank: Some(1),
            ..Faults::default()
        },
    ))
    .with(json!({"service": {"timeout_seconds": 5}}))
    .run();
    judged.assert_stopped_by("DP_RANKS_MISSING");
    assert!(judged.stderr.contains("DP rank 1"));
}

#[test]
fn a_wrong_number_of_ranks_is_named() {
    let fewer = World::new(faulty(2, Faults::default()))
        .with(json!({"service": {"dp_size": 1}}))
        .run();
    fewer.assert_stopped_by("DP_SIZE_MISMATCH");
    let more = World::new(faulty(2, Faults::default()))
        .with(json!({"service": {"dp_size": 4, "timeout_seconds": 5}}))
        .run();
    assert_eq!(more.status, 3, "{}", more.stderr);
    assert!(more.stderr.contains("DP"), "{}", more.stderr);
}

#[test]
fn traffic_of_others_makes_the_run_invalid_and_usage_still_tells_the_truth() {
    let world = World::new(faulty(
        1,
        Faults {
            foreign_every: Some(Duration::from_millis(60)),
            ..Faults::default()
        },
    ))
    // Long enough that somebody comes by.
    .with(json!({"aisbench": {"model": {"batch_size": 2}}}));
    let judged = world.run();
    assert_eq!(judged.status, 0, "{}", judged.stderr);
    // A foreign request that is admitted between two scrapes may be in one
    // counter and not yet in the other.
    let mut findings = judged.findings();
    findings.retain(|code| *code != "QUERIES_MISMATCH");
    assert_eq!(findings, ["FOREIGN_TRAFFIC"]);
    assert_eq!(judged.judgment()["verdict"], "invalid");
    assert_eq!(judged.line("usage"), judged.line("executed"));
    assert_eq!(judged.judgment()["hits"]["actual"]["source"], "usage");
    let traffic = &judged.judgment()["traffic"];
    let counted = traffic["counted_prompt_tokens"].as_u64().unwrap();
    let evidence = &judged.finding("FOREIGN_TRAFFIC")["message"];
    let foreign = counted - REQUESTS * PROMPT_TOKENS;
    assert!(
        evidence
            .as_str()
            .unwrap()
            .contains(&format!("{foreign} prompt tokens")),
        "{evidence}"
    );
    let strict = world.argument("--strict").run();
    assert_eq!(strict.status, 1);
}

/// Counters that start anew in the formal phase, whether or not they have
/// grown beyond where they were: the moment of their creation tells.
#[test]
fn a_restart_in_mid_run_is_found_whatever_the_counters_reach() {
    // The control requests before the formal phase are some ten; their prompt
    // tokens are passed by again or not.
    for restart in [24, 55] {
        let world = World::new(faulty(
            1,
            Faults {
                restart_counters_after: Some(restart),
                ..Faults::default()
            },
        ));
        let judged = world.run();
        assert_eq!(judged.status, 3, "{}", judged.stderr);
        assert!(judged.stderr.contains("ERROR: COUNTER_REGRESSED: "));
        assert_eq!(judged.findings(), ["COUNTER_REGRESSED"]);
        assert_eq!(judged.judgment()["status"], "incomplete");
        assert_eq!(judged.judgment()["verdict"], "invalid");
        assert!(judged.document["actual"]["global_hit_rate"].is_null());
        assert_eq!(judged.line("usage"), judged.line("executed"));
        assert_eq!(judged.line("counters"), None);
        let latency = &judged.judgment()["latency"]["ttft_ms"];
        assert_eq!(latency["count"], REQUESTS, "{latency}");
    }
}
