//! Paces that ignore what else runs: fixed times after arrival, or everything
//! at once. The cache and its counters work as ever; a sequence takes all its
//! blocks when it is admitted and waits where they are not to be had.

use std::time::Duration;

use super::Delivery;
use super::Pause;
use super::dues::Due;
use super::rank::Rank;
use crate::units::RunOffset;

impl Rank {
    pub(super) fn next_fixed(&self) -> Option<RunOffset> {
        if self.pause == Pause::All {
            return None;
        }
        if !self.waiting.is_empty() && !self.blocked && self.pause == Pause::Off {
            return Some(self.clock);
        }
        self.due.peek().map(|due| due.at)
    }

    pub(super) fn advance_fixed(
        &mut self,
        ttft: Duration,
        itl: Duration,
        now: RunOffset,
        out: &mut Vec<Delivery>,
    ) {
        loop {
            while self.clock <= now
                && let Some(slot) = self.admit_whole()
            {
                // Time counts from the arrival, unless it had to wait.
                let (clock, freed) = (self.clock, self.freed);
                let sequence = self.sequence(slot);
                let from = if sequence.preemptions > 0 {
                    clock
                } else {
                    sequence.arrived.max(freed)
                };
                let first = self.deadline(slot, from, ttft);
                self.due.push_first(first);
            }
            let moves = self.pause != Pause::All;
            let Some(due) = self.due.peek().filter(|due| moves && due.at <= now) else {
                return;
            };
            self.due.pop();
            let Some(sequence) = self.still(due.slot, due.serial) else {
                continue;
            };
            let held = sequence.known();
            self.clock = self.clock.max(due.at);
            self.publish(due.slot, held);
            if self.generate_many(due.slot, 1, due.at, out) {
                self.end(due.slot);
            } else {
                let next = self.deadline(due.slot, due.at, itl);
                self.due.push_next(next);
            }
            self.account.iteration_tokens.observe(1.0);
        }
    }

    pub(super) fn advance_flood(&mut self, now: RunOffset, out: &mut Vec<Delivery>) {
        while self.clock <= now
            && let Some(slot) = self.admit_whole()
        {
            let sequence = self.sequence(slot);
            let left = sequence.submission.output.len() - sequence.pulse.generated;
            self.generate_many(slot, left, self.clock, out);
            let held = self.sequence(slot).known() - 1;
            self.publish(slot, held);
            self.end(slot);
            self.account.iteration_tokens.observe(left as f64);
        }
    }

    /// Admits the front of the queue with blocks for all it will ever hold.
    fn admit_whole(&mut self) -> Option<usize> {
        let admits = !self.blocked && self.pause == Pause::Off;
        let slot = *self.waiting.front().filter(|_| admits)?;
        let submission = &self.sequence(slot).submission;
        let whole = submission.prompt_tokens + submission.output.len() as u64 - 1;
        let known = self.sequence(slot).known();
        if !self.admit(slot, self.clock, |_| whole) {
            self.blocked = true;
            return None;
        }
        self.waiting.pop_front();
        self.running.push(slot);
        self.publish(slot, known);
        Some(slot)
    }

    fn deadline(&mut self, slot: usize, from: RunOffset, delay: Duration) -> Due {
        let serial = self.sequence(slot).pulse.serial;
        let at = RunOffset(from.0.saturating_add(RunOffset::from_duration(delay).0));
        Due { at, serial, slot }
    }
}
