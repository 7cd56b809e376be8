//! The known workload of the recorded servers against the simulator: every
//! series that does not measure time moves by the same amount.

use std::collections::BTreeMap;

use pcload::sim::{Config, Release, Server};
use serde_json::json;

use crate::conformance::{config, data, request};
use crate::wire::{completion, get, send_with, server};

/// Values by series, without births, times and the process's own.
fn values(page: &str) -> BTreeMap<String, f64> {
    page.lines()
        .filter(|line| line.starts_with("vllm:") || line.starts_with("http_requests_total"))
        .map(|line| line.rsplit_once(' ').unwrap())
        .filter(|(series, _)| {
            let timed = series.contains("_seconds") && !series.contains("_seconds_count");
            !timed && !series.contains("_created") && !series.contains("cache_config_info")
        })
        .map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
        .collect()
}

fn moved(before: &str, after: &str) -> BTreeMap<String, f64> {
    let before = values(before);
    values(after)
        .into_iter()
        .map(|(series, value)| {
            let change = value - before.get(&series).copied().unwrap_or(0.0);
            (series, change)
        })
        .filter(|(_, change)| *change != 0.0)
        .collect()
}

/// Six completions, one after the other, and the cached tokens of each.
async fn workload(server: &Server, release: Release, ranks: [Option<&str>; 6]) -> Vec<u64> {
    let a: Vec<u32> =
        serde_json::from_value(request(release, "completion.plain")["body"]["prompt"].clone())
            .unwrap();
    assert_eq!(a.len(), 129);
    let begins: Vec<u32> = a[..64].iter().copied().chain(1_000..1_036).collect();
    let b: Vec<u32> = (2_000..2_256).collect();
    let prompts = [(&a, 8), (&a, 8), (&begins, 8), (&a, 8), (&b, 4), (&b, 4)];
    let mut cached = Vec::new();
    for ((ids, tokens), rank) in prompts.into_iter().zip(ranks) {
        let body = completion(ids, tokens, json!({"model": "tiny"})).to_string();
        let rank = rank.map(|rank| ("X-data-parallel-rank", rank));
        let headers: Vec<_> = rank.into_iter().collect();
        let answer = send_with(server, "POST", "/v1/completions", &headers, body.as_bytes()).await;
        let details = answer.json()["usage"]["prompt_tokens_details"].clone();
        cached.push(details["cached_tokens"].as_u64().unwrap());
    }
    cached
}

async fn check(release: Release, name: &str, ranks: [Option<&str>; 6], hits: [u64; 6]) {
    let read = |part: &str| {
        let path = data(release).join(format!("{name}.metrics.{part}.txt"));
        std::fs::read_to_string(path).unwrap()
    };
    let server = server(Config {
        ranks: if ranks[0].is_some() { 2 } else { 1 },
        ..config(release)
    })
    .await;
    let before = get(&server, "/metrics").await;
    assert_eq!(workload(&server, release, ranks).await, hits);
    let after = get(&server, "/metrics").await;
    let ours = moved(before.text(), after.text());
    let theirs = moved(&read("before"), &read("after"));
    assert_eq!(ours, theirs);
    assert!(theirs.len() > 20, "the recorded page moved");
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn counters_of_0_32_0_move_as_recorded() {
    check(Release::V0_32, "dp1", [None; 6], [0, 128, 64, 128, 0, 224]).await;
}

#[tokio::test(start_paused = true)]
async fn counters_of_two_ranks_move_as_recorded() {
    let (zero, one) = (Some("0"), Some("1"));
    let ranks = [zero, zero, zero, one, one, one];
    check(Release::V0_32, "dp2", ranks, [0, 128, 64, 0, 0, 224]).await;
}

#[tokio::test(start_paused = true)]
async fn counters_of_0_24_0_move_as_recorded() {
    check(Release::V0_24, "dp1", [None; 6], [0, 128, 64, 128, 0, 240]).await;
}
