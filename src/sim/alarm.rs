//! Waiting until a moment: by tokio's timer, which ticks in milliseconds and
//! follows a paused clock, or by the kernel's, which is right to some
//! microseconds and needs a real one (Linux only).

#![allow(clippy::disallowed_methods, reason = "edge: sleeps")]

use tokio::time::Instant;

/// A timer that can be set again and again.
pub(super) enum Alarm {
    /// Milliseconds, any clock.
    Tokio,
    /// Microseconds, the real clock.
    #[cfg(target_os = "linux")]
    Kernel(kernel::Timer),
}

impl Alarm {
    /// The precise kind if wanted and to be had.
    pub(super) fn new(precise: bool) -> Self {
        if !precise {
            return Self::Tokio;
        }
        #[cfg(target_os = "linux")]
        match kernel::Timer::new() {
            Ok(timer) => return Self::Kernel(timer),
            Err(error) => tracing::warn!(%error, "no kernel timer"),
        }
        Self::Tokio
    }

    /// Waits until `moment`; a moment that has passed is now. Of a `crowd` of
    /// moments, those close to each other are one.
    pub(super) async fn until(&mut self, moment: Instant, crowd: bool) {
        #[cfg(target_os = "linux")]
        if let Self::Kernel(timer) = self {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() || timer.ring(left, crowd).await.is_ok() {
                return;
            }
            *self = Self::Tokio;
        }
        tokio::time::sleep_until(moment).await;
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::io;
    use std::os::fd::{AsFd as _, AsRawFd, RawFd};
    use std::time::Duration;

    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use tokio::io::unix::AsyncFd;

    /// Shortest sleep. What falls due within it is late by up to as much, and
    /// leaves in one go: setting a timer for each of 100,000 tokens a second
    /// would cost more than sending them.
    const SHORTEST: Duration = Duration::from_micros(50);
    /// The same where much falls due.
    const SHORTEST_OF_MANY: Duration = Duration::from_micros(200);

    /// A kernel timer that tokio waits for.
    pub(in crate::sim) struct Timer(AsyncFd<Descriptor>);

    struct Descriptor(TimerFd);

    impl AsRawFd for Descriptor {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = Descriptor(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?);
            #[expect(
                deprecated,
                reason = "its successor is unsafe; the timer owns its descriptor until it is dropped"
            )]
            let timer = AsyncFd::new(timer)?;
            Ok(Self(timer))
        }

        /// Waits for `left`, from now.
        pub(super) async fn ring(&self, left: Duration, crowd: bool) -> io::Result<()> {
            let shortest = if crowd { SHORTEST_OF_MANY } else { SHORTEST };
            let set = Expiration::OneShot(TimeSpec::from_duration(left.max(shortest)));
            self.0.get_ref().0.set(set, TimerSetTimeFlags::empty())?;
            let mut ready = self.0.readable().await?;
            // Setting it again disarms what has rung, so nothing has to be read.
            ready.clear_ready();
            Ok(())
        }
    }
}
