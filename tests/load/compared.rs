//! Two simulated servers whose speeds are known, under the real driver and on
//! paused time, so that nothing but their own jitter comes in between: what the
//! comparison says of them must be true.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pcload::analyze::compare::{
    Aspect, MetricDifference, Quantity, Sample, Side, Statistic, compare,
};
use pcload::drive::native::{Control, Setup, run_with};
use pcload::measure::LiveHistogram;
use pcload::plan::LoadPlan;
use pcload::service::clock::RunClock;
use pcload::service::connect::{Connector, Wire};
use pcload::service::socket::StampedRead;
use pcload::sim::{Config, CostModel, Pace, Server};
use pcload::stats::Estimate;
use pcload::tokenizer;
use tokio::io::DuplexStream;

use crate::{config, free_requests};

/// Seeds, and how many intervals of 95 % may miss: of 20, more than three do so
/// once in 60 times.
const SEEDS: u64 = 20;
const MISSES_MAX: usize = 3;

/// The way into a simulated server of this process.
struct Inside {
    server: Arc<Server>,
    clock: RunClock,
}

impl Connector for Inside {
    type Io = StampedRead<DuplexStream>;

    async fn connect(&self) -> io::Result<Wire<Self::Io>> {
        let io = StampedRead::new(self.server.connect(), self.clock.clone());
        Ok(Wire {
            cell: io.cell(),
            io,
        })
    }
}

/// Rounds of requests against a server whose every step takes `slower` times as
/// long; they are samples of one side.
async fn side(name: &str, seed: u64, slower: f64, rounds: u32) -> Side {
    let cost = CostModel {
        prefill_tokens_per_second: 1e5 / slower,
        step: Duration::from_secs_f64(0.010 * slower),
        per_sequence: Duration::from_secs_f64(0.000_1 * slower),
        jitter_ratio: 0.05,
    };
    let sim = Config {
        listen: None,
        model: "m".to_owned(),
        seed,
        pace: Pace::Batched(cost),
        precise_timers: false,
        ..Config::default()
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tokenizer = tokenizer::load("assets/demo/tokenizer", path, None).unwrap();
    let server = Arc::new(Server::start(sim, Arc::new(tokenizer)).await.unwrap());
    let mut samples = Vec::new();
    for round in 0..rounds {
        let clock = RunClock::start();
        let setup = Setup {
            connector: Arc::new(Inside {
                server: Arc::clone(&server),
                clock: clock.clone(),
            }),
            own_lag: Arc::new(LiveHistogram::default()),
            clock,
            control: Control::default(),
            journal: None,
        };
        let config = config();
        let requests = free_requests(&config, 48);
        let outcome = run_with(setup, config, requests, LoadPlan::closed(8, 48));
        samples.extend(Sample::of_records(&outcome.await.unwrap().records, round));
    }
    assert!(samples.iter().all(|sample| sample.ok));
    Side {
        name: name.to_owned(),
        aspects: vec![(Aspect::DataSet, "same".to_owned())],
        verdicts: vec![],
        samples,
    }
}

/// How much B's mean time per output token lies above A's, told as relative.
async fn told(seed: u64, slower: f64, rounds: u32) -> Estimate {
    let left = side("A", 2 * seed, 1.0, rounds).await;
    let right = side("B", 2 * seed + 1, slower, rounds).await;
    let comparison = compare(&left, &right).unwrap();
    let is_it = |one: &&MetricDifference| {
        (one.quantity, one.statistic) == (Quantity::TpotMs, Statistic::Mean)
    };
    let metric = comparison.metrics.iter().find(is_it).unwrap();
    assert!(metric.is_relative());
    metric.told()
}

#[tokio::test(start_paused = true)]
async fn a_server_slower_by_a_twentieth_is_found_and_the_truth_covered() {
    for rounds in [1, 4] {
        let mut misses = 0;
        for seed in 0..SEEDS {
            let told = told(seed, 1.05, rounds).await;
            assert!(told.is_found() && told.value > 0.0, "seed {seed}: {told:?}");
            misses += usize::from(!told.interval.covers(0.05));
        }
        assert!(misses <= MISSES_MAX, "{rounds} rounds: {misses}");
    }
}

#[tokio::test(start_paused = true)]
async fn equal_servers_differ_in_nothing() {
    for rounds in [1, 4] {
        let mut misses = 0;
        for seed in 0..SEEDS {
            misses += usize::from(told(seed, 1.0, rounds).await.is_found());
        }
        assert!(misses <= MISSES_MAX, "{rounds} rounds: {misses}");
    }
}
