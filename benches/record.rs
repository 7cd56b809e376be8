//! Cost of what surrounds a stream: the stamps of a request, the live
//! histogram, bodies and arrival times: `cargo bench --bench record`. Targets:
//! 50 ns an arrival, 1 µs a body of 4 KB.
#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pcload::measure::LiveHistogram;
use pcload::plan::{ArrivalLaw, draw};
use pcload::rng::Seed;
use pcload::service::chunk::EmptyText;
use pcload::service::socket::ReadStamp;
use pcload::service::stream::AnswerReader;
use pcload::service::wire::{Api, BodyTemplate, Prompt};
use pcload::units::RunOffset;

fn answer(c: &mut Criterion) {
    let event = r#"data: {"id":"cmpl-1","object":"text_completion","created":1795959548,"model":"tiny","choices":[{"index":0,"text":" Sketch","logprobs":null,"finish_reason":null}]}"#;
    let event = format!("{event}\n\n");
    let mut group = c.benchmark_group("record");
    group.throughput(Throughput::Elements(128));
    group.bench_function("answer of 128 chunks", |b| {
        b.iter(|| {
            let mut reader = AnswerReader::stream(EmptyText::Token, true, 129);
            for index in 0..128 {
                let stamp = ReadStamp {
                    at: RunOffset(index * 10_000_000),
                    read_index: index + 1,
                };
                reader.feed(black_box(event.as_bytes()), stamp);
            }
            reader.into_facts()
        });
    });
    group.finish();
    let histogram = LiveHistogram::default();
    c.bench_function("record/live histogram", |b| {
        let mut value = 0_u64;
        b.iter(|| {
            value = value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            histogram.record(value >> 40);
        });
    });
}

fn prepare(c: &mut Criterion) {
    let template = BodyTemplate {
        api: Api::Completions,
        model: "tiny".to_owned(),
        stream: true,
        generation_kwargs: vec![("temperature".to_owned(), 0.into())],
        add_special_tokens: None,
        cache_salt: None,
    };
    let prompt = Prompt::Text("four words of text ".repeat(216));
    c.bench_function("body/build 4 KB", |b| {
        b.iter(|| template.build(black_box(&prompt), 128));
    });
    let mut group = c.benchmark_group("sched/draw 1000");
    group.throughput(Throughput::Elements(1_000));
    let seed = Seed::from(1);
    for (name, law) in [
        ("constant", ArrivalLaw::Constant),
        ("poisson", ArrivalLaw::Poisson),
        ("gamma", ArrivalLaw::Gamma { burstiness: 0.5 }),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| draw(law, 100.0, 1_000, None, &seed, "bench"));
        });
    }
    group.finish();
}

criterion_group!(benches, answer, prepare);
criterion_main!(benches);
