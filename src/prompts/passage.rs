//! Puts text of an exact number of tokens together from records, with places
//! inside where it can be cut. It refuses to know prefixes and suffixes.

use crate::prompts::PromptError;
use crate::prompts::context::{Context, Place};
use crate::prompts::pieces::{Library, Piece, clean_cut};
use crate::prompts::words::Words;
use crate::rng::Stream;
use crate::tokenizer::TokenizerError;

/// Tokens that a cut moves back at most before the whole piece is left out. A
/// character has at most four bytes, and few scripts string more than a dozen
/// marks together.
const CUT_BACK_TOKENS_MAX: usize = 64;

/// Text, its tokens, and where it can be cut.
#[derive(Debug, Default)]
pub(super) struct Passage {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
    /// Records it is made of, in order.
    pub(super) records: Vec<usize>,
    /// Each stop in tokens, and the bytes of text in front of it.
    stops: Vec<(usize, usize)>,
}

impl Passage {
    /// The text in front of `stop`, which is one of the stops, or 0.
    pub(super) fn text_before(&self, stop: usize) -> &str {
        let found = self
            .stops
            .binary_search_by_key(&stop, |(tokens, _)| *tokens);
        assert!(
            found.is_ok() || stop == 0,
            "{stop} is no stop of the passage"
        );
        found.map_or("", |found| &self.text[..self.stops[found].1])
    }
}

/// What passages are made of.
#[derive(Clone, Copy)]
pub(super) struct Materials<'a> {
    pub(super) context: &'a Context,
    pub(super) words: &'a Words,
    pub(super) library: &'a Library<'a>,
}

/// What is asked of a passage.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    /// Where it stands.
    pub(super) place: Place,
    /// Tokens after which it can be cut, ascending; the last is its length.
    pub(super) stops: &'a [usize],
    /// Whether a word follows at each stop.
    pub(super) followed: bool,
    /// Words it begins with.
    pub(super) lead_words: usize,
}

/// Writes the records one after the other, separated by a space, until the last
/// stop. Where a stop is no clean place for a cut, the text in front of it is
/// shortened and words fill the gap; it goes on with the next record.
pub(super) fn compose(
    materials: Materials<'_>,
    records: impl Iterator<Item = usize>,
    order: Order<'_>,
    stream: &mut Stream,
) -> Result<Passage, PromptError> {
    let mut writer = Writer {
        materials,
        order,
        stream,
        passage: Passage::default(),
        natural_tokens: 0,
    };
    if order.stops.is_empty() {
        return Ok(writer.passage);
    }
    let lead = order.lead_words.min(order.stops[0]);
    writer.fill(lead);
    for record in records {
        let before = writer.natural_tokens;
        writer.write_record(record)?;
        if writer.natural_tokens > before {
            writer.passage.records.push(record);
        }
        if writer.stop().is_none() {
            break;
        }
    }
    assert_eq!(
        writer.passage.ids.len(),
        order.stops[order.stops.len() - 1],
        "records come without end, and each brings tokens"
    );
    Ok(writer.passage)
}

/// A passage of words alone.
pub(super) fn compose_words(
    words: &Words,
    place: Place,
    stops: &[usize],
    stream: &mut Stream,
) -> Passage {
    let mut passage = Passage::default();
    for &stop in stops {
        while passage.ids.len() < stop {
            push_drawn_word(&mut passage, words, place, stream);
        }
        passage.stops.push((stop, passage.text.len()));
    }
    passage
}

fn push_drawn_word(passage: &mut Passage, words: &Words, start: Place, stream: &mut Stream) {
    let place = if passage.ids.is_empty() {
        start
    } else {
        Place::Inner
    };
    let word = words.draw(stream, place);
    passage.ids.push(words.id(word));
    passage
        .text
        .push_str(words.text(word, place).expect("a word drawn for its place"));
}

