//! Time of the solver: cold and warm, 4 groups on 4 ranks, equal and mixed
//! prompt lengths, up to 100,000 requests. Run with `cargo bench --bench solver`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pcload::rng::Seed;
use pcload::solver::{Instance, Request, Start, solve};
use pcload::units::BlockSize;

/// Groups times ranks.
const LANES: u32 = 16;

/// `count` requests in turn over the lanes, at a target of 0.6; `longest` and
/// 1/8 of it are the limits of their prompts where they are mixed.
fn instance(start: Start, count: u64, mixed: bool, longest: u64) -> Instance {
    let block_size = BlockSize::new(16).expect("not zero");
    let mut stream = Seed::from(42).stream("bench");
    let request = |index: u64| {
        let shortest = if mixed { longest / 8 } else { longest };
        let input_tokens = stream.between(shortest, longest);
        Request {
            input_tokens,
            capacity_blocks: block_size.whole_blocks(input_tokens - 16),
            lane: u32::try_from(index % u64::from(LANES)).expect("below 16"),
        }
    };
    Instance {
        start,
        block_size,
        target_rate: 0.6,
        requests: (0..count).map(request).collect(),
    }
}

fn solver(criterion: &mut Criterion) {
    for (name, start, mixed, longest) in [
        ("warm_mixed_1024", Start::Warm, true, 1024),
        ("cold_equal_1024", Start::Empty, false, 1024),
        ("cold_mixed_1024", Start::Empty, true, 1024),
        ("cold_mixed_8192", Start::Empty, true, 8192),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10);
        for count in [1_000, 10_000, 100_000] {
            let instance = instance(start, count, mixed, longest);
            group.throughput(Throughput::Elements(count));
            group.bench_function(count.to_string(), |bencher| {
                bencher.iter(|| solve(black_box(&instance)).expect("a proper problem"));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, solver);
criterion_main!(benches);
