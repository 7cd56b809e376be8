//! Text of exact token length for each planned request: shared prefix, globally
//! unique seed, natural suffix. Pure; the tokenizer decides what is exact.

use std::sync::Arc;

use crate::units::{DpRank, GroupIndex};

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
    /// Digest of the first block after the shared prefix, as the server cuts
    /// blocks; unique across the data set.
    pub divergence_block_sha256: String,
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
