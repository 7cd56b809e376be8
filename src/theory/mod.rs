//! What a perfect cache would serve: plays requests in send order through the
//! watermark rule. `hit = min(shared, watermark)`, then
//! `watermark = max(watermark, shared)`, one watermark a lane.

use std::collections::BTreeMap;

use crate::units::{DpRank, GroupIndex};

/// What the theory says of one request, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTheory {
    /// Longest prefix of the group in the lane's cache before the request.
    pub watermark_before: u64,
    /// Tokens served from the cache.
    pub hit_tokens: u64,
    /// Longest prefix in the cache after it.
    pub watermark_after: u64,
}

/// Tokens looked up and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitAccount {
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Of them served from the cache.
    pub hit_tokens: u64,
}

/// The theory of a whole data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Theory {
    /// One entry a request, in send order.
    pub requests: Vec<RequestTheory>,
    /// Everything.
    pub total: HitAccount,
    /// By group, ascending.
    pub groups: BTreeMap<GroupIndex, HitAccount>,
    /// By rank; empty in warm-up mode.
    pub ranks: BTreeMap<DpRank, HitAccount>,
}
