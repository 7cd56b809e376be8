//! Response bodies: a document, or a stream that asks its events one by one.
//! One event is one HTTP chunk, as on the recorded servers.
//!
//! Cost per token of an undisturbed stream: the mailbox's atomics, one event
//! copied into a buffer that is handed to hyper; no lock, no channel.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Interval, MissedTickBehavior};

use crate::sim::core::{Shared, Ticket};
use crate::sim::events::{Events, Next};
use crate::sim::mishap::{Bender, Break};
use crate::sim::page::Exchange;
use crate::sim::refusal::Refusal;
use crate::sim::reply::DONE;
use crate::sim::truth::{Row, monotonic_nanos};

/// A stream was broken on purpose; hyper closes the connection.
#[derive(Debug)]
pub(super) struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated server broke this stream")
    }
}

impl std::error::Error for Broken {}

impl From<Infallible> for Broken {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// A response's body.
pub(super) enum ReplyBody {
    /// A document; `None` once it is taken.
    Whole(Option<Bytes>),
    /// Events.
    Stream(Box<StreamBody>),
    /// Events that were known from the start.
    Canned(VecDeque<Bytes>),
}

/// Marks a connection for a reset instead of an orderly close.
pub(super) trait Resets: Send + Sync {
    /// The connection will be reset when it closes.
    fn reset_on_close(&self);
}

/// A stream between its first and its last event.
pub(super) struct StreamBody {
    pub(super) shared: Arc<Shared>,
    pub(super) ticket: Ticket,
    pub(super) events: Events,
    pub(super) breaks: Option<(Break, u64)>,
    pub(super) bender: Option<Bender>,
    pub(super) connection: Arc<dyn Resets>,
    pub(super) keep_alive: Option<Interval>,
    pub(super) row: Option<Row>,
    pub(super) exchange: Exchange,
    pub(super) began: f64,
    pub(super) chunks: VecDeque<Bytes>,
    pub(super) buffer: Vec<u8>,
    pub(super) token_events: u64,
    pub(super) state: State,
}

/// Where a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Events go on.
    Speaks,
    /// Nothing comes any more, socket open.
    Silent,
    /// Everything was sent.
    Ended,
}

/// A timer for comments before the first token.
pub(super) fn keep_alive(every: Option<Duration>) -> Option<Interval> {
    every.filter(|every| !every.is_zero()).map(|every| {
        let mut interval = tokio::time::interval(every);
        // The first tick of an interval is at once.
        interval.reset();
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    })
}

impl StreamBody {
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            match self.state {
                State::Silent => return Poll::Pending,
                State::Ended => return Poll::Ready(None),
                State::Speaks => {}
            }
            if let Some((kind, after)) = self.breaks
                && self.token_events >= after
            {
                self.breaks = None;
                match kind {
                    Break::ErrorEvent => self.fail(),
                    Break::Stall => self.state = State::Silent,
                    Break::Cut => return Poll::Ready(Some(Err(Broken))),
                    Break::Reset => {
                        self.connection.reset_on_close();
                        return Poll::Ready(Some(Err(Broken)));
                    }
                }
                continue;
            }
            if self.say_next() {
                continue;
            }
            self.ticket.mailbox.waker.register(context.waker());
            // Word may have come between the look and the registration.
            if self.say_next() {
                continue;
            }
            if !self.tick(context) {
                return Poll::Pending;
            }
        }
    }

    /// Says the next event, if there is one to say (or the stream ended).
    fn say_next(&mut self) -> bool {
        self.buffer.clear();
        match self.events.next(&mut self.buffer) {
            Next::Wait => return false,
            Next::Event(tokens) => {
                if tokens {
                    self.token_events += 1;
                    self.keep_alive = None;
                    if let Some(row) = &mut self.row {
                        row.sends_ns.push(monotonic_nanos());
                    }
                }
                self.push();
            }
            Next::End => self.end(),
        }
        true
    }

    /// The event in the buffer becomes chunks.
    fn push(&mut self) {
        match &mut self.bender {
            None => self.chunks.push_back(Bytes::copy_from_slice(&self.buffer)),
            Some(bender) => {
                let mut chunks = Vec::new();
                bender.bend(&self.buffer, &mut chunks);
                self.chunks.extend(chunks);
            }
        }
    }

    fn end(&mut self) {
        if let Some(bender) = &mut self.bender {
            let mut chunks = Vec::new();
            bender.flush(&mut chunks);
            self.chunks.extend(chunks);
        }
        if let Some(row) = &mut self.row {
            row.complete = true;
        }
        self.state = State::Ended;
    }

    /// The engine dies in the middle of the stream.
    fn fail(&mut self) {
        let words = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
        let error = Refusal::internal(words.to_owned());
        for event in [error.event().as_str(), DONE] {
            self.buffer.clear();
            self.buffer.extend_from_slice(event.as_bytes());
            self.push();
        }
        self.end();
    }

    /// A comment, when it is time for one.
    fn tick(&mut self, context: &mut Context<'_>) -> bool {
        let Some(interval) = &mut self.keep_alive else {
            return false;
        };
        let due = interval.poll_tick(context).is_ready();
        if due {
            self.chunks
                .push_back(Bytes::from_static(b": keep-alive\n\n"));
        }
        due
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        self.exchange.ended = self.shared.wall();
        self.exchange.seconds = self.exchange.ended - self.began;
        self.shared.record(self.exchange);
        if let (Some(mut row), Some(truth)) = (self.row.take(), &self.shared.truth) {
            row.rank = self.ticket.rank();
            row.cached_tokens = self.events.cached();
            row.completion_tokens = self.events.tokens();
            truth.write(&row);
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Canned(events) => {
                Poll::Ready(events.pop_front().map(|event| Ok(Frame::data(event))))
            }
            Self::Stream(stream) => stream
                .poll_chunk(context)
                .map(|chunk| chunk.map(|chunk| chunk.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) | Self::Canned(_) => SizeHint::new(),
        }
    }
}
