//! Continuous batching: each step gives every running sequence its tokens,
//! then admits waiting ones, first come first served, within a budget of
//! tokens; long prompts are computed in chunks; a full pool preempts the
//! sequence that was admitted last.

use super::Delivery;
use super::Pause;
use super::rank::{Rank, index};
use crate::sim::config::CostModel;
use crate::units::RunOffset;

/// One step between its start and its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    ends: RunOffset,
    scheduled: Vec<Scheduled>,
}

/// A sequence's part in a step.
#[derive(Clone, Copy, Debug)]
struct Scheduled {
    slot: usize,
    serial: u64,
    /// Tokens computed for it, at least 1.
    need: u64,
}

impl Rank {
    pub(super) fn next_step(&self) -> Option<RunOffset> {
        match &self.step {
            Some(step) => Some(step.ends),
            None if self.pause == Pause::All => None,
            None if self.running.is_empty()
                && (self.waiting.is_empty() || self.pause == Pause::New) =>
            {
                None
            }
            None => Some(self.clock),
        }
    }

    pub(super) fn advance_steps(
        &mut self,
        cost: &CostModel,
        now: RunOffset,
        out: &mut Vec<Delivery>,
    ) {
        loop {
            if let Some(step) = &self.step {
                if step.ends > now {
                    return;
                }
                self.end_step(out);
            } else if self.clock > now || !self.begin_step(cost) {
                return;
            }
        }
    }

    /// Plans the next step at the rank's clock; false when there is nothing
    /// to do (or nothing fits, which only an end elsewhere can change).
    fn begin_step(&mut self, cost: &CostModel) -> bool {
        if self.pause == Pause::All {
            return false;
        }
        let mut scheduled = Vec::new();
        let mut budget = self.rules.step_tokens;
        let preempted = self.schedule_running(&mut scheduled, &mut budget);
        if !preempted || scheduled.is_empty() {
            self.schedule_waiting(&mut scheduled, &mut budget);
        }
        if scheduled.is_empty() {
            return false;
        }
        let length = self.step_length(cost, &scheduled);
        self.step = Some(Step {
            ends: RunOffset(self.clock.0 + length),
            scheduled,
        });
        true
    }

    /// True when a sequence had to be preempted.
    fn schedule_running(&mut self, scheduled: &mut Vec<Scheduled>, budget: &mut u64) -> bool {
        let mut preempted = false;
        let mut at = 0;
        while at < self.running.len() && *budget > 0 {
            let slot = self.running[at];
            let sequence = self.sequence(slot);
            let need = (sequence.known() - sequence.computed).min(*budget);
            let until = sequence.computed + need;
            if self.grow(slot, until) {
                scheduled.push(self.take_up(slot, until, need));
                *budget -= need;
                at += 1;
                continue;
            }
            preempted = true;
            let last = *self.running.last().expect("one is running");
            self.preempt(last);
        }
        preempted
    }

    fn schedule_waiting(&mut self, scheduled: &mut Vec<Scheduled>, budget: &mut u64) {
        let admits = self.pause == Pause::Off;
        while admits && *budget > 0 && self.running.len() < self.rules.max_sequences {
            let Some(&slot) = self.waiting.front() else {
                return;
            };
            let known = self.sequence(slot).known();
            let (clock, most) = (self.clock, *budget);
            if !self.admit(slot, clock, |hit| hit + (known - hit).min(most)) {
                return;
            }
            self.waiting.pop_front();
            self.running.push(slot);
            let computed = self.sequence(slot).computed;
            let need = (known - computed).min(*budget);
            scheduled.push(self.take_up(slot, computed + need, need));
            *budget -= need;
        }
    }

    fn grow(&mut self, slot: usize, tokens: u64) -> bool {
        let blocks = index(tokens.div_ceil(self.rules.block.tokens()));
        let mut lease = std::mem::take(&mut self.sequence(slot).lease);
        let grown = self.cache.grow(&mut lease, blocks);
        self.sequence(slot).lease = lease;
        grown
    }

    /// The sequence's tokens up to `until` are in this step: their whole
    /// blocks can be found from now on.
    fn take_up(&mut self, slot: usize, until: u64, need: u64) -> Scheduled {
        let sequence = self.sequence(slot);
        sequence.computed = until;
        let serial = sequence.pulse.serial;
        self.publish(slot, until);
        Scheduled { slot, serial, need }
    }

    /// Length of a step in nanoseconds, at least 1.
    fn step_length(&mut self, cost: &CostModel, scheduled: &[Scheduled]) -> u64 {
        let sequences = scheduled.len() as f64;
        let tokens: u64 = scheduled.iter().map(|part| part.need - 1).sum();
        let seconds = cost.step.as_secs_f64()
            + cost.per_sequence.as_secs_f64() * sequences
            + tokens as f64 / cost.prefill_tokens_per_second;
        let jitter = 1.0 + cost.jitter_ratio * self.jitter.normal();
        let nanos = (seconds * jitter.max(0.1) * 1e9).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float to integer cast saturates, and the value is above zero"
        )]
        let nanos = nanos as u64;
        nanos.max(1)
    }

    fn end_step(&mut self, out: &mut Vec<Delivery>) {
        let Some(step) = self.step.take() else {
            return;
        };
        self.clock = step.ends;
        let mut tokens = 0;
        let mut delivered = 0_u64;
        for Scheduled { slot, serial, .. } in step.scheduled {
            // A client may have gone while the step ran.
            let Some(sequence) = self.still(slot, serial) else {
                continue;
            };
            if sequence.computed < sequence.known() {
                continue;
            }
            if sequence.pulse.generated == 0 {
                tokens += sequence.submission.prompt_tokens - sequence.pulse.cached;
            }
            delivered += 1;
            if self.generate_many(slot, 1, step.ends, out) {
                self.end(slot);
            }
        }
        if delivered > 0 {
            self.account
                .iteration_tokens
                .observe((tokens + delivered) as f64);
        }
    }
}
