//! HTTP/1 and HTTP/2 under one face: a sender of requests, and the connection's
//! own work, which the task that reads the answer does beside it. It knows
//! nothing of what is sent and how long it may take.
//!
//! HTTP/2 work that the library hands to an executor is polled in the same
//! place. All of it is polled at each wake: a connection has one stream at a
//! time, so that is two or three futures.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::{Executor, Read, Write};

use super::inline::InlinePoller;
use super::wire::HttpVersion;

/// Most header lines of an HTTP/1 response.
const HEADERS_MAX: usize = 128;
/// Most bytes of header lines of an HTTP/2 response.
const HEADER_BYTES_MAX: u32 = 64 << 10;

type Body = Full<Bytes>;
/// A request under way; it gives the request back where it was not sent.
pub(super) type Sending =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<Body>>>> + Send>>;

/// Takes requests for a connection.
pub(super) enum Sender {
    /// HTTP/1.
    Http1(http1::SendRequest<Body>),
    /// HTTP/2.
    Http2(http2::SendRequest<Body>),
}

impl Sender {
    /// Whether another request can be taken now.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        match self {
            Self::Http1(sender) => sender.poll_ready(cx),
            Self::Http2(sender) => sender.poll_ready(cx),
        }
    }

    /// Hands over `request`; sending is the connection's work.
    pub(super) fn try_send_request(&mut self, request: Request<Body>) -> Sending {
        match self {
            Self::Http1(sender) => Box::pin(sender.try_send_request(request)),
            Self::Http2(sender) => Box::pin(sender.try_send_request(request)),
        }
    }
}

/// The connection's own futures, until they are over.
pub(super) struct Driver<Io: Read + Write + Unpin + Send + 'static> {
    connection: Option<Protocol<Io>>,
    poller: InlinePoller,
}

enum Protocol<Io: Read + Write + Unpin + Send + 'static> {
    Http1(Box<http1::Connection<Io, Body>>),
    Http2(Box<http2::Connection<Io, Body, Beside>>, Beside),
}

impl<Io: Read + Write + Unpin + Send + 'static> Driver<Io> {
    fn new(connection: Protocol<Io>) -> Self {
        Self {
            connection: Some(connection),
            poller: InlinePoller::default(),
        }
    }

    /// Whether the connection is still there.
    pub(super) fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Lets the connection read and write. Its end shows in the sender and in
    /// the body, which is where it is looked for.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) {
        let ended = match &mut self.connection {
            None => return,
            Some(Protocol::Http1(connection)) => Pin::new(connection).poll(cx).is_ready(),
            Some(Protocol::Http2(connection, beside)) => {
                let ended = Pin::new(connection).poll(cx).is_ready();
                beside.advance(cx);
                ended
            }
        };
        if ended {
            self.connection = None;
        }
    }

    /// Polls `wanted`, then the connection, then `wanted` again.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        wanted: &mut impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let mut poller = std::mem::take(&mut self.poller);
        let outcome = poller.poll(cx, |cx| {
            if let Poll::Ready(value) = wanted(cx) {
                return Poll::Ready(value);
            }
            self.advance(cx);
            wanted(cx)
        });
        self.poller = poller;
        outcome
    }
}

/// Begins to speak HTTP on an open transport.
pub(super) async fn handshake<Io: Read + Write + Unpin + Send + 'static>(
    io: Io,
    version: HttpVersion,
) -> Result<(Sender, Driver<Io>), hyper::Error> {
    match version {
        HttpVersion::Http1 => {
            let (sender, connection) = http1::Builder::new()
                .max_headers(HEADERS_MAX)
                .handshake(io)
                .await?;
            let connection = Protocol::Http1(Box::new(connection));
            Ok((Sender::Http1(sender), Driver::new(connection)))
        }
        HttpVersion::Http2 => {
            let beside = Beside::default();
            let (sender, connection) = http2::Builder::new(beside.clone())
                .max_header_list_size(HEADER_BYTES_MAX)
                .handshake(io)
                .await?;
            let connection = Protocol::Http2(Box::new(connection), beside);
            Ok((Sender::Http2(sender), Driver::new(connection)))
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work that the library asks to be done beside a connection, kept to be polled
/// where the connection is.
#[derive(Clone, Default)]
struct Beside(Arc<Mutex<Vec<Task>>>);

impl Beside {
    /// Polls everything, and what that adds.
    fn advance(&self, cx: &mut Context<'_>) {
        let mut kept = Vec::new();
        loop {
            // Not polled under the lock: a task may add another one.
            let tasks = std::mem::take(&mut *self.lock());
            if tasks.is_empty() {
                break;
            }
            for mut task in tasks {
                if task.as_mut().poll(cx).is_pending() {
                    kept.push(task);
                }
            }
        }
        *self.lock() = kept;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Beside {
    fn execute(&self, task: F) {
        self.lock().push(Box::pin(task));
    }
}
