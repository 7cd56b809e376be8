//! What concurrency can cost: a request that is sent while the one that would
//! bring its prefix is still being computed finds less.
//!
//! Where each lane's requests wait for each other, and after a warm-up, nothing
//! can be lost. Otherwise a request can be sure only of what those earlier
//! requests of its lane brought that cannot be in flight: with `c` requests in
//! flight at most, all but the `c − 1` with the longest prefixes. Each
//! request's bound is reached by some run; their sum may be less than any run
//! gives, because no run is the worst for all.
//!
//! The order in which a lane's requests are computed costs nothing: their hits
//! are `Σ shared − max shared` in any order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::scenario::CacheMode;
use crate::units::{DpRank, GroupIndex};

use super::{RequestTheory, SentRequest, ServerView, Theory, replay};

/// How requests may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Most requests in flight at once, at least 1. "In flight" ends for the
    /// cache when the prompt has been computed.
    pub concurrency: usize,
    /// Whether each request of a lane waits for the one before it.
    pub lanes_in_order: bool,
}

/// The least and the most hits that overlapping leaves possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlapInterval {
    /// Each request meets its worst case.
    pub least: Theory,
    /// Each request finds what all earlier ones brought.
    pub most: Theory,
}

/// The interval of `sent`, as [`replay`] takes it.
pub fn overlap_interval(
    mode: CacheMode,
    warm: &BTreeMap<GroupIndex, u64>,
    sent: &[SentRequest],
    view: &ServerView,
    overlap: Overlap,
) -> OverlapInterval {
    let most = replay(mode, warm, sent, view);
    let nothing_to_lose =
        mode == CacheMode::Warmup || overlap.lanes_in_order || overlap.concurrency <= 1;
    let least = if nothing_to_lose {
        most.clone()
    } else {
        worst_case(sent, view, overlap.concurrency)
    };
    OverlapInterval { least, most }
}

fn worst_case(sent: &[SentRequest], view: &ServerView, concurrency: usize) -> Theory {
    let mut lanes: BTreeMap<(GroupIndex, Option<DpRank>), Longest> = BTreeMap::new();
    let mut theory = Theory::default();
    for request in sent {
        let lane = lanes
            .entry((request.group, request.rank))
            .or_insert_with(|| Longest::new(concurrency));
        let before = lane.sure();
        let cached = |watermark: Option<u64>| watermark.map_or(0, |w| view.cached_tokens(w));
        let mut entry = RequestTheory {
            watermark_before: cached(before),
            hit_tokens: 0,
            watermark_after: cached(before),
        };
        if !request.reached_server {
            theory.requests.push(entry);
            continue;
        }
        let shared = request.shared_prefix_tokens;
        entry.hit_tokens = before.map_or(0, |watermark| {
            view.hit_tokens(shared, watermark, request.input_tokens)
        });
        lane.add(shared);
        entry.watermark_after = cached(lane.sure());
        let input_tokens = view.input_tokens(request.input_tokens);
        theory.account(request.group, request.rank, input_tokens, entry);
    }
    theory
}

/// The longest prefixes of a lane, as many as can be in flight.
struct Longest {
    concurrency: usize,
    prefixes: BinaryHeap<Reverse<u64>>,
}

impl Longest {
    fn new(concurrency: usize) -> Self {
        Self {
            concurrency,
            prefixes: BinaryHeap::new(),
        }
    }

    fn add(&mut self, shared_tokens: u64) {
        self.prefixes.push(Reverse(shared_tokens));
        if self.prefixes.len() > self.concurrency {
            self.prefixes.pop();
        }
    }

