//! One HTTP connection and one exchange on it. The connection's own future is
//! polled by the task that reads the answer, so a frame never crosses to
//! another task, and each frame belongs to the latest read of its socket. It
//! refuses to know retries and lanes.
//!
//! Cost per chunk: one poll of the connection (one read), one hand-over of a
//! reference-counted slice, no allocation of ours, no timer (the timer is set
//! again only when it fires).
#![allow(clippy::disallowed_methods, reason = "edge: timers of an exchange")]

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::rt::{Read, Write};
use tokio::time::{Sleep, sleep_until};

use super::clock::RunClock;
use super::connect::Wire;
use super::protocol::{Driver, Sender, handshake};
use super::quiet::Quiet;
use super::socket::{ReadStamp, StampCell};
use super::stream::AnswerReader;
use super::wire::HttpVersion;
use crate::measure::{FailureKind, TimestampSource};
use crate::units::RunOffset;

/// Most of an error body that is read, in bytes.
const ERROR_BODY_BYTES_MAX: usize = 16 << 10;

/// How an attempt failed. The message is neither scrubbed nor cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    /// Counted by this.
    pub kind: FailureKind,
    /// HTTP status, or the code inside an error event.
    pub code: Option<u16>,
    /// For people.
    pub message: String,
}

impl AttemptFailure {
    /// A failure without a code.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            code: None,
            message: message.into(),
        }
    }
}

/// What is known of one attempt, filled as it goes so that it survives being
/// cut short.
#[derive(Debug)]
pub struct Answer {
    /// Stamps, usage and end of the stream.
    pub reader: AnswerReader,
    /// When the response head had arrived.
    pub first_byte: Option<RunOffset>,
    /// When the body was at its end.
    pub stream_end: Option<RunOffset>,
    /// Whether any byte of a 2xx body arrived.
    pub body_started: bool,
    /// Where the stamps come from.
    pub source: TimestampSource,
}

impl Answer {
    /// An answer of which nothing has arrived.
    pub fn new(reader: AnswerReader) -> Self {
        Self {
            reader,
            first_byte: None,
            stream_end: None,
            body_started: false,
            source: TimestampSource::Read,
        }
    }
}

/// When an exchange is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Longest silence, counted from the latest read or the sending.
    pub idle: Duration,
    /// When the whole request must be over.
    pub request_end: RunOffset,
}

/// How an exchange ended otherwise than well.
#[derive(Debug)]
pub enum ExchangeError {
    /// The connection was closed before any byte was written: the request
    /// comes back and may be sent on another connection.
    Unsent(Box<Request<Full<Bytes>>>),
    /// It was, or may have been, sent.
    Failed(AttemptFailure),
}

/// An open connection, idle between exchanges.
pub struct Connection<Io: Read + Write + Unpin + Send + 'static> {
    sender: Sender,
    driver: Driver<Io>,
    cell: Arc<StampCell>,
}

