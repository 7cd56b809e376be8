//! Slots of a closed loop: how many requests may be in flight, and since when
//! each free slot has been free. It refuses to know which request takes one.

use std::collections::VecDeque;

use crate::units::RunOffset;

/// A target that moves linearly from one number of slots to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotTarget {
    /// Slots at the start.
    pub from: u32,
    /// Slots at the end.
    pub to: u32,
    /// When it starts to move.
    pub start: RunOffset,
    /// How long it moves, nanoseconds; 0 for at once.
    pub ramp_ns: u64,
}

impl SlotTarget {
    /// Slots at `now`. Rounds towards `from`, at least 1; exact at both ends.
    pub fn at(&self, now: RunOffset) -> u32 {
        let passed = now.nanos().saturating_sub(self.start.nanos());
        if passed >= self.ramp_ns {
            return self.to.max(1);
        }
        let (from, to) = (i128::from(self.from), i128::from(self.to));
        let moved = (to - from) * i128::from(passed) / i128::from(self.ramp_ns);
        u32::try_from(from + moved).expect("between two u32").max(1)
    }

    /// When the target next changes after `now`, where it still moves.
    pub fn next_change(&self, now: RunOffset) -> Option<RunOffset> {
        let end = self.start.nanos().saturating_add(self.ramp_ns);
        if now.nanos() >= end || self.from == self.to {
            return None;
        }
        let width = u128::from(self.from.abs_diff(self.to));
        let passed = u128::from(now.nanos().saturating_sub(self.start.nanos()));
        let ramp = u128::from(self.ramp_ns);
        let steps = passed * width / ramp + 1;
        let at = (steps * ramp).div_ceil(width);
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        Some(RunOffset(self.start.nanos().saturating_add(at).min(end)))
    }
}

/// The slots in use and those that are free.
#[derive(Debug, Default)]
pub struct Slots {
    /// `None` while there is no limit.
    target: Option<u32>,
    in_flight: u32,
    /// Since when each free slot has been free, oldest first.
    free_since: VecDeque<RunOffset>,
}

impl Slots {
    /// Sets the target at `now`; `None` for no limit. Slots that are added are
    /// free from `now`; those taken away vanish when they become free.
    pub fn set_target(&mut self, target: Option<u32>, now: RunOffset) {
        self.target = target;
        let free = target.map_or(0, |target| target.saturating_sub(self.in_flight));
        while self.free_since.len() > free as usize {
            self.free_since.pop_back();
        }
        while self.free_since.len() < free as usize {
            self.free_since.push_back(now);
        }
    }

    /// Slots that are free.
    pub fn free(&self) -> usize {
        match self.target {
            Some(_) => self.free_since.len(),
            None => usize::MAX,
        }
    }

    /// Since when the free slot number `index` (oldest first) has been free;
    /// `None` without a limit.
    pub fn free_since(&self, index: usize) -> Option<RunOffset> {
        self.free_since.get(index).copied()
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Takes the slot that has been free longest: since when; `None` without a
    /// limit.
    pub fn take(&mut self) -> Option<RunOffset> {
        self.in_flight += 1;
        let target = self.target?;
        assert!(
            self.in_flight <= target,
            "more in flight than the target allows"
        );
        Some(self.free_since.pop_front().expect("a slot is free"))
    }

    /// A request has ended at `now`.
    pub fn give_back(&mut self, now: RunOffset) {
        assert!(self.in_flight > 0, "an end without a start");
        self.in_flight -= 1;
        self.set_target(self.target, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_is_exact_at_both_ends_and_changes_when_it_says() {
        let up = SlotTarget {
            from: 1,
            to: 5,
            start: RunOffset(100),
            ramp_ns: 1_000,
        };
        let mut now = RunOffset(100);
        let mut seen = vec![(now.0, up.at(now))];
        while let Some(next) = up.next_change(now) {
            assert_eq!(up.at(RunOffset(next.0 - 1)), up.at(now));
            now = next;
            seen.push((now.0, up.at(now)));
        }
        assert_eq!(seen, [(100, 1), (350, 2), (600, 3), (850, 4), (1_100, 5)]);
        let down = SlotTarget {
            from: 3,
            to: 1,
            start: RunOffset(0),
            ramp_ns: 10,
        };
        assert_eq!(
            [0, 4, 5, 9, 10].map(|at| down.at(RunOffset(at))),
            [3, 3, 2, 2, 1]
        );
        let fixed = SlotTarget {
            from: 4,
            to: 4,
            start: RunOffset(0),
            ramp_ns: 0,
        };
        assert_eq!(
            (fixed.at(RunOffset(0)), fixed.next_change(RunOffset(0))),
            (4, None)
        );
    }

    #[test]
    fn a_slot_knows_since_when_it_is_free() {
        let mut slots = Slots::default();
        slots.set_target(Some(2), RunOffset(10));
        let since = |at| Some(RunOffset(at));
        assert_eq!(
            (slots.take(), slots.take(), slots.free()),
            (since(10), since(10), 0)
        );
        slots.give_back(RunOffset(30));
        slots.set_target(Some(3), RunOffset(40));
        assert_eq!((slots.take(), slots.take()), (since(30), since(40)));
        slots.set_target(Some(1), RunOffset(50));
        assert_eq!((slots.free(), slots.in_flight()), (0, 3));
        slots.give_back(RunOffset(60));
        slots.give_back(RunOffset(61));
        assert_eq!(slots.free(), 0);
        slots.give_back(RunOffset(62));
        assert_eq!((slots.free(), slots.in_flight()), (1, 0));
    }
}
