//! Tests of the engine on virtual time, against what real servers counted.

use std::time::Duration;

use super::*;
use crate::sim::config::{CostModel, External, Hybrid};

/// A step of exactly 10 ms, whatever is in it.
pub(super) fn steady() -> Pace {
    Pace::Batched(CostModel {
        prefill_tokens_per_second: 1e12,
        step: Duration::from_millis(10),
        per_sequence: Duration::ZERO,
        jitter_ratio: 0.0,
    })
}

pub(super) fn config(block: u64, usable: u32) -> Config {
    Config {
        block: BlockSize::new(block).unwrap(),
        pool_blocks: usable + 1,
        max_model_len: u64::from(usable) * block,
        pace: steady(),
        ..Config::default()
    }
}

/// A prompt of `tokens` ids from `first` on, with `output` tokens to come.
pub(super) fn ask(block: u64, first: u32, tokens: u32, output: usize) -> Submission {
    let ids: Vec<u32> = (first..first + tokens).collect();
    ask_ids(block, &ids, output)
}

fn ask_ids(block: u64, ids: &[u32], output: usize) -> Submission {
    let mut chain = ChainHasher::new(BlockSize::new(block).unwrap(), None);
    let hashes = ids.iter().filter_map(|&id| chain.push(id)).collect();
    Submission {
        prompt_tokens: ids.len() as u64,
        hashes,
        chain,
        output: (0..u32::try_from(output).unwrap())
            .map(|at| 900_000 + at)
            .collect(),
        stops: false,
        skip_cache: false,
        max_tokens: output as u64,
        choices: 1,
        rank: None,
    }
}

/// Runs until nothing is left, and returns every delivery with its time.
pub(super) fn drain(engine: &mut Engine) -> Vec<(u64, Delivery)> {
    let mut all = Vec::new();
    let mut rounds = 0;
    while let Some(due) = engine.next_due() {
        rounds += 1;
        assert!(rounds < 100_000, "the engine does not come to rest");
        engine.advance(due);
        all.extend(engine.take_deliveries().into_iter().map(|one| (due.0, one)));
    }
    all
}

fn account(engine: &Engine, rank: usize) -> Account {
    engine.accounts().nth(rank).unwrap().0.clone()
}

/// The known workload of the recorded servers, one request after the other.
fn known_workload(block: u64) -> [Submission; 6] {
    let a: Vec<u32> = (0..129).collect();
    let mut a64 = a[..64].to_vec();
    a64.extend(50_000..50_036);
    [
        ask_ids(block, &a, 8),
        ask_ids(block, &a, 8),
        ask_ids(block, &a64, 8),
        ask_ids(block, &a, 8),
        ask(block, 70_000, 256, 4),
        ask(block, 70_000, 256, 4),
    ]
}

#[test]
fn the_known_workload_counts_what_the_real_servers_counted() {
    for (block, cached) in [
        (32, [0, 128, 64, 128, 0, 224]),
        (16, [0, 128, 64, 128, 0, 240]),
    ] {
        let mut engine = Engine::new(&config(block, 1_000));
        for (request, cached) in known_workload(block).into_iter().zip(cached) {
            let now = engine.ranks[0].clock;
            engine.submit(now, request);
            let last = drain(&mut engine).pop().unwrap().1;
            assert_eq!(last.cached, cached);
        }
        let account = account(&engine, 0);
        let hits: u64 = cached.iter().sum();
        assert_eq!((account.queries, account.hits), (999, hits));
        assert_eq!((account.prompt_tokens, account.prompt_local), (999, hits));
        assert_eq!((account.generation_tokens, account.full_length), (40, 6));
        // Recorded: 40 steps, 495 = 455 computed + 40 generated at block 32.
        assert_eq!(account.iteration_tokens.count(), 40);
        let sum = (999 - hits + 40) as f64;
        assert!((account.iteration_tokens.sum() - sum).abs() < 1e-9);
        assert_eq!(account.itl.count(), 34);
    }
}