impl<Io: Read + Write + Unpin + Send + 'static> Connection<Io> {
    /// Takes an open transport into use.
    pub async fn open(wire: Wire<Io>, version: HttpVersion) -> Result<Self, hyper::Error> {
        let (sender, driver) = handshake(wire.io, version).await?;
        Ok(Self {
            sender,
            driver,
            cell: wire.cell,
        })
    }

    /// Whether an idle connection can be used again: what the server has sent
    /// or closed meanwhile is looked at first.
    pub async fn is_usable(&mut self) -> bool {
        poll_fn(|cx| {
            self.driver.advance(cx);
            let ready = matches!(self.sender.poll_ready(cx), Poll::Ready(Ok(())));
            Poll::Ready(ready && self.driver.is_open())
        })
        .await
    }

    /// Sends `request` and reads the answer to its end. On an error the
    /// connection must be dropped.
    pub async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        answer: &mut Answer,
        deadlines: Deadlines,
        clock: &RunClock,
    ) -> Result<(), ExchangeError> {
        answer.source = self.cell.source();
        let cell = Arc::clone(&self.cell);
        let watch = Watch::new(&cell, deadlines, clock);
        let timer = sleep_until(clock.instant(watch.next_deadline()));
        let timer = std::pin::pin!(timer);
        let mut timer = Quiet::new(timer);
        let response = self.send(request, &watch, &mut timer).await?;
        answer.first_byte = Some(self.cell.latest().at);
        self.read(response, answer, &watch, &mut timer)
            .await
            .map_err(ExchangeError::Failed)
    }

    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        watch: &Watch<'_>,
        timer: &mut Timer<'_>,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let mut sending = self.sender.try_send_request(request);
        let driver = &mut self.driver;
        let sent = advance_until(driver, watch, timer, |cx| sending.as_mut().poll(cx)).await;
        match sent {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(mut error)) => Err(match error.take_message() {
                Some(request) => ExchangeError::Unsent(Box::new(request)),
                None => ExchangeError::Failed(transport_failure(error.error())),
            }),
            Err(timeout) => Err(ExchangeError::Failed(timeout)),
        }
    }

    async fn read(
        &mut self,
        response: Response<Incoming>,
        answer: &mut Answer,
        watch: &Watch<'_>,
        timer: &mut Timer<'_>,
    ) -> Result<(), AttemptFailure> {
        let (status, whole) = (response.status(), is_json(response.headers()));
        // The head is let go here: its values are slices of the connection's first
        // read buffer, which they would keep beside the next one for the whole
        // stream.
        let mut body = response.into_body();
        if !status.is_success() {
            return Err(self.read_error(status, &mut body, watch, timer).await);
        }
        if whole {
            answer.reader.expect_whole();
        }
        loop {
            let frame = advance_until(&mut self.driver, watch, timer, |cx| {
                Pin::new(&mut body).poll_frame(cx)
            });
            match frame.await {
                Ok(Some(Ok(frame))) => {
                    if let Some(bytes) = frame.data_ref() {
                        answer.body_started |= !bytes.is_empty();
                        answer.reader.feed(bytes, self.cell.latest());
                    }
                    // What follows a broken event cannot be understood either.
                    if let Some(defect) = answer.reader.defect()
                        && defect.kind == FailureKind::Protocol
                    {
                        break;
                    }
                }
                Ok(None) => break,
                // All that matters has arrived: the rest changes nothing.
                Ok(Some(Err(_))) | Err(_) if answer.reader.is_complete() => break,
                Ok(Some(Err(_))) | Err(_) if answer.reader.defect().is_some() => break,
                Ok(Some(Err(error))) => {
                    answer.stream_end = Some(watch.clock.now());
                    return Err(transport_failure(&error));
                }
                Err(timeout) => {
                    answer.stream_end = Some(watch.clock.now());
                    return Err(timeout);
                }
            }
        }
        let last = self.cell.latest();
        answer.stream_end = Some(last.at);
        answer.reader.finish(last).map_err(|defect| AttemptFailure {
            kind: defect.kind,
            code: defect.code,
            message: defect.message,
        })
    }

    /// The failure behind a status other than 2xx, with as much of its body as
    /// is worth reading.
    async fn read_error(
        &mut self,
        status: StatusCode,
        body: &mut Incoming,
        watch: &Watch<'_>,
        timer: &mut Timer<'_>,
    ) -> AttemptFailure {
        let mut text = Vec::new();
        while text.len() < ERROR_BODY_BYTES_MAX {
            let frame = advance_until(&mut self.driver, watch, timer, |cx| {
                Pin::new(&mut *body).poll_frame(cx)
            });
            let Ok(Some(Ok(frame))) = frame.await else {
                break;
            };
            if let Some(bytes) = frame.data_ref() {
                let room = ERROR_BODY_BYTES_MAX - text.len();
                text.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
        AttemptFailure {
            kind: FailureKind::HttpStatus,
            code: Some(status.as_u16()),
            message: error_message(&text),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE);
    let kind = kind.and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = kind.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The server's own words in an error body.
fn error_message(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let places = ["/error/message", "/message", "/detail", "/error"];
    places
        .iter()
        .find_map(|place| value.pointer(place).and_then(|found| found.as_str()))
        .map_or_else(
            || String::from_utf8_lossy(body).trim().to_owned(),
            ToOwned::to_owned,
        )
}

fn transport_failure(error: &hyper::Error) -> AttemptFailure {
    let kind = if error.is_parse() || error.is_parse_too_large() {
        FailureKind::Protocol
    } else {
        FailureKind::ConnectionError
    };
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        message = format!("{message}: {inner}");
        source = inner.source();
    }
    AttemptFailure::new(kind, message)
}

/// The timer of an exchange, which is not looked at with every chunk.
type Timer<'a> = Quiet<Pin<&'a mut Sleep>>;

/// Watches the deadlines of one exchange.
struct Watch<'a> {
    cell: &'a StampCell,
    deadlines: Deadlines,
    clock: &'a RunClock,
    sent: RunOffset,
    reads_before: u64,
}

impl<'a> Watch<'a> {
    fn new(cell: &'a StampCell, deadlines: Deadlines, clock: &'a RunClock) -> Self {
        Self {
            cell,
            deadlines,
            clock,
            sent: clock.now(),
            reads_before: cell.latest().read_index,
        }
    }

    fn next_deadline(&self) -> RunOffset {
        let ReadStamp { at, read_index } = self.cell.latest();
        let active = if read_index > self.reads_before {
            at
        } else {
            self.sent
        };
        let idle = RunOffset::from_duration(self.deadlines.idle);
        let idle_end = RunOffset(active.nanos().saturating_add(idle.nanos()));
        idle_end.min(self.deadlines.request_end)
    }

    /// Called when the timer has fired: the failure, or a later deadline.
    fn expired(&self) -> Result<RunOffset, AttemptFailure> {
        let (now, next) = (self.clock.now(), self.next_deadline());
        if now < next {
            return Ok(next);
        }
        Err(if now >= self.deadlines.request_end {
            AttemptFailure::new(
                FailureKind::RequestTimeout,
                "the whole request took too long",
            )
        } else {
            let idle = self.deadlines.idle.as_secs_f64();
            let message = format!("nothing arrived for {idle} s");
            AttemptFailure::new(FailureKind::IdleTimeout, message)
        })
    }
}

/// Polls `wanted`, then the connection, then `wanted` again, until it is ready
/// or a deadline has passed.
async fn advance_until<Io, T>(
    driver: &mut Driver<Io>,
    watch: &Watch<'_>,
    timer: &mut Timer<'_>,
    mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T, AttemptFailure>
where
    Io: Read + Write + Unpin + Send + 'static,
{
    poll_fn(|cx| {
        let outcome = driver.poll_with(cx, &mut wanted);
        if let Poll::Ready(value) = outcome {
            return Poll::Ready(Ok(value));
        }
        while Pin::new(&mut *timer).poll(cx).is_ready() {
            match watch.expired() {
                Ok(next) => timer.disturb().as_mut().reset(watch.clock.instant(next)),
                Err(timeout) => return Poll::Ready(Err(timeout)),
            }
        }
        Poll::Pending
    })
    .await
}

/// Whether an I/O error says that nobody listens or answers.
pub fn connect_failure(error: &io::Error) -> AttemptFailure {
    AttemptFailure::new(FailureKind::Connect, error.to_string())
}
