//! Corpus records as stretches of text whose tokens are known, each encoded
//! once, when it is first needed. It refuses to know who uses which record.

use std::sync::OnceLock;

use crate::corpus::Corpus;
use crate::prompts::context::{Context, Place};
use crate::tokenizer::TokenizerError;

/// Longest stretch that is encoded as one, in bytes. Longer records are split
/// between words, so that a test of one cut stays cheap.
const PIECE_BYTES_MAX: usize = 1024;

/// Text and its tokens in their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where the text stands.
    pub(super) place: Place,
    /// What is written, a separating space in front included.
    pub(super) text: Box<str>,
    /// What it encodes to there; never empty, no special token.
    pub(super) ids: Box<[u32]>,
}

/// What a record has to offer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Its text after other text, in order.
    Usable(Vec<Piece>),
    /// It holds this special token.
    Special(u32),
    /// It has no tokens that could be used.
    Empty,
}

/// All records of a corpus, read on demand.
pub(super) struct Library<'a> {
    corpus: &'a Corpus,
    readings: Vec<OnceLock<Reading>>,
}

impl<'a> Library<'a> {
    pub(super) fn new(corpus: &'a Corpus) -> Self {
        Self {
            corpus,
            readings: (0..corpus.len()).map(|_| OnceLock::new()).collect(),
        }
    }

    pub(super) fn corpus(&self) -> &Corpus {
        self.corpus
    }

    /// What `record` offers after other text.
    pub(super) fn read(
        &self,
        context: &Context,
        record: usize,
    ) -> Result<&Reading, TokenizerError> {
        if let Some(reading) = self.readings[record].get() {
            return Ok(reading);
        }
        let reading = read(context, self.corpus.text(record))?;
        Ok(self.readings[record].get_or_init(|| reading))
    }

    /// The pieces of a usable record.
    pub(super) fn pieces(
        &self,
        context: &Context,
        record: usize,
    ) -> Result<&[Piece], TokenizerError> {
        match self.read(context, record)? {
            Reading::Usable(pieces) => Ok(pieces),
            Reading::Special(_) | Reading::Empty => Ok(&[]),
        }
    }

    /// The record's first piece as it stands at the start of a prompt.
    pub(super) fn first_piece(
        &self,
        context: &Context,
        record: usize,
    ) -> Result<Option<Piece>, TokenizerError> {
        let first = stretches(self.corpus.text(record)).next();
        match first {
            Some(text) => piece(context, Place::Start, text).map(Result::ok),
            None => Ok(None),
        }
    }
}

fn read(context: &Context, text: &str) -> Result<Reading, TokenizerError> {
    let mut pieces = Vec::new();
    for stretch in stretches(text) {
        match piece(context, Place::Inner, &format!(" {stretch}"))? {
            Ok(piece) => pieces.push(piece),
            Err(Unusable::Special(id)) => return Ok(Reading::Special(id)),
            Err(Unusable::NoTokens) => {}
        }
    }
    Ok(if pieces.is_empty() {
        Reading::Empty
    } else {
        Reading::Usable(pieces)
    })
}

enum Unusable {
    Special(u32),
    NoTokens,
}

/// The piece that `text` makes. A tokenizer that normalizes gives back another
/// text than it was given; that other text is written, if it has the same
/// tokens, because cuts are looked for in it.
fn piece(
    context: &Context,
    place: Place,
    text: &str,
) -> Result<Result<Piece, Unusable>, TokenizerError> {
    let ids = match context.encode(place, text)? {
        Some(ids) if !ids.is_empty() => ids,
        _ => return Ok(Err(Unusable::NoTokens)),
    };
    if let Some(special) = context.special(&ids) {
        return Ok(Err(Unusable::Special(special)));
    }
    let normalized = match context.decode(place, &ids)? {
        Some(decoded) if decoded != text && context.gives(place, &decoded, &ids)? => Some(decoded),
        _ => None,
    };
    Ok(Ok(Piece {
        place,
        text: normalized.map_or_else(|| text.into(), Into::into),
        ids: ids.into(),
    }))
}

/// `text` in stretches of at most [`PIECE_BYTES_MAX`] bytes, split at spaces
/// (which are left out), else between characters.
fn stretches(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if rest.len() <= PIECE_BYTES_MAX {
            return Some(std::mem::take(&mut rest));
        }
        let limit = (0..=PIECE_BYTES_MAX)
            .rev()
            .find(|at| rest.is_char_boundary(*at))
            .expect("0 is one");
        let end = rest[..limit]
            .rfind(' ')
            .filter(|at| *at > 0)
            .unwrap_or(limit);
        let (stretch, behind) = rest.split_at(end);
        rest = behind.strip_prefix(' ').unwrap_or(behind);
        Some(stretch)
    })
}

/// Bytes of the piece's text that its first `count` tokens are made of, if the
/// text can end there: between characters, with the same tokens as before, and
/// (where text follows) with a word behind it that changes none of them.
pub(super) fn clean_cut(
    context: &Context,
    piece: &Piece,
    count: usize,
    followed_by: &[(u32, &str)],
) -> Result<Option<usize>, TokenizerError> {
    let ids = &piece.ids[..count];
    let bytes = if count == piece.ids.len() {
        piece.text.len()
    } else {
        match context.decode(piece.place, ids)? {
            Some(text) if !text.is_empty() && piece.text.starts_with(&text) => text.len(),
            _ => return Ok(None),
        }
    };
    let text = &piece.text[..bytes];
    if !context.gives(piece.place, text, ids)? {
        return Ok(None);
    }
    for (id, word) in followed_by {
        let longer = [text, *word].concat();
        if !context.gives(piece.place, &longer, &[ids, &[*id]].concat())? {
            return Ok(None);
        }
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompts::toys;

    #[test]
    fn stretches_are_short_and_lose_only_the_spaces_between_them() {
        let words = "wörd ".repeat(1000);
        let text = words.trim_end();
        let parts: Vec<&str> = stretches(text).collect();
        assert!(parts.iter().all(|part| part.len() <= PIECE_BYTES_MAX));
        assert_eq!(parts.join(" "), text);
        let solid = "字".repeat(1000);
        let parts: Vec<&str> = stretches(&solid).collect();
        assert!(parts.iter().all(|part| part.len() <= PIECE_BYTES_MAX));
        assert_eq!(parts.concat(), solid);
    }

    /// Case O-TOK-5: `aéb` is [0, 2, 3, 1]; the cut after two tokens lies inside
    /// the é and is refused, the ones around it are clean.
    #[test]
    fn a_cut_inside_a_character_is_refused() {
        let context = toys::context(toys::bytes(), "aéb");
        let piece = Piece {
            place: Place::Start,
            text: "aéb".into(),
            ids: [0, 2, 3, 1].into(),
        };
        let cut = |count| clean_cut(&context, &piece, count, &[]).unwrap();
        assert_eq!(
            (cut(1), cut(2), cut(3), cut(4)),
            (Some(1), None, Some(3), Some(4))
        );
    }

    /// Case O-TOK-1: with `by` behind it, the a of `xa` becomes `ab`.
    #[test]
    fn a_cut_that_merges_with_what_follows_is_refused() {
        let context = toys::context(toys::merging(), "xa cy");
        let piece = Piece {
            place: Place::Start,
            text: "xa cy".into(),
            ids: [0, 1, 7, 3].into(),
        };
        let cut = |id, word| clean_cut(&context, &piece, 2, &[(id, word)]).unwrap();
        assert_eq!(cut(2, "b"), None);
        assert_eq!(cut(7, " c"), Some(2));
    }
}
