//! The plan: lengths, groups, order, lanes and shared prefixes of all requests.
//! Numbers only; the room has never heard of text.
//!
//! [`build`] makes it from a scenario. Each consumer of chance has its own
//! stream of `run.random_seed`: `lengths/input`, `lengths/output`, both again
//! with `/group-<index>` for a group's own rules, `groups/zipf`, `order`, and
//! `request/<request id>` for the request's own seed.

mod build;
mod error;
mod groups;
mod lengths;
mod normal;
mod order;
mod reach;
mod summary;

mod arrivals;
mod load;
mod stage;

pub use arrivals::{ArrivalLaw, draw};
pub use stage::{LoadPlan, LoadPlanError, Pace, PlannedEnd, PlannedStage};

use crate::scenario::CacheMode;
use crate::units::{BlockSize, DpRank, GroupIndex};

pub use crate::solver::Solution;
pub use build::{REQUEST_COUNT_MAX, build};
pub use error::{LengthKind, LengthScope, PlanError};
pub use reach::{AdjustmentReason, Reachability, TargetOutcome, capacity_blocks};
pub use summary::{LengthBin, LengthSummary, summarize};

/// Everything about a data set that can be said in numbers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Cold or warm start.
    pub mode: CacheMode,
    /// Prefix-cache block of the server.
    pub block_size: BlockSize,
    /// Data-parallel ranks.
    pub dp_size: u32,
    /// Tokens of each unique seed.
    pub seed_tokens: u64,
    /// All requests, in send order.
    pub requests: Vec<PlannedRequest>,
    /// Groups that have requests, ascending.
    pub groups: Vec<PlannedGroup>,
    /// The solver's answer and its certificate.
    pub solution: Solution,
}

/// One request of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRequest {
    /// `request-%08d` by send order.
    pub request_id: String,
    /// Group whose prefix it shares.
    pub group: GroupIndex,
    /// How many requests of the group come before it.
    pub occurrence: u32,
    /// Rank it is sent to; `None` in warm-up mode (the server balances).
    pub dp_rank: Option<DpRank>,
    /// Place in its (group, rank) lane; `None` in warm-up mode.
    pub lane_sequence: Option<u32>,
    /// Prompt tokens, special tokens not counted.
    pub input_tokens: u64,
    /// Output limit, `max_tokens`.
    pub output_tokens: u64,
    /// Leading tokens shared with the group, a multiple of the block size.
    pub shared_prefix_tokens: u64,
    /// Seed of the request's own randomness (recorded in `full.jsonl`).
    pub random_seed: u64,
}

/// One group that has requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedGroup {
    /// Its index.
    pub group: GroupIndex,
    /// Number of its requests, at least 1.
    pub request_count: usize,
    /// The longest prefix any of its requests shares.
    pub max_shared_prefix_tokens: u64,
}
