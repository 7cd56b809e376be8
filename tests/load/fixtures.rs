//! Recorded streams of real servers, byte for byte: what their READMEs and an
//! independent JSON parser say of them.

use std::path::PathBuf;
use std::sync::Arc;

use pcload::measure::{FailureKind, Outcome, RequestRecord, Usage};
use pcload::service::chunk::{Classifier, EmptyText};
use pcload::service::socket::ReadStamp;
use pcload::service::sse::SseDecoder;
use pcload::service::stream::{AnswerFacts, AnswerReader};
use pcload::units::RunOffset;

use crate::server::{Reply, Server, millis};
use crate::{config, one};

fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    if name.ends_with(".http") {
        without_framing(&bytes)
    } else {
        bytes
    }
}

/// The body of a recorded exchange: head and chunk framing removed.
fn without_framing(bytes: &[u8]) -> Vec<u8> {
    let line_end = |bytes: &[u8]| bytes.windows(2).position(|pair| pair == b"\r\n").unwrap();
    let head = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let mut rest = &bytes[head + 4..];
    let mut body = Vec::new();
    loop {
        let end = line_end(rest);
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
}

fn read(body: &[u8], read_bytes: usize) -> (AnswerFacts, Option<FailureKind>) {
    let mut reader = AnswerReader::stream(EmptyText::Token, true, 0);
    let mut stamp = ReadStamp {
        at: RunOffset(0),
        read_index: 0,
    };
    for part in body.chunks(read_bytes) {
        stamp = ReadStamp {
            at: RunOffset(stamp.at.nanos() + 1),
            read_index: stamp.read_index + 1,
        };
        reader.feed(part, stamp);
    }
    let defect = reader.finish(stamp).err().map(|defect| defect.kind);
    (reader.into_facts(), defect)
}

struct Expected {
    content: usize,
    finish: Option<&'static str>,
    /// Prompt, completion and cached tokens.
    usage: Option<(u64, u64, u64)>,
    text_bytes: usize,
    defect: Option<FailureKind>,
}

fn check(name: &str, expected: &Expected) {
    let body = data(name);
    for read_bytes in [1, 7, 100, 4_096, usize::MAX] {
        let (facts, defect) = read(&body, read_bytes);
        let usage = expected.usage.map(|(prompt, completion, cached)| Usage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            cached_tokens: Some(cached),
        });
        let place = format!("{name} in reads of {read_bytes}");
        assert_eq!(facts.content.len(), expected.content, "{place}");
        assert_eq!(facts.finish_reason.as_deref(), expected.finish, "{place}");
        assert_eq!(facts.usage, usage, "{place}");
        assert_eq!(facts.text.len(), expected.text_bytes, "{place}");
        assert_eq!(defect, expected.defect, "{place}");
        assert!(facts.content.is_sorted(), "{place}");
    }
}

fn ended(
    content: usize,
    finish: &'static str,
    usage: Option<(u64, u64, u64)>,
    text_bytes: usize,
) -> Expected {
    Expected {
        content,
        finish: Some(finish),
        usage,
        text_bytes,
        defect: None,
    }
}

/// The figures were counted from the recordings with Python's JSON parser.
#[test]
fn recorded_streams_decode_to_what_they_hold() {
    let streams = [
        (
            "completion.stream.cold.body",
            ended(16, "length", Some((129, 16, 0)), 107),
        ),
        (
            "completion.stream.warm.body",
            ended(16, "length", Some((129, 16, 128)), 107),
        ),
        (
            "completion.stream.continuous_usage.body",
            ended(6, "length", Some((129, 6, 128)), 48),
        ),
        (
            "completion.stream.no_usage.body",
            ended(6, "length", None, 48),
        ),
        (
            "completion.stream.token_ids.body",
            ended(6, "length", Some((5, 6, 0)), 35),
        ),
        // Six tokens in two events.
        (
            "completion.stream.logprobs.body",
            ended(2, "length", Some((5, 6, 0)), 35),
        ),
        // The last token is the end of the text and has none of its own.
        (
            "completion.stream.eos.body",
            ended(3, "stop", Some((1, 4, 0)), 12),
        ),
        (
            "completion.stream.n2.body",
            ended(8, "length", Some((129, 8, 128)), 51),
        ),
        (
            "completion.stream.prompt_text_leak.body",
            ended(4, "length", Some((41, 4, 32)), 294),
        ),
        // Three of the 400 tokens have an empty text.
        (
            "completion.stream.long.body",
            ended(400, "length", Some((129, 400, 128)), 2_614),
        ),
        (
            "completion.stream.aborted.http",
            ended(67, "abort", Some((50, 67, 32)), 407),
        ),
        (
            "completion.stream.interval4.http",
            ended(9, "length", Some((50, 30, 0)), 192),
        ),
        (
            "completion.stream.keep_alive_comments.http",
            ended(2, "length", Some((30_000, 3, 0)), 16),
        ),
        // The opening role is no token.
        (
            "chat.stream.body",
            ended(8, "length", Some((32, 8, 0)), 118),
        ),
        (
            "chat.stream.logprobs.body",
            ended(8, "length", Some((32, 8, 0)), 118),
        ),
        ("chat.stream.no_usage.body", ended(8, "length", None, 118)),
    ];
    for (name, expected) in &streams {
        check(&format!("vllm-0.32.0/{name}"), expected);
    }
    check(
        "vllm-0.24.0/completion.stream.logprobs.body",
        &ended(6, "length", Some((5, 6, 0)), 35),
    );
}

