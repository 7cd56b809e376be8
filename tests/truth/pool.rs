//! A KV pool that is too small: evictions and preemptions are told as such.

use pcload::sim::{Config, CostModel, Faults, Pace, Release};
use serde_json::json;

use crate::world::{PROMPT_TOKENS, REQUESTS, World, quick};

/// 79 usable blocks of 16 tokens hold five prompts of 256.
fn tight() -> Config {
    Config {
        pool_blocks: 80,
        max_model_len: 1_024,
        ..quick()
    }
}

#[test]
fn evictions_are_attributed_as_such() {
    let world = World::new(tight()).with(json!({"aisbench": {"model": {"batch_size": 1}}}));
    let judged = world.run();
    assert_eq!(judged.status, 0, "{}", judged.stderr);
    assert_eq!(judged.findings(), ["EVICTION_PRESSURE"]);
    assert_eq!(judged.line("usage"), judged.line("counters"));
    assert!(judged.gap() > 0);
    assert_eq!(judged.causes(), [("evicted".to_owned(), judged.gap())]);
    // One at a time, an LRU pool of that size explains every token.
    let capacity = &judged.judgment()["hits"]["capacity"];
    assert_eq!(capacity["pool_blocks"], 79);
    let (_, hits) = judged.line("usage").unwrap();
    assert_eq!(capacity["line"]["hit_tokens"], hits);
}

/// vllm-project/vllm#25780, #43736: lookups counted again while requests wait
/// or after preemption.
#[test]
fn lookups_counted_again_are_not_taken_for_hits() {
    let world = World::new(Config {
        release: Release::V0_24,
        pace: Pace::Batched(CostModel::default()),
        faults: Faults {
            count_preempted: true,
            ..Faults::default()
        },
        ..tight()
    })
    .with(json!({"requests": {"output_length": {"mode": "fixed", "value": 64}}}));
    let judged = world.run();
    assert_eq!(judged.status, 0, "{}", judged.stderr);
    for code in judged.findings() {
        let expected = [
            "ACTUAL_DEVIATION",
            "EVICTION_PRESSURE",
            "PREEMPTIONS",
            "QUERIES_MISMATCH",
        ];
        assert!(expected.contains(&code), "{code}");
    }
    let counted = judged.line("counters").unwrap();
    let used = judged.line("usage").unwrap();
    assert_eq!(used.0, REQUESTS * PROMPT_TOKENS);
    assert!(counted.0 > used.0 && counted.1 > used.1);
    judged.finding("QUERIES_MISMATCH");
    judged.finding("PREEMPTIONS");
    // The rate of the verdict is not the counted one, and says where it is from.
    let actual = &judged.judgment()["hits"]["actual"];
    assert_eq!(actual["source"], "prompt_counters");
    assert_eq!(actual["hit_tokens"], used.1);
    // The reference's field stays what the counters say.
    let counted_rate = counted.1 as f64 / counted.0 as f64;
    let written = judged.document["actual"]["global_hit_rate"].as_f64();
    assert!((written.unwrap() - counted_rate).abs() < 1e-9);
    for (cause, _) in judged.causes() {
        assert!(
            ["evicted", "preempted"].contains(&cause.as_str()),
            "{cause}"
        );
    }
}
