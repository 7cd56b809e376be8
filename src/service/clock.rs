//! The one monotonic clock of a run, and the conversion of the kernel's receive
//! times to it. It refuses to know what is timed.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: the clock itself; everything else is handed offsets"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::units::RunOffset;

/// How long a measured offset between the clocks is used, in nanoseconds: the
/// wall clock may be slewed by up to 500 ppm, 0.5 µs in a millisecond but 500 µs
/// in a second of the worst case; one second keeps usual slews (below 1 ppm)
/// under a microsecond.
const OFFSET_AGE_MAX_NS: u64 = 1_000_000_000;

/// The monotonic clock of one run. Copies share their origin; offsets of tasks
/// on all threads compare.
#[derive(Clone, Debug)]
pub struct RunClock {
    start: Instant,
    kernel: Arc<KernelClock>,
}

/// The wall clock's distance from the monotonic one, kept fresh by its users.
/// All in nanoseconds.
#[derive(Debug)]
struct KernelClock {
    /// Monotonic time of the run's start.
    origin: i64,
    /// Monotonic minus wall time.
    offset: AtomicI64,
    /// Wall time of the last measurement.
    measured: AtomicU64,
    /// Wall time of the start, since 1970.
    wall_start: u64,
}

impl RunClock {
    /// Starts the clock: now is offset 0.
    pub fn start() -> Self {
        let start = Instant::now();
        let origin = nanos(ClockId::CLOCK_MONOTONIC);
        let (offset, measured) = measure_offset();
        Self {
            start,
            kernel: Arc::new(KernelClock {
                origin,
                offset: AtomicI64::new(offset),
                measured: AtomicU64::new(measured),
                wall_start: measured,
            }),
        }
    }

    /// Time since the start.
    pub fn now(&self) -> RunOffset {
        RunOffset::from_duration(self.start.elapsed())
    }

    /// The moment `offset` after the start, for timers.
    pub fn instant(&self, offset: RunOffset) -> Instant {
        self.start
            .checked_add(offset.duration())
            .unwrap_or_else(|| self.start + Duration::from_secs(86_400 * 365 * 30))
    }

    /// Wall time of the start in nanoseconds since 1970. It stands once in the
    /// artifacts, for people.
    pub fn wall_start_unix_ns(&self) -> u64 {
        self.kernel.wall_start
    }

    /// The start on the system's own monotonic clock (`CLOCK_MONOTONIC`), in
    /// nanoseconds: to compare with the log of another process on the machine.
    pub fn monotonic_start_ns(&self) -> u64 {
        u64::try_from(self.kernel.origin).unwrap_or(0)
    }

    /// Converts a kernel receive time (`CLOCK_REALTIME`, nanoseconds since
    /// 1970). A time before the start becomes the start.
    pub fn from_kernel(&self, wall_ns: u64) -> RunOffset {
        let kernel = &self.kernel;
        let age = wall_ns.abs_diff(kernel.measured.load(Ordering::Relaxed));
        if age > OFFSET_AGE_MAX_NS {
            let (offset, measured) = measure_offset();
            kernel.offset.store(offset, Ordering::Relaxed);
            kernel.measured.store(measured, Ordering::Relaxed);
        }
        let wall_ns = i64::try_from(wall_ns).unwrap_or(i64::MAX);
        let monotonic = wall_ns.saturating_add(kernel.offset.load(Ordering::Relaxed));
        RunOffset(u64::try_from(monotonic - kernel.origin).unwrap_or(0))
    }
}

/// Monotonic minus wall time and the wall time at which it was measured. Of
/// three tries the one with the closest pair of monotonic readings counts.
fn measure_offset() -> (i64, u64) {
    let tries = (0..3).map(|_| {
        let before = nanos(ClockId::CLOCK_MONOTONIC);
        let wall = nanos(ClockId::CLOCK_REALTIME);
        let after = nanos(ClockId::CLOCK_MONOTONIC);
        (after - before, before + (after - before) / 2 - wall, wall)
    });
    let (_, offset, wall) = tries.min().expect("three tries");
    (offset, u64::try_from(wall).unwrap_or(0))
}

fn nanos(clock: ClockId) -> i64 {
    let time = clock_gettime(clock).expect("Linux and macOS have this clock");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_time_falls_between_the_clock_readings_around_it() {
        let clock = RunClock::start();
        let before = clock.now();
        let wall = u64::try_from(nanos(ClockId::CLOCK_REALTIME)).unwrap();
        let after = clock.now();
        let stamp = clock.from_kernel(wall);
        // The two clocks are read one after the other: allow for 100 µs between
        // the readings of the start.
        let slack = 100_000;
        assert!(
            stamp.nanos() + slack >= before.nanos(),
            "{before:?} {stamp:?}"
        );
        assert!(
            stamp.nanos() <= after.nanos() + slack,
            "{stamp:?} {after:?}"
        );
    }

    #[test]
    fn a_time_before_the_start_is_the_start() {
        assert_eq!(RunClock::start().from_kernel(1), RunOffset(0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time() {
        let clock = RunClock::start();
        tokio::time::advance(Duration::from_millis(1_500)).await;
        assert_eq!(clock.now(), RunOffset(1_500_000_000));
        assert_eq!(clock.instant(RunOffset(1_500_000_000)), Instant::now());
    }
}
