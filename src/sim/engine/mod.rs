//! The engine: queues, caches and steps of all ranks as a pure state machine.
//! The caller says what time it is (an offset that never goes back) and gets
//! back what was delivered; the engine refuses to know clocks, text and HTTP.

mod account;
mod batch;
mod dues;
mod fixed;
mod pause;
mod rank;
mod sequence;
mod tiers;

use std::sync::Arc;

pub(super) use account::{Account, Histogram};
pub(super) use pause::Pause;
use rank::Rank;

use crate::kvcache::{BlockHash, ChainHasher};
use crate::rng::Seed;
use crate::sim::config::{Config, LookupCounting, Pace, Release};
use crate::units::{BlockSize, RunOffset};

/// One sequence to generate.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    /// Length of the prompt, at least 1.
    pub(super) prompt_tokens: u64,
    /// Hashes of its whole blocks.
    pub(super) hashes: Vec<BlockHash>,
    /// The chain after the whole prompt.
    pub(super) chain: ChainHasher,
    /// What will be generated, at least one token; an end token is the last.
    pub(super) output: Arc<[u32]>,
    /// Whether the output ends by its own end token.
    pub(super) stops: bool,
    /// The prompt is computed whole (prompt log-probabilities wanted).
    pub(super) skip_cache: bool,
    /// Output limit as the request says it.
    pub(super) max_tokens: u64,
    /// Choices of the request this sequence is one of.
    pub(super) choices: u64,
    /// The rank asked for.
    pub(super) rank: Option<usize>,
}

/// Names a sequence while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) rank: usize,
    pub(super) slot: usize,
}

/// How a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// Its limit.
    Length,
    /// Its own end token.
    Stop,
    /// An operator.
    Abort,
}

impl Finish {
    /// The wire's word.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Stop => "stop",
            Self::Abort => "abort",
        }
    }
}

/// Tokens of one sequence that exist by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) key: Key,
    /// Tokens generated so far.
    pub(super) released: usize,
    /// Prompt tokens that came out of a cache.
    pub(super) cached: u64,
    /// Set in the last delivery of a sequence; its key is free afterwards.
    pub(super) finish: Option<Finish>,
}

/// What every rank obeys.
#[derive(Clone, Debug)]
struct Rules {
    block: BlockSize,
    max_sequences: usize,
    step_tokens: u64,
    pace: Pace,
    caching: bool,
    every_lookup: bool,
    count_preempted: bool,
}

/// State of a rank's gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Gauges {
    /// Sequences in execution.
    pub(super) running: usize,
    /// Sequences waiting.
    pub(super) waiting: usize,
    /// Held share of the pool, 0..=1.
    pub(super) usage: f64,
}

/// All ranks of one server.
#[derive(Debug)]
pub(super) struct Engine {
    ranks: Vec<Rank>,
    /// The rank that wins a tie of loads.
    turn: usize,
    deliveries: Vec<Delivery>,
}

impl Engine {
    pub(super) fn new(config: &Config) -> Self {
        let every_lookup = match config.counting {
            LookupCounting::Release => config.release == Release::V0_24,
            LookupCounting::Admission => false,
            LookupCounting::EveryLookup => true,
        };
        let rules = Arc::new(Rules {
            block: config.block,
            max_sequences: config.max_sequences,
            step_tokens: config.step_tokens,
            pace: config.pace,
            caching: config.prefix_caching,
            every_lookup,
            count_preempted: config.faults.count_preempted,
        });
        let seed = Seed::from(config.seed);
        let ranks = (0..config.ranks as usize)
            .map(|rank| {
                let stream = seed.stream(&format!("sim/steps/{rank}"));
                Rank::new(rank, Arc::clone(&rules), config, stream)
            })
            .collect();
        Self {
            ranks,
            turn: 0,
            deliveries: Vec::new(),
        }
    }

    /// Number of ranks.
    pub(super) fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// The rank a request without the header goes to: the least loaded one (a
    /// waiting sequence weighs four running ones, as in vLLM's balancer); ties
    /// take turns.
    pub(super) fn route(&mut self) -> usize {
        let count = self.ranks.len();
        let start = self.turn;
        let rank = (start..start + count)
            .map(|at| at % count)
            .min_by_key(|&rank| {
                let gauges = self.ranks[rank].gauges();
                gauges.waiting * 4 + gauges.running
            })
            .unwrap_or(0);
        self.turn = (rank + 1) % count;
        rank
    }

    /// Takes a sequence in; it waits until [`Self::advance`].
    pub(super) fn submit(&mut self, now: RunOffset, submission: Submission) -> Key {
        self.submit_late(now, now, submission)
    }

    /// The same of a sequence that arrived a moment ago, while the caller was
    /// busy; its latencies count from then.
    pub(super) fn submit_late(
        &mut self,
        arrived: RunOffset,
        now: RunOffset,
        submission: Submission,
    ) -> Key {
        let rank = match submission.rank {
            Some(rank) => rank,
            None => self.route(),
        };
        self.ranks[rank].submit(arrived.min(now), now, submission, &mut self.deliveries)
    }

    /// Cached tokens a prompt with these hashes would find now.
    pub(super) fn peek(&self, rank: usize, hashes: &[BlockHash], prompt_tokens: u64) -> u64 {
        self.ranks[rank].peek(hashes, prompt_tokens)
    }

    /// When something happens next; the past means now.
    pub(super) fn next_due(&self) -> Option<RunOffset> {
        self.ranks.iter().filter_map(Rank::next_due).min()
    }

    /// Lets everything happen that is due until `now`.
    pub(super) fn advance(&mut self, now: RunOffset) {
        for rank in &mut self.ranks {
            rank.advance(now, &mut self.deliveries);
        }
    }

    /// What was delivered since the last call, in order.
    pub(super) fn take_deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }

    /// Takes an emptied list back, so that the next one needs no memory.
    pub(super) fn recycle(&mut self, mut deliveries: Vec<Delivery>) {
        deliveries.clear();
        if self.deliveries.is_empty() {
            self.deliveries = deliveries;
        }
    }

    /// The client has gone: the sequence ends, nothing is delivered.
    pub(super) fn drop_sequence(&mut self, key: Key) {
        self.ranks[key.rank].drop_sequence(key.slot);
    }

    /// An operator ends every sequence.
    pub(super) fn abort_all(&mut self) {
        for rank in &mut self.ranks {
            rank.abort_all(&mut self.deliveries);
        }
    }

    /// Empties the caches of idle ranks; true when all were. `running` first
    /// preempts what runs; `external` empties the second tier as well.
    pub(super) fn reset(&mut self, running: bool, external: bool) -> bool {
        let mut all = true;
        for rank in &mut self.ranks {
            all &= rank.reset(running, external);
        }
        all
    }

    /// What each rank counted, and its gauges.
    pub(super) fn accounts(&self) -> impl Iterator<Item = (&Account, Gauges)> {
        self.ranks.iter().map(|rank| (&rank.account, rank.gauges()))
    }

    /// Counters start from zero, as after a restart.
    pub(super) fn restart_counters(&mut self) {
        for rank in &mut self.ranks {
            rank.account = Account::default();
        }
    }

    /// Sequences waiting on a rank.
    pub(super) fn waiting(&self, rank: usize) -> usize {
        self.ranks[rank].gauges().waiting
    }
}

#[cfg(test)]
mod loads;
#[cfg(test)]
mod tests;
