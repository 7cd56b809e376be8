//! Capacity-aware theory: what a pool of the server's size keeps of the executed
//! order, requests in flight included. It exists where the pool's size is known
//! and each request's rank is.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::account::HitLine;
use super::executed::send_order;
use super::inputs::Inputs;
use super::pool::{Need, Pool};
use super::rows::Row;
use crate::measure::RequestRecord;
use crate::scenario::CacheMode;
use crate::theory::ServerView;
use crate::units::{DpRank, RunOffset};

/// Blocks of a warm-up request beyond its prefix: a unique seed and one token.
const WARMUP_OWN_BLOCKS: u64 = 2;

/// The executed theory under eviction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityTheory {
    /// Usable blocks of each rank's pool.
    pub pool_blocks: u64,
    /// Tokens that such a pool serves.
    pub line: HitLine,
    /// Prefix blocks that had to go.
    pub evicted_blocks: u64,
    /// Requests that had to wait for blocks.
    pub waiting_requests: u64,
}

/// The theory with each row's hits; `None` for rows that were not served.
pub(super) struct Capacity {
    pub(super) theory: CapacityTheory,
    pub(super) hits: Vec<Option<u64>>,
}

impl Capacity {
    pub(super) fn of(inputs: &Inputs<'_>, view: ServerView, rows: &[Row<'_>]) -> Option<Self> {
        // One block of the pool is never usable.
        let pool_blocks = inputs.engine.num_gpu_blocks?.checked_sub(1)?;
        let balanced = rows.iter().any(|row| row.planned.dp_rank.is_none());
        let ranks = inputs.counters.ranks().map_or(1, BTreeMap::len);
        if balanced && ranks > 1 {
            return None;
        }
        let mut play = Play {
            view,
            pool_blocks,
            ranks: BTreeMap::new(),
            waited: 0,
        };
        if inputs.mode == CacheMode::Warmup {
            play.warm_up(rows);
        }
        let mut hits = vec![None; rows.len()];
        let (mut input, mut hit) = (0, 0);
        for index in send_order(rows) {
            let tokens = play.request(&rows[index]) * view.block_size.tokens();
            input += rows[index].planned.prompt_tokens(view);
            hit += tokens;
            hits[index] = Some(tokens);
        }
        let theory = CapacityTheory {
            pool_blocks,
            line: HitLine::new(input, hit),
            evicted_blocks: play.ranks.values().map(|rank| rank.pool.evicted).sum(),
            waiting_requests: play.waited,
        };
        Some(Self { theory, hits })
    }
}

struct Rank {
    pool: Pool,
    /// What runs, by its end.
    running: BTreeMap<(RunOffset, u32), Need>,
}

struct Play {
    view: ServerView,
    pool_blocks: u64,
    ranks: BTreeMap<Option<DpRank>, Rank>,
    waited: u64,
}

impl Play {
    fn rank(&mut self, rank: Option<DpRank>) -> &mut Rank {
        let blocks = self.pool_blocks;
        self.ranks.entry(rank).or_insert_with(|| Rank {
            pool: Pool::new(blocks),
            running: BTreeMap::new(),
        })
    }

    /// Brings each group's longest prefix into each rank, in order.
    fn warm_up(&mut self, rows: &[Row<'_>]) {
        let ranks: BTreeSet<_> = rows.iter().map(|row| row.planned.dp_rank).collect();
        let mut longest = BTreeMap::new();
        for row in rows {
            let blocks = self.need(row).shared;
            let known = longest.entry(row.planned.group).or_insert(blocks);
            *known = blocks.max(*known);
        }
        for rank in ranks {
            for (&group, &shared) in &longest {
                let need = Need {
                    group,
                    shared,
                    total: shared + WARMUP_OWN_BLOCKS,
                    hit_most: 0,
                };
                let pool = &mut self.rank(rank).pool;
                if pool.admit(need).is_some() {
                    pool.release(need);
                }
            }
        }
    }

    /// Blocks served to one request. It waits for others to end where it does
    /// not fit; one that never fits is served nothing.
    fn request(&mut self, row: &Row<'_>) -> u64 {
        let need = self.need(row);
        let sent = row.sent_at().unwrap_or_default();
        let end = row.record.and_then(RequestRecord::ended_at).unwrap_or(sent);
        let index = row.planned.sequence_index;
        let rank = self.rank(row.planned.dp_rank);
        while let Some(first) = rank
            .running
            .first_entry()
            .filter(|first| first.key().0 <= sent)
        {
            let done = first.remove();
            rank.pool.release(done);
        }
        let mut waited = false;
        let hit = loop {
            if let Some(hit) = rank.pool.admit(need) {
                rank.running.insert((end, index), need);
                break hit;
            }
            let Some((_, done)) = rank.running.pop_first() else {
                break 0;
            };
            rank.pool.release(done);
            waited = true;
        };
        self.waited += u64::from(waited);
        hit
    }

    fn need(&self, row: &Row<'_>) -> Need {
        let block = self.view.block_size;
        let prompt = row.planned.prompt_tokens(self.view);
        let output = row
            .derived
            .as_ref()
            .and_then(|derived| derived.output_tokens);
        let all = prompt + output.unwrap_or(row.planned.max_tokens);
        let shared = block
            .whole_blocks(self.view.special_prefix_tokens + row.planned.shared_prefix_tokens)
            .min(block.whole_blocks(prompt));
        Need {
            group: row.planned.group,
            shared,
            total: all.div_ceil(block.tokens()).max(shared),
            hit_most: block.whole_blocks(prompt.saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::analyze::fixture::{Run, planned};
    use crate::analyze::{Cause, Code};
    use crate::units::GroupIndex;

    /// Two groups in turn, prompts of 16 blocks with a prefix of 8, one token
    /// more of output: 17 blocks each.
    fn alternating(pool_blocks: u64) -> Run {
        let plan: Vec<_> = (0..6_u32)
            .map(|index| {
                let mut row = planned(index, 256, 128);
                row.group = GroupIndex(index % 2);
                row.lane_sequence = Some(index / 2);
                row
            })
            .collect();
        let mut run = Run::served(
            plan,
            &[Some(0), Some(0), Some(128), Some(128), Some(128), Some(128)],
        );
        run.engine.num_gpu_blocks = Some(pool_blocks + 1);
        run
    }

    #[test]
    fn a_pool_large_enough_is_the_executed_theory() {
        let analysis = alternating(34).analyze();
        let capacity = analysis.hits.capacity.unwrap();
        assert_eq!(Some(capacity.line), analysis.hits.overall.executed);
        assert_eq!(capacity.line.hit_tokens, 4 * 128);
    }

    #[test]
    fn a_pool_for_one_request_keeps_nothing_of_the_other_group() {
        let mut run = alternating(17);
        let capacity = run.analyze().hits.capacity.unwrap();
        assert_eq!(capacity.line.hit_tokens, 0);
        // The last prefix stays; each of the five before it had to go.
        assert_eq!(capacity.evicted_blocks, 5 * 8);
        for record in &mut run.records {
            record.usage.as_mut().unwrap().cached_tokens = Some(0);
        }
        let analysis = run.analyze();
        let total = analysis.attribution.causes[0];
        assert_eq!((total.cause, total.lost_tokens), (Cause::Evicted, 512));
        assert!(run.codes().contains(&Code::EvictionPressure));
    }

    #[test]
    fn without_the_size_of_the_pool_there_is_no_such_theory() {
        let mut run = alternating(34);
        run.engine.num_gpu_blocks = None;
        assert_eq!(run.analyze().hits.capacity, None);
    }
}
