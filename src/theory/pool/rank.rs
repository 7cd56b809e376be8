//! The pool of one rank: which blocks are held, which are cached and unused,
//! and in which order unused ones are taken. It refuses to know what a hit is
//! worth.

use std::collections::{BTreeMap, VecDeque};

use crate::theory::{RequestTheory, ServerView};
use crate::units::GroupIndex;

use super::{Pool, PooledRequest};

/// What one request met.
pub(super) struct Played {
    pub theory: RequestTheory,
    /// Even the empty pool could not hold it.
    pub too_large: bool,
}

/// One block of a group's prefix.
#[derive(Clone, Copy, Debug, Default)]
struct PrefixBlock {
    cached: bool,
    /// Requests in flight that hold it.
    holders: u32,
    /// Its latest entry in the queue of unused blocks; earlier ones are void.
    ticket: u64,
}

/// Entry of the queue of unused blocks, the next to be taken first.
#[derive(Clone, Copy, Debug)]
enum Unused {
    /// So many blocks that nobody can find again.
    Own(u64),
    Prefix {
        group: GroupIndex,
        block: usize,
        ticket: u64,
    },
}

struct InFlight {
    group: GroupIndex,
    /// Blocks of the group's prefix it holds.
    prefix_blocks: usize,
    own_blocks: u64,
}

/// The pool of one rank.
pub(super) struct RankPool {
    pool: Pool,
    prefixes: BTreeMap<GroupIndex, Vec<PrefixBlock>>,
    in_flight: VecDeque<InFlight>,
    queue: VecDeque<Unused>,
    /// Void entries in the queue.
    void: usize,
    tickets: u64,
    /// Blocks that never held anything.
    fresh: u64,
    /// Blocks held by requests in flight.
    held: u64,
    /// Most blocks held at once.
    pub held_max: u64,
    /// Cached prefix blocks that were taken.
    pub evicted: u64,
}

