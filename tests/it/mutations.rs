//! Mutated inputs through the program: whatever stands in a file, the program
//! ends with a status of its own and says why.

use std::fs;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::folder::{Folder, Ran, scenario, with};

/// Programs started by each test.
const ROUNDS: u64 = 48;

/// Values that have broken parsers before.
fn odd(pick: u32) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1),
        json!(17),
        json!(0.5),
        json!(1e300),
        json!(9_223_372_036_854_775_808_u64),
        json!(""),
        json!("\u{0}"),
        json!("\u{1f600}\u{301}"),
        json!([]),
        json!({}),
        json!([[]]),
        json!({"mode": "csv"}),
        json!({"mode": "uniform", "min": 3, "max": 2}),
        json!({"mode": "zipf", "exponent": 1e9}),
    ];
    values[pick as usize % values.len()].clone()
}

/// The pointers of all values below.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    let mut visit = |key: &str, child: &Value| {
        let place = format!("{here}/{}", key.replace('~', "~0").replace('/', "~1"));
        places(child, &place, found);
        found.push(place);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, child)| visit(key, child)),
        Value::Array(items) => items
            .iter()
            .take(3)
            .enumerate()
            .for_each(|(index, child)| visit(&index.to_string(), child)),
        _ => {}
    }
}

/// One or two values replaced, or the text cut or bent at a byte.
fn mutate(document: &Value, random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut document = document.clone();
    let mut all = Vec::new();
    places(&document, "", &mut all);
    for _ in 0..=(random.next_u32() % 2) {
        let place = &all[random.next_u32() as usize % all.len()];
        if let Some(value) = document.pointer_mut(place) {
            *value = odd(random.next_u32());
        }
    }
    let mut text = document.to_string().into_bytes();
    let at = random.next_u32() as usize % text.len();
    match random.next_u32() % 8 {
        0 => text.truncate(at),
        1 => text[at] ^= 1 << (random.next_u32() % 8),
        _ => {}
    }
    text
}

#[track_caller]
fn ended_well(ran: &Ran, seed: u64) {
    match ran.status {
        0 => assert!(ran.errors().is_empty(), "seed {seed}: {}", ran.stderr),
        2 | 3 => {
            assert!(!ran.errors().is_empty(), "seed {seed}: {}", ran.stderr);
            assert_eq!(ran.stdout, "", "seed {seed}");
        }
        status => panic!("seed {seed}: exit {status}: {}", ran.stderr),
    }
}

#[test]
fn mutated_scenarios() {
    let folder = Folder::new();
    let mut full = with(scenario(), "requests.count", json!(6));
    full["prefix_cache"]["groups"] = json!({
        "count": 2,
        "assignment": {"mode": "weights", "weights": [0.5, 0.5]},
        "overrides": {"group-1": {"output_length": {"mode": "fixed", "value": 3}}},
    });
    full["corpus"]["selection"] = json!({"mode": "indices", "values": [0, 1, 2]});
    full["pcload"] = json!({"prompt_format": "text", "slo": {"ttft": 100}});
    for seed in 0..ROUNDS {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let text = mutate(&full, &mut random);
        fs::write(folder.path("scenario.json"), text).unwrap();
        let ran = folder.run(&["inspect", "-q", "--scenario", "scenario.json"]);
        ended_well(&ran, seed);
    }
}

#[test]
fn mutated_manifests() {
    let folder = Folder::new();
    folder.write_scenario(&with(scenario(), "prefix_cache.mode", json!("warmup")));
    let prepared = folder.prepare();
    let whole = prepared.read_manifest();
    let url = "http://127.0.0.1:1/v1/completions";
    let whole = with(whole, "effective_config.service.inference_url", json!(url));
    for seed in 0..ROUNDS {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        fs::write(prepared.manifest(), mutate(&whole, &mut random)).unwrap();
        let command = match seed % 3 {
            0 => &["validate"][..],
            1 => &["validate", "--deep"],
            _ => &["run", "-q"],
        };
        let ran = folder.run(&[command, &["--manifest", prepared.manifest()]].concat());
        ended_well(&ran, seed);
    }
}
