//! The exchanges that were recorded by hand, from servers with other options.

use pcload::sim::{Config, Faults, Pace, Release};
use serde_json::{Value, json};

use crate::conformance::{check_head, check_stream, config, recorded, replay};
use crate::wire::{Answer, completion, get, post, server, with_usage};

#[tokio::test(start_paused = true)]
async fn other_servers_answer_as_recorded() {
    let release = Release::V0_32;
    let without = server(Config {
        dev_mode: false,
        ..config(release)
    })
    .await;
    for name in ["nodev.reset_prefix_cache", "nodev.server_info"] {
        let (ours, theirs) = (
            replay(&without, release, name).await,
            recorded(release, name),
        );
        check_head(name, &ours, &theirs);
        assert_eq!(ours.text(), theirs.text());
    }
    without.shutdown().await;
    let two = server(Config {
        ranks: 2,
        ..config(release)
    })
    .await;
    for name in ["dp2.error.bad_rank", "dp2.reset_prefix_cache.idle"] {
        let (ours, theirs) = (replay(&two, release, name).await, recorded(release, name));
        check_head(name, &ours, &theirs);
        assert_eq!(ours.text(), theirs.text());
    }
    two.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_interval_of_four_puts_four_tokens_in_an_event() {
    let release = Release::V0_32;
    let server = server(Config {
        stream_interval: 4,
        ..config(release)
    })
    .await;
    let theirs = recorded(release, "completion.stream.interval4");
    let ids = &theirs.events()[0]["choices"][0]["prompt_token_ids"];
    let ids: Vec<u32> = serde_json::from_value(ids.clone()).unwrap();
    let more = json!({"model": "tiny", "stream": true, "return_token_ids": true,
        "stream_options": {"include_usage": true}});
    let ours = post(&server, "/v1/completions", &completion(&ids, 30, more)).await;
    let counts = |answer: &Answer| {
        let count = |event: &Value| event["choices"][0]["token_ids"].as_array().map(Vec::len);
        answer.events().iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!(counts(&ours), counts(&theirs));
    check_stream("interval4", &ours, &theirs);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_refused_as_recorded() {
    let release = Release::V0_32;
    let server = server(Config {
        max_queued_requests: Some(0),
        pace: Pace::Flood,
        ..config(release)
    })
    .await;
    let ours = post(
        &server,
        "/v1/completions",
        &completion(&[1], 1, json!({"model": "tiny"})),
    )
    .await;
    let theirs = recorded(release, "error.queue_full");
    assert_eq!((ours.status, ours.text()), (theirs.status, theirs.text()));
    let page = get(&server, "/metrics").await;
    let rejected =
        "vllm:admission_rejections_total{model_name=\"tiny\",reason=\"max_num_queued_reqs\"} 1.0";
    assert!(page.text().contains(rejected));
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_turn_out_busy_as_recorded() {
    let release = Release::V0_32;
    let server = server(Config {
        faults: Faults {
            busy_stream: 1.0,
            ..Faults::default()
        },
        ..config(release)
    })
    .await;
    let mut body = completion(&[1], 1, with_usage());
    body["model"] = json!("tiny");
    let ours = post(&server, "/v1/completions", &body).await;
    let theirs = recorded(release, "completion.stream.queue_full");
    assert_eq!((ours.status, ours.chunks), (theirs.status, theirs.chunks));
    server.shutdown().await;
}