/// What becomes of a piece.
enum Written {
    /// All of it is there.
    Whole,
    /// A gap had to be filled, or the last stop is reached.
    Broken,
}

struct Writer<'a> {
    materials: Materials<'a>,
    order: Order<'a>,
    stream: &'a mut Stream,
    passage: Passage,
    /// Tokens that are no filling words.
    natural_tokens: usize,
}

impl Writer<'_> {
    /// The next stop; `None` at the end.
    fn stop(&self) -> Option<usize> {
        self.order.stops.get(self.passage.stops.len()).copied()
    }

    fn write_record(&mut self, record: usize) -> Result<(), TokenizerError> {
        let Materials {
            context, library, ..
        } = self.materials;
        let mut rest = library.pieces(context, record)?;
        if self.passage.ids.is_empty() && self.order.place == Place::Start {
            if let Some(first) = library.first_piece(context, record)? {
                rest = &rest[1.min(rest.len())..];
                if let Written::Broken = self.write_piece(&first)? {
                    return Ok(());
                }
            } else {
                self.fill(1);
                self.end_at_stop();
            }
        }
        for piece in rest {
            if let Written::Broken = self.write_piece(piece)? {
                break;
            }
        }
        Ok(())
    }

    fn write_piece(&mut self, piece: &Piece) -> Result<Written, TokenizerError> {
        let mut from = Cut::default();
        loop {
            let Some(stop) = self.stop() else {
                return Ok(Written::Broken);
            };
            let wanted = from.tokens + (stop - self.passage.ids.len());
            if piece.ids.len() < wanted {
                let all = Cut {
                    tokens: piece.ids.len(),
                    bytes: piece.text.len(),
                };
                self.append(piece, from, all);
                return Ok(Written::Whole);
            }
            let cut = self.last_clean_cut(piece, from, wanted)?;
            self.append(piece, from, cut);
            self.fill(wanted - cut.tokens);
            self.end_at_stop();
            if cut.tokens < wanted {
                return Ok(Written::Broken);
            }
            if cut.tokens == piece.ids.len() {
                return Ok(Written::Whole);
            }
            from = cut;
        }
    }

    /// The last clean cut of `piece` behind `from` and at most `wanted` tokens
    /// from its start; `from` itself where there is none.
    fn last_clean_cut(
        &self,
        piece: &Piece,
        from: Cut,
        wanted: usize,
    ) -> Result<Cut, TokenizerError> {
        let Materials { context, words, .. } = self.materials;
        let samples: Vec<(u32, &str)> = if self.order.followed {
            words.samples()
        } else {
            Vec::new()
        };
        let candidates = (from.tokens + 1..=wanted).rev();
        for tokens in candidates.take(CUT_BACK_TOKENS_MAX) {
            // In front of a filling word the cut has to bear a word as well.
            let follows: &[(u32, &str)] = if tokens < wanted && samples.is_empty() {
                &words.samples()
            } else {
                &samples
            };
            if let Some(bytes) = clean_cut(context, piece, tokens, follows)? {
                return Ok(Cut { tokens, bytes });
            }
        }
        Ok(from)
    }

    fn append(&mut self, piece: &Piece, from: Cut, to: Cut) {
        self.passage
            .ids
            .extend_from_slice(&piece.ids[from.tokens..to.tokens]);
        self.passage
            .text
            .push_str(&piece.text[from.bytes..to.bytes]);
        self.natural_tokens += to.tokens - from.tokens;
    }

    fn fill(&mut self, count: usize) {
        for _ in 0..count {
            push_drawn_word(
                &mut self.passage,
                self.materials.words,
                self.order.place,
                self.stream,
            );
        }
    }

    fn end_at_stop(&mut self) {
        if let Some(stop) = self.stop()
            && self.passage.ids.len() == stop
        {
            self.passage.stops.push((stop, self.passage.text.len()));
        }
    }
}

/// A place inside a piece.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    tokens: usize,
    bytes: usize,
}