    /// The longest prefix that is cached when all longer ones are in flight.
    fn sure(&self) -> Option<u64> {
        let full = self.prefixes.len() == self.concurrency;
        self.prefixes.peek().filter(|_| full).map(|least| least.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::BlockSize;

    const BLOCK: u64 = 4;

    fn view() -> ServerView {
        ServerView::plain(BlockSize::new(BLOCK).unwrap())
    }

    fn request((rank, blocks): (u32, u64)) -> SentRequest {
        SentRequest {
            group: GroupIndex(0),
            rank: Some(DpRank(rank)),
            shared_prefix_tokens: blocks * BLOCK,
            input_tokens: 10 * BLOCK,
            reached_server: true,
        }
    }

    /// Hits of each request in every run: at each moment the next request may
    /// be sent, when fewer than `concurrency` are in flight, or one in flight
    /// may end.
    fn every_run(sent: &[SentRequest], concurrency: usize) -> Vec<Vec<u64>> {
        fn go(
            sent: &[SentRequest],
            concurrency: usize,
            state: (usize, Vec<usize>, Vec<usize>),
            hits: &[u64],
            runs: &mut Vec<Vec<u64>>,
        ) {
            let (next, flying, ended) = state;
            if next == sent.len() {
                runs.push(hits.to_vec());
                return;
            }
            if flying.len() < concurrency {
                let same_lane = ended.iter().filter(|&&at| sent[at].rank == sent[next].rank);
                let cached = same_lane.map(|&at| sent[at].shared_prefix_tokens).max();
                let hit = cached.unwrap_or(0).min(sent[next].shared_prefix_tokens);
                let flying = flying.iter().copied().chain([next]).collect();
                let hits: Vec<u64> = hits.iter().copied().chain([hit]).collect();
                go(
                    sent,
                    concurrency,
                    (next + 1, flying, ended.clone()),
                    &hits,
                    runs,
                );
            }
            for (place, &at) in flying.iter().enumerate() {
                let mut flying = flying.clone();
                flying.remove(place);
                let ended = ended.iter().copied().chain([at]).collect();
                go(sent, concurrency, (next, flying, ended), hits, runs);
            }
        }
        let mut runs = Vec::new();
        go(sent, concurrency, (0, vec![], vec![]), &[], &mut runs);
        runs
    }

    proptest! {
        #[test]
        fn bounds_are_those_of_every_possible_run(
            requests in prop::collection::vec((0_u32..2, 0_u64..5), 1..6),
            concurrency in 1_usize..4,
        ) {
            let sent: Vec<SentRequest> = requests.into_iter().map(request).collect();
            let overlap = Overlap { concurrency, lanes_in_order: false };
            let interval =
                overlap_interval(CacheMode::Cold, &BTreeMap::new(), &sent, &view(), overlap);
            let runs = every_run(&sent, concurrency);
            for index in 0..sent.len() {
                let hits = runs.iter().map(|run| run[index]);
                let least = interval.least.requests[index].hit_tokens;
                prop_assert_eq!(hits.clone().min(), Some(least));
                prop_assert_eq!(hits.max(), Some(interval.most.requests[index].hit_tokens));
            }
            let totals = runs.iter().map(|run| run.iter().sum::<u64>());
            prop_assert!(totals.clone().min() >= Some(interval.least.total.hit_tokens));
            prop_assert_eq!(totals.max(), Some(interval.most.total.hit_tokens));
        }
    }

    #[test]
    fn nothing_is_lost_in_order_or_after_a_warm_up() {
        let sent: Vec<SentRequest> = [(0, 3), (0, 3), (0, 3)].map(request).to_vec();
        let interval = |mode, lanes_in_order| {
            let overlap = Overlap {
                concurrency: 3,
                lanes_in_order,
            };
            let warm = BTreeMap::from([(GroupIndex(0), 3 * BLOCK)]);
            let interval = overlap_interval(mode, &warm, &sent, &view(), overlap);
            let hits = |theory: &Theory| theory.total.hit_tokens / BLOCK;
            (hits(&interval.least), hits(&interval.most))
        };
        assert_eq!(interval(CacheMode::Cold, true), (6, 6));
        assert_eq!(interval(CacheMode::Cold, false), (0, 6));
        assert_eq!(interval(CacheMode::Warmup, false), (9, 9));
    }
}
