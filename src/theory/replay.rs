//! The theory of what was really sent: requests that never reached the server
//! leave nothing in its cache and count nowhere.

use std::collections::BTreeMap;

use crate::plan::PlannedRequest;
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

impl SentRequest {
    /// A planned request, as if it had been sent and answered.
    pub const fn planned(request: &PlannedRequest) -> Self {
        Self {
            group: request.group,
            rank: request.dp_rank,
            shared_prefix_tokens: request.shared_prefix_tokens,
            input_tokens: request.input_tokens,
            reached_server: true,
        }
    }

    const fn lane(&self) -> (GroupIndex, Option<DpRank>) {
        (self.group, self.rank)
    }
}

/// How much of each group's prefix each cache holds: the longest that was
/// brought in, by lane.
///
/// In warm-up mode every rank has been warmed alike, and nothing longer comes
/// later; in cold mode a lane begins with nothing.
#[derive(Clone, Debug)]
pub struct Watermarks<'a> {
    mode: CacheMode,
    warm: &'a BTreeMap<GroupIndex, u64>,
    /// Absent where nothing was sent.
    lanes: BTreeMap<(GroupIndex, Option<DpRank>), u64>,
}

impl<'a> Watermarks<'a> {
    /// Before the first request. `warm` holds what the warm-up brought into
    /// every rank, in tokens a group; in cold mode it is not looked at.
    pub const fn new(mode: CacheMode, warm: &'a BTreeMap<GroupIndex, u64>) -> Self {
        Self {
            mode,
            warm,
            lanes: BTreeMap::new(),
        }
    }

    /// Longest prefix that `request` can meet; `None` where its lane has seen
    /// no prompt at all.
    pub fn before(&self, request: &SentRequest) -> Option<u64> {
        match self.mode {
            CacheMode::Cold => self.lanes.get(&request.lane()).copied(),
            CacheMode::Warmup => self.warm.get(&request.group).copied(),
        }
    }

    /// `request` has been computed.
    pub fn bring_in(&mut self, request: &SentRequest) {
        let longest = self.lanes.entry(request.lane()).or_default();
        *longest = (*longest).max(request.shared_prefix_tokens);
    }

    /// Tokens that `request` is served, in the server's view.
    pub fn hit_tokens(&self, request: &SentRequest, view: &ServerView) -> u64 {
        let SentRequest {
            shared_prefix_tokens,
            input_tokens,
            ..
        } = *request;
        self.before(request).map_or(0, |watermark| {
            view.hit_tokens(shared_prefix_tokens, watermark, input_tokens)
        })
    }

    fn cached_tokens(&self, request: &SentRequest, view: &ServerView) -> u64 {
        self.before(request)
            .map_or(0, |watermark| view.cached_tokens(watermark))
    }
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
    let mut watermarks = Watermarks::new(mode, warm);
    for request in sent {
        let watermark_before = watermarks.cached_tokens(request, view);
        if !request.reached_server {
            theory.requests.push(RequestTheory {
                watermark_before,
                hit_tokens: 0,
                watermark_after: watermark_before,
            });
            continue;
        }
        let hit_tokens = watermarks.hit_tokens(request, view);
        watermarks.bring_in(request);
        let entry = RequestTheory {
            watermark_before,
            hit_tokens,
            watermark_after: watermarks.cached_tokens(request, view),
        };
        let input_tokens = view.input_tokens(request.input_tokens);
        theory.account(request.group, request.rank, input_tokens, entry);
    }
    theory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::HitAccount;
    use crate::units::BlockSize;

    fn plain() -> ServerView {
        ServerView::plain(BlockSize::new(16).unwrap())
    }

    fn request(group: u32, rank: u32, shared_prefix_tokens: u64, input_tokens: u64) -> SentRequest {
        SentRequest {
            group: GroupIndex(group),
            rank: Some(DpRank(rank)),
            shared_prefix_tokens,
            input_tokens,
            reached_server: true,
        }
    }

    /// One cold lane of three prompts of 128 tokens that share 64; `lost` never
    /// reached the server.
    fn lane(lost: &[usize]) -> Theory {
        let mut sent = vec![request(0, 0, 64, 128); 3];
        for &index in lost {
            sent[index].reached_server = false;
        }
        replay(CacheMode::Cold, &BTreeMap::new(), &sent, &plain())
    }

    fn hits(theory: &Theory) -> Vec<u64> {
        theory
            .requests
            .iter()
            .map(|entry| entry.hit_tokens)
            .collect()
    }

    fn account(hit_tokens: u64, input_tokens: u64) -> HitAccount {
        HitAccount {
            input_tokens,
            hit_tokens,
        }
    }

    #[test]
    fn a_request_that_failed_counts_nowhere() {
        assert_eq!(lane(&[]).total, account(128, 384));
        // The second fails: the third still finds what the first left.
        let second = lane(&[1]);
        assert_eq!(
            (hits(&second), second.total),
            (vec![0, 0, 64], account(64, 256))
        );
        assert_eq!(second.total.rate(), Some(0.25));
        // The first fails: the second finds nothing, the third what it left.
        let first = lane(&[0]);
        assert_eq!(
            (hits(&first), first.total),
            (vec![0, 0, 64], account(64, 256))
        );
        assert_eq!(first.ranks[&DpRank(0)], account(64, 256));
        assert_eq!(lane(&[0, 1, 2]).total.rate(), None);
    }

    #[test]
    fn lanes_are_groups_by_rank() {
        let sent = [
            request(0, 0, 32, 64),
            request(0, 1, 32, 64),
            request(1, 0, 32, 64),
            request(0, 0, 48, 64),
            request(0, 0, 48, 64),
        ];
        let theory = replay(CacheMode::Cold, &BTreeMap::new(), &sent, &plain());
        assert_eq!(hits(&theory), [0, 0, 0, 32, 48]);
        let marks = theory
            .requests
            .iter()
            .map(|e| (e.watermark_before, e.watermark_after));
        assert!(marks.eq([(0, 32), (0, 32), (0, 32), (32, 48), (48, 48)]));
        assert_eq!(theory.groups[&GroupIndex(0)], account(80, 256));
        assert_eq!(theory.ranks[&DpRank(0)], account(80, 256));
    }

    #[test]
    fn a_bos_lengthens_prompts_and_shifts_blocks() {
        let view = ServerView {
            special_prefix_tokens: 1,
            ..plain()
        };
        // Blocks of 16: of 1 + 48 common tokens 48 are whole blocks.
        let sent = vec![request(0, 0, 48, 80); 2];
        let theory = replay(CacheMode::Cold, &BTreeMap::new(), &sent, &view);
        assert_eq!(theory.total, account(48, 162));
        // A warm-up set of 80-token prompts with half of them shared: 40 of 81.
        let warm = BTreeMap::from([(GroupIndex(0), 48)]);
        let mut sent = [request(0, 0, 32, 80), request(0, 0, 48, 80)];
        for request in &mut sent {
            request.rank = None;
        }
        let theory = replay(CacheMode::Warmup, &warm, &sent, &view);
        assert_eq!(theory.total, account(80, 162));
        assert!(theory.ranks.is_empty());
    }

    #[test]
    fn specials_as_long_as_a_block_are_shared_within_a_lane() {
        let view = ServerView {
            special_prefix_tokens: 16,
            ..plain()
        };
        let sent = vec![request(0, 0, 0, 80); 2];
        let theory = replay(CacheMode::Cold, &BTreeMap::new(), &sent, &view);
        assert_eq!(hits(&theory), [0, 16]);
    }
}
