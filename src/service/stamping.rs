//! Switching the kernel's receive times on. Linux enables them for the whole
//! machine when the first socket asks, some milliseconds later; until then it
//! hands out the time of the read instead, which looks the same. So one socket
//! asks ahead and stays open, and is tried until its stamps are true.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: a socket and the wall clock"
)]

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

/// Tries before the kernel's stamps are given up, one a millisecond.
const TRIES_MAX: u32 = 200;
/// How long a datagram waits unread; a true stamp is older than half of it.
const WAIT: Duration = Duration::from_millis(1);

/// Kernel receive times are on as long as this lives.
#[derive(Debug)]
pub(super) struct KernelStamping {
    socket: UdpSocket,
}

impl KernelStamping {
    /// Asks for receive times and waits until they are true; `None` where the
    /// platform has none.
    pub(super) async fn switch_on() -> Option<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        socket.connect(socket.local_addr().ok()?).ok()?;
        socket.set_nonblocking(true).ok()?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).ok()?;
        let stamping = Self { socket };
        for _ in 0..TRIES_MAX {
            stamping.socket.send(b"?").ok()?;
            sleep(WAIT).await;
            if stamping.age_of_stamp() >= Some(WAIT / 2) {
                return Some(stamping);
            }
        }
        None
    }

    /// How old the stamp of the waiting datagram is when it is read.
    fn age_of_stamp(&self) -> Option<Duration> {
        let mut byte = [0_u8; 8];
        let mut slices = [IoSliceMut::new(&mut byte)];
        let mut control = nix::cmsg_space!(TimeSpec);
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::empty();
        let message = recvmsg::<()>(fd, &mut slices, Some(&mut control), flags).ok()?;
        let stamp = message.cmsgs().ok()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(time) => Some(time),
            _ => None,
        })?;
        let now = clock_gettime(ClockId::CLOCK_REALTIME).ok()?;
        Duration::from(now).checked_sub(Duration::from(stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stamps_are_true_once_switched_on() {
        let Some(stamping) = KernelStamping::switch_on().await else {
            eprintln!("skipped: this platform has no receive times");
            return;
        };
        stamping.socket.send(b"?").unwrap();
        sleep(Duration::from_millis(3)).await;
        assert!(stamping.age_of_stamp().unwrap() >= Duration::from_millis(2));
    }
}
