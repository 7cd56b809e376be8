//! A stream between its first and its last event, and the two ways its events
//! leave: as frames for the HTTP library, or written past it by whoever lets
//! the engine's time pass (see `line`). One event is one HTTP chunk either way,
//! as on the recorded servers.
//!
//! Between two looks of the library, a stream whose events are plain lends what
//! they are made of (see `plain`); the others are asked themselves. Cost of a
//! token that was lent: three copies into a reused buffer, one `send`. Of one
//! that was not: besides, the mailbox's atomics and a lock that nobody else
//! wants.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Interval;

use crate::sim::core::{Shared, Ticket};
use crate::sim::events::{Events, Next};
use crate::sim::line::Line;
use crate::sim::mailbox::Listener;
use crate::sim::mishap::{Bender, Break};
use crate::sim::page::Exchange;
use crate::sim::plain::{Plain, push_hex};
use crate::sim::refusal::Refusal;
use crate::sim::reply::DONE;
use crate::sim::truth::{Row, monotonic_nanos};

/// A stream was broken on purpose; the library closes the connection.
#[derive(Debug)]
pub(super) struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated server broke this stream")
    }
}

impl std::error::Error for Broken {}

/// What a stream has to say and to whom.
pub(super) struct Stream {
    pub(super) shared: Arc<Shared>,
    pub(super) ticket: Ticket,
    pub(super) events: Events,
    pub(super) breaks: Option<(Break, u64)>,
    pub(super) bender: Option<Bender>,
    pub(super) keep_alive: Option<Interval>,
    pub(super) row: Option<Row>,
    pub(super) exchange: Exchange,
    pub(super) began: f64,
    pub(super) chunks: VecDeque<Bytes>,
    pub(super) buffer: Vec<u8>,
    pub(super) token_events: u64,
    pub(super) state: State,
    /// Whether its plain part is lent.
    pub(super) lent: bool,
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

/// Where a thread puts events together that leave past the library.
#[derive(Debug, Default)]
struct Scratch {
    event: Vec<u8>,
    /// Events behind their chunk sizes.
    framed: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A stream that its connection's task and the engine's driver share.
pub(super) struct Speech {
    line: Arc<Line>,
    speaker: Mutex<Speaker>,
}

struct Speaker {
    stream: Stream,
    /// The library was told that there is nothing yet.
    waits: bool,
    /// The library has asked at least once, so it holds the head.
    asked: bool,
}

impl Speech {
    /// A stream on this connection, which hears of its own tokens from now on.
    pub(super) fn new(stream: Stream, line: Arc<Line>) -> Arc<Self> {
        let mailbox = Arc::clone(&stream.ticket.mailbox);
        let speech = Arc::new(Self {
            line,
            speaker: Mutex::new(Speaker {
                stream,
                waits: false,
                asked: false,
            }),
        });
        let listener: std::sync::Weak<Self> = Arc::downgrade(&speech);
        mailbox.listen(listener);
        speech
    }

    fn speaker(&self) -> MutexGuard<'_, Speaker> {
        self.speaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next chunk for the library.
    pub(super) fn poll_chunk(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Broken>>> {
        let mut speaker = self.speaker();
        if !speaker.asked {
            speaker.asked = true;
            self.line.announce();
        }
        speaker.stream.take_back();
        let chunk = speaker.stream.poll_chunk(&self.line, context);
        speaker.waits = chunk.is_pending() && speaker.stream.state == State::Speaks;
        if speaker.waits {
            speaker.stream.lend(&self.line);
        } else {
            self.line.announce();
        }
        if matches!(chunk, Poll::Ready(None)) {
            // What ends here takes a while; tokens of others may be due.
            let shared = Arc::clone(&speaker.stream.shared);
            drop(speaker);
            shared.catch_up();
        }
        chunk
    }
}

impl Listener for Speech {
    fn hear(&self) -> bool {
        let mut speaker = match self.speaker.try_lock() {
            Ok(speaker) => speaker,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The connection's task is at it.
            Err(TryLockError::WouldBlock) => return false,
        };
        if !speaker.waits || speaker.stream.is_bent() || !self.line.is_free() {
            return false;
        }
        let Speaker { stream, waits, .. } = &mut *speaker;
        stream.take_back();
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.framed.clear();
            // The thread's own memory is warm; the stream's would not be.
            mem::swap(&mut stream.buffer, &mut scratch.event);
            while stream.say_into(&mut scratch.framed) {}
            mem::swap(&mut stream.buffer, &mut scratch.event);
            // The library says the end.
            *waits = stream.state == State::Speaks;
            let sent = scratch.framed.is_empty() || self.line.send(&scratch.framed);
            if *waits {
                stream.lend(&self.line);
            }
            sent && *waits
        })
    }
}

impl Stream {
    /// Lends what is plain, if the line is free.
    fn lend(&mut self, line: &Arc<Line>) {
        if self.is_bent() || self.keep_alive.is_some() || !line.is_free() {
            return;
        }
        let Some(mut plain) = self.events.lend(line) else {
            return;
        };
        if let Some(row) = &mut self.row {
            plain.log_into(mem::take(&mut row.sends_ns));
        }
        match self.ticket.lend(plain) {
            None => self.lent = true,
            Some(plain) => self.put_back(plain),
        }
    }

    /// Has it again.
    fn take_back(&mut self) {
        if mem::take(&mut self.lent)
            && let Some(plain) = self.ticket.take_back()
        {
            self.put_back(plain);
        }
    }

    fn put_back(&mut self, mut plain: Plain) {
        if let (Some(row), Some(sends)) = (&mut self.row, plain.take_log()) {
            row.sends_ns = sends;
        }
        self.events.take_back(plain);
    }

    /// Whether its events may not leave as they are.
    fn is_bent(&self) -> bool {
        self.bender.is_some() || self.breaks.is_some() || !self.chunks.is_empty()
    }

    fn poll_chunk(
        &mut self,
        line: &Line,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Broken>>> {
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
                        line.reset_on_close();
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

    /// Puts the next event into the buffer; `None` if there is none yet, false
    /// if the stream has ended.
    fn next_event(&mut self) -> Option<bool> {
        self.buffer.clear();
        match self.events.next(&mut self.buffer) {
            Next::Wait => None,
            Next::End => {
                self.end();
                Some(false)
            }
            Next::Event(tokens) => {
                if tokens {
                    self.token_events += 1;
                    self.keep_alive = None;
                    if let Some(row) = &mut self.row {
                        row.sends_ns.push(monotonic_nanos());
                    }
                }
                Some(true)
            }
        }
    }

    /// Says the next event, if there is one to say (or the stream ended).
    fn say_next(&mut self) -> bool {
        match self.next_event() {
            None => return false,
            Some(true) => self.push(),
            Some(false) => {}
        }
        true
    }

    /// Appends the next event as one HTTP chunk; false when there is none.
    fn say_into(&mut self, framed: &mut Vec<u8>) -> bool {
        if self.state != State::Speaks || self.next_event() != Some(true) {
            return false;
        }
        push_hex(framed, self.buffer.len());
        framed.extend_from_slice(b"\r\n");
        framed.extend_from_slice(&self.buffer);
        framed.extend_from_slice(b"\r\n");
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

impl Drop for Stream {
    fn drop(&mut self) {
        self.take_back();
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
