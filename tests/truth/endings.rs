//! Runs that end early, and what no run may give away.

use std::fs;
use std::time::Duration;

use pcload::sim::{Config, Faults, Pace};
use serde_json::json;

use crate::verdict::Judged;
use crate::world::{REQUESTS, World, quick};

/// The progress line of a run with at least one request done.
fn some_are_done(line: &str) -> bool {
    line.split_once(" done, ").is_some_and(|(counts, _)| {
        let done = counts.split('/').next().and_then(|done| done.parse().ok());
        done.is_some_and(|done: u64| done > 0 && done < REQUESTS)
    })
}

#[test]
fn an_interrupt_writes_what_was_measured() {
    let world = World::new(Config {
        pace: Pace::Fixed {
            ttft: Duration::from_millis(300),
            itl: Duration::from_millis(5),
        },
        ..quick()
    })
    .with(json!({"aisbench": {"model": {"batch_size": 1}}}));
    let judged = world.interrupt(some_are_done);
    assert_eq!(judged.status, 130, "{}", judged.stderr);
    assert!(judged.stderr.contains("ERROR: INTERRUPTED: "));
    let records = world.records();
    let sent = records
        .iter()
        .filter(|one| !one.attempts.is_empty())
        .count() as u64;
    assert!(sent > 0 && sent < REQUESTS, "{sent}");
    assert_eq!(judged.judgment()["status"], "interrupted");
    assert_eq!(judged.findings(), ["INTERRUPTED", "REQUESTS_NOT_SENT"]);
    // What was sent is as exact as a whole run.
    judged.assert_agrees();
    assert_eq!(judged.document["status"], "interrupted");
}

#[test]
fn a_run_without_any_success_fails_and_still_writes_its_report() {
    // Formal requests are long enough for each stream to break; the control
    // requests are not.
    let world = World::new(Config {
        faults: Faults {
            error_event: 1.0,
            ..Faults::default()
        },
        ..quick()
    })
    .with(json!({"requests": {"output_length": {"mode": "fixed", "value": 64}}}));
    let judged = world.run();
    assert_eq!(judged.status, 3, "{}", judged.stderr);
    assert!(judged.stderr.contains("ERROR: NO_REQUEST_SUCCEEDED: "));
    assert_eq!(judged.findings(), ["NO_SUCCESS", "REQUESTS_FAILED"]);
    assert_eq!(judged.judgment()["verdict"], "invalid");
    assert_eq!(
        judged.judgment()["failures"]["server_error_event"],
        REQUESTS
    );
    assert_eq!(world.records().len() as u64, REQUESTS);
    // Nothing was measured: null, never 0.
    assert!(judged.judgment()["latency"]["ttft_ms"]["p50"].is_null());
}

const KEY: &str = "sk-test-0123456789abcdef";
const PASSWORD: &str = "pw-0123456789";
const QUERY: &str = "qk-0123456789";
const HEADER: &str = "hk-0123456789";
/// The user part of the address, as a header has it.
const BASIC: &str = "dXNlcjpwdy0wMTIzNDU2Nzg5";

fn secretive(key: &str) -> World {
    let world = World::new(Config {
        api_key: Some(KEY.to_owned()),
        ..quick()
    });
    let url = world.inference_url();
    let (scheme, rest) = url.split_once("://").unwrap();
    let url = format!("{scheme}://user:{PASSWORD}@{rest}?key={QUERY}");
    world
        .with(json!({"service": {"inference_url": url, "api_key": key}}))
        .argument("-vvv")
        .argument("--header")
        .argument(&format!("X-Api-Key={HEADER}"))
}

fn assert_discreet(world: &World, judged: &Judged) {
    let mut texts = vec![
        ("stdout".to_owned(), judged.stdout.clone()),
        ("stderr".to_owned(), judged.stderr.clone()),
    ];
    for path in world.files() {
        let bytes = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        texts.push((path.display().to_string(), text));
    }
    assert!(texts.len() > 5, "{}", judged.stderr);
    for (name, text) in texts {
        for secret in [KEY, PASSWORD, QUERY, HEADER, BASIC, "sk-wrong-0123456789"] {
            assert!(!text.contains(secret), "{name} gives {secret} away");
        }
    }
}

#[test]
fn no_output_gives_a_secret_away() {
    let world = secretive(KEY);
    let judged = world.run();
    judged.assert_exact();
    assert_discreet(&world, &judged);
}

#[test]
fn neither_does_a_refusal() {
    let world = secretive("sk-wrong-0123456789");
    let judged = world.run();
    judged.assert_stopped_by("UNAUTHORIZED");
    assert_discreet(&world, &judged);
}
