//! Filling the cache: every planned prefix on every planned rank, side by side
//! over the ranks, one after the other within one, and then looked at again.
//! An answered request does not mean that its blocks are still there.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: sends requests, timed by the clock"
)]

use std::collections::BTreeMap;

use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::drive::phases::settle::CachedSource;
use crate::drive::phases::{PhaseError, PhaseWarning, Session};
use crate::engine::difference;
use crate::service::{Completion, ControlClient, ControlError, ControlPrompt};
use crate::units::{BlockSize, DpRank, GroupIndex};

/// One prefix for one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmupItem {
    /// Its group.
    pub group_id: GroupIndex,
    /// The rank that must hold it.
    pub dp_rank: DpRank,
    /// What is sent.
    pub prompt: ControlPrompt,
    /// Tokens of it that the formal requests share.
    pub shared_prefix_tokens: u64,
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WarmupResult {
    /// Its group.
    pub group_id: GroupIndex,
    /// Its rank.
    pub dp_rank: DpRank,
    /// Always true: a failure ends the warm-up.
    pub success: bool,
    /// Time of the first request.
    pub elapsed_seconds: f64,
    /// Tokens of the prompt, where the server tells.
    pub prompt_tokens: Option<u64>,
    /// Tokens that the second look must find at least: whole blocks of the
    /// shared prefix.
    pub expected_cached_tokens: u64,
    /// Tokens that the second look found.
    pub cached_tokens: Option<u64>,
    /// Whether it is there; `None` where nothing tells.
    pub verified: Option<bool>,
}

/// What the warm-up did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WarmupReport {
    /// Each item, by group, then rank.
    pub results: Vec<WarmupResult>,
    /// What the verdicts rest on.
    pub source: CachedSource,
    /// What is doubtful.
    pub warnings: Vec<PhaseWarning>,
    /// Time it took.
    pub elapsed_seconds: f64,
}

/// Answers by item, in the order of the items.
type Answers = BTreeMap<usize, Completion>;

