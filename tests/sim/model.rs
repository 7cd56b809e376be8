//! What is said and what is shared: tokens, ranks, salts, answers.

use std::sync::Arc;

use pcload::sim::{Answers, Config, Hybrid, Server, Toy};
use pcload::units::BlockSize;
use serde_json::{Value, json};

use crate::wire::{cached, completion, ids, metric, post, send_with, server};

fn needle_chat(salt: &str) -> Value {
    let filler = "The river was calm and the boats lay still. ".repeat(20);
    json!({"max_tokens": 50, "messages": [
        {"role": "user", "content":
            format!("{salt} {filler} The pass phrase is amber otter 4821. {filler}")},
        {"role": "assistant", "content": "I have read it."},
        {"role": "user", "content": "What is the pass phrase? Answer with it alone."},
    ]})
}

#[tokio::test(start_paused = true)]
async fn texts_get_the_tokenizers_special_tokens_and_ids_do_not() {
    let config = Config {
        listen: None,
        ..Config::default()
    };
    let server = Server::start(config, Arc::new(Toy::with_bos()))
        .await
        .unwrap();
    let count = async |body: Value| {
        let answer = post(&server, "/v1/completions", &body).await;
        answer.json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(count(json!({"prompt": "Hello, my name is"})).await, 6);
    let without = json!({"prompt": "Hello, my name is", "add_special_tokens": false});
    assert_eq!(count(without).await, 5);
    assert_eq!(count(json!({"prompt": [9_707, 11, 847]})).await, 3);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn choices_and_lists_are_served_as_vllm_does() {
    let server = server(Config::default()).await;
    let read = async |name: &str| {
        metric(
            &server,
            &format!("vllm:{name}{{engine=\"0\",model_name=\"sim\"}}"),
        )
        .await
    };
    let two = post(
        &server,
        "/v1/completions",
        &completion(&ids(0, 129), 4, json!({"n": 2})),
    )
    .await;
    let usage = two.json()["usage"].clone();
    assert_eq!(
        (
            usage["prompt_tokens"].clone(),
            usage["completion_tokens"].clone()
        ),
        (json!(129), json!(8))
    );
    assert_eq!(two.json()["choices"].as_array().unwrap().len(), 2);
    assert!((read("prefix_cache_queries_total").await - 258.0).abs() < 1e-9);
    assert!((read("prefix_cache_hits_total").await - 128.0).abs() < 1e-9);
    let list = json!({"prompt": [[1, 2, 3], [4, 5]], "max_tokens": 2});
    let answer = post(&server, "/v1/completions", &list).await.json();
    assert_eq!(answer["usage"]["prompt_tokens"], 5);
    assert_eq!(answer["choices"][1]["index"], 1);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn salts_share_nothing_and_prompt_logprobs_skip_the_cache() {
    let server = server(Config::default()).await;
    let ask = async |more: Value| {
        cached(
            &post(
                &server,
                "/v1/completions",
                &completion(&ids(0, 129), 1, more),
            )
            .await,
        )
    };
    assert_eq!(ask(json!({})).await, 0);
    assert_eq!(ask(json!({"cache_salt": "a"})).await, 0);
    assert_eq!(ask(json!({"cache_salt": "a"})).await, 128);
    assert_eq!(ask(json!({})).await, 128);
    assert_eq!(ask(json!({"prompt_logprobs": 1})).await, 0);
    let series = |name: &str| format!("vllm:{name}{{engine=\"0\",model_name=\"sim\"}}");
    let queries = metric(&server, &series("prefix_cache_queries_total")).await;
    let prompts = metric(&server, &series("prompt_tokens_total")).await;
    assert!((queries - 4.0 * 129.0).abs() < 1e-9 && (prompts - 5.0 * 129.0).abs() < 1e-9);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn ranks_are_picked_by_header_or_in_turn() {
    let server = server(Config {
        ranks: 2,
        ..Config::default()
    })
    .await;
    let body = completion(&ids(0, 129), 1, json!({})).to_string();
    let ask = async |rank: Option<&str>| {
        let headers: Vec<_> = rank
            .map(|rank| ("X-data-parallel-rank", rank))
            .into_iter()
            .collect();
        send_with(
            &server,
            "POST",
            "/v1/completions",
            &headers,
            body.as_bytes(),
        )
        .await
    };
    assert_eq!(cached(&ask(Some("1")).await), 0);
    assert_eq!(cached(&ask(Some("1")).await), 128);
    assert_eq!(cached(&ask(Some("0")).await), 0);
    let refused = ask(Some("2")).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused
            .text()
            .contains("data_parallel_rank 2 is out of range [0, 2).")
    );
    assert_eq!(ask(Some("first")).await.status, 200);
    for _ in 0..9 {
        ask(None).await;
    }
    let on = async |rank: u32| {
        let series = format!("vllm:prompt_tokens_total{{engine=\"{rank}\",model_name=\"sim\"}}");
        metric(&server, &series).await
    };
    assert!((on(0).await + on(1).await - 13.0 * 129.0).abs() < 1e-9);
    assert!(
        (on(0).await - on(1).await).abs() <= 129.0,
        "they take turns"
    );
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_chat_ends_by_itself_when_no_limit_is_named() {
    let server = server(Config::default()).await;
    let chat = json!({"messages": [{"role": "user", "content": "Say something."}]});
    let answer = post(&server, "/v1/chat/completions", &chat).await.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["completion_tokens"], 128);
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_model_answers_by_its_option() {
    let said = async |answers| {
        let server = server(Config {
            answers,
            ..Config::default()
        })
        .await;
        let mut said = Vec::new();
        for salt in ["one", "one", "two"] {
            let answer = post(&server, "/v1/chat/completions", &needle_chat(salt))
                .await
                .json();
            let text = answer["choices"][0]["message"]["content"]
                .as_str()
                .unwrap()
                .to_owned();
            said.push(text.contains("amber otter 4821"));
        }
        server.shutdown().await;
        said
    };
    assert_eq!(said(Answers::Right).await, [true, true, true]);
    // Stale: wrong exactly where the prefix was reused.
    assert_eq!(said(Answers::Stale).await, [true, false, true]);
    assert_eq!(said(Answers::Never).await, [false, false, false]);
}

#[tokio::test(start_paused = true)]
async fn hybrid_models_lose_the_silent_conversation_only_with_the_defect() {
    for (loss, kept) in [(false, 480), (true, 0)] {
        let server = server(Config {
            block: BlockSize::new(480).unwrap(),
            hybrid: Some(Hybrid {
                retention_interval: None,
                interleaving_loss: loss,
            }),
            ..Config::default()
        })
        .await;
        let turn = async |first: u32, tokens: u32| {
            cached(
                &post(
                    &server,
                    "/v1/completions",
                    &completion(&ids(first, tokens), 1, json!({})),
                )
                .await,
            )
        };
        assert_eq!(turn(0, 1_000).await, 0);
        assert_eq!(turn(0, 1_200).await, 480, "nobody spoke in between");
        assert_eq!(turn(50_000, 1_000).await, 0);
        assert_eq!(turn(0, 1_300).await, kept.max(if loss { 0 } else { 480 }));
        server.shutdown().await;
    }
}