impl RankPool {
    /// An empty pool.
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            pool,
            prefixes: BTreeMap::new(),
            in_flight: VecDeque::new(),
            queue: VecDeque::new(),
            void: 0,
            tickets: 0,
            fresh: pool.usable_blocks,
            held: 0,
            held_max: 0,
            evicted: 0,
        }
    }

    /// Starts a request, ending older ones as concurrency and room demand.
    pub(super) fn send(&mut self, request: &PooledRequest, view: &ServerView) -> Played {
        let sent = &request.sent;
        let block = view.block_size.tokens();
        // The last token generated is never written to the cache.
        let tokens = view.input_tokens(sent.input_tokens) + request.output_tokens.saturating_sub(1);
        let blocks = tokens.div_ceil(block);
        if self.pool.lanes_in_order {
            while let Some(at) = self
                .in_flight
                .iter()
                .position(|other| other.group == sent.group)
            {
                self.end(at);
            }
        }
        while self.in_flight.len() >= self.pool.concurrency.max(1) {
            self.end(0);
        }
        let before = self.cached_blocks(sent.group);
        let found = before
            .min(view.cached_tokens(sent.shared_prefix_tokens) / block)
            .min(view.findable_tokens(sent.input_tokens) / block);
        if blocks > self.pool.usable_blocks {
            return Played {
                theory: theory(view, before, 0, before),
                too_large: true,
            };
        }
        let prefix_blocks = (view.cached_tokens(sent.shared_prefix_tokens) / block).min(blocks);
        // Ending a request frees blocks and evicts none, so what was found stays.
        while self.pool.usable_blocks - self.held
            < blocks - self.shared_held(sent.group, prefix_blocks)
        {
            self.end(0);
        }
        self.hold(sent.group, prefix_blocks, blocks - prefix_blocks);
        let after = self.cached_blocks(sent.group);
        Played {
            theory: theory(view, before, found, after),
            too_large: false,
        }
    }

    /// Leading blocks of the group's prefix that are cached.
    fn cached_blocks(&self, group: GroupIndex) -> u64 {
        let blocks = self.prefixes.get(&group).map_or(&[][..], Vec::as_slice);
        blocks.iter().take_while(|block| block.cached).count() as u64
    }

    /// Of the first blocks of the group's prefix, those held already.
    fn shared_held(&self, group: GroupIndex, prefix_blocks: u64) -> u64 {
        let blocks = self.prefixes.get(&group).map_or(&[][..], Vec::as_slice);
        let first = blocks.iter().take(index(prefix_blocks));
        first.filter(|block| block.holders > 0).count() as u64
    }

    /// Takes the blocks of a request: first those found in the cache, so that
    /// making room for the others cannot evict them.
    fn hold(&mut self, group: GroupIndex, prefix_blocks: u64, own_blocks: u64) {
        let prefix_blocks = index(prefix_blocks);
        let blocks = self.prefixes.entry(group).or_default();
        if blocks.len() < prefix_blocks {
            blocks.resize(prefix_blocks, PrefixBlock::default());
        }
        let mut missing = own_blocks;
        for block in &mut blocks[..prefix_blocks] {
            if block.holders == 0 {
                if block.cached {
                    self.void += 1;
                } else {
                    missing += 1;
                }
                self.held += 1;
            }
            block.holders += 1;
            block.cached = true;
            block.ticket = 0;
        }
        self.held += own_blocks;
        self.held_max = self.held_max.max(self.held);
        self.in_flight.push_back(InFlight {
            group,
            prefix_blocks,
            own_blocks,
        });
        self.take(missing);
    }

    /// Takes unused blocks, never used ones first, evicting what they hold.
    fn take(&mut self, mut missing: u64) {
        let fresh = missing.min(self.fresh);
        self.fresh -= fresh;
        missing -= fresh;
        while missing > 0 {
            let first = self.queue.front_mut().expect("unused blocks were counted");
            match first {
                Unused::Own(count) => {
                    let taken = missing.min(*count);
                    *count -= taken;
                    missing -= taken;
                    if *count == 0 {
                        self.queue.pop_front();
                    }
                }
                &mut Unused::Prefix {
                    group,
                    block,
                    ticket,
                } => {
                    self.queue.pop_front();
                    let block = &mut self.prefixes.get_mut(&group).expect("it was held")[block];
                    if block.ticket == ticket {
                        block.cached = false;
                        block.ticket = 0;
                        self.evicted += 1;
                        missing -= 1;
                    } else {
                        self.void -= 1;
                    }
                }
            }
        }
    }

    /// Ends the request in flight at `place`, the oldest being at 0: leaves its
    /// blocks, the last one first.
    fn end(&mut self, place: usize) {
        let ended = self
            .in_flight
            .remove(place)
            .expect("a request is in flight");
        self.held -= ended.own_blocks;
        if ended.own_blocks > 0 {
            self.queue.push_back(Unused::Own(ended.own_blocks));
        }
        let blocks = self.prefixes.get_mut(&ended.group).expect("it was held");
        for (index, block) in blocks[..ended.prefix_blocks].iter_mut().enumerate().rev() {
            block.holders -= 1;
            if block.holders == 0 {
                self.held -= 1;
                self.tickets += 1;
                block.ticket = self.tickets;
                self.queue.push_back(Unused::Prefix {
                    group: ended.group,
                    block: index,
                    ticket: self.tickets,
                });
            }
        }
        self.sweep();
    }

    /// Drops void entries once they are the greater part of the queue.
    fn sweep(&mut self) {
        if self.void <= 1024 || self.void * 2 <= self.queue.len() {
            return;
        }
        let prefixes = &self.prefixes;
        self.queue.retain(|entry| match entry {
            Unused::Own(_) => true,
            Unused::Prefix {
                group,
                block,
                ticket,
            } => prefixes[group][*block].ticket == *ticket,
        });
        self.void = 0;
    }
}

fn theory(view: &ServerView, before: u64, found: u64, after: u64) -> RequestTheory {
    let block = view.block_size.tokens();
    RequestTheory {
        watermark_before: before * block,
        hit_tokens: found * block,
        watermark_after: after * block,
    }
}

/// A number of blocks as a place in a list.
pub(super) fn index(blocks: u64) -> usize {
    usize::try_from(blocks).expect("blocks of one prompt are counted in memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::SentRequest;
    use crate::units::BlockSize;

    #[test]
    fn void_entries_of_the_queue_are_swept() {
        let view = ServerView::plain(BlockSize::new(4).unwrap());
        let mut rank = RankPool::new(Pool {
            usable_blocks: 40,
            concurrency: 2,
            lanes_in_order: false,
        });
        for index in 0..4_000 {
            let request = PooledRequest {
                sent: SentRequest {
                    group: GroupIndex(index % 2),
                    rank: None,
                    shared_prefix_tokens: 60,
                    input_tokens: 64,
                    reached_server: true,
                },
                output_tokens: 1,
            };
            rank.send(&request, &view);
            assert!(rank.queue.len() < 4_000);
        }
    }
}
