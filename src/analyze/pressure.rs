//! KV pool use over the run, and whether the pool was too small: its peak and
//! time-weighted average by rank, and the working set against its size.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{Inputs, KvFacts};
use super::rows::Row;
use crate::stats::time_weighted_mean;
use crate::theory::ServerView;
use crate::units::{DpRank, GroupIndex, RunOffset};

/// KV use of one rank; shares are 0..=1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KvUse {
    /// Samples that state the use.
    pub samples: u64,
    /// Largest sample.
    pub peak: Option<f64>,
    /// Average, each sample weighted by how long it stood.
    pub average: Option<f64>,
    /// Most requests running at once.
    pub running_max: Option<u64>,
    /// Most requests waiting at once.
    pub waiting_max: Option<u64>,
}

/// KV use of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KvReport {
    /// By rank.
    pub ranks: BTreeMap<u32, KvUse>,
    /// Largest sample of any rank.
    pub peak: Option<f64>,
    /// Scrapes that failed.
    pub poll_failures: u64,
}

pub(super) fn kv_report(kv: &KvFacts, end: RunOffset) -> KvReport {
    let ranks: std::collections::BTreeSet<DpRank> = kv
        .samples
        .iter()
        .flat_map(|sample| sample.ranks.keys().copied())
        .collect();
    let uses: BTreeMap<u32, KvUse> = ranks
        .into_iter()
        .map(|rank| (rank.0, kv_use(kv, rank, end)))
        .collect();
    KvReport {
        peak: uses
            .values()
            .filter_map(|rank| rank.peak)
            .max_by(f64::total_cmp),
        ranks: uses,
        poll_failures: kv.failures,
    }
}

fn kv_use(kv: &KvFacts, rank: DpRank, end: RunOffset) -> KvUse {
    let gauges = || {
        kv.samples
            .iter()
            .filter_map(|sample| Some((sample.at, sample.ranks.get(&rank)?)))
    };
    let usage: Vec<(RunOffset, f64)> = gauges()
        .filter_map(|(at, gauges)| Some((at, gauges.usage?)))
        .collect();
    let end = usage.last().map_or(end, |(last, _)| end.max(*last));
    KvUse {
        samples: usage.len() as u64,
        peak: usage.iter().map(|(_, share)| *share).max_by(f64::total_cmp),
        average: time_weighted_mean(&usage, end),
        running_max: gauges().filter_map(|(_, gauges)| gauges.running).max(),
        waiting_max: gauges().filter_map(|(_, gauges)| gauges.waiting).max(),
    }
}

/// Why blocks may have been evicted; empty when nothing says so.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pressure {
    /// Ranks whose pool was full, with its peak use.
    pub(super) full: BTreeMap<u32, f64>,
    /// Blocks that all prompts of a rank would need to stay cached, and the
    /// pool's, where the former are more.
    pub(super) working_set: Option<(u64, u64)>,
}

impl Pressure {
    pub(super) fn of(
        inputs: &Inputs<'_>,
        view: ServerView,
        rows: &[Row<'_>],
        kv: &KvReport,
    ) -> Self {
        let full = kv
            .ranks
            .iter()
            .filter_map(|(rank, kv_use)| Some((*rank, kv_use.peak?)))
            .filter(|(_, peak)| *peak >= inputs.limits.kv_usage)
            .collect();
        // One block of the pool is never usable.
        let pool = inputs
            .engine
            .num_gpu_blocks
            .map(|blocks| blocks.saturating_sub(1));
        let needed = working_set(view, rows);
        Self {
            full,
            working_set: pool
                .filter(|&pool| needed > pool)
                .map(|pool| (needed, pool)),
        }
    }

    /// What speaks for evictions on a rank, or anywhere.
    pub(super) fn on(&self, rank: Option<DpRank>) -> Option<String> {
        let full = self
            .full
            .iter()
            .find(|(full, _)| rank.is_none_or(|rank| rank.0 == **full));
        if let Some((rank, peak)) = full {
            let percent = peak * 100.0;
            return Some(format!(
                "the KV pool of rank {rank} was {percent:.1} % full"
            ));
        }
        self.working_set
            .map(|(needed, pool)| format!("the prompts need {needed} blocks, the pool has {pool}"))
    }
}

/// Blocks that must stay in one rank's pool for every promised hit: the shared
/// prefixes of its groups, and what its largest request adds to them.
fn working_set(view: ServerView, rows: &[Row<'_>]) -> u64 {
    let mut ranks: BTreeMap<Option<DpRank>, BTreeMap<GroupIndex, u64>> = BTreeMap::new();
    let mut own: BTreeMap<Option<DpRank>, u64> = BTreeMap::new();
    for row in rows {
        let planned = row.planned;
        let blocks = view.cached_tokens(planned.shared_prefix_tokens) / view.block_size.tokens();
        let groups = ranks.entry(planned.dp_rank).or_default();
        let longest = groups.entry(planned.group).or_default();
        *longest = (*longest).max(blocks);
        let all = planned.prompt_tokens(view) + planned.max_tokens;
        let largest = own.entry(planned.dp_rank).or_default();
        *largest = (*largest).max(all.div_ceil(view.block_size.tokens()) - blocks);
    }
    ranks
        .into_iter()
        .map(|(rank, groups)| groups.values().sum::<u64>() + own.get(&rank).copied().unwrap_or(0))
        .max()
        .unwrap_or(0)
}
