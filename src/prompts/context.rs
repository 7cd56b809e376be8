//! Tokens of a text by the place where it stands: at the start of a prompt, or
//! after other text. The two differ for tokenizers that put a space in front of
//! the first word. It refuses to know what the texts are for.

use std::sync::Arc;

use crate::prompts::PromptError;
use crate::tokenizer::{Tokenizer, TokenizerError};

/// Longest anchor, in bytes: it is encoded together with every text of which the
/// tokens are asked.
const ANCHOR_BYTES_MAX: usize = 64;

/// Words of one kind that are tried as anchors.
const ANCHORS_MAX: usize = 1000;

/// Where a text stands in its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing is in front of it.
    Start,
    /// Some text is in front of it.
    Inner,
}

/// A tokenizer and a word to stand in for "other text".
pub(super) struct Context {
    tokenizer: Arc<dyn Tokenizer>,
    anchor: String,
    anchor_ids: Vec<u32>,
    anchor_decoded: String,
}

impl Context {
    /// Chooses the anchor among the words of `texts`: the first one of plain
    /// letters that keeps its tokens when it follows itself, else the first
    /// short one of any kind, else the first character of one.
    pub(super) fn new<'a>(
        tokenizer: Arc<dyn Tokenizer>,
        texts: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Self, PromptError> {
        let is_short = |word: &&str| word.len() <= ANCHOR_BYTES_MAX;
        let is_plain =
            |word: &&str| word.len() > 1 && word.bytes().all(|letter| letter.is_ascii_alphabetic());
        let words = texts.flat_map(str::split_whitespace);
        let short = words.clone().filter(is_short);
        let plain = short.clone().filter(is_plain);
        let first = words.filter_map(|word| word.split_inclusive(|_| true).next());
        let candidates = plain
            .take(ANCHORS_MAX)
            .chain(short.take(ANCHORS_MAX))
            .chain(first.take(ANCHORS_MAX));
        for word in candidates {
            if let Some((anchor_ids, anchor_decoded)) = keeps_tokens(&*tokenizer, word)? {
                return Ok(Self {
                    tokenizer,
                    anchor: word.to_owned(),
                    anchor_ids,
                    anchor_decoded,
                });
            }
        }
        Err(PromptError::NoAnchor)
    }

    pub(super) fn tokenizer(&self) -> &dyn Tokenizer {
        &*self.tokenizer
    }

    /// Ids of `text` in its place; `None` where it would change the tokens of
    /// the text in front of it.
    pub(super) fn encode(
        &self,
        place: Place,
        text: &str,
    ) -> Result<Option<Vec<u32>>, TokenizerError> {
        match place {
            Place::Start => self.tokenizer.encode(text).map(Some),
            Place::Inner => {
                let mut ids = self
                    .tokenizer
                    .encode(&[self.anchor.as_str(), text].concat())?;
                if !ids.starts_with(&self.anchor_ids) {
                    return Ok(None);
                }
                ids.drain(..self.anchor_ids.len());
                Ok(Some(ids))
            }
        }
    }

    /// Text of `ids` in their place; `None` where they would change the text in
    /// front of them.
    pub(super) fn decode(
        &self,
        place: Place,
        ids: &[u32],
    ) -> Result<Option<String>, TokenizerError> {
        match place {
            Place::Start => self.tokenizer.decode(ids).map(Some),
            Place::Inner => {
                let whole = self
                    .tokenizer
                    .decode(&[self.anchor_ids.as_slice(), ids].concat())?;
                Ok(whole
                    .strip_prefix(&self.anchor_decoded)
                    .map(ToOwned::to_owned))
            }
        }
    }

    /// Whether `text` in its place encodes to `ids`.
    pub(super) fn gives(
        &self,
        place: Place,
        text: &str,
        ids: &[u32],
    ) -> Result<bool, TokenizerError> {
        Ok(self.encode(place, text)?.is_some_and(|found| found == ids))
    }

    /// The first special token among `ids`.
    pub(super) fn special(&self, ids: &[u32]) -> Option<u32> {
        let special = self.tokenizer.special_ids();
        ids.iter()
            .copied()
            .find(|id| special.binary_search(id).is_ok())
    }

    /// Whether the whole `text` encodes to `ids`; else the first token that
    /// differs.
    pub(super) fn prove(
        &self,
        text: &str,
        ids: &[u32],
    ) -> Result<Result<(), Mismatch>, TokenizerError> {
        let found = self.tokenizer.encode(text)?;
        if found == ids {
            return Ok(Ok(()));
        }
        let position = found.iter().zip(ids).take_while(|(a, b)| a == b).count();
        Ok(Err(Mismatch { position }))
    }
}

/// A text that does not encode to what was planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mismatch {
    /// First token that differs.
    pub(super) position: usize,
}

/// Ids and decoded text of `word`, if it has ordinary ids and keeps them when
/// it stands in front of itself.
fn keeps_tokens(
    tokenizer: &dyn Tokenizer,
    word: &str,
) -> Result<Option<(Vec<u32>, String)>, TokenizerError> {
    let ids = tokenizer.encode(word)?;
    let special = tokenizer.special_ids();
    if ids.is_empty() || ids.iter().any(|id| special.binary_search(id).is_ok()) {
        return Ok(None);
    }
    let twice = tokenizer.encode(&format!("{word} {word}"))?;
    if !twice.starts_with(&ids) || twice.len() == ids.len() {
        return Ok(None);
    }
    let decoded = tokenizer.decode(&ids)?;
    let follows = tokenizer.decode(&twice)?.starts_with(&decoded);
    Ok((follows && !decoded.is_empty()).then_some((ids, decoded)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompts::toys;

    /// Case O-TOK-3: [1, 2, 3] decodes to a text that gives [2, 3].
    #[test]
    fn a_lost_space_is_seen() {
        let context = toys::context(toys::metaspace(), "hello world");
        let text = context.decode(Place::Start, &[1, 2, 3]).unwrap().unwrap();
        assert_eq!(text, " hello world");
        let proof = context.prove(&text, &[1, 2, 3]).unwrap();
        assert_eq!(proof.unwrap_err().position, 0);
        assert!(context.prove(&text, &[2, 3]).unwrap().is_ok());
    }

    #[test]
    fn text_is_encoded_as_it_stands() {
        let context = toys::context(toys::metaspace(), "world hello");
        let encode = |place, text| context.encode(place, text).unwrap().unwrap();
        assert_eq!(encode(Place::Start, "hello"), [2]);
        assert_eq!(encode(Place::Inner, " hello"), [2]);
        assert_eq!(encode(Place::Inner, "hello"), [4, 5, 6, 6, 7]);
        assert_eq!(encode(Place::Start, "world hello"), [3, 2]);
    }

    #[test]
    fn text_that_merges_with_what_is_in_front_has_no_tokens_of_its_own() {
        let context = toys::context(toys::merging(), "a");
        assert_eq!(context.encode(Place::Inner, "b").unwrap(), None);
        assert_eq!(context.encode(Place::Inner, " c").unwrap(), Some(vec![7]));
    }
}
