//! The part of a stream that needs no thought: events of one choice with text
//! and nothing else. While the HTTP library waits for such a stream, the stream
//! lends this part to the mail (see `mail`), and whoever lets the engine's time
//! pass says its tokens past the library (see `line`). Roles, ends, usage, stops
//! and faults go the long way.
//!
//! All that an event needs lies together: at 100,000 events a second over
//! 2,000 streams nothing is in a near cache when its turn comes, so an event
//! costs the cache lines that it touches. These are two of this part and those
//! of the opening; the words and the log of times are touched once in some
//! events.

use std::fmt;
use std::iter;
use std::mem;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::sim::line::Line;
use crate::sim::model::{Model, Picks};
use crate::sim::truth::monotonic_nanos;

/// Words that are at hand.
const AHEAD: usize = 8;
/// Times that are kept before they go to the log.
const RECENT: usize = 4;

/// A lent part of a stream, on a line that is free as long as it is lent.
// The first two lines are what each event asks for and changes.
#[repr(C, align(64))]
pub(super) struct Plain {
    /// What stands before the text in each event.
    pub(super) opening: Box<str>,
    /// Tokens in events so far.
    pub(super) sent: usize,
    /// Tokens that exist.
    pub(super) released: usize,
    /// Prompt tokens out of a cache, as of the latest token.
    pub(super) cached: u64,
    /// Those of `picks` around `sent`, from a multiple of their number on.
    ahead: [u16; AHEAD],
    /// The line's, so that the line itself need not be looked at.
    descriptor: RawFd,
    /// Whether tokens that piled up leave in one event.
    merges: bool,
    /// The line did not take everything: the library goes on.
    pub(super) stuck: bool,
    /// Whether there is a log.
    logs: bool,
    /// Of `recent`, those that are not in the log yet.
    unlogged: u8,

    /// When the latest events left.
    recent: [u64; RECENT],
    /// What stands behind the text in each event.
    tail: &'static str,
    picks: Picks,

    /// When each event left, if that is logged.
    log: Vec<u64>,
    line: Arc<Line>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(mem::offset_of!(Plain, recent) == 64 && mem::offset_of!(Plain, log) == 128);

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain")
            .field("sent", &self.sent)
            .field("released", &self.released)
            .finish_non_exhaustive()
    }
}

impl Plain {
    /// The part of a stream of which `sent` tokens are in events.
    pub(super) fn new(
        (opening, tail): (Box<str>, &'static str),
        picks: Picks,
        sent: usize,
        (line, descriptor): (Arc<Line>, RawFd),
        merges: bool,
    ) -> Self {
        let mut plain = Self {
            opening,
            sent,
            released: sent,
            cached: 0,
            ahead: [0; AHEAD],
            descriptor,
            merges,
            stuck: false,
            logs: false,
            unlogged: 0,
            recent: [0; RECENT],
            tail,
            picks,
            log: Vec::new(),
            line,
        };
        plain.look_ahead();
        plain
    }

    /// The stream's own things: opening and words.
    pub(super) fn into_parts(self) -> (Box<str>, Picks) {
        (self.opening, self.picks)
    }

    /// The times of events go behind these from now on.
    pub(super) fn log_into(&mut self, log: Vec<u64>) {
        self.log = log;
        self.logs = true;
    }

    /// The log, if there is one; from now on there is none.
    pub(super) fn take_log(&mut self) -> Option<Vec<u64>> {
        self.log_recent();
        mem::take(&mut self.logs).then(|| mem::take(&mut self.log))
    }

    /// Appends an event, or as many as there are tokens, each as one HTTP
    /// chunk; says how many.
    pub(super) fn write(&mut self, model: &Model, framed: &mut Vec<u8>) -> usize {
        let mut events = 0;
        while self.sent < self.released {
            let until = if self.merges {
                self.released
            } else {
                self.sent + 1
            };
            if until == self.sent + 1 {
                let text = iter::once(self.upcoming(model));
                write_chunk(framed, &self.opening, text, self.tail);
            } else {
                let texts = (self.sent..until).map(|at| model.picked(&self.picks, at));
                write_chunk(framed, &self.opening, texts, self.tail);
            }
            let passed = self.sent / AHEAD != until / AHEAD;
            self.sent = until;
            if passed {
                self.look_ahead();
            }
            events += 1;
        }
        events
    }

    /// Text of the next token.
    fn upcoming<'a>(&self, model: &'a Model) -> &'a str {
        if self.sent < self.picks.len() {
            model.word(self.ahead[self.sent % AHEAD])
        } else {
            ""
        }
    }

    fn look_ahead(&mut self) {
        let from = self.sent - self.sent % AHEAD;
        let picks = self.picks.get(from..).unwrap_or_default();
        for (ahead, pick) in self.ahead.iter_mut().zip(picks) {
            *ahead = *pick;
        }
    }

    /// Sends what was written; false where it did not all leave.
    pub(super) fn send(&mut self, events: usize, framed: &[u8]) -> bool {
        if self.logs {
            let now = monotonic_nanos();
            for _ in 0..events {
                self.note(now);
            }
        }
        self.stuck = !self.line.send_to(self.descriptor, framed);
        !self.stuck
    }

    fn note(&mut self, time: u64) {
        if usize::from(self.unlogged) == RECENT {
            self.log_recent();
        }
        self.recent[usize::from(self.unlogged)] = time;
        self.unlogged += 1;
    }

    fn log_recent(&mut self) {
        let count = usize::from(mem::take(&mut self.unlogged));
        self.log.extend_from_slice(&self.recent[..count]);
    }
}

