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
            Some(timer) => arm(timer, left).await,
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

/// Waits `left` on the kernel's timer; false where that fails.
async fn arm(timer: &AsyncFd<Kernel>, left: Duration) -> bool {
    let expiration = Expiration::OneShot(TimeSpec::from(left));
    if timer
        .get_ref()
        .0
        .set(expiration, TimerSetTimeFlags::empty())
        .is_err()
    {
        return false;
    }
    loop {
        let Ok(mut guard) = timer.readable().await else {
            return false;
        };
        let read = guard.try_io(|timer| {
            let mut count = [0_u8; 8];
            nix::unistd::read(&timer.get_ref().0, &mut count).map_err(Into::into)
        });
        match read {
            Ok(Ok(_)) => return true,
            Ok(Err(_)) => return false,
            // Set again meanwhile, or woken for nothing.
            Err(_) => {}
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
