//! A tokenizer for tests: one token a word (with the blank before it) or a
//! punctuation mark, ids given out in order of appearance above a fixed list.
//! Its fixed ids are those the recorded servers gave, so that recorded
//! answers come out the same.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tokenizer::{Identity, Tokenizer, TokenizerError};

/// Entries of the vocabulary, as in the recorded servers' model.
const VOCABULARY: usize = 151_665;
const SPECIAL: [(u32, &str); 3] = [
    (151_643, "<|endoftext|>"),
    (151_644, "<|im_start|>"),
    (151_645, "<|im_end|>"),
];
const KNOWN: [(u32, &str); 6] = [
    (9_707, "Hello"),
    (11, ","),
    (847, " my"),
    (829, " name"),
    (374, " is"),
    // The first half of some character.
    (65_185, "\u{fffd}"),
];

/// The tokenizer.
#[derive(Debug)]
pub struct Toy {
    names: Mutex<Names>,
    special: [u32; 3],
    identity: Identity,
    prefix: Vec<u32>,
}

#[derive(Debug, Default)]
struct Names {
    ids: BTreeMap<String, u32>,
    texts: BTreeMap<u32, String>,
}

impl Default for Toy {
    fn default() -> Self {
        let mut names = Names::default();
        for (id, text) in SPECIAL.into_iter().chain(KNOWN) {
            names.ids.insert(text.to_owned(), id);
            names.texts.insert(id, text.to_owned());
        }
        Self {
            names: Mutex::new(names),
            special: SPECIAL.map(|(id, _)| id),
            identity: Identity {
                class: "toy".to_owned(),
                path: "toy".to_owned(),
                revision: None,
                file_sha256: String::new(),
            },
            prefix: Vec::new(),
        }
    }
}

impl Toy {
    /// The same with a token in front of every text.
    pub fn with_bos() -> Self {
        Self {
            prefix: vec![SPECIAL[0].0],
            ..Self::default()
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next token of `text`, which is not empty.
fn next_token(text: &str) -> &str {
    if let Some((_, special)) = SPECIAL.iter().find(|(_, name)| text.starts_with(name)) {
        return special;
    }
    // The one name that the recorded servers cut in two.
    if text.starts_with(" Qwen") {
        return " Q";
    }
    let mut chars = text.char_indices();
    let first = chars.next().map_or(' ', |(_, char)| char);
    let second = chars.next();
    let blank_word = first == ' ' && second.is_some_and(|(_, char)| char.is_alphanumeric());
    if !first.is_alphanumeric() && !blank_word {
        return &text[..first.len_utf8()];
    }
    let end = text
        .char_indices()
        .skip(1)
        .find(|(_, char)| !char.is_alphanumeric())
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}

impl Tokenizer for Toy {
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut names = self.names();
        let mut ids = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let token = next_token(rest);
            rest = &rest[token.len()..];
            let fresh = 100_000 + u32::try_from(names.ids.len()).unwrap_or(0);
            let id = *names.ids.entry(token.to_owned()).or_insert(fresh);
            names.texts.insert(id, token.to_owned());
            ids.push(id);
        }
        Ok(ids)
    }

    fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let names = self.names();
        let text = |id: &u32| names.texts.get(id).cloned();
        Ok(ids
            .iter()
            .map(|id| text(id).unwrap_or_else(|| format!(" w{id}")))
            .collect())
    }

    fn vocab_size(&self) -> usize {
        VOCABULARY
    }

    fn special_ids(&self) -> &[u32] {
        &self.special
    }

    fn prefix_ids(&self) -> &[u32] {
        &self.prefix
    }

    fn suffix_ids(&self) -> &[u32] {
        &[]
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}
