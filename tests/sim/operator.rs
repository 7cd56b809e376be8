//! Pauses, as the recorded server kept them.

use std::time::Duration;

use pcload::sim::{Config, Pace, Server};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::wire::{Answer, cached, completion, get, ids, post, server, steady, with_usage};

async fn steady_server(pace: Pace) -> Server {
    server(Config {
        pace,
        ..Config::default()
    })
    .await
}

fn fixed() -> Pace {
    Pace::Fixed {
        ttft: Duration::from_millis(50),
        itl: Duration::from_millis(10),
    }
}

fn paces() -> [Pace; 2] {
    [steady(), fixed()]
}

async fn ask(server: &Server, first: u32, tokens: u64) -> (Answer, Duration) {
    let start = Instant::now();
    let body = completion(&ids(first, 40), tokens, with_usage());
    let answer = post(server, "/v1/completions", &body).await;
    (answer, start.elapsed())
}

async fn pause(server: &Server, query: &str) -> Duration {
    let start = Instant::now();
    let answer = post(server, &format!("/pause{query}"), &json!({})).await;
    assert_eq!(answer.text(), "{\"status\":\"paused\"}");
    assert_eq!(
        get(server, "/is_paused").await.text(),
        "{\"is_paused\":true}"
    );
    start.elapsed()
}

async fn resume(server: &Server) {
    let answer = post(server, "/resume", &json!({})).await;
    assert_eq!(answer.text(), "{\"status\":\"resumed\"}");
}

fn finish(answer: &Answer) -> String {
    let events = answer.events();
    let last = &events[events.len() - 2]["choices"][0]["finish_reason"];
    last.as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_pause_aborts_what_runs_and_lets_newcomers_wait() {
    for pace in paces() {
        let server = steady_server(pace).await;
        let ((first, took), (second, waited), ()) =
            tokio::join!(ask(&server, 0, 1_000), late(&server), async {
                sleep(Duration::from_millis(305)).await;
                pause(&server, "").await;
                sleep(Duration::from_secs(2)).await;
                resume(&server).await;
            });
        assert_eq!(finish(&first), "abort");
        assert!(took < Duration::from_millis(320), "{took:?}");
        assert_eq!(finish(&second), "length");
        assert!(waited > Duration::from_millis(1_300), "{waited:?}");
        server.shutdown().await;
    }
}

/// A request that comes while the server is paused.
async fn late(server: &Server) -> (Answer, Duration) {
    sleep(Duration::from_secs(1)).await;
    ask(server, 5_000, 4).await
}

#[tokio::test(start_paused = true)]
async fn a_pause_may_wait_for_what_runs() {
    for pace in paces() {
        let server = steady_server(pace).await;
        let ((first, took), paused) = tokio::join!(ask(&server, 0, 100), async {
            sleep(Duration::from_millis(300)).await;
            pause(&server, "?mode=wait").await
        });
        assert_eq!(finish(&first), "length");
        let ended = Duration::from_millis(302) + paused;
        assert!(ended >= took, "{took:?}, paused for {paused:?}");
        resume(&server).await;
        server.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_may_freeze_what_runs() {
    for pace in paces() {
        let server = steady_server(pace).await;
        let (_, usual) = ask(&server, 0, 50).await;
        let ((first, took), ()) = tokio::join!(ask(&server, 1_000, 50), async {
            sleep(Duration::from_millis(205)).await;
            pause(&server, "?mode=keep&clear_cache=false").await;
            sleep(Duration::from_secs(3)).await;
            resume(&server).await;
        });
        assert_eq!(finish(&first), "length");
        assert_eq!(
            first.events().last().unwrap()["usage"]["completion_tokens"],
            50
        );
        let longer = took.checked_sub(usual).unwrap();
        assert!(
            (2_980..=3_020).contains(&longer.as_millis()),
            "{pace:?}: {longer:?}"
        );
        server.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_empties_the_cache_unless_told_not_to() {
    let server = steady_server(steady()).await;
    let body = completion(&ids(0, 129), 2, json!({}));
    let again = async || cached(&post(&server, "/v1/completions", &body).await);
    assert_eq!((again().await, again().await), (0, 128));
    for (query, left) in [
        ("", 0),
        ("?clear_cache=false", 128),
        ("?mode=keep", 0),
        ("?mode=wait&clear_cache=true", 0),
    ] {
        pause(&server, query).await;
        resume(&server).await;
        assert_eq!(again().await, left, "{query}");
    }
    server.shutdown().await;
}
