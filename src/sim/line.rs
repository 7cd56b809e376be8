//! A connection that two may write to: the HTTP library, which owns it, and
//! a stream whose tokens fall due, which then needs neither a wake-up nor a
//! turn of the connection's task: the thread that lets the engine's time pass
//! writes the event itself.
//!
//! The stream may do so only while the library has nothing to say. The gate
//! knows: bytes are announced before they are handed to the library, and the
//! library flushes the gate only when all of them are out. What the socket did
//! not take waits here and leaves before anything else.
//!
//! Cost of a token written this way: one `send`. Through the library it is a
//! wake-up, a task's turn, two more copies, and the same `send`.

#![allow(clippy::disallowed_methods, reason = "edge: a socket")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What a stream may do to its own connection. One without a socket (inside
/// the process) is written by the library alone.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The socket's.
    descriptor: Option<RawFd>,
    /// Whether the library has sent all it had.
    quiet: AtomicBool,
    socket: Option<TcpStream>,
    unsent: Mutex<Unsent>,
}

/// Bytes that the socket did not take yet.
#[derive(Debug, Default)]
struct Unsent {
    bytes: Vec<u8>,
    from: usize,
}

impl Line {
    /// A connection of this socket.
    pub(super) fn new(socket: TcpStream) -> Self {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::warn!(%error, "TCP_NODELAY could not be set");
        }
        Self {
            descriptor: Some(socket.as_raw_fd()),
            socket: Some(socket),
            ..Self::default()
        }
    }

    /// The library gets bytes, which it will send in its own time.
    pub(super) fn announce(&self) {
        self.quiet.store(false, Ordering::Release);
    }

    /// Whether [`Self::send`] keeps the order of bytes.
    pub(super) fn is_free(&self) -> bool {
        self.descriptor.is_some() && self.quiet.load(Ordering::Acquire)
    }

    /// What [`Self::send_to`] needs, for who sends often; it stays as long as
    /// the line does.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.descriptor
    }

    /// Sends bytes past the library; false when they did not all leave, or
    /// the client has gone. What did not leave waits for the library's next
    /// write.
    pub(super) fn send(&self, bytes: &[u8]) -> bool {
        self.descriptor
            .is_some_and(|descriptor| self.send_to(descriptor, bytes))
    }

    /// The same to a descriptor that was asked for before.
    pub(super) fn send_to(&self, descriptor: RawFd, bytes: &[u8]) -> bool {
        let mut sent = 0;
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        while sent < bytes.len() {
            // Past tokio's record of readiness, too: it is the library's.
            match send(descriptor, &bytes[sent..], flags) {
                Ok(count) => sent += count,
                Err(Errno::EINTR) => {}
                // A socket that is full, or broken: the library will see.
                Err(_) => {
                    self.announce();
                    let mut unsent = self.unsent();
                    unsent.bytes.extend_from_slice(&bytes[sent..]);
                    return false;
                }
            }
        }
        true
    }

    /// The connection will be reset when it closes.
    pub(super) fn reset_on_close(&self) {
        let linger = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        if let Some(socket) = &self.socket
            && let Err(error) = nix::sys::socket::setsockopt(
                &socket.as_fd(),
                nix::sys::socket::sockopt::Linger,
                &linger,
            )
        {
            tracing::warn!(%error, "a connection could not be marked for a reset");
        }
    }

    fn unsent(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(socket) = &self.socket else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        loop {
            match socket.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(socket.poll_write_ready(context))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// What waits here leaves.
    fn poll_unsent(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut unsent = self.unsent();
        while unsent.from < unsent.bytes.len() {
            let count = ready!(self.poll_write(context, &unsent.bytes[unsent.from..]))?;
            unsent.from += count;
        }
        unsent.bytes.clear();
        unsent.from = 0;
        Poll::Ready(Ok(()))
    }
}

/// The library's end of a [`Line`].
#[derive(Debug)]
pub(super) struct Gate(pub(super) Arc<Line>);

impl AsyncRead for Gate {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(socket) = &self.0.socket else {
            return Poll::Ready(Ok(()));
        };
        loop {
            ready!(socket.poll_read_ready(context))?;
            match socket.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done.map(|_| ())),
            }
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.0.poll_unsent(context))?;
        self.0.poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_unsent(context))?;
        self.0.quiet.store(true, Ordering::Release);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(socket) = &self.0.socket else {
            return Poll::Ready(Ok(()));
        };
        let ended =
            nix::sys::socket::shutdown(socket.as_raw_fd(), nix::sys::socket::Shutdown::Write);
        Poll::Ready(ended.map_err(io::Error::from))
    }
}
