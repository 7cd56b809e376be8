//! Attempts over a pool of connections: reuse, stale connections, limits of
//! time, what may be sent again. It refuses to know lanes and profiles.
#![allow(clippy::disallowed_methods, reason = "edge: bounds connection set-up")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::clock::RunClock;
use super::connect::Connector;
use super::connection::{
    Answer, AttemptFailure, Connection, Deadlines, ExchangeError, connect_failure,
};
use super::wire::HeadTemplate;
use crate::measure::FailureKind;
use crate::units::{DpRank, RunOffset};

/// Limits of time of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Opening a connection, TLS included.
    pub connect: Duration,
    /// Longest silence within an exchange.
    pub idle: Duration,
    /// The whole request, all its attempts.
    pub request: Duration,
}

impl Default for Timeouts {
    /// Generous: a queued request on a busy server may be silent for minutes.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            request: Duration::from_secs(3_600),
        }
    }
}

/// How often things were done, for the outcome and the tests.
#[derive(Debug, Default)]
pub struct ClientCounts {
    /// Connections opened.
    pub connections: AtomicU64,
    /// Requests handed to a connection, as far as the server may have seen
    /// them.
    pub posts: AtomicU64,
    /// Idle connections found closed before use.
    pub stale: AtomicU64,
}

/// Sends requests to one endpoint. One client a worker thread.
pub struct Client<C: Connector> {
    connector: Arc<C>,
    head: HeadTemplate,
    timeouts: Timeouts,
    clock: RunClock,
    counts: Arc<ClientCounts>,
    idle: Mutex<Vec<Connection<C::Io>>>,
}

impl<C: Connector> Client<C> {
    /// A client without connections.
    pub fn new(
        connector: Arc<C>,
        head: HeadTemplate,
        timeouts: Timeouts,
        clock: RunClock,
        counts: Arc<ClientCounts>,
    ) -> Self {
        Self {
            connector,
            head,
            timeouts,
            clock,
            counts,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Opens one connection ahead of its use. A failure here is no failure of
    /// a request, which will meet it again and report it.
    pub async fn open_ahead(&self) {
        if let Ok(connection) = self.open().await {
            self.put_back(connection);
        }
    }

    /// One attempt: sends `body` and reads the answer into `answer`. A second
    /// POST is made only where the first was not sent: on an idle connection
    /// that the server had closed.
    pub async fn attempt(
        &self,
        body: Bytes,
        rank: Option<DpRank>,
        name: Option<&str>,
        request_end: RunOffset,
        answer: &mut Answer,
    ) -> Result<(), AttemptFailure> {
        let mut request = self.head.request(body, rank, name);
        let deadlines = Deadlines {
            idle: self.timeouts.idle,
            request_end,
        };
        loop {
            let idle = self.take_idle().await;
            // Also one that was opened ahead and has served nothing yet.
            let was_idle = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.open().await?,
            };
            self.counts.posts.fetch_add(1, Ordering::Relaxed);
            let exchanged = connection
                .exchange(request, answer, deadlines, &self.clock)
                .await;
            match exchanged {
                Ok(()) => {
                    self.put_back(connection);
                    return Ok(());
                }
                Err(ExchangeError::Failed(failure)) => {
                    // After a status the body was read; the connection tells
                    // by itself whether it can be used again.
                    if failure.kind == FailureKind::HttpStatus {
                        self.put_back(connection);
                    }
                    return Err(failure);
                }
                Err(ExchangeError::Unsent(unsent)) => {
                    self.counts.posts.fetch_sub(1, Ordering::Relaxed);
                    if !was_idle {
                        let message = "the connection closed before the request was sent";
                        return Err(AttemptFailure::new(FailureKind::ConnectionError, message));
                    }
                    self.counts.stale.fetch_add(1, Ordering::Relaxed);
                    request = *unsent;
                }
            }
        }
    }

    async fn open(&self) -> Result<Connection<C::Io>, AttemptFailure> {
        let opening = async {
            let wire = self.connector.connect().await?;
            let connection = Connection::open(wire, self.head.version()).await;
            connection.map_err(std::io::Error::other)
        };
        match timeout(self.timeouts.connect, opening).await {
            Ok(Ok(connection)) => {
                self.counts.connections.fetch_add(1, Ordering::Relaxed);
                Ok(connection)
            }
            Ok(Err(error)) => Err(connect_failure(&error)),
            Err(_) => {
                let limit = self.timeouts.connect.as_secs_f64();
                let message = format!("no connection within {limit} s");
                Err(AttemptFailure::new(FailureKind::Connect, message))
            }
        }
    }

    /// The most recently used idle connection that is still open.
    async fn take_idle(&self) -> Option<Connection<C::Io>> {
        loop {
            let mut connection = self.lock().pop()?;
            if connection.is_usable().await {
                return Some(connection);
            }
            self.counts.stale.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn put_back(&self, connection: Connection<C::Io>) {
        self.lock().push(connection);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection<C::Io>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a failed attempt may be followed by another: nothing of an answer
/// had arrived, and the server has not refused the request for good.
pub fn may_be_sent_again(failure: &AttemptFailure, body_started: bool) -> bool {
    if body_started {
        return false;
    }
    match failure.kind {
        FailureKind::HttpStatus => match failure.code {
            Some(408 | 425 | 429) => true,
            Some(code) => code >= 500,
            None => false,
        },
        FailureKind::Connect
        | FailureKind::ConnectionError
        | FailureKind::IdleTimeout
        | FailureKind::TruncatedStream
        | FailureKind::Protocol => true,
        FailureKind::ServerErrorEvent | FailureKind::RequestTimeout | FailureKind::Cancelled => {
            false
        }
    }
}
