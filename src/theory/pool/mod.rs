//! Capacity-aware theory: what a pool of limited size would serve. It plays
//! requests through one pool of blocks a rank, in send order, with a number of
//! them in flight.
//!
//! The model, after vLLM's block pool: a request holds the blocks of its prompt
//! and of all its output from its start to its end; blocks it leaves stay
//! cached until they are taken for something else, the longest unused first,
//! and of one request the last block first. Where a request has to wait, for a place
//! or for room, the oldest one in flight ends. Only whole blocks of the group's prefix can be found again; all others
//! are a request's own.

mod rank;

use std::collections::BTreeMap;

use crate::plan::{Plan, PlannedGroup, PlannedRequest};
use crate::scenario::CacheMode;
use crate::units::DpRank;

use self::rank::RankPool;
use super::{HitAccount, RequestTheory, SentRequest, ServerView, Theory};

/// The pool of each rank and how it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Blocks of one rank that requests can have. Of vLLM's `num_gpu_blocks`
    /// one is never given out.
    pub usable_blocks: u64,
    /// Most requests in flight on one rank, at least 1.
    pub concurrency: usize,
    /// Whether each request of a lane waits for the one before it.
    pub lanes_in_order: bool,
}

/// One request and what it asks of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PooledRequest {
    /// As sent. Without a rank it goes to the pool of rank 0.
    pub sent: SentRequest,
    /// Tokens it generates.
    pub output_tokens: u64,
}

/// The theory of a limited pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolTheory {
    /// As [`super::replay`] gives it; watermarks are what of the group's prefix
    /// is cached.
    pub theory: Theory,
    /// Cached blocks of prefixes that were taken for something else.
    pub evicted_blocks: u64,
    /// Most blocks held by requests in flight on one rank at once.
    pub held_blocks_max: u64,
    /// Places in `sent` of requests that even an empty pool could not hold;
    /// they find nothing.
    pub too_large: Vec<usize>,
}

/// Plays `warmup`, which counts nowhere, and then `sent`.
pub fn replay_in_pool(
    warmup: &[PooledRequest],
    sent: &[PooledRequest],
    view: &ServerView,
    pool: Pool,
) -> PoolTheory {
    let mut ranks: BTreeMap<DpRank, RankPool> = BTreeMap::new();
    let mut answer = PoolTheory::default();
    let mut play = |request: &PooledRequest| {
        let rank = request.sent.rank.unwrap_or_default();
        let rank = ranks.entry(rank).or_insert_with(|| RankPool::new(pool));
        rank.send(request, view)
    };
    for request in warmup.iter().filter(|request| request.sent.reached_server) {
        play(request);
    }
    for (index, request) in sent.iter().enumerate() {
        if !request.sent.reached_server {
            answer.theory.requests.push(RequestTheory::default());
            continue;
        }
        let played = play(request);
        if played.too_large {
            answer.too_large.push(index);
        }
        let input_tokens = view.input_tokens(request.sent.input_tokens);
        let SentRequest { group, rank, .. } = request.sent;
        answer
            .theory
            .account(group, rank, input_tokens, played.theory);
    }
    for rank in ranks.values() {
        answer.evicted_blocks += rank.evicted;
        answer.held_blocks_max = answer.held_blocks_max.max(rank.held_max);
    }
    answer
}

/// The plan's requests, in send order, each generating all it may.
pub fn planned_requests(plan: &Plan) -> Vec<PooledRequest> {
    let pooled = |request: &PlannedRequest| PooledRequest {
        sent: SentRequest::planned(request),
        output_tokens: request.output_tokens,
    };
    plan.requests.iter().map(pooled).collect()
}

/// What the warm-up sends: each group's longest prefix and a seed to every
/// rank, one token generated. Nothing in cold mode.
pub fn warmup_requests(plan: &Plan) -> Vec<PooledRequest> {
    if plan.mode == CacheMode::Cold {
        return Vec::new();
    }
    let to_rank = |group: &PlannedGroup, rank| PooledRequest {
        sent: SentRequest {
            group: group.group,
            rank: Some(DpRank(rank)),
            shared_prefix_tokens: group.max_shared_prefix_tokens,
            input_tokens: group.max_shared_prefix_tokens + plan.seed_tokens,
            reached_server: true,
        },
        output_tokens: 1,
    };
    let to_ranks = |group| (0..plan.dp_size).map(move |rank| to_rank(group, rank));
    plan.groups.iter().flat_map(to_ranks).collect()
}

