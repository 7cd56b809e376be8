//! Reading a metrics page of 2 MB, which is what 32 ranks publish: the target is
//! under 5 ms, so that a scrape costs its transfer and not its reading.

#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench fails loudly, and criterion's macros document nothing"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pcload::engine::{ReadOptions, read};

/// Bytes of the page.
const PAGE_BYTES: usize = 2_000_000;

/// A recorded page of one rank, repeated for as many ranks as fill the page.
fn page() -> (String, u32) {
    let one = include_str!("../tests/data/metrics/vllm-0.32.0.dp1.after.txt");
    let mut page = String::new();
    let mut rank = 0;
    while page.len() < PAGE_BYTES {
        page.push_str(&one.replace("engine=\"0\"", &format!("engine=\"{rank}\"")));
        rank += 1;
    }
    (page, rank)
}

fn read_page(criterion: &mut Criterion) {
    let (page, dp_size) = page();
    let options = ReadOptions {
        dp_size,
        ..ReadOptions::default()
    };
    let mut group = criterion.benchmark_group("metrics");
    group.throughput(Throughput::Bytes(page.len() as u64));
    group.bench_function("read_2_mb", |bencher| {
        bencher.iter(|| read(black_box(&page), &options).unwrap());
    });
    group.finish();
}

criterion_group!(benches, read_page);
criterion_main!(benches);
