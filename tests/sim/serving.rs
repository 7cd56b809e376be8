//! When tokens leave, and what is counted by then.

use std::time::Duration;

use pcload::sim::{Config, Pace};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::wire::{cached, completion, ids, metric, post, server, steady, with_usage};

#[tokio::test(start_paused = true)]
async fn a_stream_takes_one_step_a_token() {
    let server = server(Config {
        pace: steady(),
        ..Config::default()
    })
    .await;
    let start = Instant::now();
    let body = completion(&ids(0, 100), 10, with_usage());
    let answer = post(&server, "/v1/completions", &body).await;
    let took = start.elapsed();
    assert!((100..103).contains(&took.as_millis()), "{took:?}");
    assert!(answer.complete);
    // Ten tokens, usage, [DONE]: one HTTP chunk each.
    assert_eq!(answer.chunks.len(), 12);
    assert_eq!(answer.chunks[11], b"data: [DONE]\n\n");
    let events = answer.events();
    assert_eq!(events[10]["usage"]["completion_tokens"], 10);
    assert_eq!(
        events[10]["usage"]["prompt_tokens_details"]["cached_tokens"],
        0
    );
    assert_eq!(events[9]["choices"][0]["finish_reason"], "length");
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn metrics_are_final_when_the_last_event_has_left() {
    let server = server(Config {
        pace: steady(),
        ..Config::default()
    })
    .await;
    for round in 1..=3 {
        let body = completion(&ids(0, 129), 8, with_usage());
        let answer = post(&server, "/v1/completions", &body).await;
        let expected = if round == 1 { 0 } else { 128 };
        assert_eq!(
            answer.events().last().unwrap()["usage"]["prompt_tokens_details"]["cached_tokens"],
            expected
        );
        let read = async |name: &str| {
            metric(
                &server,
                &format!("vllm:{name}{{engine=\"0\",model_name=\"sim\"}}"),
            )
            .await
        };
        let rounds = f64::from(round);
        assert!((read("prefix_cache_queries_total").await - 129.0 * rounds).abs() < 1e-9);
        assert!((read("prompt_tokens_total").await - 129.0 * rounds).abs() < 1e-9);
        assert!((read("prefix_cache_hits_total").await - 128.0 * (rounds - 1.0)).abs() < 1e-9);
        assert!((read("generation_tokens_total").await - 8.0 * rounds).abs() < 1e-9);
        assert!(read("num_requests_running").await.abs() < 1e-9);
    }
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn fixed_pace_is_exact() {
    let server = server(Config {
        pace: Pace::Fixed {
            ttft: Duration::from_millis(50),
            itl: Duration::from_millis(20),
        },
        ..Config::default()
    })
    .await;
    let start = Instant::now();
    let body = completion(&ids(0, 50), 5, with_usage());
    let mut stream = server.connect();
    let text = body.to_string();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: s\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut times = Vec::new();
    let mut buffer = vec![0; 4_096];
    loop {
        let count = stream.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        times.push(start.elapsed().as_millis());
    }
    // The head at once, then a token at 50, 70, 90, 110, 130 (tokio's timer
    // rounds up to whole milliseconds).
    times.dedup();
    assert_eq!(times.len(), 6, "{times:?}");
    for (time, planned) in times.iter().zip([0, 50, 70, 90, 110, 130]) {
        assert!((planned..=planned + 1).contains(time), "{times:?}");
    }
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn flood_says_every_token_in_an_event_of_its_own() {
    let server = server(Config {
        pace: Pace::Flood,
        ..Config::default()
    })
    .await;
    let body = completion(&ids(0, 50), 500, with_usage());
    let answer = post(&server, "/v1/completions", &body).await;
    assert_eq!(answer.chunks.len(), 502);
    assert!(answer.complete);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_frees_its_blocks() {
    let server = server(Config {
        pace: steady(),
        ..Config::default()
    })
    .await;
    let mut stream = server.connect();
    let body = completion(&ids(0, 1_000), 1_000, with_usage()).to_string();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut buffer = vec![0; 1_024];
    stream.read_exact(&mut buffer).await.unwrap();
    let busy = post(&server, "/reset_prefix_cache", &json!({})).await;
    assert_eq!(busy.text(), "{\"success\":false}");
    drop(stream);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let usage = metric(
        &server,
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"sim\"}",
    )
    .await;
    assert!(usage.abs() < 1e-12, "{usage}");
    let again = post(
        &server,
        "/v1/completions",
        &completion(&ids(0, 1_000), 1, json!({})),
    )
    .await;
    assert_eq!(cached(&again), 992, "what was computed stays cached");
    for reason in ["abort", "stop"] {
        let series = format!(
            "vllm:request_success_total{{engine=\"0\",finished_reason=\"{reason}\",model_name=\"sim\"}}"
        );
        assert!(metric(&server, &series).await.abs() < 1e-12);
    }
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn comments_come_before_the_first_token_when_asked_for() {
    let server = server(Config {
        pace: Pace::Fixed {
            ttft: Duration::from_millis(3_500),
            itl: Duration::from_millis(10),
        },
        sse_keep_alive: Some(Duration::from_secs(1)),
        ..Config::default()
    })
    .await;
    let answer = post(
        &server,
        "/v1/completions",
        &completion(&ids(0, 10), 2, with_usage()),
    )
    .await;
    let comments = answer
        .chunks
        .iter()
        .filter(|chunk| *chunk == b": keep-alive\n\n")
        .count();
    assert_eq!(comments, 3);
    assert_eq!(answer.events().len(), 3);
    server.shutdown().await;
}
