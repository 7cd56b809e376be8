//! The same against a real server, where `PCLOAD_TRUTH_URL` names one
//! (`http://127.0.0.1:8000`), with `PCLOAD_TRUTH_MODEL`, its tokenizer at
//! `PCLOAD_TRUTH_TOKENIZER`, its block in `PCLOAD_TRUTH_BLOCK` (16 when absent)
//! and its ranks in `PCLOAD_TRUTH_RANKS` (1 when absent).

use std::env;

use serde_json::{Value, json};

use crate::world::World;

fn number(name: &str, absent: u64) -> u64 {
    env::var(name).map_or(absent, |text| text.parse().unwrap())
}

fn world(change: Value) -> Option<World> {
    let Ok(url) = env::var("PCLOAD_TRUTH_URL") else {
        eprintln!("skipped: PCLOAD_TRUTH_URL names no server");
        return None;
    };
    let text = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let block = number("PCLOAD_TRUTH_BLOCK", 16);
    let base = json!({
        "tokenizer": {"path": text("PCLOAD_TRUTH_TOKENIZER"), "block_size": block},
        "service": {
            "model": text("PCLOAD_TRUTH_MODEL"),
            "dp_size": number("PCLOAD_TRUTH_RANKS", 1),
        },
        "requests": {"count": 60, "input_length": {"mode": "fixed", "value": block * 16}},
        "prefix_cache": {"groups": {"count": 3}},
    });
    Some(World::elsewhere(&url).with(base).with(change))
}

/// One test, since two runs at a time would be each other's foreign traffic.
#[test]
fn a_real_server_agrees_with_theory_to_the_token() {
    for mode in ["cold", "warmup"] {
        for format in ["text", "token_ids"] {
            let change = json!({
                "prefix_cache": {"mode": mode},
                "pcload": {"prompt_format": format},
            });
            let Some(world) = world(change) else { return };
            let (first, second) = (world.run(), world.run());
            assert_eq!(
                first.assert_exact(),
                second.assert_exact(),
                "{mode} {format}"
            );
        }
    }
}
