//! Waiting for an absolute time. Tokio's timers tick in whole milliseconds,
//! which would show as lateness of up to one; the kernel's timer wakes within
//! some tens of microseconds.
#![allow(clippy::disallowed_methods, reason = "edge: timers")]

use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;
use tokio::time::sleep_until;

use crate::service::clock::RunClock;
use crate::units::RunOffset;

/// Which timers a run uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimerKind {
    /// The kernel's (`timerfd`), where it can be had.
    #[default]
    Kernel,
    /// Tokio's, which follow paused time.
    Tokio,
}

/// One timer.
#[derive(Debug)]
pub struct Timer(Option<AsyncFd<Kernel>>);

/// The kernel's timer in the form that Tokio's reactor takes.
#[derive(Debug)]
struct Kernel(TimerFd);

impl AsRawFd for Kernel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Timer {
    /// A timer of this kind; must be made inside a runtime. Tokio's stands in
    /// where the kernel has none to give.
    pub fn new(kind: TimerKind) -> Self {
        Self(match kind {
            TimerKind::Kernel => {
                let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
                TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
                    .ok()
                    .and_then(|timer| registered(Kernel(timer)))
            }
            TimerKind::Tokio => None,
        })
    }

    /// Returns at `at` or, if that has passed, at once. Dropping the future
    /// forgets the wait.
    pub async fn until(&mut self, clock: &RunClock, at: RunOffset) {
        let left = Duration::from_nanos(at.nanos().saturating_sub(clock.now().nanos()));
        if left.is_zero() {
            return;
        }
        let armed = match &self.0 {
            Some(timer) => arm(timer, clock, at, left).await,
            None => false,
        };
        if !armed {
            sleep_until(clock.instant(at)).await;
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for the sake of types that may close their descriptor; \
              this one owns it until it is dropped"
)]
fn registered(timer: Kernel) -> Option<AsyncFd<Kernel>> {
    AsyncFd::new(timer).ok()
}

/// Waits on the kernel's timer until `at`, `left` from now; false where that
/// fails. Setting a timer forgets earlier expiries, and the reactor hears of each
/// new one by itself (its events are edge-triggered), so none has to be read: the
/// clock tells a true end from an expiry of an earlier wait.
async fn arm(timer: &AsyncFd<Kernel>, clock: &RunClock, at: RunOffset, left: Duration) -> bool {
    let expiration = Expiration::OneShot(TimeSpec::from(left));
    let flags = TimerSetTimeFlags::empty();
    if timer.get_ref().0.set(expiration, flags).is_err() {
        return false;
    }
    loop {
        let Ok(mut guard) = timer.readable().await else {
            return false;
        };
        guard.clear_ready();
        if clock.now() >= at {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernels_timer_never_fires_early_and_can_be_set_again() {
        let clock = RunClock::start();
        let mut timer = Timer::new(TimerKind::Kernel);
        for _ in 0..3 {
            let at = RunOffset(clock.now().nanos() + 300_000);
            timer.until(&clock, at).await;
            assert!(clock.now() >= at);
        }
        timer.until(&clock, RunOffset(0)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn tokios_timer_follows_paused_time() {
        let clock = RunClock::start();
        let mut timer = Timer::new(TimerKind::Tokio);
        timer.until(&clock, RunOffset(3_600_000_000_000)).await;
        assert_eq!(clock.now(), RunOffset(3_600_000_000_000));
    }
}
