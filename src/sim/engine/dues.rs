//! Deadlines of tokens in fixed pace. All but a sequence's first are as far off
//! as each other, so they fall due in the order in which they were set, and a
//! queue is enough: no token of 2,000 streams costs a walk through a heap.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::units::RunOffset;

/// A token's deadline; the earliest is the greatest, for a max-heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: RunOffset,
    /// Whose token; breaks ties in the order of arrival.
    pub(super) serial: u64,
    pub(super) slot: usize,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Deadlines, earliest first.
#[derive(Debug, Default)]
pub(super) struct Dues {
    /// In any order.
    heap: BinaryHeap<Due>,
    /// In order.
    queue: VecDeque<Due>,
}

impl Dues {
    /// Of a sequence's first token.
    pub(super) fn push_first(&mut self, due: Due) {
        self.heap.push(due);
    }

    /// Of a token after another, whose deadline has just been taken.
    pub(super) fn push_next(&mut self, due: Due) {
        // Earlier is greater.
        if self.queue.back().is_none_or(|last| *last >= due) {
            self.queue.push_back(due);
        } else {
            self.heap.push(due);
        }
    }

    pub(super) fn peek(&self) -> Option<Due> {
        match (self.heap.peek(), self.queue.front()) {
            (Some(one), Some(other)) => Some(*one.max(other)),
            (one, other) => one.or(other).copied(),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Due> {
        let first = self.peek()?;
        if self.queue.front() == Some(&first) {
            self.queue.pop_front()
        } else {
            self.heap.pop()
        }
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.queue.clear();
    }

    /// All are later by `length` nanoseconds.
    pub(super) fn delay(&mut self, length: u64) {
        let later = |mut due: Due| {
            due.at = RunOffset(due.at.0.saturating_add(length));
            due
        };
        self.heap = std::mem::take(&mut self.heap)
            .into_iter()
            .map(later)
            .collect();
        for due in &mut self.queue {
            *due = later(*due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;

    /// Against a sorted list, over many random histories.
    #[test]
    fn deadlines_come_in_order_however_they_were_set() {
        for seed in 0..50 {
            let mut stream = Seed::from(seed).stream("dues");
            let mut dues = Dues::default();
            let mut list: Vec<Due> = Vec::new();
            for serial in 0..400 {
                match stream.below(8) {
                    0 => {
                        let length = stream.below(5);
                        dues.delay(length);
                        for due in &mut list {
                            due.at.0 += length;
                        }
                    }
                    1..=3 => {
                        list.sort_by_key(|due| (due.at, due.serial));
                        let first = (!list.is_empty()).then(|| list.remove(0));
                        assert_eq!((dues.peek(), dues.pop()), (first, first), "seed {seed}");
                    }
                    _ => {
                        let at = RunOffset(serial / 8 + stream.below(10));
                        let slot = usize::try_from(serial).unwrap();
                        let due = Due { at, serial, slot };
                        if stream.below(2) == 0 {
                            dues.push_first(due);
                        } else {
                            dues.push_next(due);
                        }
                        list.push(due);
                    }
                }
            }
            dues.clear();
            assert_eq!(dues.pop(), None);
        }
    }
}