#[test]
fn ranks_have_caches_and_counters_of_their_own() {
    let mut engine = Engine::new(&Config {
        ranks: 2,
        ..config(32, 1_000)
    });
    for (request, rank) in known_workload(32).into_iter().zip([0, 0, 0, 1, 1, 1]) {
        let now = engine.ranks[rank].clock;
        engine.submit(
            now,
            Submission {
                rank: Some(rank),
                ..request
            },
        );
        drain(&mut engine);
    }
    let counted = |rank| {
        let account = account(&engine, rank);
        (account.queries, account.hits)
    };
    assert_eq!((counted(0), counted(1)), ((358, 192), (641, 224)));
}

#[test]
fn sequential_requests_alternate_between_ranks() {
    let mut engine = Engine::new(&Config {
        ranks: 2,
        ..config(32, 100)
    });
    for _ in 0..10 {
        engine.submit(RunOffset(0), ask(32, 0, 100, 2));
        drain(&mut engine);
    }
    assert_eq!(account(&engine, 0).full_length, 5);
    assert_eq!(account(&engine, 1).full_length, 5);
    // The same prompt missed once on each rank.
    assert_eq!(account(&engine, 0).hits, 4 * 96);
}

/// Of identical prompts sent together exactly one misses, per rank.
#[test]
fn identical_prompts_in_flight_share_at_once() {
    for (ranks, misses) in [(1, 1), (2, 2)] {
        let mut engine = Engine::new(&Config {
            ranks,
            ..config(16, 1_000)
        });
        for _ in 0..16 {
            engine.submit(RunOffset(0), ask(16, 0, 129, 4));
        }
        drain(&mut engine);
        let hits: u64 = engine.accounts().map(|(account, _)| account.hits).sum();
        assert_eq!(hits, 128 * (16 - misses));
    }
}

#[test]
fn a_later_copy_waits_for_the_first_ones_prefill() {
    let pace = Pace::Batched(CostModel {
        prefill_tokens_per_second: 2_048.0,
        step: Duration::from_millis(1),
        per_sequence: Duration::ZERO,
        jitter_ratio: 0.0,
    });
    let mut engine = Engine::new(&Config {
        pace,
        ..config(16, 4_000)
    });
    engine.submit(RunOffset(0), ask(16, 0, 8_193, 2));
    engine.advance(RunOffset(0));
    engine.submit(RunOffset(20_000_000), ask(16, 0, 8_193, 2));
    let all = drain(&mut engine);
    let first = |slot| all.iter().find(|(_, one)| one.key.slot == slot).unwrap().0;
    assert!(first(1) >= first(0), "{} {}", first(0), first(1));
    assert_eq!(account(&engine, 0).hits, 8_192);
}

/// Prompt 64 and 40 generated tokens, sent back whole: 96 of 104 hit, and the
/// last sampled token is never in the cache.
#[test]
fn generated_tokens_are_cached_but_the_last() {
    for (generated, hit) in [(40, 96), (32, 64), (33, 96)] {
        let mut engine = Engine::new(&config(32, 100));
        let mut ids: Vec<u32> = (0..64).collect();
        let first = ask_ids(32, &ids, generated);
        ids.extend(first.output.iter());
        engine.submit(RunOffset(0), first);
        drain(&mut engine);
        ids.push(1);
        engine.submit(RunOffset(1 << 40), ask_ids(32, &ids, 1));
        let last = drain(&mut engine).pop().unwrap().1;
        assert_eq!(last.cached, hit, "{generated} generated");
    }
}

/// 8 requests of 700 tokens and 64 blocks: one runs at a time, and the counters
/// say 5,600 (0.32.0), or far more where every lookup counts (0.24.0).
#[test]
fn waiting_requests_are_counted_once_or_at_every_step() {
    let load = |counting| {
        let mut engine = Engine::new(&Config {
            counting,
            ..config(16, 64)
        });
        for first in 0..8 {
            engine.submit(RunOffset(0), ask(16, first * 1_000, 700, 24));
        }
        drain(&mut engine);
        account(&engine, 0)
    };
    let once = load(LookupCounting::Admission);
    assert_eq!((once.queries, once.prompt_tokens), (5_600, 5_600));
    let often = load(LookupCounting::EveryLookup);
    // Seven wait through the steps of those before them.
    assert!(often.queries > 100_000, "{}", often.queries);
    assert_eq!((often.prompt_tokens, often.prompt_local), (5_600, 0));
}

