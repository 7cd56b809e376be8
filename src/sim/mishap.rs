//! What goes wrong with one request: drawn once from the server's seed and
//! the request's number, then only looked up. Also the ways bytes get bent on
//! their way: cut, held together, commented, in CRLF. It knows bytes only.

use bytes::Bytes;

use crate::rng::{Seed, Stream};
use crate::sim::faults::Faults;

/// Events before a stream breaks, at most.
const EVENTS_BEFORE_MAX: u64 = 8;

/// How a stream breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// An error event, then the regular end.
    ErrorEvent,
    /// Silence with the socket open.
    Stall,
    /// The connection closes in the middle.
    Cut,
    /// The connection is reset.
    Reset,
}

/// The fate of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// Status it is refused with.
    pub(super) refused: Option<u16>,
    /// Its stream says nothing but that the server is busy.
    pub(super) busy_stream: bool,
    /// How its stream breaks, and after how many token events.
    pub(super) breaks: Option<(Break, u64)>,
}

/// Draws the fate of request `number`.
pub(super) fn fate(faults: &Faults, seed: &Seed, number: u64) -> Fate {
    let shares = [
        faults.too_many_requests,
        faults.unavailable,
        faults.busy_stream,
        faults.error_event,
        faults.stall,
        faults.cut_stream,
        faults.reset_connection,
    ];
    if shares.iter().all(|&share| share <= 0.0) {
        return Fate::default();
    }
    let mut stream = seed.stream(&format!("sim/fate/{number}"));
    // Every share draws, so that one option does not shift another's draws.
    let [many, unavailable, busy_stream, error, stall, cut, reset] =
        shares.map(|share| stream.unit() < share);
    let after = stream.between(1, EVENTS_BEFORE_MAX);
    let refused = match (many, unavailable) {
        (true, _) => Some(429),
        (false, true) => Some(503),
        (false, false) => None,
    };
    let breaks = [
        (error, Break::ErrorEvent),
        (stall, Break::Stall),
        (cut, Break::Cut),
        (reset, Break::Reset),
    ];
    let breaks = breaks.into_iter().find(|(drawn, _)| *drawn);
    Fate {
        refused,
        busy_stream,
        breaks: breaks.map(|(_, kind)| (kind, after)),
    }
}

/// Bends the chunks of one stream.
#[derive(Debug)]
pub(super) struct Bender {
    crlf: bool,
    comments: bool,
    split: bool,
    coalesce: Option<u32>,
    held: Vec<u8>,
    held_events: u32,
    stream: Stream,
}

impl Bender {
    /// `None` where nothing is bent.
    pub(super) fn new(faults: &Faults, seed: &Seed, number: u64) -> Option<Self> {
        let bends =
            faults.crlf || faults.comments || faults.split_chunks || faults.coalesce.is_some();
        bends.then(|| Self {
            crlf: faults.crlf,
            comments: faults.comments,
            split: faults.split_chunks,
            coalesce: faults.coalesce,
            held: Vec::new(),
            held_events: 0,
            stream: seed.stream(&format!("sim/bend/{number}")),
        })
    }

    /// Takes one event; gives the chunks that leave now.
    pub(super) fn bend(&mut self, event: &[u8], chunks: &mut Vec<Bytes>) {
        if self.comments && self.stream.below(2) == 0 {
            let comment: &[u8] = match self.stream.below(3) {
                0 => b": ping\n\n",
                1 => b":\n\n",
                _ => b": a comment, not an event\n",
            };
            self.take(comment);
        }
        self.take(event);
        self.held_events += 1;
        if self.held_events < self.coalesce.unwrap_or(1) {
            return;
        }
        self.held_events = 0;
        let mut whole = std::mem::take(&mut self.held);
        if self.coalesce.is_some() && whole.len() > 1 {
            let kept = self.stream.between(1, (whole.len() as u64 - 1).min(40));
            self.held = whole.split_off(whole.len() - usize::try_from(kept).unwrap_or(1));
        }
        self.cut(whole, chunks);
    }

    /// What is still held leaves.
    pub(super) fn flush(&mut self, chunks: &mut Vec<Bytes>) {
        let rest = std::mem::take(&mut self.held);
        if !rest.is_empty() {
            self.cut(rest, chunks);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.crlf && byte == b'\n' {
                self.held.push(b'\r');
            }
            self.held.push(byte);
        }
    }

    /// Cuts at up to three random places, also inside a character.
    fn cut(&mut self, whole: Vec<u8>, chunks: &mut Vec<Bytes>) {
        let mut rest = Bytes::from(whole);
        if self.split {
            for _ in 0..self.stream.between(1, 3) {
                if rest.len() < 2 {
                    break;
                }
                let at = self.stream.between(1, rest.len() as u64 - 1);
                chunks.push(rest.split_to(usize::try_from(at).unwrap_or(1)));
            }
        }
        chunks.push(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bent(faults: &Faults, events: &[&str]) -> Vec<Bytes> {
        let mut bender = Bender::new(faults, &Seed::from(1), 0).unwrap();
        let mut chunks = Vec::new();
        for event in events {
            bender.bend(event.as_bytes(), &mut chunks);
        }
        bender.flush(&mut chunks);
        chunks
    }

    const EVENTS: [&str; 3] = ["data: é€😀\n\n", "data: b\n\n", "data: [DONE]\n\n"];

    #[test]
    fn bent_bytes_are_all_there() {
        for (split_chunks, coalesce) in [(true, None), (false, Some(2)), (true, Some(3))] {
            let faults = Faults {
                split_chunks,
                coalesce,
                ..Faults::default()
            };
            let chunks = bent(&faults, &EVENTS);
            assert_eq!(chunks.concat(), EVENTS.concat().as_bytes());
            assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
        }
    }

    #[test]
    fn line_ends_and_comments_follow_the_grammar() {
        let faults = Faults {
            crlf: true,
            comments: true,
            ..Faults::default()
        };
        let text = String::from_utf8(bent(&faults, &EVENTS).concat()).unwrap();
        let data: Vec<&str> = text
            .split("\r\n")
            .filter(|line| line.starts_with("data"))
            .collect();
        assert_eq!(data, ["data: é€😀", "data: b", "data: [DONE]"]);
        assert!(!text.replace("\r\n", "").contains('\n'));
    }

    #[test]
    fn nothing_is_bent_or_drawn_by_default() {
        let seed = Seed::from(1);
        assert!(Bender::new(&Faults::default(), &seed, 0).is_none());
        assert_eq!(fate(&Faults::default(), &seed, 0), Fate::default());
    }

    #[test]
    fn shares_are_met_and_seeded() {
        let faults = Faults {
            stall: 0.25,
            ..Faults::default()
        };
        let draw = |seed: u64| -> Vec<bool> {
            (0..2_000)
                .map(|number| fate(&faults, &Seed::from(seed), number).breaks.is_some())
                .collect()
        };
        let broken = draw(1).iter().filter(|&&breaks| breaks).count();
        assert!((440..560).contains(&broken), "{broken}");
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
