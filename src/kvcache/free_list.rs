//! The blocks nobody holds, least recently used first: a doubly linked list
//! over slot numbers, so that a hit takes a block out of the middle in
//! constant time. Refuses to know what a block holds.

/// No slot.
const NONE: u32 = u32::MAX;

/// An ordered set of slot numbers.
#[derive(Clone, Debug)]
pub(super) struct FreeList {
    before: Vec<u32>,
    after: Vec<u32>,
    inside: Vec<bool>,
    first: u32,
    last: u32,
    count: usize,
}

impl FreeList {
    /// An empty list for slots below `slots`.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            before: vec![NONE; slots],
            after: vec![NONE; slots],
            inside: vec![false; slots],
            first: NONE,
            last: NONE,
            count: 0,
        }
    }

    /// Number of slots in the list.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Appends a slot as the most recently used one.
    pub(super) fn push(&mut self, slot: u32) {
        let at = slot as usize;
        assert!(!self.inside[at], "slot {slot} is freed twice");
        self.inside[at] = true;
        self.before[at] = self.last;
        self.after[at] = NONE;
        if self.last == NONE {
            self.first = slot;
        } else {
            self.after[self.last as usize] = slot;
        }
        self.last = slot;
        self.count += 1;
    }

    /// Takes the least recently used slot.
    pub(super) fn pop(&mut self) -> Option<u32> {
        (self.first != NONE).then(|| {
            let slot = self.first;
            self.remove(slot);
            slot
        })
    }

    /// Takes a slot out, wherever it stands.
    pub(super) fn remove(&mut self, slot: u32) {
        let at = slot as usize;
        assert!(self.inside[at], "slot {slot} is not free");
        self.inside[at] = false;
        let (before, after) = (self.before[at], self.after[at]);
        if before == NONE {
            self.first = after;
        } else {
            self.after[before as usize] = after;
        }
        if after == NONE {
            self.last = before;
        } else {
            self.before[after as usize] = before;
        }
        self.count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_in_the_order_they_came() {
        let mut list = FreeList::new(5);
        for slot in [3, 1, 4, 0] {
            list.push(slot);
        }
        list.remove(1);
        list.remove(0);
        list.push(1);
        assert_eq!(list.len(), 3);
        let order: Vec<u32> = std::iter::from_fn(|| list.pop()).collect();
        assert_eq!(order, [3, 4, 1]);
        assert_eq!((list.len(), list.pop()), (0, None));
    }
}
