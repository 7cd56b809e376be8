//! The part of a stream that needs no thought: events of one choice with text
//! and nothing else. While the HTTP library waits for such a stream, the stream
//! lends this part to the mail (see `mail`), and whoever lets the engine's time
//! pass says its tokens past the library (see `line`). Roles, ends, usage, stops
//! and faults go the long way.
//!
//! All that an event needs lies together: at 100,000 events a second over
//! 2,000 streams nothing is in a near cache when its turn comes, so an event
//! costs what it touches.

use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::sim::line::Line;
use crate::sim::model::{Model, Picks};
use crate::sim::truth::monotonic_nanos;

/// A lent part of a stream, on a line that is free as long as it is lent.
pub(super) struct Plain {
    /// What stands before the text in each event.
    pub(super) opening: Box<str>,
    pub(super) picks: Picks,
    /// What stands behind the text in each event.
    pub(super) tail: &'static str,
    /// When each event left, if that is logged.
    pub(super) sends_ns: Option<Vec<u64>>,
    /// Tokens in events so far.
    pub(super) sent: usize,
    /// Tokens that exist.
    pub(super) released: usize,
    /// Prompt tokens out of a cache, as of the latest token.
    pub(super) cached: u64,
    pub(super) line: Arc<Line>,
    /// The line's, so that the line itself need not be looked at.
    pub(super) descriptor: RawFd,
    /// Whether tokens that piled up leave in one event.
    pub(super) merges: bool,
    /// The line did not take everything: the library goes on.
    pub(super) stuck: bool,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain")
            .field("sent", &self.sent)
            .field("released", &self.released)
            .finish_non_exhaustive()
    }
}

impl Plain {
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
            let texts = (self.sent..until).map(|at| model.picked(&self.picks, at));
            write_chunk(framed, &self.opening, texts, self.tail);
            self.sent = until;
            events += 1;
        }
        events
    }

    /// Sends what was written; false where it did not all leave.
    pub(super) fn send(&mut self, events: usize, framed: &[u8]) -> bool {
        if let Some(sends) = &mut self.sends_ns {
            sends.extend(std::iter::repeat_n(monotonic_nanos(), events));
        }
        self.stuck = !self.line.send_to(self.descriptor, framed);
        !self.stuck
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

    #[test]
    fn sizes_are_written_in_hexadecimal() {
        for number in [0, 1, 9, 10, 15, 16, 244, 255, 256, 4_095, 4_096, 1 << 20] {
            let mut text = Vec::new();
            push_hex(&mut text, number);
            assert_eq!(String::from_utf8(text).unwrap(), format!("{number:x}"));
        }
    }
}
