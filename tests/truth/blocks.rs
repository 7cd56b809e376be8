//! Servers that cut or count prompts differently from what the scenario
//! believes.

use pcload::sim::{Config, Hybrid};
use pcload::units::BlockSize;
use serde_json::json;

use crate::world::{PROMPT_TOKENS, REQUESTS, WITH_BOS, WITHOUT_BOS, World, package, quick};

fn block(tokens: u64) -> Config {
    Config {
        block: BlockSize::new(tokens).unwrap(),
        ..quick()
    }
}

/// Theory is worked out again for the block that was measured, and is then
/// exact.
#[test]
fn a_wrong_block_size_is_measured_and_theory_follows_it() {
    for (real, mode) in [(32, "cold"), (64, "cold"), (32, "warmup"), (8, "cold")] {
        let world = World::new(block(real)).with(json!({"prefix_cache": {"mode": mode}}));
        let judged = world.run();
        assert_eq!(judged.status, 0, "{}", judged.stderr);
        assert_eq!(judged.findings(), ["BLOCK_SIZE_MISMATCH"], "{real} {mode}");
        let (input, hits) = judged.assert_agrees();
        assert_eq!(hits % real, 0);
        let evidence = &judged.finding("BLOCK_SIZE_MISMATCH")["evidence"];
        assert_eq!(evidence["configured_tokens"], 16);
        assert_eq!(evidence["measured_tokens"], real);
        let becomes = evidence["theory_for_effective_block"].as_f64().unwrap();
        let expected = hits as f64 / input as f64;
        assert!((becomes - expected).abs() < 1e-12, "{becomes} {expected}");
    }
}

/// A model with recurrent layers gives back one block less; the precheck sees
/// it, and every token of the difference has that cause.
#[test]
fn a_hybrid_models_floor_is_recognized() {
    for mode in ["cold", "warmup"] {
        let world = World::new(Config {
            hybrid: Some(Hybrid::default()),
            ..block(32)
        })
        .with(json!({
            "prefix_cache": {"mode": mode},
            "tokenizer": {"block_size": 32},
        }));
        let judged = world.run();
        assert_eq!(judged.status, 0, "{}", judged.stderr);
        assert_eq!(
            judged.findings(),
            ["ACTUAL_DEVIATION", "BLOCK_SIZE_MISMATCH"],
            "{mode}"
        );
        let found = &judged.judgment()["precheck"]["block"];
        assert_eq!(found["measured_tokens"], 32);
        assert_eq!(found["last_block_withheld"], true);
        assert_eq!(judged.line("usage"), judged.line("counters"));
        assert!(judged.gap() > 0);
        assert_eq!(judged.causes(), [("block_floor".to_owned(), judged.gap())]);
    }
}

/// The client's tokenizer knows of no BOS, the server's puts one.
#[test]
fn a_bos_that_the_plan_does_not_know_is_named() {
    let world = World::speaking(quick(), WITH_BOS)
        .with(json!({"tokenizer": {"path": package(WITHOUT_BOS)}}));
    let judged = world.run();
    assert_eq!(judged.status, 0, "{}", judged.stderr);
    let finding = judged.finding("PROMPT_TOKENS_DIFFER");
    assert_eq!(finding["evidence"]["likely_cause"], "bos");
    assert_eq!(finding["evidence"]["requests"], REQUESTS);
    assert_eq!(
        judged.line("usage").unwrap().0,
        REQUESTS * (PROMPT_TOKENS + 1)
    );
    assert_eq!(judged.line("usage"), judged.line("counters"));
    for (cause, _) in judged.causes() {
        assert_eq!(cause, "tokenizer_boundary");
    }
    for code in judged.findings() {
        assert!(
            ["ACTUAL_DEVIATION", "PROMPT_TOKENS_DIFFER"].contains(&code),
            "{code}"
        );
    }
}

#[test]
fn cached_tokens_that_are_not_reported_are_not_zero() {
    let judged = World::new(Config {
        prompt_tokens_details: false,
        ..quick()
    })
    .run();
    assert_eq!(judged.status, 0, "{}", judged.stderr);
    assert_eq!(judged.findings(), ["CACHED_TOKENS_UNAVAILABLE"]);
    assert_eq!(judged.line("usage"), None);
    assert_eq!(judged.line("counters"), judged.line("executed"));
    assert_eq!(judged.causes(), [("not_reported".to_owned(), judged.gap())]);
}

#[test]
fn a_server_that_caches_nothing_is_refused() {
    let judged = World::new(Config {
        prefix_caching: false,
        ..quick()
    })
    .run();
    judged.assert_stopped_by("PREFIX_CACHING_OFF");
}