impl Session {
    /// Sends all items, then each once more to see that it is there.
    pub async fn warm_up(&mut self, items: &[WarmupItem]) -> Result<WarmupReport, PhaseError> {
        let started = Instant::now();
        let mut order: Vec<&WarmupItem> = items.iter().collect();
        order.sort_by_key(|item| (item.group_id, item.dp_rank));
        self.refresh().await?;
        let first = self.send_all(&order).await?;
        let before = self.in_sync().await?;
        let second = self.send_all(&order).await?;
        let after = self.in_sync().await?;
        let block = self.working_block();
        let withheld = self.block.last_block_withheld;
        let mut results: Vec<WarmupResult> = order
            .iter()
            .enumerate()
            .map(|(at, item)| result(item, [&first[&at], &second[&at]], block, withheld))
            .collect();
        let told = results.iter().any(|one| one.cached_tokens.is_some());
        let source = if told {
            CachedSource::Usage
        } else {
            let hits = difference(&before, &after)?
                .ranks
                .iter()
                .map(|(rank, one)| (*rank, one.hits + one.external_hits.unwrap_or(0)))
                .collect();
            verify_by_counters(&mut results, &hits, self.client.settings().dp_size)
        };
        Ok(WarmupReport {
            warnings: doubts(&results),
            results,
            source,
            elapsed_seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// One request an item: ranks side by side, a rank's items in order.
    async fn send_all(&mut self, items: &[&WarmupItem]) -> Result<Answers, PhaseError> {
        let mut lanes: BTreeMap<DpRank, Vec<(usize, WarmupItem)>> = BTreeMap::new();
        for (at, item) in items.iter().enumerate() {
            let lane = lanes.entry(item.dp_rank).or_default();
            lane.push((at, (*item).clone()));
        }
        let mut tasks = JoinSet::new();
        for lane in lanes.into_values() {
            tasks.spawn(send_lane(self.client.clone(), lane));
        }
        let mut answers = Answers::new();
        while let Some(joined) = tasks.join_next().await {
            // Leaving the loop drops the set, which stops the other lanes.
            let lane = joined.map_err(|error| {
                PhaseError::new("WARMUP_FAILED", format!("a warm-up task died: {error}"), "")
            })?;
            for (at, completion) in lane? {
                self.sent
                    .add(completion.usage.map(|usage| usage.prompt_tokens));
                answers.insert(at, completion);
            }
        }
        Ok(answers)
    }
}

async fn send_lane(
    client: ControlClient,
    lane: Vec<(usize, WarmupItem)>,
) -> Result<Vec<(usize, Completion)>, PhaseError> {
    let mut answers = Vec::with_capacity(lane.len());
    for (at, item) in lane {
        let completion = client
            .complete(&item.prompt, Some(item.dp_rank))
            .await
            .map_err(|error| failed(&item, &error))?;
        answers.push((at, completion));
    }
    Ok(answers)
}

fn failed(item: &WarmupItem, error: &ControlError) -> PhaseError {
    PhaseError::new(
        "WARMUP_FAILED",
        format!(
            "warm-up of {} on DP rank {}: {error} ({})",
            item.group_id,
            item.dp_rank,
            error.code()
        ),
        error.hint().unwrap_or_default(),
    )
}

fn result(
    item: &WarmupItem,
    [first, second]: [&Completion; 2],
    block: BlockSize,
    last_block_withheld: bool,
) -> WarmupResult {
    let prompt_tokens = first.usage.map(|usage| usage.prompt_tokens);
    let shared = block.floor(item.shared_prefix_tokens);
    let held_back = if last_block_withheld {
        block.tokens()
    } else {
        0
    };
    let findable = prompt_tokens.map_or(shared, |tokens| {
        shared.min(block.findable_tokens(tokens).saturating_sub(held_back))
    });
    let cached_tokens = second.usage.and_then(|usage| usage.cached_tokens);
    WarmupResult {
        group_id: item.group_id,
        dp_rank: item.dp_rank,
        success: true,
        elapsed_seconds: first.elapsed.as_secs_f64(),
        prompt_tokens,
        expected_cached_tokens: findable,
        cached_tokens,
        verified: cached_tokens.map(|tokens| tokens >= findable),
    }
}

/// Where usage does not tell, the hits of each rank over the second look stand
/// for all its items together.
fn verify_by_counters(
    results: &mut [WarmupResult],
    hits: &BTreeMap<DpRank, u64>,
    dp_size: u32,
) -> CachedSource {
    let mut expected: BTreeMap<DpRank, u64> = BTreeMap::new();
    for one in results.iter() {
        *expected.entry(rank_served(one, dp_size)).or_default() += one.expected_cached_tokens;
    }
    for one in results.iter_mut() {
        let rank = rank_served(one, dp_size);
        one.verified = hits.get(&rank).map(|hits| *hits >= expected[&rank]);
    }
    if results.iter().all(|one| one.verified.is_some()) {
        CachedSource::Counters
    } else {
        CachedSource::Unavailable
    }
}

/// With one rank no header is sent, so everything is served by rank 0.
fn rank_served(result: &WarmupResult, dp_size: u32) -> DpRank {
    if dp_size == 1 {
        DpRank(0)
    } else {
        result.dp_rank
    }
}

fn doubts(results: &[WarmupResult]) -> Vec<PhaseWarning> {
    let mut warnings = Vec::new();
    let missing: Vec<String> = results
        .iter()
        .filter(|one| one.verified == Some(false))
        .map(|one| format!("{} on rank {}", one.group_id, one.dp_rank))
        .collect();
    if !missing.is_empty() {
        let named = missing[..missing.len().min(ITEMS_NAMED_MAX)].join(", ");
        warnings.push(PhaseWarning::new(
            "WARMUP_NOT_CACHED",
            format!(
                "{} of {} prefixes were not in the cache when looked at again ({named})",
                missing.len(),
                results.len()
            ),
        ));
    }
    let unknown = results.iter().filter(|one| one.verified.is_none()).count();
    if unknown > 0 {
        warnings.push(PhaseWarning::new(
            "WARMUP_UNVERIFIED",
            format!(
                "nothing tells whether {unknown} of {} prefixes are cached",
                results.len()
            ),
        ));
    }
    warnings
}

/// Items named in one warning.
const ITEMS_NAMED_MAX: usize = 8;