/// 8 × 200 tokens that outgrow their pool: some are preempted, the lookups
/// after that are not counted (unless asked for), every token arrives once.
#[test]
fn preempted_requests_finish_and_are_counted_once() {
    for (count_preempted, exact) in [(false, true), (true, false)] {
        let mut settings = config(16, 110);
        settings.faults.count_preempted = count_preempted;
        let mut engine = Engine::new(&settings);
        for first in 0..8 {
            engine.submit(RunOffset(0), ask(16, first * 1_000, 200, 120));
        }
        let all = drain(&mut engine);
        let account = account(&engine, 0);
        assert!(account.preemptions > 0);
        assert_eq!(account.queries == 1_600, exact, "{}", account.queries);
        assert_eq!(
            (account.prompt_tokens, account.generation_tokens),
            (1_600, 960)
        );
        for slot in 0..8 {
            let released: Vec<usize> = all
                .iter()
                .filter(|(_, one)| one.key.slot == slot)
                .map(|(_, one)| one.released)
                .collect();
            assert_eq!(released, (1..=120).collect::<Vec<_>>());
        }
        assert_eq!(engine.ranks[0].cache.held_blocks(), 0);
    }
}

#[test]
fn a_client_that_leaves_early_frees_its_blocks() {
    let mut engine = Engine::new(&config(16, 1_000));
    let key = engine.submit(RunOffset(0), ask(16, 0, 5_000, 10));
    engine.advance(RunOffset(0));
    assert!(engine.ranks[0].cache.held_blocks() > 0);
    engine.drop_sequence(key);
    assert_eq!(engine.ranks[0].cache.held_blocks(), 0);
    // Another takes the slot while the step still runs: it gets only its own.
    engine.submit(RunOffset(1), ask(16, 0, 20, 3));
    let released: Vec<_> = drain(&mut engine)
        .iter()
        .map(|(_, one)| one.released)
        .collect();
    assert_eq!(released, [1, 2, 3]);
    let account = account(&engine, 0);
    assert_eq!((account.queries, account.prompt_tokens), (5_020, 20));
    // Its computed blocks stayed: the second one's whole block was a hit.
    assert_eq!(account.hits, 16);
    assert_eq!(account.aborted, 0);
}

#[test]
fn a_reset_is_refused_while_blocks_are_held() {
    let mut engine = Engine::new(&Config {
        ranks: 2,
        ..config(16, 1_000)
    });
    let on = |rank, output| Submission {
        rank: Some(rank),
        ..ask(16, 0, 100, output)
    };
    engine.submit(RunOffset(0), on(1, 1));
    drain(&mut engine);
    engine.submit(RunOffset(1 << 30), on(0, 150));
    engine.advance(RunOffset(1 << 30));
    let hashes = ask(16, 0, 100, 1).hashes;
    assert_eq!(engine.peek(1, &hashes, 100), 96);
    assert!(!engine.reset(false, false), "rank 0 is busy");
    assert_eq!(engine.peek(1, &hashes, 100), 0, "the idle rank was reset");
    assert_eq!(engine.peek(0, &hashes, 100), 96);
    assert!(engine.reset(true, false));
    let all = drain(&mut engine);
    assert_eq!(all.last().unwrap().1.released, 150);
    assert_eq!(account(&engine, 0).preemptions, 1);
}

#[test]
fn the_external_tier_survives_a_local_reset_and_is_counted_apart() {
    let mut engine = Engine::new(&Config {
        external: Some(External { blocks: 1_000 }),
        ..config(16, 1_000)
    });
    let mut cached = Vec::new();
    for (at, external) in [(0, false), (1, false), (2, true)] {
        assert!(engine.reset(false, external));
        engine.submit(RunOffset(at << 40), ask(16, 0, 100, 1));
        cached.push(drain(&mut engine).pop().unwrap().1.cached);
    }
    assert_eq!(cached, [0, 96, 0]);
    let account = account(&engine, 0);
    assert_eq!((account.queries, account.hits), (300, 0));
    assert_eq!((account.external_queries, account.external_hits), (300, 96));
    assert_eq!((account.prompt_local, account.prompt_external), (0, 96));
}

#[test]
fn a_hybrid_model_reuses_by_the_floor_rule() {
    let mut engine = Engine::new(&Config {
        hybrid: Some(Hybrid::default()),
        ..config(480, 100)
    });
    engine.submit(RunOffset(0), ask(480, 0, 3_040, 5));
    drain(&mut engine);
    engine.submit(RunOffset(1 << 40), ask(480, 0, 3_500, 5));
    assert_eq!(drain(&mut engine).pop().unwrap().1.cached, 2_400);
}

