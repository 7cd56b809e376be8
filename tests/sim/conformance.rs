//! Recorded exchanges of real vLLM servers against the simulator: status,
//! headers, bodies or the sequence of events, usage. Text, ids and times are
//! the only things that may differ.

use std::path::PathBuf;
use std::time::Duration;

use pcload::sim::{Config, Release, Server};
use pcload::units::BlockSize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

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

pub(crate) fn check_head(name: &str, ours: &Answer, theirs: &Answer) {
    assert_eq!(ours.status, theirs.status, "{name}");
    let names = |answer: &Answer| {
        let mut names: Vec<String> = answer
            .headers
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(ours), names(theirs), "{name}");
    for (header, value) in &theirs.headers {
        if !matches!(header.as_str(), "date" | "content-length") {
            assert_eq!(
                ours.header(header),
                Some(value.as_str()),
                "{name}: {header}"
            );
        }
    }
}

/// Keys of a JSON text in their order.
fn keys(text: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        let inside = &rest[start + 1..];
        let mut end = 0;
        while inside.as_bytes()[end] != b'"' {
            end += if inside.as_bytes()[end] == b'\\' {
                2
            } else {
                1
            };
        }
        if inside[end + 1..].starts_with(':') {
            keys.push(inside[..end].to_owned());
        }
        rest = &inside[end + 1..];
    }
    keys
}

/// Members that may differ.
const VOLATILE: [&str; 8] = [
    "id",
    "created",
    "text",
    "content",
    "token_ids",
    "root",
    "logprobs",
    "permission",
];

/// The value with what may differ blanked.
fn blanked(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| {
                let volatile = VOLATILE.contains(&name.as_str()) && !value.is_null();
                let value = if volatile { json!("*") } else { blanked(value) };
                (name.clone(), value)
            })
            .collect(),
        Value::Array(items) => items.iter().map(blanked).collect(),
        other => other.clone(),
    }
}

fn check_document(name: &str, ours: &Answer, theirs: &Answer) {
    assert_eq!(keys(ours.text()), keys(theirs.text()), "{name}");
    assert_eq!(blanked(&ours.json()), blanked(&theirs.json()), "{name}");
}

/// Events of one choice (or of none: usage), blanked, with their keys.
fn events_of(answer: &Answer, index: Option<u64>) -> Vec<(Vec<String>, Value)> {
    let lines = answer
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    lines
        .filter(|data| *data != "[DONE]")
        .map(|data| (keys(data), serde_json::from_str::<Value>(data).unwrap()))
        .filter(|(_, event)| event["choices"][0]["index"].as_u64() == index)
        .map(|(keys, event)| (keys, blanked(&event)))
        .collect()
}

pub(crate) fn check_stream(name: &str, ours: &Answer, theirs: &Answer) {
    for answer in [ours, theirs] {
        assert!(answer.complete, "{name}");
        assert_eq!(answer.chunks.last().unwrap(), b"data: [DONE]\n\n", "{name}");
        for chunk in &answer.chunks {
            assert!(chunk.ends_with(b"\n\n"), "{name}: one event a chunk");
        }
    }
    for index in [Some(0), Some(1), None] {
        let (ours, theirs) = (events_of(ours, index), events_of(theirs, index));
        for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours.0, theirs.0, "{name}, event {at}");
            assert_eq!(ours.1, theirs.1, "{name}, event {at}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}, choice {index:?}");
    }
}

const STREAMS: [&str; 11] = [
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

const BOTH: [Release; 2] = [Release::V0_24, Release::V0_32];

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
const EXACT: [&str; 13] = [
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

/// Errors that 0.24.0 answers with a traceback.
const TRACED: [&str; 3] = [
    "error.empty_prompt",
    "error.malformed_json",
    "error.stream_options_without_stream",
];

#[tokio::test(start_paused = true)]
async fn recorded_errors_and_small_answers_are_the_same_bytes() {
    for release in BOTH {
        let server = server(config(release)).await;
        for name in EXACT.into_iter().chain(TRACED) {
            let ours = replay(&server, release, name).await;
            let theirs = recorded(release, name);
            check_head(name, &ours, &theirs);
            if release == Release::V0_24 && TRACED.contains(&name) {
                for member in ["type", "param", "code"] {
                    let read = |answer: &Answer| answer.json()["error"][member].clone();
                    assert_eq!(read(&ours), read(&theirs), "{name}");
                }
            } else {
                assert_eq!(ours.text(), theirs.text(), "{name}");
            }
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
