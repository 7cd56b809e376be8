//! A future that is left alone until it asks for attention. A deadline or a
//! cancellation beside a stream would otherwise be polled with every chunk,
//! only to say that nothing has happened. It knows nothing of what it holds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Wakes the task and remembers who asked.
#[derive(Debug)]
struct Bell {
    task: Waker,
    rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

/// Polls `F` once, and then only after it has woken its task.
#[derive(Debug)]
pub struct Quiet<F> {
    inner: F,
    bell: Option<(Arc<Bell>, Waker)>,
}

impl<F> Quiet<F> {
    /// Leaves `inner` alone from its first poll on.
    pub fn new(inner: F) -> Self {
        Self { inner, bell: None }
    }

    /// What it holds, to be changed; it is polled next time.
    pub fn disturb(&mut self) -> &mut F {
        self.bell = None;
        &mut self.inner
    }
}

impl<F: Future + Unpin> Future for Quiet<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let known = this.bell.take();
        let known = known.filter(|(bell, _)| bell.task.will_wake(cx.waker()));
        let is_known = known.is_some();
        let (bell, waker) = this.bell.insert(known.unwrap_or_else(|| {
            let bell = Arc::new(Bell {
                task: cx.waker().clone(),
                rung: AtomicBool::new(false),
            });
            let waker = Waker::from(Arc::clone(&bell));
            (bell, waker)
        }));
        if is_known && !bell.rung.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        // Before the poll: what rings during it is heard the next time.
        bell.rung.swap(false, Ordering::AcqRel);
        Pin::new(&mut this.inner).poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;

    use super::*;

    /// Whom nobody needs to wake.
    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn it_is_polled_once_and_then_when_it_has_asked() {
        let asked: Rc<RefCell<Vec<Waker>>> = Rc::default();
        let wakers = Rc::clone(&asked);
        let mut quiet = Quiet::new(poll_fn(move |cx| {
            wakers.borrow_mut().push(cx.waker().clone());
            if wakers.borrow().len() < 3 {
                Poll::Pending
            } else {
                Poll::Ready(7)
            }
        }));
        // A clone, since only clones are sure to be known as the same waker.
        let waker = Waker::from(Arc::new(Nobody)).clone();
        let mut cx = Context::from_waker(&waker);
        let mut poll = || Pin::new(&mut quiet).poll(&mut cx);
        for _ in 0..4 {
            assert_eq!(poll(), Poll::Pending);
        }
        assert_eq!(asked.borrow().len(), 1);
        let first = asked.borrow()[0].clone();
        first.wake();
        assert_eq!(poll(), Poll::Pending);
        assert_eq!(poll(), Poll::Pending);
        assert_eq!(asked.borrow().len(), 2);
        let second = asked.borrow()[1].clone();
        second.wake();
        assert_eq!(poll(), Poll::Ready(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_still_fires_and_can_be_moved() {
        use std::time::Duration;
        #[expect(clippy::disallowed_methods, reason = "paused time")]
        let sleep = Box::pin(tokio::time::sleep(Duration::from_secs(2)));
        let start = sleep.deadline() - Duration::from_secs(2);
        let mut quiet = Quiet::new(sleep);
        (&mut quiet).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        let later = start + Duration::from_secs(5);
        quiet.disturb().as_mut().reset(later);
        quiet.await;
        assert_eq!(start.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test]
    async fn another_task_may_go_on_with_it() {
        let mut quiet = Quiet::new(Box::pin(tokio::task::yield_now()));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(Pin::new(&mut quiet).poll(&mut cx), Poll::Pending);
        quiet.await;
    }
}
