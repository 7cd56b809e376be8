//! What a perfect cache would serve: plays requests in send order through the
//! watermark rule. `hit = min(shared, watermark)`, then
//! `watermark = max(watermark, shared)`, one watermark a lane. In warm-up mode
//! a lane is a group, and its watermark is the group's longest prefix from the
//! start.
//!
//! Two views of the same requests: the plan's ([`play`]; prompts without
//! special tokens, as the reference counts) and the server's
//! ([`play_in_view`], [`replay`]; what a BOS in front does to blocks and
//! lengths stands at [`ServerView`]).
//!
//! What a perfect cache leaves out, a pool of limited size and requests that
//! overlap, stands in `analyze`, which knows when each request was sent.

mod replay;
mod view;

use std::collections::BTreeMap;

use crate::plan::Plan;
use crate::scenario::CacheMode;
use crate::units::{DpRank, GroupIndex, ratio};

pub use replay::{SentRequest, Watermarks, replay};
pub use view::ServerView;

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

impl HitAccount {
    /// Hit rate, 0..=1; `None` where nothing was looked up.
    pub fn rate(self) -> Option<f64> {
        ratio(self.hit_tokens, self.input_tokens)
    }

    /// Adds one request.
    fn add(&mut self, input_tokens: u64, hit_tokens: u64) {
        self.input_tokens += input_tokens;
        self.hit_tokens += hit_tokens;
    }
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

impl Theory {
    /// Tokens served from the cache, request by request.
    pub fn hit_tokens(&self) -> impl Iterator<Item = u64> {
        self.requests.iter().map(|request| request.hit_tokens)
    }

    fn account(
        &mut self,
        group: GroupIndex,
        rank: Option<DpRank>,
        input_tokens: u64,
        theory: RequestTheory,
    ) {
        let hit = theory.hit_tokens;
        self.requests.push(theory);
        self.total.add(input_tokens, hit);
        self.groups.entry(group).or_default().add(input_tokens, hit);
        if let Some(rank) = rank {
            self.ranks.entry(rank).or_default().add(input_tokens, hit);
        }
    }
}

/// The plan's theory as the reference defines it: special tokens are not
/// counted.
pub fn play(plan: &Plan) -> Theory {
    play_in_view(plan, &ServerView::plain(plan.block_size))
}

/// The plan's theory as the server sees its requests.
pub fn play_in_view(plan: &Plan, view: &ServerView) -> Theory {
    let sent: Vec<SentRequest> = plan.requests.iter().map(SentRequest::planned).collect();
    replay(plan.mode, &warm_prefixes(plan), &sent, view)
}

/// The longest shared prefix of each group: what the warm-up brings into the
/// cache. Empty in cold mode.
pub fn warm_prefixes(plan: &Plan) -> BTreeMap<GroupIndex, u64> {
    match plan.mode {
        CacheMode::Cold => BTreeMap::new(),
        CacheMode::Warmup => plan
            .groups
            .iter()
            .map(|group| (group.group, group.max_shared_prefix_tokens))
            .collect(),
    }
}
