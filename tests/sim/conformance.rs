//! Recorded exchanges of real vLLM servers against the simulator: status,
//! headers, bodies or the sequence of events, usage. Text, ids and times are
//! the only things that may differ.

use std::path::PathBuf;
use std::time::Duration;

use pcload::sim::{Config, Release, Server};
use pcload::units::BlockSize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::compare::{self, Same};
use crate::wire::{Answer, completion, send_with, server, steady};

pub(crate) fn data(release: Release) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(format!("vllm-{}", release.version()))
}

pub(crate) fn config(release: Release) -> Config {
    let block = match release {
        Release::V0_24 => 16,
        Release::V0_32 => 32,
    };
    Config {
        release,
        model: "tiny".to_owned(),
        block: BlockSize::new(block).unwrap(),
        pool_blocks: 32_768,
        max_model_len: 32_768,
        pace: steady(),
        default_system: Some(
            "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.".to_owned(),
        ),
        ..Config::default()
    }
}

pub(crate) fn recorded(release: Release, name: &str) -> Answer {
    let path = data(release).join(format!("{name}.http"));
    Answer::parse(&std::fs::read(&path).unwrap_or_else(|_| panic!("{}", path.display())))
}

pub(crate) fn request(release: Release, name: &str) -> Value {
    let path = data(release).join(format!("{name}.request.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub(crate) async fn replay(server: &Server, release: Release, name: &str) -> Answer {
    let asked = request(release, name);
    let headers: Vec<(&str, &str)> = asked["headers"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "Connection")
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .collect();
    let mut body = asked["body"].clone();
    if let Some(text) = body["prompt"]["repeated"].as_str() {
        let characters = usize::try_from(body["prompt"]["characters"].as_u64().unwrap()).unwrap();
        body["prompt"] = Value::from(text.chars().cycle().take(characters).collect::<String>());
    }
    let body = match asked["body_text"].as_str() {
        Some(text) => text.to_owned(),
        None if body.is_null() => String::new(),
        None => body.to_string(),
    };
    let text = |name: &str| asked[name].as_str().unwrap();
    send_with(
        server,
        text("method"),
        text("path"),
        &headers,
        body.as_bytes(),
    )
    .await
}

fn check(name: &str, same: Same) {
    same.unwrap_or_else(|why| panic!("{name}: {why}"));
}

pub(crate) fn check_head(name: &str, ours: &Answer, theirs: &Answer) {
    check(name, compare::head(ours, theirs));
}

fn check_document(name: &str, ours: &Answer, theirs: &Answer) {
    check(name, compare::document(ours, theirs));
}

pub(crate) fn check_stream(name: &str, ours: &Answer, theirs: &Answer) {
    check(name, compare::stream(ours, theirs));
}

pub(crate) const STREAMS: [&str; 11] = [
    "completion.stream.cold",
    "completion.stream.warm",
    "completion.stream.continuous_usage",
    "completion.stream.no_usage",
    "completion.stream.token_ids",
    "completion.stream.eos",
    "completion.stream.n2",
    "completion.stream.prompt_text_leak",
    "completion.stream.long",
    "chat.stream",
    "chat.stream.no_usage",
];

pub(crate) const BOTH: [Release; 2] = [Release::V0_24, Release::V0_32];

#[tokio::test(start_paused = true)]
async fn recorded_generations_come_out_the_same() {
    for release in BOTH {
        let server = server(config(release)).await;
        let plain = replay(&server, release, "completion.plain").await;
        let theirs = recorded(release, "completion.plain");
        check_head("completion.plain", &plain, &theirs);
        check_document("completion.plain", &plain, &theirs);
        replay(&server, release, "reset_prefix_cache.idle").await;
        for name in STREAMS {
            if name == "chat.stream" {
                let plain = replay(&server, release, "chat.plain").await;
                let theirs = recorded(release, "chat.plain");
                check_head("chat.plain", &plain, &theirs);
                check_document("chat.plain", &plain, &theirs);
            }
            let ours = replay(&server, release, name).await;
            let theirs = recorded(release, name);
            check_head(name, &ours, &theirs);
            check_stream(name, &ours, &theirs);
        }
        server.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_ends_in_half_a_character_leaks_its_text() {
    for release in BOTH {
        let server = server(config(release)).await;
        let ours = replay(&server, release, "completion.stream.prompt_text_leak").await;
        let theirs = recorded(release, "completion.stream.prompt_text_leak");
        for answer in [ours, theirs] {
            let events = answer.events();
            let length = |at: usize| events[at]["choices"][0]["text"].as_str().unwrap().len();
            assert!(length(0) > 200 && length(1) < 50);
        }
        server.shutdown().await;
    }
}

/// How events are cut depends on the load of the recorded machine; what they
/// say together does not.
#[tokio::test(start_paused = true)]
async fn log_probabilities_have_the_recorded_shape() {
    for release in BOTH {
        let server = server(config(release)).await;
        let name = "completion.stream.logprobs";
        let (ours, theirs) = (
            replay(&server, release, name).await,
            recorded(release, name),
        );
        check_head(name, &ours, &theirs);
        let shape = |answer: &Answer| {
            let mut counts = [0; 4];
            for event in answer.events() {
                let logprobs = &event["choices"][0]["logprobs"];
                let parts = ["text_offset", "token_logprobs", "tokens", "top_logprobs"];
                for (count, part) in counts.iter_mut().zip(parts) {
                    *count += logprobs[part].as_array().map_or(0, Vec::len);
                }
                if let Some(top) = logprobs["top_logprobs"][0].as_object() {
                    assert_eq!(top.len(), 2);
                }
            }
            (counts, answer.events().last().unwrap()["usage"].clone())
        };
        assert_eq!(shape(&ours), shape(&theirs));
        let name = "chat.stream.logprobs";
        let (ours, theirs) = (
            replay(&server, release, name).await,
            recorded(release, name),
        );
        let events = |answer: &Answer| {
            let event = |event: &Value| {
                let item = &event["choices"][0]["logprobs"]["content"][0];
                let members = item
                    .as_object()
                    .map(|item| item.keys().cloned().collect::<Vec<_>>());
                (members, item["top_logprobs"].as_array().map(Vec::len))
            };
            answer.events().iter().map(event).collect::<Vec<_>>()
        };
        assert_eq!(events(&ours), events(&theirs));
        server.shutdown().await;
    }
}

/// Bodies that must be equal byte for byte.
pub(crate) const EXACT: [&str; 16] = [
    "error.empty_prompt",
    "error.malformed_json",
    "error.stream_options_without_stream",
    "error.bad_model",
    "error.bad_model.stream",
    "error.bad_rank",
    "error.bad_token_id",
    "error.exactly_full",
    "error.too_long",
    "error.not_found",
    "health",
    "load",
    "tokenize",
    "detokenize",
    "version",
    "reset_prefix_cache.idle",
];

#[tokio::test(start_paused = true)]
async fn recorded_errors_and_small_answers_are_the_same_bytes() {
    for release in BOTH {
        let server = server(config(release)).await;
        for name in EXACT {
            let ours = replay(&server, release, name).await;
            let theirs = recorded(release, name);
            check_head(name, &ours, &theirs);
            assert_eq!(ours.text(), theirs.text(), "{name}");
        }
        let (ours, theirs) = (
            replay(&server, release, "models").await,
            recorded(release, "models"),
        );
        check_head("models", &ours, &theirs);
        check_document("models", &ours, &theirs);
        server.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_refuses_its_reset_as_recorded() {
    for release in BOTH {
        let server = server(config(release)).await;
        let mut running = server.connect();
        let body = completion(&[1, 2, 3], 1_000, json!({"model": "tiny"})).to_string();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        running.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let name = "reset_prefix_cache.busy";
        let (ours, theirs) = (
            replay(&server, release, name).await,
            recorded(release, name),
        );
        check_head(name, &ours, &theirs);
        assert_eq!(ours.text(), theirs.text());
        server.shutdown().await;
    }
}
