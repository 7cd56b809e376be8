//! Faults, each by its option.

use std::time::Duration;

use pcload::sim::{Config, Faults, Pace, Release, Server};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::wire::{
    Answer, cached, completion, get, ids, metric, post, send_with, server, steady, with_usage,
};

async fn faulty(faults: Faults) -> Server {
    server(Config {
        pace: steady(),
        faults,
        ..Config::default()
    })
    .await
}

async fn stream(server: &Server, tokens: u64) -> Answer {
    let body = completion(&ids(0, 100), tokens, with_usage());
    post(server, "/v1/completions", &body).await
}

#[tokio::test(start_paused = true)]
async fn resets_are_refused_or_ignored() {
    for (refuse_reset, said) in [(true, "{\"success\":false}"), (false, "{\"success\":true}")] {
        let server = faulty(Faults {
            refuse_reset,
            ignore_reset: !refuse_reset,
            ..Faults::default()
        })
        .await;
        let ask = async || {
            let body = completion(&ids(0, 100), 1, json!({}));
            cached(&post(&server, "/v1/completions", &body).await)
        };
        assert_eq!(ask().await, 0);
        let reset = post(&server, "/reset_prefix_cache", &json!({})).await;
        assert_eq!((reset.status, reset.text()), (200, said));
        assert_eq!(ask().await, 96, "nothing was reset");
        server.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn resets_of_old_releases_say_nothing() {
    let server = server(Config {
        release: Release::V0_24,
        dev_mode: true,
        ..Config::default()
    })
    .await;
    let reset = post(&server, "/reset_prefix_cache", &json!({})).await;
    assert_eq!((reset.status, reset.text()), (200, ""));
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_rank_header_is_ignored() {
    let server = server(Config {
        ranks: 2,
        faults: Faults {
            ignore_rank_header: true,
            ..Faults::default()
        },
        ..Config::default()
    })
    .await;
    let body = completion(&ids(0, 100), 1, json!({})).to_string();
    for _ in 0..4 {
        let headers = [("X-data-parallel-rank", "1")];
        let answer = send_with(
            &server,
            "POST",
            "/v1/completions",
            &headers,
            body.as_bytes(),
        )
        .await;
        assert_eq!(answer.status, 200);
    }
    for rank in 0..2 {
        let series = format!("vllm:prompt_tokens_total{{engine=\"{rank}\",model_name=\"sim\"}}");
        assert!((metric(&server, &series).await - 200.0).abs() < 1e-9);
    }
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn usage_details_are_dropped() {
    let server = server(Config {
        prompt_tokens_details: false,
        ..Config::default()
    })
    .await;
    let events = stream(&server, 2).await.events();
    assert!(events[2]["usage"].get("prompt_tokens_details").is_none());
    let plain = post(
        &server,
        "/v1/completions",
        &completion(&ids(0, 9), 1, json!({})),
    )
    .await;
    let usage = plain.json()["usage"].clone();
    assert!(
        usage
            .as_object()
            .unwrap()
            .contains_key("prompt_tokens_details")
    );
    assert!(usage["prompt_tokens_details"].is_null());
    server.shutdown().await;
}

const QUERIES: &str = "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"sim\"}";

#[tokio::test(start_paused = true)]
async fn counters_lag_and_catch_up() {
    let server = faulty(Faults {
        counter_lag: Some(Duration::from_secs(2)),
        ..Faults::default()
    })
    .await;
    stream(&server, 2).await;
    assert!(metric(&server, QUERIES).await.abs() < 1e-9);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!((metric(&server, QUERIES).await - 100.0).abs() < 1e-9);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn counters_start_again_after_so_many_requests() {
    let server = faulty(Faults {
        restart_counters_after: Some(3),
        ..Faults::default()
    })
    .await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        stream(&server, 1).await;
        seen.push(metric(&server, QUERIES).await);
    }
    assert_eq!(seen, [100.0, 200.0, 300.0, 100.0, 200.0]);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn somebody_else_asks_as_well() {
    let server = faulty(Faults {
        foreign_every: Some(Duration::from_secs(1)),
        ..Faults::default()
    })
    .await;
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    let series = "vllm:prompt_tokens_total{engine=\"0\",model_name=\"sim\"}";
    assert!((metric(&server, series).await - 600.0).abs() < 1e-9);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn requests_are_refused_with_retry_after() {
    for (many, status) in [(1.0, 429), (0.0, 503)] {
        let server = faulty(Faults {
            too_many_requests: many,
            unavailable: 1.0,
            retry_after: Some(Duration::from_secs(7)),
            ..Faults::default()
        })
        .await;
        let answer = stream(&server, 2).await;
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (status, Some("7"))
        );
        assert_eq!(get(&server, "/health").await.status, 200);
        server.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_in_an_error_event() {
    let server = faulty(Faults {
        error_event: 1.0,
        ..Faults::default()
    })
    .await;
    let answer = stream(&server, 50).await;
    assert_eq!((answer.status, answer.complete), (200, true));
    let events = answer.events();
    assert_eq!(events.last().unwrap()["error"]["code"], 500);
    // As recorded when the engine process was killed.
    let died = "data: {\"error\": {\"message\": \"EngineCore encountered an issue. See stack trace (above) for the root cause.\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\n";
    assert_eq!(answer.chunks[answer.chunks.len() - 2], died.as_bytes());
    assert!((2..=9).contains(&events.len()));
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    let usage = "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"sim\"}";
    assert!(
        metric(&server, usage).await.abs() < 1e-12,
        "its blocks are free"
    );
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_cut_or_reset() {
    for cut in [true, false] {
        let server = faulty(Faults {
            cut_stream: f64::from(u8::from(cut)),
            reset_connection: f64::from(u8::from(!cut)),
            ..Faults::default()
        })
        .await;
        let answer = stream(&server, 50).await;
        assert!(!answer.complete);
        assert!(!answer.text().contains("[DONE]") && answer.text().contains("data: "));
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_reset_reaches_the_socket() {
    let server = Server::start(
        Config {
            pace: Pace::Flood,
            faults: Faults {
                reset_connection: 1.0,
                ..Faults::default()
            },
            ..Config::default()
        },
        std::sync::Arc::new(pcload::sim::Toy::default()),
    )
    .await
    .unwrap();
    let mut socket = tokio::net::TcpStream::connect(server.addr().unwrap())
        .await
        .unwrap();
    let body = completion(&ids(0, 100), 50, with_usage()).to_string();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let error = socket.read_to_end(&mut all).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_falls_silent_with_the_socket_open() {
    let server = faulty(Faults {
        stall: 1.0,
        ..Faults::default()
    })
    .await;
    let waited = tokio::time::timeout(Duration::from_secs(3_600), stream(&server, 50)).await;
    assert!(waited.is_err());
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_is_slow() {
    let server = faulty(Faults {
        slow_first_byte: Some(Duration::from_secs(2)),
        ..Faults::default()
    })
    .await;
    let start = Instant::now();
    stream(&server, 1).await;
    assert!(start.elapsed() >= Duration::from_secs(2));
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn bent_streams_say_the_same() {
    let straight = {
        let server = faulty(Faults::default()).await;
        let events = stream(&server, 20).await.events();
        server.shutdown().await;
        events
    };
    let texts = |events: &[serde_json::Value]| -> Vec<String> {
        let text =
            |event: &serde_json::Value| event["choices"][0]["text"].as_str().map(str::to_owned);
        events.iter().filter_map(text).collect()
    };
    let ways = [
        Faults {
            split_chunks: true,
            ..Faults::default()
        },
        Faults {
            coalesce: Some(4),
            ..Faults::default()
        },
        Faults {
            comments: true,
            crlf: true,
            split_chunks: true,
            ..Faults::default()
        },
    ];
    for faults in ways {
        let server = faulty(faults.clone()).await;
        let answer = stream(&server, 20).await;
        assert!(answer.complete);
        assert_eq!(texts(&answer.events()), texts(&straight), "{faults:?}");
        assert_ne!(answer.chunks.len(), 22, "{faults:?}");
        server.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_metrics_page_shows_too_much_or_too_little() {
    let server = server(Config {
        ranks: 2,
        faults: Faults {
            duplicate_series: true,
            second_model: true,
            missing_rank: Some(1),
            ..Faults::default()
        },
        ..Config::default()
    })
    .await;
    let page = get(&server, "/metrics").await;
    assert!(
        page.text()
            .contains("vllm:gpu_prefix_cache_hits_total{engine=\"0\"")
    );
    assert!(page.text().contains("model_name=\"sim-second\""));
    assert!(!page.text().contains("engine=\"1\""));
    let models = get(&server, "/v1/models").await.json();
    assert_eq!(models["data"][1]["id"], "sim-second");
    server.shutdown().await;
}
