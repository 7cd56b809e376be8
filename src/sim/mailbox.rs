//! Where the engine leaves word of a response's tokens and its stream finds
//! it: counters and one waker, no queue. A stream that is slow finds several
//! tokens at once, as with the real server.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};

use futures_util::task::AtomicWaker;

use crate::sim::engine::{Delivery, Finish};
use crate::sim::plain::Plain;

/// Somebody who may deal with news at once, without being woken.
pub(super) trait Listener: Send + Sync {
    /// True when nothing is left to do.
    fn hear(&self) -> bool;
}

/// Progress of all choices of one response.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) waker: AtomicWaker,
    listener: OnceLock<Weak<dyn Listener>>,
    /// Nearly all responses have one choice: it lies beside the waker.
    first: Progress,
    others: Box<[Progress]>,
    /// What a stream had lent when its sequence ended.
    left: Mutex<Option<Plain>>,
}

/// What has been delivered of one choice.
#[derive(Debug, Default)]
struct Progress {
    released: AtomicUsize,
    cached: AtomicU64,
    finish: AtomicU8,
}

/// A reading of one choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Tokens that exist.
    pub(super) released: usize,
    /// Prompt tokens out of a cache; right once a token exists.
    pub(super) cached: u64,
    /// Set when `released` is final.
    pub(super) finish: Option<Finish>,
}

impl Mailbox {
    pub(super) fn new(choices: usize) -> Self {
        Self {
            waker: AtomicWaker::new(),
            listener: OnceLock::new(),
            first: Progress::default(),
            others: (1..choices).map(|_| Progress::default()).collect(),
            left: Mutex::default(),
        }
    }

    fn progress(&self, choice: usize) -> &Progress {
        match choice.checked_sub(1) {
            None => &self.first,
            Some(other) => &self.others[other],
        }
    }

    /// Names who hears of news first; the first one named stays.
    pub(super) fn listen(&self, listener: Weak<dyn Listener>) {
        self.listener.get_or_init(|| listener);
    }

    /// Tells of news: the listener, or else whoever waits. Without the lock
    /// under which they were delivered.
    pub(super) fn ring(&self) {
        let heard = self
            .listener
            .get()
            .and_then(Weak::upgrade)
            .is_some_and(|listener| listener.hear());
        if !heard {
            self.waker.wake();
        }
    }

    /// Keeps what a stream had lent.
    pub(super) fn leave(&self, plain: Option<Plain>) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = plain;
    }

    pub(super) fn take_left(&self) -> Option<Plain> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.take()
    }

    /// Leaves word of tokens that a lent part heard of in its place.
    pub(super) fn catch_up(&self, choice: usize, plain: &Plain) {
        let progress = self.progress(choice);
        progress.cached.store(plain.cached, Ordering::Relaxed);
        // It hears of nothing more once its line is stuck.
        progress
            .released
            .fetch_max(plain.released, Ordering::Release);
    }

    /// Leaves word; [`Self::ring`] tells of it.
    pub(super) fn deliver(&self, choice: usize, delivery: &Delivery) {
        let progress = self.progress(choice);
        progress.cached.store(delivery.cached, Ordering::Relaxed);
        progress
            .released
            .store(delivery.released, Ordering::Release);
        if let Some(finish) = delivery.finish {
            progress.finish.store(code(finish), Ordering::Release);
        }
    }

    pub(super) fn read(&self, choice: usize) -> Reading {
        let progress = self.progress(choice);
        // The end first: what is released after it was seen is final.
        let finish = finish(progress.finish.load(Ordering::Acquire));
        let released = progress.released.load(Ordering::Acquire);
        Reading {
            released,
            cached: progress.cached.load(Ordering::Relaxed),
            finish,
        }
    }
}

fn code(finish: Finish) -> u8 {
    match finish {
        Finish::Length => 1,
        Finish::Stop => 2,
        Finish::Abort => 3,
    }
}

fn finish(code: u8) -> Option<Finish> {
    match code {
        1 => Some(Finish::Length),
        2 => Some(Finish::Stop),
        3 => Some(Finish::Abort),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::engine::Key;

    #[test]
    fn a_reading_says_what_was_delivered_last() {
        let mailbox = Mailbox::new(2);
        let delivery = |released, finish| Delivery {
            key: Key { rank: 0, slot: 0 },
            released,
            cached: 32,
            finish,
        };
        mailbox.deliver(1, &delivery(3, None));
        assert_eq!(mailbox.read(0).released, 0);
        assert_eq!(
            (mailbox.read(1).released, mailbox.read(1).finish),
            (3, None)
        );
        mailbox.deliver(1, &delivery(4, Some(Finish::Stop)));
        let reading = mailbox.read(1);
        assert_eq!(
            (reading.released, reading.cached, reading.finish),
            (4, 32, Some(Finish::Stop))
        );
    }
}
