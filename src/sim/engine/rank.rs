//! One rank: its cache, its queue, and what is true of a sequence in every
//! pace: lookup, admission, counting, end.

use std::collections::VecDeque;
use std::sync::Arc;

use super::account::Account;
use super::dues::Dues;
use super::sequence::{Pulse, Sequence, tokens_of_next};
use super::tiers::{ExternalTier, ResumeRule};
use super::{Delivery, Finish, Gauges, Key, Pause, Rules, Submission};
use crate::kvcache::{BlockHash, PrefixCache};
use crate::rng::Stream;
use crate::sim::config::{Config, Pace};
use crate::units::{BlockSize, RunOffset};

/// A count of blocks or tokens as an index; beyond the address space it is as
/// good as endless.
pub(super) fn index(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// One data-parallel rank.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) number: usize,
    pub(super) rules: Arc<Rules>,
    pub(super) cache: PrefixCache,
    pub(super) resume: ResumeRule,
    pub(super) external: Option<ExternalTier>,
    pub(super) account: Account,
    pub(super) sequences: Vec<Option<Sequence>>,
    vacant: Vec<usize>,
    pub(super) waiting: VecDeque<usize>,
    pub(super) running: Vec<usize>,
    /// The step that runs.
    pub(super) step: Option<super::batch::Step>,
    /// Deadlines of fixed pace.
    pub(super) due: Dues,
    /// The front of the queue does not fit until something ends (fixed pace).
    pub(super) blocked: bool,
    /// When it last began to fit again (fixed pace).
    pub(super) freed: RunOffset,
    /// What stands still, and since when.
    pub(super) pause: Pause,
    pub(super) paused_at: RunOffset,
    /// Sequences taken in so far.
    serial: u64,
    /// Until when this rank's story is told.
    pub(super) clock: RunOffset,
    pub(super) jitter: Stream,
}

/// What a lookup found, in blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    local: usize,
    external: usize,
}

impl Rank {
    pub(super) fn new(number: usize, rules: Arc<Rules>, config: &Config, jitter: Stream) -> Self {
        Self {
            number,
            cache: PrefixCache::new(config.block, config.pool_blocks),
            resume: ResumeRule::new(config.hybrid, config.block),
            external: config.external.map(ExternalTier::new),
            account: Account::default(),
            sequences: Vec::new(),
            vacant: Vec::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            step: None,
            due: Dues::default(),
            blocked: false,
            freed: RunOffset::default(),
            pause: Pause::Off,
            paused_at: RunOffset::default(),
            serial: 0,
            clock: RunOffset::default(),
            jitter,
            rules,
        }
    }

    pub(super) fn gauges(&self) -> Gauges {
        Gauges {
            running: self.running.len(),
            waiting: self.waiting.len(),
            usage: self.cache.usage(),
        }
    }

    pub(super) fn sequence(&mut self, slot: usize) -> &mut Sequence {
        self.sequences[slot].as_mut().expect("a live sequence")
    }

    /// The sequence in `slot`, if it is still the one of that serial number.
    pub(super) fn still(&mut self, slot: usize, serial: u64) -> Option<&mut Sequence> {
        let sequence = self.sequences.get_mut(slot)?.as_mut()?;
        (sequence.pulse.serial == serial).then_some(sequence)
    }

