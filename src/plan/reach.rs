//! What hit rates a plan can reach, and how its own stands to the one asked
//! for, in the reference's terms.

use std::collections::BTreeMap;
use std::fmt;

use crate::scenario::CacheMode;
use crate::units::{BlockSize, GroupIndex, ratio};

use super::Plan;

/// Most blocks a prompt may share: what is left beside
/// `minimum_non_shared_tokens`, rounded down.
pub const fn capacity_blocks(
    block_size: BlockSize,
    input_tokens: u64,
    minimum_non_shared_tokens: u64,
) -> u64 {
    block_size.whole_blocks(input_tokens.saturating_sub(minimum_non_shared_tokens))
}

/// Hits that requests can have; the least is always 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reachability {
    /// Prompt tokens of the requests.
    pub input_tokens: u64,
    /// Most of them that can be hits.
    pub max_hit_tokens: u64,
}

impl Reachability {
    /// Largest reachable hit rate, 0..=1; 0 where there are no tokens.
    pub fn max_rate(self) -> f64 {
        ratio(self.max_hit_tokens, self.input_tokens).unwrap_or(0.0)
    }
}

/// Why the effective rate is not the requested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdjustmentReason {
    /// More was asked for than can be reached.
    AboveMaximum,
    /// Hits come in whole blocks.
    BlockAlignment,
}

impl fmt::Display for AdjustmentReason {
    /// The reference's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AboveMaximum => "target exceeds maximum reachable hit rate",
            Self::BlockAlignment => "block alignment prevents an exact target hit count",
        })
    }
}

/// How the plan stands to the requested rate. Rates are 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetOutcome {
    /// Asked for.
    pub requested_rate: f64,
    /// Planned.
    pub effective_rate: f64,
    /// Largest reachable; the smallest is 0.
    pub reachable_max_rate: f64,
    /// Whether the requested rate is within the reachable ones.
    pub target_reachable: bool,
    /// Whether the planned hits differ from the requested rate's tokens,
    /// rounded half up.
    pub adjusted: bool,
    /// Why they do.
    pub reason: Option<AdjustmentReason>,
}

impl Plan {
    /// Prompt tokens of all requests.
    pub fn total_input_tokens(&self) -> u64 {
        self.requests
            .iter()
            .map(|request| request.input_tokens)
            .sum()
    }

    /// How the plan stands to `requested_rate`.
    pub fn target_outcome(&self, requested_rate: f64) -> TargetOutcome {
        let block = self.block_size.tokens();
        let total = self.total_input_tokens();
        let rate = |blocks: u64| ratio(blocks * block, total).unwrap_or(0.0);
        let reachable_max_rate = rate(self.solution.max_blocks);
        let target_reachable = requested_rate <= reachable_max_rate;
        let wanted = (total as f64 * requested_rate + 0.5).floor();
        let hit_tokens = self.solution.total_blocks * block;
        #[expect(clippy::float_cmp, reason = "both are whole numbers")]
        let adjusted = wanted != hit_tokens as f64;
        let reason = if !target_reachable {
            Some(AdjustmentReason::AboveMaximum)
        } else if adjusted {
            Some(AdjustmentReason::BlockAlignment)
        } else {
            None
        };
        TargetOutcome {
            requested_rate,
            effective_rate: rate(self.solution.total_blocks),
            reachable_max_rate,
            target_reachable,
            adjusted,
            reason,
        }
    }

    /// What each group's requests alone can reach.
    pub fn group_reachability(
        &self,
        minimum_non_shared_tokens: u64,
    ) -> BTreeMap<GroupIndex, Reachability> {
        let mut groups: BTreeMap<GroupIndex, Reachability> = BTreeMap::new();
        let mut largest = BTreeMap::new();
        for request in &self.requests {
            let blocks = capacity_blocks(
                self.block_size,
                request.input_tokens,
                minimum_non_shared_tokens,
            );
            let tokens = blocks * self.block_size.tokens();
            let group = groups.entry(request.group).or_default();
            group.input_tokens += request.input_tokens;
            group.max_hit_tokens += tokens;
            let lane = largest
                .entry((request.group, request.dp_rank))
                .or_insert(0_u64);
            *lane = tokens.max(*lane);
        }
        if self.mode == CacheMode::Cold {
            // Each lane brings its longest prefix into the cache once.
            for ((group, _), tokens) in largest {
                groups.entry(group).or_default().max_hit_tokens -= tokens;
            }
        }
        groups
    }
}