impl PoolTheory {
    /// Tokens that an unlimited pool would have served besides.
    pub fn lost_tokens(&self, unlimited: HitAccount) -> u64 {
        unlimited
            .hit_tokens
            .saturating_sub(self.theory.total.hit_tokens)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::rank::index;
    use super::*;
    use crate::theory::replay;
    use crate::units::{BlockSize, GroupIndex};

    const BLOCK: u64 = 4;

    fn view() -> ServerView {
        ServerView::plain(BlockSize::new(BLOCK).unwrap())
    }

    fn request(group: u32, shared_blocks: u64, own_blocks: u64) -> PooledRequest {
        PooledRequest {
            sent: SentRequest {
                group: GroupIndex(group),
                rank: Some(DpRank(0)),
                shared_prefix_tokens: shared_blocks * BLOCK,
                input_tokens: (shared_blocks + own_blocks) * BLOCK,
                reached_server: true,
            },
            output_tokens: 1,
        }
    }

    /// The same pool, block by block: what each block holds, who uses it, and
    /// the list of unused ones.
    struct Naive {
        contents: Vec<Option<(u32, u64)>>,
        users: Vec<usize>,
        unused: Vec<usize>,
        flying: VecDeque<(u32, Vec<usize>)>,
    }

    impl Naive {
        fn new(blocks: u64) -> Self {
            let blocks = index(blocks);
            Self {
                contents: vec![None; blocks],
                users: vec![0; blocks],
                unused: (0..blocks).collect(),
                flying: VecDeque::new(),
            }
        }

        fn end(&mut self, at: usize) {
            let (_, held) = self.flying.remove(at).unwrap();
            for block in held.into_iter().rev() {
                self.users[block] -= 1;
                if self.users[block] == 0 {
                    self.unused.push(block);
                }
            }
        }

        /// Hit blocks of a request.
        fn send(&mut self, group: u32, shared: u64, own: u64, pool: Pool) -> u64 {
            if pool.lanes_in_order {
                while let Some(at) = self.flying.iter().position(|other| other.0 == group) {
                    self.end(at);
                }
            }
            while self.flying.len() >= pool.concurrency {
                self.end(0);
            }
            if shared + own > pool.usable_blocks {
                return 0;
            }
            let held: Vec<usize> = (0..shared)
                .map_while(|k| self.contents.iter().position(|c| *c == Some((group, k))))
                .collect();
            let hits = held.len() as u64;
            loop {
                let others = self
                    .unused
                    .iter()
                    .filter(|block| !held.contains(block))
                    .count();
                if others as u64 >= shared + own - hits {
                    break;
                }
                self.end(0);
            }
            self.unused.retain(|block| !held.contains(block));
            let mut held = held;
            for k in hits..shared + own {
                let block = self.unused.remove(0);
                self.contents[block] = (k < shared).then_some((group, k));
                held.push(block);
            }
            for &block in &held {
                self.users[block] += 1;
            }
            self.flying.push_back((group, held));
            hits
        }
    }

    proptest! {
        #[test]
        fn the_pool_is_that_of_a_block_by_block_model(
            requests in prop::collection::vec((0_u32..3, 0_u64..6, 1_u64..4), 1..40),
            usable_blocks in 1_u64..24,
            concurrency in 1_usize..5,
            lanes_in_order in any::<bool>(),
        ) {
            let pool = Pool { usable_blocks, concurrency, lanes_in_order };
            let mut naive = Naive::new(usable_blocks);
            let sent: Vec<PooledRequest> =
                requests.iter().map(|&(group, shared, own)| request(group, shared, own)).collect();
            let played = replay_in_pool(&[], &sent, &view(), pool);
            for (entry, &(group, shared, own)) in played.theory.requests.iter().zip(&requests) {
                prop_assert_eq!(entry.hit_tokens / BLOCK, naive.send(group, shared, own, pool));
            }
            prop_assert!(played.held_blocks_max <= usable_blocks);
        }

        #[test]
        fn a_large_pool_loses_nothing(
            requests in prop::collection::vec((0_u32..3, 0_u64..6, 1_u64..4), 1..40),
            concurrency in 1_usize..5,
        ) {
            let pool = Pool { usable_blocks: 10_000, concurrency, lanes_in_order: false };
            let pooled: Vec<PooledRequest> =
                requests.iter().map(|&(group, shared, own)| request(group, shared, own)).collect();
            let sent: Vec<SentRequest> = pooled.iter().map(|request| request.sent).collect();
            let unlimited = replay(CacheMode::Cold, &BTreeMap::new(), &sent, &view());
            let played = replay_in_pool(&[], &pooled, &view(), pool);
            prop_assert_eq!(played.lost_tokens(unlimited.total), 0);
            prop_assert_eq!(played.theory, unlimited);
            prop_assert_eq!(played.evicted_blocks, 0);
        }
    }

    #[test]
    fn a_plan_is_warmed_up_on_every_rank() {
        let group = |group, max_shared_prefix_tokens| PlannedGroup {
            group: GroupIndex(group),
            request_count: 1,
            max_shared_prefix_tokens,
        };
        let mut plan = Plan {
            mode: CacheMode::Warmup,
            block_size: BlockSize::new(BLOCK).unwrap(),
            dp_size: 2,
            seed_tokens: 4,
            requests: Vec::new(),
            groups: vec![group(0, 8), group(3, 0)],
            solution: crate::plan::Solution::default(),
        };
        let warmup = warmup_requests(&plan);
        let sent = warmup
            .iter()
            .map(|r| (r.sent.group.0, r.sent.rank.unwrap().0, r.sent.input_tokens));
        assert!(sent.eq([(0, 0, 12), (0, 1, 12), (3, 0, 4), (3, 1, 4)]));
        plan.mode = CacheMode::Cold;
        assert_eq!(warmup_requests(&plan), []);
    }

    #[test]
    fn what_the_warm_up_brought_can_be_evicted() {
        let pool = |usable_blocks| Pool {
            usable_blocks,
            concurrency: 1,
            lanes_in_order: false,
        };
        let warmup = [request(0, 4, 1), request(1, 4, 1)];
        let sent = [request(0, 4, 2), request(1, 4, 2)];
        let hits = |usable_blocks| {
            let played = replay_in_pool(&warmup, &sent, &view(), pool(usable_blocks));
            let hits = played
                .theory
                .requests
                .iter()
                .map(|entry| entry.hit_tokens / BLOCK);
            (hits.collect::<Vec<_>>(), played.evicted_blocks)
        };
        // Two prefixes of four blocks and two blocks of a request's own.
        assert_eq!(hits(10), (vec![4, 4], 0));
        // One less: the last block of group 1 has been unused for longest; to
        // bring it back, the last one of group 0 goes.
        assert_eq!(hits(9), (vec![4, 3], 2));
        let played = replay_in_pool(&warmup, &sent, &view(), pool(5));
        assert_eq!(played.too_large, [0, 1]);
        assert_eq!(played.theory.total.hit_tokens, 0);
    }
}
