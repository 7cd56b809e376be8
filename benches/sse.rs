//! Cost of decoding and classifying, per event and without a network:
//! `cargo bench --bench sse`. Targets: decode 25 ns an event whatever the size
//! of a read, lazy classification 80 ns. `sse/floor` only finds the ends of the
//! lines, which no decoder can do without: on a machine whose speed is unknown,
//! the ratio to it says more than the time.
#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pcload::service::chunk::{Classifier, EmptyText};
use pcload::service::sse::SseDecoder;

const HEAD: &str = r#"{"id":"cmpl-b6b2e3dd47f03db1","object":"text_completion","created":1795959548,"model":"tiny","choices":[{"index":0,"#;
const TAIL: &str = r#""logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}"#;

/// A payload of a real completions stream's shape and size.
fn completion(text: &str) -> String {
    format!(r#"{HEAD}"text":"{text}",{TAIL}"#)
}

fn chat(delta: &str) -> String {
    format!(r#"{HEAD}"delta":{{{delta}}},{TAIL}"#)
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("sse/decode");
    let event = format!("data: {}\n\n", completion(" Sketch"));
    for events in [1_usize, 16, 256, 1_024] {
        let read = event.repeat(events);
        group.throughput(Throughput::Elements(events as u64));
        group.bench_with_input(BenchmarkId::from_parameter(events), &read, |b, read| {
            let mut decoder = SseDecoder::default();
            b.iter(|| {
                decoder.feed(read.as_bytes(), |event| {
                    black_box(event);
                })
            });
        });
    }
    group.finish();
    let mut group = c.benchmark_group("sse/floor");
    let read = event.repeat(256);
    group.throughput(Throughput::Elements(256));
    group.bench_function("256", |b| {
        b.iter(|| memchr::memchr2_iter(b'\n', b'\r', black_box(read.as_bytes())).count());
    });
    group.finish();
    let mut group = c.benchmark_group("sse/decode");
    let read = event.repeat(64);
    group.throughput(Throughput::Elements(64));
    group.bench_function("reads of 100 bytes", |b| {
        let mut decoder = SseDecoder::default();
        b.iter(|| {
            for part in read.as_bytes().chunks(100) {
                decoder
                    .feed(part, |event| {
                        black_box(event);
                    })
                    .ok();
            }
        });
    });
    group.finish();
}

fn classify(c: &mut Criterion) {
    let cases = [
        ("completion", completion(" Sketch")),
        ("chat", chat(r#""content":" Sketch""#)),
        ("reasoning", chat(r#""reasoning_content":" Sketch""#)),
        (
            "tool call",
            chat(r#""tool_calls":[{"index":0,"function":{"arguments":"{"}}]"#),
        ),
        (
            "usage",
            r#"{"id":"x","choices":[],"usage":{"prompt_tokens":129,"total_tokens":145,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":128}}}"#
                .to_owned(),
        ),
        (
            "error",
            r#"{"error":{"message":"engine stopped","type":"x","param":null,"code":500}}"#.to_owned(),
        ),
    ];
    for (name, data) in &cases {
        c.bench_function(&format!("chunk/lazy/{name}"), |b| {
            let mut classifier = Classifier::new(EmptyText::Token);
            b.iter(|| classifier.classify(b"", black_box(data.as_bytes()), None));
        });
        c.bench_function(&format!("chunk/full/{name}"), |b| {
            b.iter(|| {
                Classifier::new(EmptyText::Token).classify(b"", black_box(data.as_bytes()), None)
            });
        });
    }
}

criterion_group!(benches, decode, classify);
criterion_main!(benches);
