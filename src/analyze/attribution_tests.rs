//! Each cause of lost tokens, provoked alone.

use proptest::prelude::*;

use super::attribution::Cause;
use super::fixture::{Run, moved, planned, served};
use super::*;
use crate::engine::RankDelta;
use crate::measure::FailureKind;
use crate::measure::sample::{at, failed};
use crate::units::{DpRank, GroupIndex};

/// One lane of `shared` tokens each, 256 in all, cached as theory says.
fn lane(shared: &[u64]) -> Run {
    let plan: Vec<_> = (0..)
        .zip(shared)
        .map(|(index, &shared)| planned(index, 256, shared))
        .collect();
    let mut watermark = 0;
    let cached: Vec<_> = shared
        .iter()
        .map(|&shared| {
            let hit = shared.min(watermark);
            watermark = watermark.max(shared);
            Some(hit)
        })
        .collect();
    Run::served(plan, &cached)
}

fn set_cached(run: &mut Run, index: usize, cached: Option<u64>) {
    let usage = run.records[index].usage.as_mut().unwrap();
    usage.cached_tokens = cached;
}

/// The causes with their requests and tokens.
fn causes(run: &Run) -> Vec<(Cause, u64, i64)> {
    run.analyze()
        .attribution
        .causes
        .iter()
        .map(|total| (total.cause, total.requests, total.lost_tokens))
        .collect()
}

#[test]
fn a_run_as_the_theory_says_has_no_gap() {
    let analysis = lane(&[64, 64, 128, 128]).analyze();
    let attribution = &analysis.attribution;
    assert_eq!((attribution.gap_tokens, attribution.causes.len()), (0, 0));
    // 64 tokens of the first request, 64 more of the third.
    let cold = attribution.cold_as_planned.unwrap();
    assert_eq!((cold.requests, cold.lost_tokens), (2, 128));
}

#[test]
fn a_request_sent_too_early_lost_a_race() {
    let mut run = lane(&[64, 64, 64]);
    run.planned
        .iter_mut()
        .for_each(|row| row.lane_sequence = None);
    run.records[1].t_send_ns = at(20.0);
    set_cached(&mut run, 1, Some(0));
    assert_eq!(causes(&run), [(Cause::InFlightRace, 1, 64)]);
    let analysis = run.analyze();
    let overlap = analysis.hits.overlap.unwrap();
    assert_eq!((overlap.low.hit_tokens, overlap.high.hit_tokens), (64, 128));
    let evidence = &analysis.attribution.requests[0].evidence;
    assert!(evidence.contains("30.0 ms after the send"), "{evidence}");
}

#[test]
fn a_full_pool_evicts() {
    let mut run = lane(&[64, 64, 64]);
    set_cached(&mut run, 2, Some(32));
    run.kv.samples = vec![KvSample {
        at: at(10.0),
        ranks: BTreeMap::from([(
            DpRank(0),
            KvGauges {
                usage: Some(0.97),
                ..KvGauges::default()
            },
        )]),
    }];
    assert_eq!(causes(&run), [(Cause::Evicted, 1, 32)]);
    assert!(run.codes().contains(&Code::EvictionPressure));
    assert_eq!(run.analyze().kv.ranks[&0].peak, Some(0.97));
}

#[test]
fn a_pool_smaller_than_the_prompts_evicts() {
    let mut run = lane(&[64, 64]);
    set_cached(&mut run, 1, Some(0));
    // 258 tokens are 17 blocks; one block of the pool is never usable.
    run.engine.num_gpu_blocks = Some(17);
    assert_eq!(causes(&run), [(Cause::Evicted, 1, 64)]);
    run.engine.num_gpu_blocks = Some(18);
    assert_eq!(causes(&run), [(Cause::Unexplained, 1, 64)]);
}

#[test]
fn a_rank_that_saw_less_than_it_was_sent_routed_elsewhere() {
    let mut run = lane(&[64, 64, 64, 64]);
    for index in [2, 3] {
        run.planned[index].dp_rank = Some(DpRank(1));
        run.planned[index].lane_sequence = Some(u32::try_from(index).unwrap() - 2);
    }
    set_cached(&mut run, 2, Some(0));
    set_cached(&mut run, 3, Some(0));
    run.counters = Counters::Delta {
        ranks: BTreeMap::from([(DpRank(0), moved(1_024, 64)), (DpRank(1), moved(0, 0))]),
        regressions: vec![],
    };
    assert_eq!(causes(&run), [(Cause::RoutedElsewhere, 1, 64)]);
}

#[test]
fn an_unwarmed_rank_routed_elsewhere() {
    let mut run = lane(&[64]);
    run.mode = crate::scenario::CacheMode::Warmup;
    run.planned[0].dp_rank = None;
    run.planned[0].lane_sequence = None;
    run.control.warmup_missing = vec![(GroupIndex(0), DpRank(1))];
    assert_eq!(causes(&run), [(Cause::RoutedElsewhere, 1, 64)]);
    assert!(run.codes().contains(&Code::WarmupIncomplete));
}

/// Seen on vLLM 0.32.0 with a pool of 63 blocks: the prefixes of a warm-up push
/// each other out, and none is there when it is looked at again.
#[test]
fn a_warm_up_that_a_small_pool_undoes_is_evicted() {
    let mut run = lane(&[64, 64]);
    run.mode = crate::scenario::CacheMode::Warmup;
    for row in &mut run.planned {
        row.dp_rank = None;
        row.lane_sequence = None;
    }
    set_cached(&mut run, 0, Some(0));
    run.control.warmup_missing = vec![(GroupIndex(0), DpRank(0))];
    run.engine.num_gpu_blocks = Some(17);
    assert_eq!(causes(&run)[0].0, Cause::Evicted);
}