#[test]
fn recorded_errors_in_the_stream_are_failures() {
    let died = |content, text_bytes| Expected {
        content,
        finish: None,
        usage: None,
        text_bytes,
        defect: Some(FailureKind::ServerErrorEvent),
    };
    check(
        "vllm-0.32.0/completion.stream.engine_death.http",
        &died(118, 777),
    );
    check(
        "vllm-0.24.0/completion.stream.engine_death.http",
        &died(126, 830),
    );
    check("vllm-0.32.0/completion.stream.queue_full.http", &died(0, 0));
}

#[test]
fn the_lazy_classification_equals_the_full_parse_on_every_recorded_event() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/vllm-0.32.0");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_stream = name.contains(".stream") && !name.starts_with("error.");
        if !is_stream || name.ends_with(".json") {
            continue;
        }
        let body = data(&format!("vllm-0.32.0/{name}"));
        for empty_text in [EmptyText::Token, EmptyText::NoToken] {
            let mut lazy = Classifier::new(empty_text);
            let (mut lazy_text, mut full_text) = (Vec::new(), Vec::new());
            let mut decoder = SseDecoder::default();
            decoder
                .feed(&body, |event| {
                    assert_eq!(
                        lazy.classify(event.name, event.data, Some(&mut lazy_text)),
                        Classifier::new(empty_text).classify(
                            event.name,
                            event.data,
                            Some(&mut full_text)
                        ),
                        "{name}"
                    );
                })
                .unwrap();
            assert_eq!(lazy_text, full_text, "{name}");
        }
    }
}

/// Plays a recording with its recorded times.
async fn play(name: &str, chat: bool) -> (RequestRecord, Vec<(u64, Vec<u8>)>) {
    let body = data(&format!("vllm-0.32.0/{name}.body"));
    let timing = data(&format!("vllm-0.32.0/{name}.timing.json"));
    let timing: Vec<(f64, usize)> = serde_json::from_slice(&timing).unwrap();
    let mut rest = body.as_slice();
    let mut steps = Vec::new();
    for (ms, bytes) in timing {
        let (step, after) = rest.split_at(bytes);
        rest = after;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some seconds"
        )]
        steps.push((ms.ceil() as u64, step.to_vec()));
    }
    assert!(rest.is_empty(), "{name}: the timing covers the body");
    let reply = Reply::stream(steps.clone());
    let server = Arc::new(Server::new(move |_| reply.clone()));
    let mut config = config();
    if chat {
        config.url = "http://server/v1/chat/completions".into();
    }
    (one(&server, config).await, steps)
}

#[tokio::test(start_paused = true)]
async fn recorded_streams_played_in_time_give_their_stamps() {
    for (name, skipped, content) in [
        ("completion.stream.warm", 0, 16),
        ("completion.stream.eos", 0, 3),
        // The first event, the role, is no token.
        ("chat.stream", 1, 8),
    ] {
        let (record, steps) = play(name, name.starts_with("chat")).await;
        assert_eq!(record.outcome, Outcome::Success, "{name}");
        let start = millis(record.t_send_ns);
        let stamps: Vec<u64> = record
            .content_ns
            .iter()
            .map(|at| millis(*at) - start)
            .collect();
        let sent: Vec<u64> = steps
            .iter()
            .skip(skipped)
            .take(content)
            .map(|(ms, _)| *ms)
            .collect();
        assert_eq!(stamps, sent, "{name}");
        assert_eq!(
            millis(record.first_event_ns.unwrap()) - start,
            steps[0].0,
            "{name}"
        );
        assert_eq!(record.text, None, "{name}: usage was sent, nothing is kept");
    }
}
