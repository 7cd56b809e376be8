//! Caches that are not empty although somebody asked: refused, ignored, half
//! done, or not there at all.

use pcload::sim::{Config, External, Faults};
use serde_json::{Value, json};

use crate::verdict::Judged;
use crate::world::{World, quick};

fn faulty(faults: Faults) -> Config {
    Config { faults, ..quick() }
}

fn refusing() -> Config {
    faulty(Faults {
        refuse_reset: true,
        ..Faults::default()
    })
}

fn ignoring() -> Config {
    faulty(Faults {
        ignore_reset: true,
        ..Faults::default()
    })
}

/// A second tier that a reset does not reach (vllm-project/vllm#57727).
fn half_warm() -> Config {
    Config {
        external: Some(External { blocks: 4_096 }),
        ..faulty(Faults {
            keep_external: true,
            ..Faults::default()
        })
    }
}

/// The reset is asked for as long as `timeout_seconds`.
fn impatient() -> Value {
    json!({"service": {"timeout_seconds": 5}})
}

fn assuming(config: Config) -> Judged {
    let world = World::new(config)
        .with(impatient())
        .with(json!({"service": {"assume_empty_cache": true}}));
    let judged = world.run();
    assert_eq!(judged.status, 0, "{}", judged.stderr);
    assert_eq!(judged.warnings(), ["ASSUME_EMPTY_CACHE"]);
    judged
}

/// vllm-project/vllm#12284: 200, and nothing done.
#[test]
fn a_refused_reset_stops_the_run() {
    let judged = World::new(refusing()).with(impatient()).run();
    judged.assert_stopped_by("RESET_REFUSED");
    assert!(judged.stderr.contains("status 200, success false"));
    assert!(!judged.stderr.contains("formal:"));
}

#[test]
fn a_refused_reset_may_be_assumed_away() {
    let judged = assuming(refusing());
    assert_eq!(judged.findings(), ["ASSUME_EMPTY_CACHE"]);
    assert_eq!(judged.judgment()["verdict"], "degraded");
    let reset = &judged.judgment()["reset"];
    assert_eq!(reset["outcome"], "assumed");
    assert_eq!(reset["failure"]["code"], "RESET_REFUSED");
}

#[test]
fn a_reset_that_does_nothing_is_found_out() {
    let judged = World::new(ignoring()).run();
    judged.assert_stopped_by("NOT_COLD");
    assert!(!judged.stderr.contains("external cache tier is still warm"));
    let judged = assuming(ignoring());
    assert_eq!(judged.findings(), ["ASSUME_EMPTY_CACHE", "NOT_COLD"]);
    assert_eq!(judged.judgment()["verdict"], "invalid");
}

#[test]
fn a_tier_that_stays_warm_is_found_out() {
    let judged = World::new(half_warm()).run();
    judged.assert_stopped_by("NOT_COLD");
    assert!(judged.stderr.contains("external cache tier is still warm"));
    let judged = assuming(half_warm());
    assert_eq!(judged.findings(), ["ASSUME_EMPTY_CACHE", "NOT_COLD"]);
}

#[test]
fn a_fresh_salt_isolates_from_a_tier_that_stays_warm() {
    let world = World::new(half_warm()).with(json!({"pcload": {"cache_salt": "per_run"}}));
    world.run().assert_exact();
    world.run().assert_exact();
}

#[test]
fn a_tier_that_is_reset_as_well_raises_nothing() {
    let world = World::new(Config {
        external: Some(External { blocks: 4_096 }),
        ..quick()
    });
    world.run().assert_exact();
    world.run().assert_exact();
}

#[test]
fn a_server_without_the_endpoint_is_named_with_its_cause() {
    let config = || Config {
        dev_mode: false,
        ..quick()
    };
    let judged = World::new(config()).run();
    judged.assert_stopped_by("RESET_UNAVAILABLE");
    assert!(judged.stderr.contains("VLLM_SERVER_DEV_MODE=1"));
    assert_eq!(assuming(config()).findings(), ["ASSUME_EMPTY_CACHE"]);
}

#[test]
fn no_reset_url_needs_a_word_of_the_scenario() {
    let without = json!({"service": {"reset_url": null}});
    let judged = World::new(quick()).with(without.clone()).run();
    assert_ne!(judged.status, 0);
    assert!(
        judged.stderr.contains("RESET_UNAVAILABLE"),
        "{}",
        judged.stderr
    );
    let world = World::new(quick())
        .with(without)
        .with(json!({"service": {"assume_empty_cache": true}}));
    let judged = world.run();
    assert_eq!(judged.status, 0, "{}", judged.stderr);
    assert_eq!(judged.findings(), ["ASSUME_EMPTY_CACHE"]);
}

/// What `assume_empty_cache` costs where the cache was not empty: the second
/// cold run finds the prefixes of the first.
#[test]
fn what_a_warm_start_gave_is_accounted_for() {
    let world = World::new(Config {
        dev_mode: false,
        ..quick()
    })
    .with(json!({"service": {"assume_empty_cache": true}}));
    let first = world.run();
    assert_eq!(first.findings(), ["ASSUME_EMPTY_CACHE"]);
    first.assert_agrees();
    let second = world.run();
    assert_eq!(second.status, 0, "{}", second.stderr);
    assert_eq!(
        second.findings(),
        ["ACTUAL_DEVIATION", "ASSUME_EMPTY_CACHE"]
    );
    assert_eq!(second.line("usage"), second.line("counters"));
    assert!(second.gap() < 0);
    assert_eq!(
        second.causes(),
        [("beyond_theory".to_owned(), second.gap())]
    );
}
