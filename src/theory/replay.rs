//! The theory of what was really sent: requests that never reached the server
//! leave nothing in its cache and count nowhere.

use std::collections::BTreeMap;

use crate::scenario::CacheMode;
use crate::units::{DpRank, GroupIndex};

use super::{RequestTheory, ServerView, Theory};

/// One request as it was sent. Token counts are the plan's, special tokens not
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentRequest {
    /// Group whose prefix it shares.
    pub group: GroupIndex,
    /// Rank it was sent to; `None` in warm-up mode.
    pub rank: Option<DpRank>,
    /// Leading tokens shared with the group.
    pub shared_prefix_tokens: u64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Whether the server computed its prompt: at least one content chunk came
    /// back. Otherwise it counts nowhere and leaves nothing in the cache.
    pub reached_server: bool,
}

/// Plays `sent`, in real send order within each lane, as the server sees it.
///
/// `warm` holds what the warm-up brought into the cache of every rank, in
/// tokens a group; in cold mode it is not looked at. The answer has one entry
/// for each of `sent`; a request that did not reach the server has a hit of 0.
pub fn replay(
    mode: CacheMode,
    warm: &BTreeMap<GroupIndex, u64>,
    sent: &[SentRequest],
    view: &ServerView,
) -> Theory {
    let mut theory = Theory {
        requests: Vec::with_capacity(sent.len()),
        ..Theory::default()
    };
    // Longest prefix sent in each lane; absent where nothing was.
    let mut watermarks: BTreeMap<(GroupIndex, Option<DpRank>), u64> = BTreeMap::new();
    for request in sent {
        let lane = (request.group, request.rank);
        let before = match mode {
            CacheMode::Cold => watermarks.get(&lane).copied(),
            CacheMode::Warmup => warm.get(&request.group).copied(),
        };
        let cached = |watermark: Option<u64>| watermark.map_or(0, |w| view.cached_tokens(w));
        if !request.reached_server {
            theory.requests.push(RequestTheory {
                watermark_before: cached(before),
                hit_tokens: 0,
                watermark_after: cached(before),
            });
            continue;
        }
        let shared = request.shared_prefix_tokens;
        let after = match mode {
            CacheMode::Cold => before.unwrap_or(0).max(shared),
            CacheMode::Warmup => before.unwrap_or(0),
        };
        let hit_tokens = before.map_or(0, |watermark| {
            view.hit_tokens(shared, watermark, request.input_tokens)
        });
        let entry = RequestTheory {
            watermark_before: cached(before),
            hit_tokens,
            watermark_after: cached(Some(after)),
        };
        watermarks.insert(lane, after);
        let input_tokens = view.input_tokens(request.input_tokens);
        theory.account(request.group, request.rank, input_tokens, entry);
    }
    theory
}
