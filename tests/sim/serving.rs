//! When tokens leave, and what is counted by then.

use std::time::Duration;

use pcload::sim::{Config, Pace};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::wire::{
    Answer, cached, completion, ids, metric, post, send_with, server, steady, with_usage,
};

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

#[tokio::test(start_paused = true)]
async fn a_plain_request_ends_with_its_client_as_well() {
    let server = server(Config {
        pace: steady(),
        ..Config::default()
    })
    .await;
    let mut stream = server.connect();
    let body = completion(&ids(0, 1_000), 1_000, json!({})).to_string();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let running = "vllm:num_requests_running{engine=\"0\",model_name=\"sim\"}";
    assert!((metric(&server, running).await - 1.0).abs() < 1e-12);
    drop(stream);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(metric(&server, running).await.abs() < 1e-12);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_ends_streams_with_abort() {
    let server = server(Config {
        pace: steady(),
        ..Config::default()
    })
    .await;
    let body = completion(&ids(0, 100), 1_000, with_usage());
    let (answer, _) = tokio::join!(post(&server, "/v1/completions", &body), async {
        tokio::time::sleep(Duration::from_millis(105)).await;
        post(&server, "/abort_requests", &json!({})).await
    });
    let events = answer.events();
    let last = &events[events.len() - 2]["choices"][0];
    assert_eq!(
        (&last["finish_reason"], &last["text"]),
        (&json!("abort"), &json!(""))
    );
    let usage = &events[events.len() - 1]["usage"];
    assert_eq!(usage["completion_tokens"], 10);
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_finds_several_tokens_in_an_event() {
    let server = server(Config {
        pace: steady(),
        ..Config::default()
    })
    .await;
    let mut stream = server.connect();
    // More events than fit into the pipe before anybody reads.
    let body = completion(&ids(0, 10), 2_000, with_usage()).to_string();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: s\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    let answer = Answer::parse(&all);
    let events = answer.events();
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 2_000);
    assert!(events.len() < 1_990, "{} events", events.len());
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_truth_log_says_when_each_event_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("truth.jsonl");
    let server = server(Config {
        pace: Pace::Flood,
        truth_log: Some(path.clone()),
        ..Config::default()
    })
    .await;
    let body = completion(&ids(0, 100), 5, with_usage()).to_string();
    let headers = [("X-Request-Id", "mine")];
    let answer = send_with(
        &server,
        "POST",
        "/v1/completions",
        &headers,
        body.as_bytes(),
    )
    .await;
    assert_eq!(answer.events()[0]["id"], "cmpl-mine");
    server.shutdown().await;
    let rows = std::fs::read_to_string(path).unwrap();
    let row: Value = serde_json::from_str(rows.trim()).unwrap();
    assert_eq!(
        (&row["rid"], &row["id"]),
        (&json!("mine"), &json!("cmpl-mine"))
    );
    let sends: Vec<u64> = serde_json::from_value(row["sends_ns"].clone()).unwrap();
    assert_eq!(sends.len(), 5);
    assert!(sends.is_sorted() && sends[0] >= row["recv_ns"].as_u64().unwrap());
    assert_eq!(
        (&row["completion_tokens"], &row["complete"]),
        (&json!(5), &json!(true))
    );
}
