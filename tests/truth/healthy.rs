//! Healthy servers: theory, usage and counters are one number, and no code is
//! raised.

use std::collections::BTreeMap;
use std::time::Duration;

use pcload::sim::{Config, Faults, Release};
use serde_json::json;

use crate::world::{PROMPT_TOKENS, REQUESTS, WITH_BOS, World, quick};

/// The multiple of 16 nearest to 0.6 of all prompt tokens.
const HITS: u64 = 7_376;
const EXACT: (u64, u64) = (REQUESTS * PROMPT_TOKENS, HITS);

fn ranks(ranks: u32) -> Config {
    Config { ranks, ..quick() }
}

/// Each request of a lane was sent after its predecessor had ended.
fn assert_lanes_in_order(world: &World, lane_count: usize) {
    let mut lanes = BTreeMap::new();
    for record in world.records() {
        let lane = (record.group_id, record.dp_rank);
        let (next, ended) = lanes.entry(lane).or_insert((record.lane_sequence, None));
        assert_eq!(record.lane_sequence, *next);
        assert!(*ended <= Some(record.t_send_ns), "{}", record.request_id);
        *next = record.lane_sequence.map(|sequence| sequence + 1);
        *ended = record.attempts.last().map(|attempt| attempt.t_end_ns);
    }
    assert_eq!(lanes.len(), lane_count);
}

#[test]
fn a_cold_run_is_exact_on_one_two_and_four_ranks() {
    for (count, lanes) in [(1, 4), (2, 8), (4, 16)] {
        let world = World::new(ranks(count));
        assert_eq!(world.run().assert_exact(), EXACT, "{count} ranks");
        assert_lanes_in_order(&world, lanes);
    }
}

#[test]
fn a_warm_run_is_exact_on_one_and_four_ranks() {
    for count in [1, 4] {
        let world = World::new(ranks(count)).with(json!({"prefix_cache": {"mode": "warmup"}}));
        assert_eq!(world.run().assert_exact(), EXACT, "{count} ranks");
    }
}

#[test]
fn a_second_run_of_the_same_set_says_the_same() {
    let world = World::new(ranks(2));
    let first = world.run();
    let second = world.run();
    assert_eq!(first.assert_exact(), second.assert_exact());
    assert_eq!(second.judgment()["run"]["number"], 2);
    assert!(second.stderr.contains("using the prepared set"));
}

#[test]
fn token_ids_are_as_exact_as_text() {
    for mode in ["cold", "warmup"] {
        let world = World::new(ranks(2)).with(json!({
            "prefix_cache": {"mode": mode},
            "pcload": {"prompt_format": "token_ids"},
        }));
        assert_eq!(world.run().assert_exact(), EXACT, "{mode}");
    }
}

#[test]
fn the_older_release_with_its_empty_reset_answer_is_exact() {
    let world = World::new(Config {
        release: Release::V0_24,
        ..quick()
    });
    assert_eq!(world.run().assert_exact(), EXACT);
}

/// The server puts a token in front of each text, which shifts its blocks by
/// one: 257 tokens a prompt, hits of whole blocks over prefix and BOS.
#[test]
fn a_bos_is_counted_by_theory_as_by_the_server() {
    for (format, tokens) in [("text", 257), ("token_ids", 256)] {
        for mode in ["cold", "warmup"] {
            let world = World::speaking(quick(), WITH_BOS).with(json!({
                "prefix_cache": {"mode": mode},
                "pcload": {"prompt_format": format},
            }));
            let (input, hits) = world.run().assert_exact();
            assert_eq!(input, REQUESTS * tokens, "{format} {mode}");
            assert_eq!(hits % 16, 0);
        }
    }
}

#[test]
fn a_bos_that_the_scenario_forbids_is_not_sent() {
    let world =
        World::speaking(quick(), WITH_BOS).with(json!({"pcload": {"add_special_tokens": false}}));
    assert_eq!(world.run().assert_exact(), EXACT);
}

#[test]
fn a_fixed_salt_changes_nothing() {
    let world = World::new(quick()).with(json!({"pcload": {"cache_salt": "team-a"}}));
    assert_eq!(world.run().assert_exact(), EXACT);
}

#[test]
fn a_salt_per_run_needs_no_reset_and_raises_no_doubt() {
    let world = World::new(Config {
        dev_mode: false,
        ..ranks(2)
    })
    .with(json!({"pcload": {"cache_salt": "per_run"}}));
    // Twice: the second run must not find what the first left behind.
    for _ in 0..2 {
        let judged = world.run();
        assert_eq!(judged.assert_exact(), EXACT);
        assert_eq!(judged.judgment()["reset"]["outcome"], "isolated_by_salt");
    }
    let world = world.with(json!({"service": {"reset_url": null}}));
    assert_eq!(world.run().assert_exact(), EXACT);
}

#[test]
fn counters_that_lag_are_waited_for() {
    let world = World::new(Config {
        faults: Faults {
            counter_lag: Some(Duration::from_millis(300)),
            ..Faults::default()
        },
        ..quick()
    });
    let judged = world.run();
    assert_eq!(judged.assert_exact(), EXACT);
    let settled = &judged.judgment()["settle"]["after"];
    assert_eq!(settled["settled"], true);
    assert!(settled["polls"].as_u64().unwrap() > 1, "{settled}");
}

#[test]
fn names_that_stand_twice_and_a_second_model_are_counted_once() {
    let doubled = Faults {
        duplicate_series: true,
        ..Faults::default()
    };
    let second = Faults {
        second_model: true,
        ..Faults::default()
    };
    for faults in [doubled, second] {
        let world = World::new(Config { faults, ..ranks(2) });
        assert_eq!(world.run().assert_exact(), EXACT);
    }
}
