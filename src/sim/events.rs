//! The events of one stream in their order: role, tokens, usage, end. Fed by
//! a mailbox, asked by a body; it refuses to know sockets and time.

use std::sync::Arc;

use crate::sim::line::Line;
use crate::sim::mailbox::{Mailbox, Reading};
use crate::sim::model::Model;
use crate::sim::plain::Plain;
use crate::sim::reply::{Choice, DONE, Shape, Stretch};

/// What a stream has to say next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// An event was written; true when it carries tokens.
    Event(bool),
    /// Nothing until the mailbox wakes.
    Wait,
    /// Everything was said.
    End,
}

/// One choice's place in the stream.
#[derive(Debug)]
struct Place {
    choice: Choice,
    opening: Box<str>,
    sent: usize,
    role_sent: bool,
    ended: bool,
}

/// A stream's events.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) shape: Shape,
    model: Arc<Model>,
    mailbox: Arc<Mailbox>,
    places: Vec<Place>,
    /// Tokens per event after the first.
    interval: usize,
    /// Whether tokens that piled up leave in one event.
    merges: bool,
    usage_sent: bool,
    done_sent: bool,
    turn: usize,
}

impl Events {
    pub(super) fn new(
        shape: Shape,
        model: Arc<Model>,
        mailbox: Arc<Mailbox>,
        choices: Vec<Choice>,
        interval: u32,
        merges: bool,
    ) -> Self {
        let places = choices.into_iter().map(|choice| Place {
            opening: shape.opening(choice.index),
            role_sent: !shape.chat,
            sent: 0,
            ended: false,
            choice,
        });
        Self {
            places: places.collect(),
            usage_sent: !shape.stream_usage,
            done_sent: false,
            turn: 0,
            shape,
            model,
            mailbox,
            interval: interval as usize,
            merges,
        }
    }

    /// Output tokens in events so far.
    pub(super) fn tokens(&self) -> u64 {
        self.places.iter().map(|place| place.sent as u64).sum()
    }

    /// Cached prompt tokens, as far as known (of a list, those of its last
    /// prompt).
    pub(super) fn cached(&self) -> u64 {
        let last = self.places.len().saturating_sub(1);
        self.mailbox.read(last).cached
    }

    /// Appends the next event to `into`.
    pub(super) fn next(&mut self, into: &mut Vec<u8>) -> Next {
        let count = self.places.len();
        for _ in 0..count {
            let at = self.turn;
            self.turn = (at + 1) % count;
            let reading = self.mailbox.read(at);
            if let Some(next) = self.of_choice(at, reading, into) {
                return next;
            }
        }
        if self.places.iter().any(|place| !place.ended) {
            return Next::Wait;
        }
        if !self.usage_sent {
            self.usage_sent = true;
            let usage = self.shape.usage_event(self.tokens(), self.cached());
            into.extend_from_slice(usage.as_bytes());
            return Next::Event(false);
        }
        if !self.done_sent {
            self.done_sent = true;
            into.extend_from_slice(DONE.as_bytes());
            return Next::Event(false);
        }
        Next::End
    }

    /// Lends what is plain from here on, where that is all until the end.
    pub(super) fn lend(&mut self, line: &Arc<Line>) -> Option<Plain> {
        let tail = self.shape.plain_tail()?;
        let [place] = self.places.as_mut_slice() else {
            return None;
        };
        let leads = place.sent == 0 && place.choice.output.lead.is_some();
        if leads || !place.role_sent || place.ended || self.interval > 1 {
            return None;
        }
        let descriptor = line.descriptor()?;
        let picks = place.choice.output.lend_words()?;
        let opening = std::mem::take(&mut place.opening);
        let line = (Arc::clone(line), descriptor);
        let plain = Plain::new((opening, tail), picks, place.sent, line, self.merges);
        Some(plain)
    }

    /// Takes back what was lent.
    pub(super) fn take_back(&mut self, plain: Plain) {
        if let Some(place) = self.places.first_mut() {
            place.sent = plain.sent;
            let (opening, picks) = plain.into_parts();
            place.opening = opening;
            place.choice.output.take_back_words(picks);
        }
    }

    /// The next event of one choice, if it has one.
    fn of_choice(&mut self, at: usize, reading: Reading, into: &mut Vec<u8>) -> Option<Next> {
        let tokens = self.tokens();
        let place = &mut self.places[at];
        let waiting = reading.released - place.sent;
        let wanted = if place.sent == 0 { 1 } else { self.interval };
        let last = reading.finish.is_some();
        if place.ended || (waiting < wanted && !last) || (waiting == 0 && !last) {
            return None;
        }
        if !place.role_sent {
            place.role_sent = true;
            // The role leaves together with the first token; it is not one.
            self.turn = at;
            into.extend_from_slice(self.shape.role(&place.choice).as_bytes());
            return Some(Next::Event(false));
        }
        let count = if self.merges {
            waiting
        } else {
            waiting.min(wanted)
        };
        let until = place.sent + count;
        let finish = reading.finish.filter(|_| until == reading.released);
        // An end token has no text; it comes in an event of its own.
        let stretch = Stretch {
            from: place.sent,
            until,
            finish,
            completion_tokens: tokens + count as u64,
        };
        self.shape
            .event(into, &place.opening, &self.model, &place.choice, stretch);
        place.sent = until;
        place.ended = finish.is_some();
        Some(Next::Event(true))
    }
}