fn write_chunk<'a>(
    framed: &mut Vec<u8>,
    opening: &str,
    texts: impl Iterator<Item = &'a str> + Clone,
    tail: &str,
) {
    let text_bytes: usize = texts.clone().map(str::len).sum();
    push_hex(framed, opening.len() + text_bytes + tail.len());
    framed.extend_from_slice(b"\r\n");
    framed.extend_from_slice(opening.as_bytes());
    for text in texts {
        framed.extend_from_slice(text.as_bytes());
    }
    framed.extend_from_slice(tail.as_bytes());
    framed.extend_from_slice(b"\r\n");
}

/// A number in hexadecimal digits.
pub(super) fn push_hex(into: &mut Vec<u8>, number: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        into.push(DIGITS[(number >> (4 * digit)) & 15]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::toy::Toy;

    #[test]
    fn sizes_are_written_in_hexadecimal() {
        for number in [0, 1, 9, 10, 15, 16, 244, 255, 256, 4_095, 4_096, 1 << 20] {
            let mut text = Vec::new();
            push_hex(&mut text, number);
            assert_eq!(String::from_utf8(text).unwrap(), format!("{number:x}"));
        }
    }

    /// Picks that tell their places apart, and parts that begin anywhere.
    #[test]
    fn words_and_times_are_those_of_a_plain_loop() {
        let model = Model::new(&Toy::default(), 1).unwrap();
        let picks: Vec<u16> = (0..40).map(|at| at * 7 % 50).collect();
        for (from, merges) in [(0, false), (1, false), (7, false), (8, true), (13, true)] {
            let line = (Arc::new(Line::default()), -1);
            let mut plain = Plain::new(("<".into(), ">"), picks.clone().into(), from, line, merges);
            plain.log_into(vec![5]);
            let (mut written, mut expected, mut events) = (Vec::new(), Vec::new(), 0);
            // One token, then three at once; beyond the words there is no text.
            for step in [1, 3].into_iter().cycle().take(21) {
                let told = plain.released;
                plain.released += step;
                let count = plain.write(&model, &mut written);
                let groups = if merges { vec![step] } else { vec![1; step] };
                assert_eq!(count, groups.len());
                let mut at = told;
                for group in groups {
                    let words = (at..at + group).map(|at| model.picked(&picks, at));
                    let text = format!("<{}>", words.collect::<String>());
                    expected.extend(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes());
                    at += group;
                }
                plain.send(count, &[]);
                events += count;
            }
            assert_eq!(
                String::from_utf8(written).unwrap(),
                String::from_utf8(expected).unwrap(),
            );
            let log = plain.take_log().unwrap();
            assert_eq!((log.len(), log[0]), (1 + events, 5));
            assert!(log[1..].is_sorted() && log[1] > 5);
            assert_eq!(plain.take_log(), None);
        }
    }
}
