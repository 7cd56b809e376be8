//! A waker for a future that is polled by the task that also consumes what it
//! makes. Such a pair wakes its own task at every hand-over, which would then
//! be polled once more for nothing; wakes that happen while the pair is being
//! polled are only noted here, and passed on if they may matter. It knows
//! nothing of what is polled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Debug)]
struct Shared {
    task: Waker,
    /// The pair is being polled.
    inside: AtomicBool,
    /// It was woken meanwhile.
    woken: AtomicBool,
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.inside.load(Ordering::SeqCst) {
            self.woken.store(true, Ordering::SeqCst);
            // The poll may have ended in between and not have seen it.
            if self.inside.load(Ordering::SeqCst) {
                return;
            }
        }
        self.task.wake_by_ref();
    }
}

/// Polls a pair of one task.
#[derive(Debug, Default)]
pub(super) struct InlinePoller(Option<(Arc<Shared>, Waker)>);

impl InlinePoller {
    /// Calls `poll` once with a context whose wakes are held back until it
    /// returns. `poll` must advance both halves, whatever woke them before:
    /// wakes noted earlier are answered by this very call. A wake noted during
    /// a call that ends ready belongs to the next call.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let (shared, waker) = self.of_task(cx.waker());
        shared.inside.store(true, Ordering::SeqCst);
        shared.woken.store(false, Ordering::SeqCst);
        let polled = poll(&mut Context::from_waker(waker));
        shared.inside.store(false, Ordering::SeqCst);
        if polled.is_pending() && shared.woken.swap(false, Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        polled
    }

    fn of_task(&mut self, task: &Waker) -> &(Arc<Shared>, Waker) {
        let known = self.0.take();
        let known = known.filter(|(shared, _)| shared.task.will_wake(task));
        self.0.insert(known.unwrap_or_else(|| {
            let shared = Arc::new(Shared {
                task: task.clone(),
                inside: AtomicBool::new(false),
                woken: AtomicBool::new(false),
            });
            let waker = Waker::from(Arc::clone(&shared));
            (shared, waker)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn wakes_are_passed_on_unless_this_poll_answers_them() {
        let count = Arc::new(Count::default());
        let task = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&task);
        let wakes = || count.0.load(Ordering::SeqCst);
        let mut poller = InlinePoller::default();
        let mut kept = None;
        // Woken inside, but ready: the caller polls again anyway.
        let outcome = poller.poll(&mut cx, |cx| {
            cx.waker().wake_by_ref();
            kept = Some(cx.waker().clone());
            Poll::Ready(())
        });
        assert_eq!((outcome, wakes()), (Poll::Ready(()), 0));
        // Nothing happened inside: the noted wake is answered.
        assert_eq!(poller.poll(&mut cx, |_| Poll::<()>::Pending), Poll::Pending);
        assert_eq!(wakes(), 0);
        // Woken inside and pending: once more.
        let outcome: Poll<()> = poller.poll(&mut cx, |cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert_eq!((outcome, wakes()), (Poll::Pending, 1));
        // Woken outside.
        kept.unwrap().wake();
        assert_eq!(wakes(), 2);
    }
}
