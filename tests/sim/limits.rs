//! Limits and refusals: context, keys, sizes, idle connections, options.

use std::sync::Arc;
use std::time::Duration;

use pcload::sim::{Config, External, Pace, Release, Server, SimError, Toy};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::wire::{
    Answer, cached, completion, get, ids, metric, post, send_raw, send_with, server, with_usage,
};

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_after_their_time() {
    let server = server(Config::default()).await;
    let mut stream = server.connect();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: s\r\n\r\n")
        .await
        .unwrap();
    let start = Instant::now();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(Answer::parse(&all).status, 200);
    let idle = start.elapsed().as_millis();
    assert!((5_000..5_010).contains(&idle), "{idle}");
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn keep_alive_works_after_a_stream() {
    let server = server(Config::default()).await;
    let body = completion(&ids(0, 20), 3, with_usage()).to_string();
    let first = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let second = "GET /version HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n";
    let all = send_raw(&server, format!("{first}{second}").as_bytes()).await;
    let text = String::from_utf8(all).unwrap();
    assert!(text.contains("[DONE]"));
    assert!(text.ends_with("{\"version\":\"0.32.0\"}"));
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_context_is_never_overrun() {
    let config = |release| Config {
        release,
        max_model_len: 100,
        ..Config::default()
    };
    let new = server(config(Release::V0_32)).await;
    let body = completion(&ids(0, 92), 100, json!({}));
    let answer = post(&new, "/v1/completions", &body).await;
    assert_eq!(answer.json()["usage"]["completion_tokens"], 8);
    let old = server(config(Release::V0_24)).await;
    assert_eq!(post(&old, "/v1/completions", &body).await.status, 400);
    new.shutdown().await;
    old.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn keys_are_asked_for_under_v1_only() {
    let server = server(Config {
        api_key: Some("secret".to_owned()),
        ..Config::default()
    })
    .await;
    assert_eq!(get(&server, "/v1/models").await.status, 401);
    assert_eq!(get(&server, "/metrics").await.status, 200);
    let headers = [("Authorization", "Bearer secret")];
    let allowed = send_with(&server, "GET", "/v1/models", &headers, b"").await;
    assert_eq!(allowed.json()["data"][0]["max_model_len"], 131_072);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn bodies_are_bounded() {
    let server = server(Config {
        body_bytes_max: 100,
        ..Config::default()
    })
    .await;
    let answer = post(
        &server,
        "/v1/completions",
        &completion(&ids(0, 100), 1, json!({})),
    )
    .await;
    assert_eq!(answer.status, 413);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn wrong_options_are_refused_before_anything_is_opened() {
    let config = Config {
        pool_blocks: 10,
        listen: None,
        ..Config::default()
    };
    let refused = Server::start(config, Arc::new(Toy::default()))
        .await
        .err()
        .unwrap();
    assert!(
        matches!(
            refused,
            SimError::Option {
                option: "max_model_len",
                ..
            }
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn a_socket_serves_as_well() {
    let config = Config {
        pace: Pace::Fixed {
            ttft: Duration::from_micros(1_500),
            itl: Duration::from_micros(700),
        },
        precise_timers: true,
        ..Config::default()
    };
    let server = Server::start(config, Arc::new(Toy::default()))
        .await
        .unwrap();
    let addr = server.addr().unwrap();
    assert_eq!(server.base_url(), format!("http://{addr}"));
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let body = completion(&ids(0, 50), 5, with_usage()).to_string();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n{body}GET /version HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    let text = String::from_utf8(all).unwrap();
    assert!(text.contains("data: [DONE]") && text.ends_with("{\"version\":\"0.32.0\"}"));
    let taken = Server::start(
        Config {
            listen: Some(addr),
            ..Config::default()
        },
        Arc::new(Toy::default()),
    )
    .await;
    assert!(matches!(taken.err().unwrap(), SimError::Listen { .. }));
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn wrong_methods_bodies_and_old_clients_are_answered() {
    let server = server(Config::default()).await;
    for (method, path, status) in [
        ("GET", "/reset_prefix_cache", 405),
        ("HEAD", "/health", 405),
        ("PUT", "/v1/completions", 405),
        ("GET", "/v2/completions", 404),
    ] {
        let answer = send_with(&server, method, path, &[], b"").await;
        assert_eq!(answer.status, status, "{method} {path}");
    }
    let refused = get(&server, "/reset_prefix_cache").await;
    assert_eq!(refused.text(), "{\"detail\":\"Method Not Allowed\"}");
    assert_eq!(refused.header("allow"), Some("POST"));
    for (kind, body) in [
        ("text/plain", "{\"prompt\":\"a\"}"),
        ("application/json", ""),
    ] {
        let headers = [("Content-Type", kind)];
        let answer = send_with(
            &server,
            "POST",
            "/v1/completions",
            &headers,
            body.as_bytes(),
        )
        .await;
        assert_eq!(
            (answer.status, answer.json()["error"]["type"].as_str()),
            (400, Some("Bad Request"))
        );
    }
    let old = send_raw(&server, b"GET /version HTTP/1.0\r\n\r\n").await;
    assert!(
        String::from_utf8(old)
            .unwrap()
            .ends_with("{\"version\":\"0.32.0\"}")
    );
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_external_tier_is_emptied_only_when_asked() {
    let server = server(Config {
        external: Some(External { blocks: 1_000 }),
        ..Config::default()
    })
    .await;
    let ask = async || {
        let body = completion(&ids(0, 100), 1, json!({}));
        cached(&post(&server, "/v1/completions", &body).await)
    };
    let reset = async |query: &str| {
        let path = format!("/reset_prefix_cache{query}");
        assert_eq!(
            post(&server, &path, &json!({})).await.text(),
            "{\"success\":true}"
        );
    };
    assert_eq!(ask().await, 0);
    reset("").await;
    assert_eq!(ask().await, 96);
    let external = "vllm:external_prefix_cache_hits_total{engine=\"0\",model_name=\"sim\"}";
    assert!((metric(&server, external).await - 96.0).abs() < 1e-9);
    reset("?reset_running_requests=true&reset_external=true").await;
    assert_eq!(ask().await, 0);
    server.shutdown().await;
}
