//! File descriptors: how many a process may have, and room for them ahead of
//! time.
//!
//! The kernel doubles a process's table of descriptors when a new one does not
//! fit. In a process with threads it first waits until no core can still look
//! at the old table (an RCU grace period; `expand_fdtable` in Linux's
//! `fs/file.c`). The call that wanted a descriptor, and so the thread that
//! serves every other stream, stands still: 6 to 19 ms were seen on a busy core.
//! With 2,000 connections that happens at 256, 512 and 1,024 of them, in the
//! midst of what is measured. So whoever will have many asks for room first.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: the process's own limits and files"
)]

use std::fs::File;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::close;

/// Standard streams, runtimes, files, metrics connections: what a process
/// has open beside its streams.
pub const BESIDE: u64 = 64;

/// Most slots made ahead; each takes eight bytes of the kernel.
const SLOTS_MAX: u64 = 1 << 17;

/// As many descriptors as the system allows: each open stream is one. The limit
/// that holds now, where it can be known; where the system refuses, connecting
/// will say so.
pub fn raise_limit() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Some(if raised { hard } else { soft })
}

/// Raises the limit, and makes room for `streams` descriptors and [`BESIDE`]
/// more, or for as many as the limit allows, 131,072 at most. Where that cannot
/// be had, nothing is lost but time later on.
pub fn make_room(streams: u64) {
    let wanted = streams.saturating_add(BESIDE).min(SLOTS_MAX);
    let slots = raise_limit().map_or(wanted, |limit| wanted.min(limit));
    let Some(last) = slots
        .checked_sub(1)
        .and_then(|last| i32::try_from(last).ok())
    else {
        return;
    };
    // The lowest free number from `last` on: the table grows to hold it, and
    // never shrinks.
    let Ok(file) = File::open("/dev/null") else {
        return;
    };
    if let Ok(copy) = fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(last)) {
        close(copy).ok();
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// Slots of this process's table, as the kernel counts them.
    fn slots() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        line.unwrap().trim().parse().unwrap()
    }

    // One test: the table is the process's, and never shrinks.
    #[test]
    fn the_table_holds_what_is_asked_for_within_the_limits() {
        let limit = raise_limit().unwrap();
        for streams in [100, 900, 3_000] {
            make_room(streams);
            assert!(slots() >= (streams + BESIDE).min(limit), "{streams}");
        }
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        assert!(open < 900, "{open} are open, nothing was to stay so");

        make_room(u64::MAX);
        assert!(slots() >= limit.min(SLOTS_MAX), "{} of {limit}", slots());
        assert!(slots() <= 2 * SLOTS_MAX, "{}", slots());
    }
}
