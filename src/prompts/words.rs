//! Words of exactly one token that keep their token next to each other: the
//! letters that seeds are written in, and what fills the gap in front of a cut.
//! It refuses to know which word goes where.

use crate::prompts::PromptError;
use crate::prompts::context::{Context, Place};
use crate::rng::Stream;
use crate::tokenizer::TokenizerError;

/// Words that are looked for even where fewer would do: seeds then look varied.
const WORDS_MIN: usize = 256;

/// Seeds that could be made, for each one that is needed: so many that a random
/// one is hardly ever taken.
const SPARE_SEEDS: u128 = 1024;

/// Words of the last resort (single letters, syllables): each is tested against
/// every other, so their number is small.
const FRAGMENTS_MAX: usize = 64;

/// Words tested in one go.
const BATCH: usize = 32;

/// Word of a [`Words`] table.
pub(super) type WordIndex = usize;

/// The words of a tokenizer; one of them at least can stand anywhere.
pub(super) struct Words {
    words: Vec<Word>,
}

struct Word {
    id: u32,
    /// Text after other text, with its space in front where it has one.
    inner: Box<str>,
    /// Text at the start of a prompt; `None` where no text gives the token.
    start: Option<Box<str>>,
}

impl Words {
    /// Finds words in the vocabulary, lowest ids first (in trained vocabularies
    /// the most frequent), until `seed_count` seeds that differ in their first
    /// `head_tokens` tokens are easily found.
    pub(super) fn find(
        context: &Context,
        head_tokens: usize,
        seed_count: usize,
    ) -> Result<Self, PromptError> {
        let wanted = wanted(head_tokens, seed_count);
        let mut found = Candidates::default();
        let vocab_size = context.tokenizer().vocab_size();
        for id in 0..u32::try_from(vocab_size).unwrap_or(u32::MAX) {
            if found.plain.len() >= wanted {
                break;
            }
            found.look_at(context, id)?;
        }
        let mut words = Self { words: Vec::new() };
        words.add_tested(context, found.plain)?;
        if words.len() < wanted {
            words.add_tested(context, found.spaced)?;
        }
        if words.len() < FRAGMENTS_MAX {
            words.add_fragments(context, found.fragments)?;
        }
        words.words.truncate(wanted);
        if words.words.iter().all(|word| word.start.is_none()) {
            return Err(PromptError::NoWords);
        }
        Ok(words)
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    pub(super) fn id(&self, word: WordIndex) -> u32 {
        self.words[word].id
    }

    /// Text of the word in its place; `None` where no text gives its token.
    pub(super) fn text(&self, word: WordIndex, place: Place) -> Option<&str> {
        let word = &self.words[word];
        match place {
            Place::Start => word.start.as_deref(),
            Place::Inner => Some(&word.inner),
        }
    }

    /// A random word that can stand in `place`.
    pub(super) fn draw(&self, stream: &mut Stream, place: Place) -> WordIndex {
        let count = self.words.len();
        let first = usize::try_from(stream.below(count as u64)).expect("below a usize");
        (0..count)
            .map(|step| (first + step) % count)
            .find(|word| self.text(*word, place).is_some())
            .expect("one word can stand anywhere")
    }

    /// A few words that stand for all of them where a cut is tested: ids and
    /// texts after other text.
    pub(super) fn samples(&self) -> Vec<(u32, &str)> {
        let places = [0, self.words.len() / 2];
        let count = if places[1] == 0 { 1 } else { 2 };
        places[..count]
            .iter()
            .map(|place| (self.words[*place].id, &*self.words[*place].inner))
            .collect()
    }

    /// Adds candidates in batches; a batch whose text does not give its ids is
    /// taken apart.
    fn add_tested(
        &mut self,
        context: &Context,
        candidates: Vec<Candidate>,
    ) -> Result<(), PromptError> {
        let mut rest = candidates.into_iter().peekable();
        while rest.peek().is_some() {
            let batch: Vec<Candidate> = rest.by_ref().take(BATCH).collect();
            let there_and_back: Vec<&Candidate> = batch.iter().chain(batch.iter().rev()).collect();
            if stand_together(context, &there_and_back)? {
                for candidate in batch {
                    self.push(context, candidate)?;
                }
                continue;
            }
            for candidate in batch {
                let mut row = vec![&candidate, &candidate];
                let last = self.words.last().map(Candidate::of);
                if let Some(last) = &last {
                    row.extend([last, &candidate]);
                }
                if stand_together(context, &row)? {
                    self.push(context, candidate)?;
                }
            }
        }
        Ok(())
    }

    /// Adds candidates that keep their token next to every word and fragment
    /// taken so far.
    fn add_fragments(
        &mut self,
        context: &Context,
        candidates: Vec<Candidate>,
    ) -> Result<(), PromptError> {
        for candidate in candidates {
            if self.words.len() >= FRAGMENTS_MAX {
                break;
            }
            let mut fits = stand_together(context, &[&candidate, &candidate])?;
            for other in &self.words {
                let other = Candidate::of(other);
                fits = fits
                    && stand_together(context, &[&candidate, &other])?
                    && stand_together(context, &[&other, &candidate])?;
            }
            if fits {
                self.push(context, candidate)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, context: &Context, candidate: Candidate) -> Result<(), TokenizerError> {
        let Candidate { id, inner } = candidate;
        let start = context.decode(Place::Start, &[id])?;
        let start = match start {
            Some(text) if context.gives(Place::Start, &text, &[id])? => Some(text.into()),
            _ => None,
        };
        self.words.push(Word { id, inner, start });
        Ok(())
    }
}

/// How many words are looked for.
fn wanted(head_tokens: usize, seed_count: usize) -> usize {
    let needed = seed_count as u128;
    if head_tokens == 1 {
        return WORDS_MIN.max(seed_count.saturating_mul(2));
    }
    let power = u32::try_from(head_tokens).unwrap_or(u32::MAX);
    let mut count = WORDS_MIN;
    while (count as u128).saturating_pow(power) < needed.saturating_mul(SPARE_SEEDS) {
        count *= 2;
    }
    count
}

/// What the vocabulary offers, by how word-like it is.
#[derive(Default)]
struct Candidates {
    /// A space and ASCII letters, at least two.
    plain: Vec<Candidate>,
    /// A space and letters or digits of any script.
    spaced: Vec<Candidate>,
    /// Any other text of one token.
    fragments: Vec<Candidate>,
}

#[derive(Clone)]
struct Candidate {
    id: u32,
    inner: Box<str>,
}

impl Candidate {
    fn of(word: &Word) -> Self {
        Self {
            id: word.id,
            inner: word.inner.clone(),
        }
    }
}

impl Candidates {
    /// Sorts the token `id` in, if its text gives it back.
    fn look_at(&mut self, context: &Context, id: u32) -> Result<(), TokenizerError> {
        if context.special(&[id]).is_some() {
            return Ok(());
        }
        let Some(inner) = context.decode(Place::Inner, &[id])? else {
            return Ok(());
        };
        let word = inner.strip_prefix(' ').unwrap_or_default();
        let list = if word.len() > 1 && word.bytes().all(|letter| letter.is_ascii_alphabetic()) {
            &mut self.plain
        } else if !word.is_empty() && word.chars().all(char::is_alphanumeric) {
            &mut self.spaced
        } else if inner.contains(char::REPLACEMENT_CHARACTER)
            || inner.chars().all(char::is_whitespace)
            || self.fragments.len() >= 4 * FRAGMENTS_MAX
        {
            return Ok(());
        } else {
            &mut self.fragments
        };
        if context.gives(Place::Inner, &inner, &[id])? {
            list.push(Candidate {
                id,
                inner: inner.into(),
            });
        }
        Ok(())
    }
}

/// Whether the words written one after the other keep their tokens.
fn stand_together(context: &Context, row: &[&Candidate]) -> Result<bool, TokenizerError> {
    let text: String = row.iter().map(|word| &*word.inner).collect();
    let ids: Vec<u32> = row.iter().map(|word| word.id).collect();
    context.gives(Place::Inner, &text, &ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_words_are_looked_for() {
        assert_eq!(wanted(16, 100_000), WORDS_MIN);
        assert_eq!(wanted(1, 10_000), 20_000);
        // 4,096 squared is 16.7 million, 1,024 seeds for each of 10,000.
        assert_eq!(wanted(2, 10_000), 4096);
    }
}
