//! Text of exact token length for each planned request: shared prefix, globally
//! unique seed, natural suffix. Pure; the tokenizer decides what is exact.
//!
//! # How a prompt becomes exact
//!
//! Every text is put together from pieces whose ids are known: stretches of
//! corpus text, encoded as they stand after other text, and single-token words
//! that were tested to keep their id next to anything. Where a length ends
//! inside a character, or where the text before a cut would encode differently
//! without the text behind it, the cut moves back to the nearest clean place
//! and words fill the gap. A prompt is shipped only after one encoding of its
//! whole text has given the planned ids.
//!
//! # What keeps requests apart
//!
//! The server looks a prompt up block by block, and a special token in front
//! shifts its blocks against the prompt's own tokens. What no two requests have
//! in common is therefore the first block that is not shared as a whole, cut
//! either way; of the seed, its *head* lies in it.

mod builder;
mod canonical;
mod context;
mod passage;
mod pieces;
mod pool;
mod seeds;
mod words;

#[cfg(test)]
mod toys;

use std::sync::Arc;

use crate::tokenizer::TokenizerError;
use crate::units::{DpRank, GroupIndex};

pub use builder::{Builder, Options};

/// The prompt of one planned request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltPrompt {
    /// Place in the send order.
    pub index: usize,
    /// What is sent as text.
    pub text: String,
    /// Its ids, special tokens not included; exactly `input_tokens` of them.
    pub ids: Vec<u32>,
    /// Tokens of the natural suffix.
    pub natural_suffix_tokens: u64,
    /// Corpus lines of the suffix, zero-based.
    pub source_indices: Vec<u64>,
    /// SHA-256 of their normalized texts.
    pub source_sha256: Vec<String>,
    /// Digest of the group's canonical prefix ids.
    pub canonical_prefix_sha256: Arc<str>,
    /// Digest of the seed's ids.
    pub seed_sha256: String,
    /// The reference's name for the seed's digest; equal to `seed_sha256`.
    pub divergence_block_sha256: String,
    /// Digest of the first block after the shared prefix, as the server cuts
    /// blocks, as a tuple of ids; special tokens that are in it are left out.
    /// Unique across the data set.
    pub first_divergent_block_sha256: String,
}

/// The ids every request of a group begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalPrefix {
    /// Whose it is.
    pub group: GroupIndex,
    /// Its ids: at least the group's longest shared prefix and at least one
    /// block.
    pub ids: Vec<u32>,
    /// SHA-256 of the ids' list text, as the manifest has it.
    pub sha256: Arc<str>,
    /// Corpus lines it was made of, zero-based.
    pub source_indices: Vec<u64>,
    /// SHA-256 of their normalized texts.
    pub source_sha256: Vec<String>,
}

/// One request of the warm-up plan: a group's longest prefix and a unique seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmupPrompt {
    /// `warmup:<group>:<rank>`.
    pub request_id: String,
    /// Group whose prefix it brings into the cache.
    pub group: GroupIndex,
    /// Rank it is sent to.
    pub dp_rank: DpRank,
    /// What is sent.
    pub text: String,
    /// Its ids, special tokens not included.
    pub ids: Vec<u32>,
    /// Leading tokens that are the group's prefix.
    pub shared_prefix_tokens: u64,
}

/// Why prompts could not be built.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The tokenizer refused a text or ids.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A selection names a record that is not there.
    #[error("{group} selects record {index}, but the corpus has {record_count} records")]
    NoSuchRecord {
        /// Whose selection.
        group: GroupIndex,
        /// Zero-based.
        index: u64,
        /// Records of the corpus.
        record_count: usize,
    },
    /// A selection's digest fits no record, or several.
    #[error("{group} selects the text with digest `{sha256}`, which {match_count} records have")]
    DigestNotUnique {
        /// Whose selection.
        group: GroupIndex,
        /// As written.
        sha256: String,
        /// 0, or more than 1.
        match_count: usize,
    },
    /// A selected record whose text holds a special token.
    #[error("{group} selects record {index}, whose text holds the special token `{token}`")]
    SpecialToken {
        /// Whose selection.
        group: GroupIndex,
        /// Zero-based.
        index: u64,
        /// The token's text.
        token: String,
    },
    /// No record that a group may use has a token.
    #[error("no record that {group} may use encodes to ordinary tokens")]
    NoUsableRecord {
        /// Whose selection.
        group: GroupIndex,
    },
    /// No text of the corpus keeps its tokens when text follows it.
    #[error("no word of the corpus keeps its tokens when text follows it")]
    NoAnchor,
    /// A vocabulary without a single token that can be used alone.
    #[error("the tokenizer has no word that keeps its token next to others")]
    NoWords,
    /// Fewer different seeds than requests.
    #[error(
        "no unused seed is left for {request_id}: the tokenizer has {word_count} words that keep \
         their token next to others, and {head_tokens} of them tell two seeds apart"
    )]
    SeedsExhausted {
        /// Which request.
        request_id: String,
        /// Words to choose from.
        word_count: usize,
        /// Tokens of a seed that lie in the first block after the prefix.
        head_tokens: usize,
    },
    /// Nothing that was tried encodes to what was planned.
    #[error(
        "no text for {name} encodes to its planned tokens after {attempts} attempts; \
         the last one differs at token {position}"
    )]
    NoRoundTrip {
        /// A request's id or a group's name.
        name: String,
        /// How often it was tried.
        attempts: usize,
        /// First token that differs, zero-based.
        position: usize,
    },
}

impl PromptError {
    /// The stable code of the error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Tokenizer(error) => error.code(),
            Self::NoSuchRecord { .. } => "CORPUS_INDEX_OUT_OF_RANGE",
            Self::DigestNotUnique { .. } => "CORPUS_DIGEST_NOT_UNIQUE",
            Self::SpecialToken { .. } => "CORPUS_SPECIAL_TOKEN",
            Self::NoUsableRecord { .. } | Self::NoAnchor => "CORPUS_UNUSABLE",
            Self::NoWords | Self::SeedsExhausted { .. } => "SEEDS_EXHAUSTED",
            Self::NoRoundTrip { .. } => "PROMPT_NO_ROUND_TRIP",
        }
    }

    /// The way out, where there is one.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Tokenizer(error) => error.hint(),
            Self::SpecialToken { .. } => Some(
                "the server would read the token as a command; select other records, or use \
                 mode `random`, which leaves such records out",
            ),
            Self::SeedsExhausted { .. } => Some(
                "use a larger `tokenizer.block_size`, fewer requests, or the tokenizer of the \
                 model",
            ),
            _ => None,
        }
    }
}

/// A count of tokens as an index.
fn tokens(count: u64) -> usize {
    usize::try_from(count).expect("token counts fit the address space")
}