/// The floor of hybrid models on a block size that is known already.
#[test]
fn a_block_that_is_always_held_back_is_the_floor() {
    let mut run = lane(&[64, 64, 96, 112, 112]);
    for (index, cached) in [(1, 48), (2, 48), (3, 80), (4, 96)] {
        set_cached(&mut run, index, Some(cached));
    }
    assert_eq!(causes(&run), [(Cause::BlockFloor, 4, 64)]);
    assert!(run.codes().contains(&Code::BlockSizeMismatch));
    // Where one request got its last block, nothing holds it back.
    set_cached(&mut run, 1, Some(64));
    set_cached(&mut run, 2, Some(64));
    assert_eq!(causes(&run)[0].0, Cause::Unexplained);
}

#[test]
fn a_stalled_stream_on_a_preempting_rank_was_preempted() {
    let mut run = lane(&[64, 64, 64]).counted(RankDelta {
        preemptions: Some(1),
        ..moved(768, 128)
    });
    set_cached(&mut run, 2, Some(0));
    let stalled = &mut run.records[2];
    stalled.content_ns = vec![at(250.0), at(1_700.0)];
    stalled.last_choice_ns = Some(at(1_700.0));
    stalled.stream_end_ns = Some(at(1_700.0));
    assert_eq!(causes(&run), [(Cause::Preempted, 1, 64)]);
}

#[test]
fn a_prompt_of_another_length_is_the_tokenizers_fault() {
    let mut run = lane(&[64, 64]);
    let usage = run.records[1].usage.as_mut().unwrap();
    usage.prompt_tokens = 258;
    usage.cached_tokens = Some(48);
    assert_eq!(causes(&run), [(Cause::TokenizerBoundary, 1, 16)]);
    assert!(run.codes().contains(&Code::PromptTokensDiffer));
}

#[test]
fn reuse_on_a_coarser_grid_is_a_block_floor() {
    // Served in blocks of 32 where 16 was believed: 80 becomes 64.
    let mut run = lane(&[80, 80, 144, 144]);
    set_cached(&mut run, 1, Some(64));
    set_cached(&mut run, 2, Some(64));
    set_cached(&mut run, 3, Some(128));
    assert_eq!(causes(&run), [(Cause::BlockFloor, 3, 48)]);
    let codes = run.codes();
    assert!(codes.contains(&Code::BlockSizeMismatch), "{codes:?}");
    // With the block measured, theory agrees and nothing is lost.
    run.block.measured = crate::units::BlockSize::new(32);
    assert_eq!(causes(&run), []);
}

#[test]
fn other_traffic_is_named_where_nothing_else_fits() {
    let mut run = lane(&[64, 64]).counted(RankDelta {
        prompt_tokens: Some(5_000),
        ..moved(5_000, 0)
    });
    set_cached(&mut run, 1, Some(0));
    assert_eq!(causes(&run), [(Cause::ForeignTraffic, 1, 64)]);
}

#[test]
fn silence_is_not_zero() {
    let mut run = lane(&[64, 64]);
    set_cached(&mut run, 0, None);
    set_cached(&mut run, 1, None);
    assert_eq!(causes(&run), [(Cause::NotReported, 1, 64)]);
    let analysis = run.analyze();
    assert_eq!(analysis.hits.overall.usage, None);
    assert!(run.codes().contains(&Code::CachedTokensUnavailable));
}

#[test]
fn a_failed_request_may_have_filled_the_cache() {
    let mut run = lane(&[64, 64]);
    let id = run.records[0].request_id.clone();
    run.records[0] = failed(FailureKind::RequestTimeout, None, 0.0, 50.0);
    run.records[0].request_id = id;
    assert_eq!(causes(&run), [(Cause::BeyondTheory, 1, -64)]);
    let analysis = run.analyze();
    assert_eq!(analysis.attribution.gap_tokens, -64);
    assert!(
        analysis.attribution.requests[0]
            .evidence
            .contains("request-00000000")
    );
}

proptest! {
    #[test]
    fn whatever_is_served_every_token_has_one_cause(
        cached in prop::collection::vec(prop::option::of(0..300_u64), 1..12)
    ) {
        let plan: Vec<_> = (0_u32..)
            .zip(&cached)
            .map(|(index, _)| {
                let mut row = planned(index, 256, u64::from(index % 4) * 32);
                row.group = GroupIndex(index % 2);
                row.lane_sequence = None;
                row
            })
            .collect();
        let records = plan
            .iter()
            .zip(&cached)
            .map(|(row, cached)| served(row, f64::from(row.sequence_index) * 30.0, *cached))
            .collect();
        let attribution = Run::new(plan, records).analyze().attribution;
        let sum: i64 = attribution.causes.iter().map(|total| total.lost_tokens).sum();
        let reported: u64 = cached.iter().flatten().sum();
        prop_assert_eq!(attribution.cached_tokens, reported);
        prop_assert_eq!(sum, attribution.gap_tokens);
        let named: u64 = attribution.causes.iter().map(|total| total.requests).sum();
        prop_assert_eq!(named, attribution.requests.len() as u64);
    }
}