    /// Takes a sequence in. What was due strictly before it happens first, so
    /// that arrivals of one instant share a step.
    pub(super) fn submit(
        &mut self,
        arrived: RunOffset,
        now: RunOffset,
        submission: Submission,
        out: &mut Vec<Delivery>,
    ) -> Key {
        self.advance(RunOffset(now.0.saturating_sub(1)), out);
        self.serial += 1;
        let sequence = Sequence::new(submission, self.serial, arrived, self.rules.block);
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.sequences.push(None);
            self.sequences.len() - 1
        });
        self.sequences[slot] = Some(sequence);
        self.waiting.push_back(slot);
        if self.step.is_none() {
            self.clock = self.clock.max(now);
        }
        Key {
            rank: self.number,
            slot,
        }
    }

    pub(super) fn next_due(&self) -> Option<RunOffset> {
        match self.rules.pace {
            Pace::Batched(_) => self.next_step(),
            Pace::Fixed { .. } | Pace::Flood => self.next_fixed(),
        }
    }

    pub(super) fn advance(&mut self, now: RunOffset, out: &mut Vec<Delivery>) {
        match self.rules.pace {
            Pace::Batched(cost) => self.advance_steps(&cost, now, out),
            Pace::Fixed { ttft, itl } => self.advance_fixed(ttft, itl, now, out),
            Pace::Flood => self.advance_flood(now, out),
        }
    }

    pub(super) fn peek(&self, hashes: &[BlockHash], prompt_tokens: u64) -> u64 {
        let most = index(lookup_blocks(self.rules.block, prompt_tokens)).min(hashes.len());
        let found = self.lookup(&hashes[..most]);
        (found.local + found.external) as u64 * self.rules.block.tokens()
    }

    fn lookup(&self, hashes: &[BlockHash]) -> Found {
        if !self.rules.caching {
            return Found::default();
        }
        let local = self.resume.usable(&self.cache, hashes);
        let external = self
            .external
            .as_ref()
            .map_or(0, |tier| tier.find(&hashes[local..]));
        Found { local, external }
    }

    /// Looks the front of the queue up and gives it blocks for all tokens up
    /// to `tokens(found)`; false where the pool is too full.
    pub(super) fn admit(
        &mut self,
        slot: usize,
        now: RunOffset,
        tokens: impl Fn(u64) -> u64,
    ) -> bool {
        let block = self.rules.block;
        let mut sequence = self.sequences[slot].take().expect("a live sequence");
        let known = sequence.known();
        let most = index(lookup_blocks(block, known)).min(sequence.submission.hashes.len());
        let hashes = &sequence.submission.hashes[..most];
        let found = if sequence.submission.skip_cache {
            Found::default()
        } else {
            self.lookup(hashes)
        };
        let first = sequence.admitted.is_none();
        let counts = first || self.rules.count_preempted;
        if counts && self.rules.every_lookup {
            self.count_lookup(&sequence, found);
        }
        let hit = (found.local + found.external) as u64 * block.tokens();
        let blocks = index(tokens(hit).div_ceil(block.tokens()));
        let lease = self.cache.admit(&hashes[..found.local], blocks);
        let Some(lease) = lease else {
            self.sequences[slot] = Some(sequence);
            return false;
        };
        if counts && !self.rules.every_lookup {
            self.count_lookup(&sequence, found);
        }
        if first {
            sequence.admitted = Some(now);
            sequence.local = found.local as u64 * block.tokens();
            sequence.external = found.external as u64 * block.tokens();
            sequence.pulse.cached = sequence.local + sequence.external;
        }
        self.resume
            .speaks(sequence.submission.hashes.first().copied());
        sequence.lease = lease;
        sequence.computed = hit;
        self.sequences[slot] = Some(sequence);
        true
    }

    fn count_lookup(&mut self, sequence: &Sequence, found: Found) {
        if sequence.submission.skip_cache || !self.rules.caching {
            return;
        }
        let block = self.rules.block.tokens();
        let prompt = sequence.submission.prompt_tokens;
        let local = found.local as u64 * block;
        self.account.queries += prompt;
        self.account.hits += local;
        if self.external.is_some() {
            self.account.external_queries += prompt - local.min(prompt);
            self.account.external_hits += found.external as u64 * block;
        }
    }

    /// Makes the whole blocks of the first `tokens` tokens findable.
    pub(super) fn publish(&mut self, slot: usize, tokens: u64) {
        if !self.rules.caching {
            return;
        }
        let sequence = self.sequences[slot].as_mut().expect("a live sequence");
        if tokens < sequence.pulse.publish_at {
            return;
        }
        let whole = index(self.rules.block.whole_blocks(tokens));
        let hashes = &sequence.submission.hashes;
        let hashes = &hashes[..whole.min(hashes.len()).min(sequence.lease.blocks())];
        let before = sequence.lease.published();
        if hashes.len() <= before {
            return;
        }
        self.cache.publish(&mut sequence.lease, hashes);
        sequence.pulse.publish_at = tokens_of_next(self.rules.block, hashes.len());
        let cold = sequence.pulse.cached == 0;
        self.resume.learn(hashes, before, cold);
        self.resume.prune(&self.cache);
        if let Some(tier) = &mut self.external {
            tier.store(&hashes[before..]);
        }
    }

    /// `count` more tokens of a sequence exist, all at once. True when the
    /// last one is among them.
    pub(super) fn generate_many(
        &mut self,
        slot: usize,
        count: usize,
        at: RunOffset,
        out: &mut Vec<Delivery>,
    ) -> bool {
        let sequence = self.sequences[slot].as_mut().expect("a live sequence");
        let account = &mut self.account;
        let pulse = &mut sequence.pulse;
        if pulse.generated == 0 {
            sequence.first = Some(at);
            account.prompt_tokens += sequence.submission.prompt_tokens;
            account.prompt_local += sequence.local;
            account.prompt_external += sequence.external;
            account.ttft.observe(seconds(sequence.arrived, at));
        } else {
            account.itl.observe(seconds(pulse.last, at));
        }
        account.generation_tokens += count as u64;
        let until = pulse.generated + count;
        let ended = until == pulse.output_tokens;
        let cached = pulse.cached;
        pulse.last = at;
        pulse.generated = until;
        sequence.chain_whole_blocks(self.rules.block);
        let finish = ended.then_some(if sequence.submission.stops {
            Finish::Stop
        } else {
            Finish::Length
        });
        out.push(Delivery {
            key: Key {
                rank: self.number,
                slot,
            },
            released: until,
            cached,
            finish,
        });
        ended
    }

    /// Frees a sequence; what it cached stays.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Sequence> {
        let mut sequence = self.sequences[slot].take()?;
        self.vacant.push(slot);
        self.cache.release(sequence.take_lease());
        if std::mem::take(&mut self.blocked) {
            self.freed = self.clock;
        }
        self.waiting.retain(|&other| other != slot);
        self.running.retain(|&other| other != slot);
        Some(sequence)
    }

    /// Ends a sequence that has all its tokens, and counts it.
    pub(super) fn end(&mut self, slot: usize) {
        let Some(sequence) = self.remove(slot) else {
            return;
        };
        let account = &mut self.account;
        let submission = &sequence.submission;
        if submission.stops {
            account.stopped += 1;
        } else {
            account.full_length += 1;
        }
        let Pulse {
            generated,
            cached,
            last,
            ..
        } = sequence.pulse;
        let generated = generated as f64;
        let first = sequence.first.unwrap_or(last);
        let admitted = sequence.admitted.unwrap_or(sequence.arrived);
        let decode = seconds(first, last);
        account
            .request_prompt_tokens
            .observe(submission.prompt_tokens as f64);
        account.request_generation_tokens.observe(generated);
        account.request_max_generation_tokens.observe(generated);
        account.params_n.observe(submission.choices as f64);
        account
            .params_max_tokens
            .observe(submission.max_tokens as f64);
        account.tpot.observe(if generated > 1.0 {
            decode / (generated - 1.0)
        } else {
            0.0
        });
        account.e2e.observe(seconds(sequence.arrived, last));
        account.queue.observe(seconds(sequence.arrived, admitted));
        account.inference.observe(seconds(admitted, last));
        account.prefill.observe(seconds(admitted, first));
        account.decode.observe(decode);
        account
            .request_preemptions
            .observe(f64::from(sequence.preemptions));
        account
            .prefill_computed
            .observe((submission.prompt_tokens - cached) as f64);
    }

    /// The client has gone.
    pub(super) fn drop_sequence(&mut self, slot: usize) {
        drop(self.remove(slot));
    }

    /// Takes a running sequence's blocks away; it starts over from the front
    /// of the queue, keeping the tokens it has.
    pub(super) fn preempt(&mut self, slot: usize) {
        let sequence = self.sequences[slot].as_mut().expect("a live sequence");
        sequence.preemptions += 1;
        sequence.computed = 0;
        let lease = sequence.take_lease();
        self.cache.release(lease);
        self.running.retain(|&other| other != slot);
        self.waiting.push_front(slot);
        self.account.preemptions += 1;
    }
}

/// Seconds between two moments; 0 where they are in the wrong order.
fn seconds(from: RunOffset, until: RunOffset) -> f64 {
    RunOffset(until.0.saturating_sub(from.0)).seconds()
}

/// Blocks of a prompt of so many tokens that a lookup may return.
const fn lookup_blocks(block: BlockSize, prompt_tokens: u64) -> u64 {
    block.whole_blocks(block.findable_tokens(prompt_tokens))
}
