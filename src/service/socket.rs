//! Reading with stamps: a TCP stream whose reads carry the kernel's receive
//! time, and a plain wrapper that stamps the return of a read. Both tell the
//! stamp of the latest read through a [`StampCell`]. They refuse to know what
//! the bytes mean.
//!
//! Cost per read: one `recvmsg`, one clock reading, one copy out of a buffer
//! that all streams of a thread share (it keeps a waiting stream small and is
//! what a safe hand-over to the HTTP library takes).

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::clock::RunClock;
use crate::measure::{LiveHistogram, TimestampSource};
use crate::units::RunOffset;

/// Bytes one `recvmsg` may bring; as much as a server's write of a full window.
const READ_BYTES_MAX: usize = 64 << 10;

/// What is known of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadStamp {
    /// When the bytes arrived.
    pub at: RunOffset,
    /// Which read of its connection this was, from 1.
    pub read_index: u64,
}

/// The stamp of a connection's latest read, shared by the socket (which
/// writes) and the task that reads the frames made of it.
#[derive(Debug)]
pub struct StampCell {
    clock: RunClock,
    source: TimestampSource,
    at_ns: AtomicU64,
    read_index: AtomicU64,
    /// Task time minus kernel time of each read, nanoseconds: the client's own
    /// lag. `None` where no kernel time is had.
    own_lag: Option<Arc<LiveHistogram>>,
}

impl StampCell {
    /// A cell for stamps taken by the task that reads.
    pub fn by_read(clock: RunClock) -> Arc<Self> {
        Self::new(clock, TimestampSource::Read, None)
    }

    fn new(
        clock: RunClock,
        source: TimestampSource,
        own_lag: Option<Arc<LiveHistogram>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            source,
            at_ns: AtomicU64::new(0),
            read_index: AtomicU64::new(0),
            own_lag,
        })
    }

    /// Where the stamps come from.
    pub fn source(&self) -> TimestampSource {
        self.source
    }

    /// The latest read.
    pub fn latest(&self) -> ReadStamp {
        ReadStamp {
            at: RunOffset(self.at_ns.load(Ordering::Relaxed)),
            read_index: self.read_index.load(Ordering::Relaxed),
        }
    }

    fn record(&self, kernel_ns: Option<u64>) {
        let now = self.clock.now();
        let at = kernel_ns.map_or(now, |wall_ns| {
            // A stamp from the future can only be an error of the conversion.
            let at = self.clock.from_kernel(wall_ns).min(now);
            if let Some(own_lag) = &self.own_lag {
                own_lag.record(now.nanos() - at.nanos());
            }
            at
        });
        self.at_ns.store(at.nanos(), Ordering::Relaxed);
        let index = self.read_index.load(Ordering::Relaxed);
        self.read_index.store(index + 1, Ordering::Relaxed);
    }
}

/// A TCP stream that reads with the kernel's receive time.
#[derive(Debug)]
pub struct StampedTcp {
    stream: TokioIo<TcpStream>,
    cell: Arc<StampCell>,
}

impl StampedTcp {
    /// With kernel receive times, whose lag is counted in `own_lag`. Without a
    /// place to count (where they are not had at all) and where the kernel
    /// refuses, the task takes the stamps and the cell says so.
    pub fn new(stream: TcpStream, clock: RunClock, own_lag: Option<Arc<LiveHistogram>>) -> Self {
        let asked = || setsockopt(&stream, sockopt::ReceiveTimestampns, &true).is_ok();
        let cell = match own_lag {
            Some(own_lag) if asked() => {
                StampCell::new(clock, TimestampSource::Kernel, Some(own_lag))
            }
            _ => StampCell::by_read(clock),
        };
        Self {
            stream: TokioIo::new(stream),
            cell,
        }
    }

    /// Where the stamps of this stream are told.
    pub fn cell(&self) -> Arc<StampCell> {
        Arc::clone(&self.cell)
    }
}

struct Scratch {
    bytes: Box<[u8]>,
    control: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        bytes: vec![0; READ_BYTES_MAX].into_boxed_slice(),
        control: nix::cmsg_space!(TimeSpec),
    });
}

