//! What an operator may do to the engine: end everything, empty the caches, let
//! it stand still (nothing is admitted, or nothing moves at all) and go on.

use super::rank::Rank;
use super::{Delivery, Engine, Finish, Key};
use crate::units::RunOffset;

/// What stands still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sim) enum Pause {
    /// Nothing.
    #[default]
    Off,
    /// What has not begun; what runs goes on.
    New,
    /// Everything.
    All,
}

impl Engine {
    /// Stands still from `now` on.
    pub(in crate::sim) fn pause(&mut self, now: RunOffset, pause: Pause) {
        for rank in &mut self.ranks {
            rank.advance(now, &mut self.deliveries);
            rank.pause = pause;
            rank.paused_at = now;
        }
    }

    /// Goes on; what was due during a pause of everything is due later by its
    /// length.
    pub(in crate::sim) fn resume(&mut self, now: RunOffset) {
        for rank in &mut self.ranks {
            rank.resume_at(now);
        }
    }

    /// Whether it is paused.
    pub(in crate::sim) fn is_paused(&self) -> bool {
        self.ranks.iter().any(|rank| rank.pause != Pause::Off)
    }

    /// Sequences in execution.
    pub(in crate::sim) fn running(&self) -> usize {
        self.ranks.iter().map(|rank| rank.running.len()).sum()
    }

    /// Sequences that have not ended.
    pub(in crate::sim) fn unfinished(&self) -> usize {
        let waiting: usize = self.ranks.iter().map(|rank| rank.waiting.len()).sum();
        self.running() + waiting
    }
}

impl Rank {
    pub(super) fn abort_all(&mut self, out: &mut Vec<Delivery>) {
        for slot in 0..self.sequences.len() {
            if let Some(sequence) = self.remove(slot) {
                self.account.aborted += 1;
                out.push(Delivery {
                    key: Key {
                        rank: self.number,
                        slot,
                    },
                    released: sequence.pulse.generated,
                    cached: sequence.pulse.cached,
                    finish: Some(Finish::Abort),
                });
            }
        }
    }

    pub(super) fn reset(&mut self, running: bool, external: bool) -> bool {
        if running {
            for slot in self.running.clone().into_iter().rev() {
                self.preempt(slot);
            }
            self.step = None;
            self.due.clear();
            self.blocked = false;
        }
        if external && let Some(tier) = &mut self.external {
            tier.clear();
        }
        let done = self.cache.reset();
        if done {
            self.resume.clear();
        }
        done
    }

    fn resume_at(&mut self, now: RunOffset) {
        if std::mem::take(&mut self.pause) == Pause::All {
            let length = now.0.saturating_sub(self.paused_at.0);
            self.due.delay(length);
        }
        self.freed = now;
        if self.step.is_none() {
            self.clock = self.clock.max(now);
        }
    }
}