#[test]
fn fixed_pace_keeps_its_times_whatever_runs() {
    let mut engine = Engine::new(&Config {
        pace: Pace::Fixed {
            ttft: Duration::from_millis(50),
            itl: Duration::from_millis(10),
        },
        ..config(16, 10_000)
    });
    for at in 0..50_u32 {
        engine.submit(RunOffset(u64::from(at)), ask(16, at * 1_000, 100, 4));
    }
    for (at, one) in drain(&mut engine) {
        let arrived = one.key.slot as u64;
        let planned = arrived + 50_000_000 + 10_000_000 * (one.released as u64 - 1);
        assert_eq!(at, planned);
    }
    assert_eq!(account(&engine, 0).generation_tokens, 200);
}

#[test]
fn fixed_pace_counts_from_the_arrival_however_late_it_is_taken_in() {
    let mut engine = Engine::new(&Config {
        pace: Pace::Fixed {
            ttft: Duration::from_millis(50),
            itl: Duration::from_millis(10),
        },
        ..config(16, 64)
    });
    // Another one runs, so the rank's clock is not the arrival's.
    engine.submit(RunOffset(0), ask(16, 0, 16, 10));
    engine.advance(RunOffset(70_500_000));
    engine.take_deliveries();
    engine.submit_late(
        RunOffset(70_400_000),
        RunOffset(71_000_000),
        ask(16, 1_000, 700, 3),
    );
    // And one that has no room until that one ends.
    engine.submit(RunOffset(72_000_000), ask(16, 9_000, 700, 2));
    let all = drain(&mut engine);
    let times = |slot: usize| -> Vec<u64> {
        let of_slot = all.iter().filter(|(_, one)| one.key.slot == slot);
        of_slot.map(|(at, _)| *at).collect()
    };
    assert_eq!(times(1), [120_400_000, 130_400_000, 140_400_000]);
    assert_eq!(times(2), [190_400_000, 200_400_000]);
}

#[test]
fn fixed_pace_waits_for_blocks_and_leaves_nothing_behind() {
    let mut engine = Engine::new(&Config {
        pace: Pace::Fixed {
            ttft: Duration::from_millis(5),
            itl: Duration::from_millis(1),
        },
        ..config(16, 64)
    });
    for at in 0..4 {
        engine.submit(RunOffset(0), ask(16, at * 10_000, 700, 5));
    }
    assert_eq!(drain(&mut engine).len(), 20);
    assert_eq!(engine.ranks[0].cache.held_blocks(), 0);
}

#[test]
fn flood_delivers_everything_at_once() {
    let mut engine = Engine::new(&Config {
        pace: Pace::Flood,
        ..config(16, 1_000)
    });
    engine.submit(RunOffset(7), ask(16, 0, 100, 50));
    engine.submit(RunOffset(7), ask(16, 0, 100, 50));
    let all = drain(&mut engine);
    assert_eq!(all.len(), 2);
    assert_eq!((all[1].0, all[1].1.released, all[1].1.cached), (7, 50, 96));
    assert_eq!(all[1].1.finish, Some(Finish::Length));
}

#[test]
fn an_operators_abort_says_so() {
    let mut engine = Engine::new(&config(16, 1_000));
    engine.submit(RunOffset(0), ask(16, 0, 100, 50));
    engine.advance(RunOffset(35_000_000));
    engine.take_deliveries();
    engine.abort_all();
    let last = engine.take_deliveries();
    assert_eq!(last.len(), 1);
    assert_eq!((last[0].released, last[0].finish), (3, Some(Finish::Abort)));
    assert_eq!(account(&engine, 0).aborted, 1);
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let times = |seed| {
        let mut engine = Engine::new(&Config {
            seed,
            pace: Pace::default(),
            ..config(16, 1_000)
        });
        engine.submit(RunOffset(0), ask(16, 0, 100, 20));
        drain(&mut engine)
            .iter()
            .map(|(at, _)| *at)
            .collect::<Vec<_>>()
    };
    assert_eq!(times(1), times(1));
    assert_ne!(times(1), times(2));
}