impl Read for StampedTcp {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let wanted = cursor.remaining().min(READ_BYTES_MAX);
        let stream = self.stream.inner();
        SCRATCH.with_borrow_mut(|scratch| {
            loop {
                ready!(stream.poll_read_ready(cx))?;
                let mut received = None;
                let tried = stream.try_io(Interest::READABLE, || {
                    let (count, stamp) = receive(stream, scratch, wanted)?;
                    received = Some((count, stamp));
                    // A short read has emptied the socket: saying so clears the
                    // readiness without a second system call.
                    if count > 0 && count < wanted {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    Ok(())
                });
                match (received, tried) {
                    (Some((count, stamp)), _) => {
                        if count > 0 {
                            self.cell.record(stamp);
                            cursor.put_slice(&scratch.bytes[..count]);
                        }
                        return Poll::Ready(Ok(()));
                    }
                    (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                    (None, Err(error)) => return Poll::Ready(Err(error)),
                    (None, Ok(())) => return Poll::Ready(Ok(())),
                }
            }
        })
    }
}

/// One `recvmsg` of up to `wanted` bytes: how many came, and the kernel's time.
fn receive(
    stream: &TcpStream,
    scratch: &mut Scratch,
    wanted: usize,
) -> io::Result<(usize, Option<u64>)> {
    let Scratch { bytes, control } = scratch;
    let mut slices = [IoSliceMut::new(&mut bytes[..wanted])];
    let message = recvmsg::<()>(
        stream.as_raw_fd(),
        &mut slices,
        Some(control),
        MsgFlags::empty(),
    )?;
    let stamp = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(time),
        _ => None,
    });
    let nanos =
        stamp.and_then(|time| u64::try_from(time.tv_sec() * 1_000_000_000 + time.tv_nsec()).ok());
    Ok((message.bytes, nanos))
}

impl Write for StampedTcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}

/// Any other stream (TLS, a test's pipe), stamped when its read returns.
#[derive(Debug)]
pub struct StampedRead<T> {
    inner: TokioIo<T>,
    cell: Arc<StampCell>,
}

impl<T> StampedRead<T> {
    /// Wraps `inner`.
    pub fn new(inner: T, clock: RunClock) -> Self {
        Self {
            inner: TokioIo::new(inner),
            cell: StampCell::by_read(clock),
        }
    }

    /// Where the stamps of this stream are told.
    pub fn cell(&self) -> Arc<StampCell> {
        Arc::clone(&self.cell)
    }
}

impl<T: tokio::io::AsyncRead + Unpin> Read for StampedRead<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let wanted = cursor.remaining().min(READ_BYTES_MAX);
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = tokio::io::ReadBuf::new(&mut scratch.bytes[..wanted]);
            let inner = Pin::new(self.inner.inner_mut());
            ready!(tokio::io::AsyncRead::poll_read(inner, cx, &mut buffer))?;
            if !buffer.filled().is_empty() {
                self.cell.record(None);
                cursor.put_slice(buffer.filled());
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl<T: tokio::io::AsyncWrite + Unpin> Write for StampedRead<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "edge: loopback sockets")]

    use std::future::poll_fn;

    use hyper::rt::ReadBuf;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::service::stamping::KernelStamping;

    async fn read_some<T: Read + Unpin>(stream: &mut T) -> Vec<u8> {
        let mut bytes = [0_u8; 256];
        let mut buffer = ReadBuf::new(&mut bytes);
        poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, buffer.unfilled()))
            .await
            .unwrap();
        buffer.filled().to_vec()
    }

    #[tokio::test]
    async fn reads_carry_the_kernels_receive_time() {
        let stamping = KernelStamping::switch_on().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clock = RunClock::start();
        let client = TcpStream::connect(address).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let lag = Arc::new(LiveHistogram::default());
        let mut stream = StampedTcp::new(
            client,
            clock.clone(),
            stamping.is_some().then(|| Arc::clone(&lag)),
        );
        let cell = stream.cell();

        let before = clock.now();
        server.write_all(b"one").await.unwrap();
        let sent = clock.now();
        // Whatever the task does before it reads is no part of the stamp.
        while clock.now().nanos() < sent.nanos() + 5_000_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(read_some(&mut stream).await, b"one");
        let stamp = cell.latest();
        assert_eq!(stamp.read_index, 1);
        if cell.source() == TimestampSource::Kernel {
            let slack = 1_000_000;
            assert!(stamp.at.nanos() + slack >= before.nanos());
            assert!(
                stamp.at.nanos() <= sent.nanos() + slack,
                "{stamp:?} {sent:?}"
            );
            assert_eq!(lag.count(), 1);
        }

        server.write_all(b"two").await.unwrap();
        assert_eq!(read_some(&mut stream).await, b"two");
        assert_eq!(cell.latest().read_index, 2);
        drop(server);
        assert_eq!(read_some(&mut stream).await, b"");
        assert_eq!(cell.latest().read_index, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_is_stamped_when_its_read_returns() {
        let clock = RunClock::start();
        let (mut server, client) = tokio::io::duplex(64);
        let mut stream = StampedRead::new(client, clock);
        let cell = stream.cell();
        tokio::time::advance(std::time::Duration::from_millis(7)).await;
        server.write_all(b"x").await.unwrap();
        assert_eq!(read_some(&mut stream).await, b"x");
        assert_eq!(cell.source(), TimestampSource::Read);
        assert_eq!(cell.latest().at, RunOffset(7_000_000));
    }
}
