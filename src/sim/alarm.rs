//! Waiting until a moment: by tokio's timer, which ticks in milliseconds and
//! follows a paused clock, or by the kernel's, which is right to some
//! microseconds and needs a real one.

#![allow(clippy::disallowed_methods, reason = "edge: sleeps")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Shortest sleep of the kernel timer. What falls due within it is late by up
/// to as much, and leaves in one go: setting a timer for each of 100,000
/// tokens a second would cost more than sending them.
const SHORTEST: Duration = Duration::from_micros(50);

/// A timer that can be set again and again.
pub(super) enum Alarm {
    /// Milliseconds, any clock.
    Tokio,
    /// Microseconds, the real clock.
    Kernel(AsyncFd<Timer>),
}

/// A kernel timer as a file descriptor.
pub(super) struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Alarm {
    /// The precise kind if wanted and to be had.
    pub(super) fn new(precise: bool) -> Self {
        if !precise {
            return Self::Tokio;
        }
        kernel().map_or_else(
            |error| {
                tracing::warn!(%error, "no kernel timer; falling back to milliseconds");
                Self::Tokio
            },
            Self::Kernel,
        )
    }

    /// Waits until `moment`; a moment that has passed is now.
    pub(super) async fn until(&mut self, moment: Instant) {
        let Self::Kernel(timer) = self else {
            return tokio::time::sleep_until(moment).await;
        };
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if ring(timer, left.max(SHORTEST)).await.is_err() {
            *self = Self::Tokio;
            tokio::time::sleep_until(moment).await;
        }
    }
}

fn kernel() -> io::Result<AsyncFd<Timer>> {
    let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
    let timer = Timer(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?);
    #[expect(
        deprecated,
        reason = "its successor is unsafe; the timer owns its descriptor until it is dropped"
    )]
    AsyncFd::new(timer)
}

async fn ring(timer: &AsyncFd<Timer>, left: Duration) -> io::Result<()> {
    let set = Expiration::OneShot(TimeSpec::from_duration(left));
    timer.get_ref().0.set(set, TimerSetTimeFlags::empty())?;
    let mut ready = timer.readable().await?;
    // Setting it again disarms what has rung, so nothing has to be read.
    ready.clear_ready();
    Ok(())
}
