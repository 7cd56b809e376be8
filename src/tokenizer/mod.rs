//! Text to token ids and back, behind one trait. The room knows tokenizer
//! files and nothing of prompts. Only `load.rs` touches files.

/// A tokenizer as a completions server applies it to a text prompt.
///
/// `encode` never adds special tokens; a special token's text inside the input
/// becomes its id, as it does on the server.
pub trait Tokenizer: Send + Sync {
    /// Ids of `text`, nothing added.
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError>;

    /// Text of `ids`, special tokens kept, no clean-up of spaces.
    fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError>;

    /// Number of entries, added tokens included; ids are below it.
    fn vocab_size(&self) -> usize;

    /// Ids of all special tokens, ascending.
    fn special_ids(&self) -> &[u32];

    /// What the post-processor puts in front of a single text (a BOS, usually).
    fn prefix_ids(&self) -> &[u32];

    /// What the post-processor puts behind a single text.
    fn suffix_ids(&self) -> &[u32];

    /// Which tokenizer this is.
    fn identity(&self) -> &Identity;
}

/// What identifies a tokenizer in manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Kind of model, e.g. `tokenizers.BPE`.
    pub class: String,
    /// Path or id as the scenario has it.
    pub path: String,
    /// Revision as the scenario has it.
    pub revision: Option<String>,
    /// SHA-256 of `tokenizer.json`, lowercase hex.
    pub file_sha256: String,
}

/// Why a tokenizer could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The library refused.
    #[error("the tokenizer failed to {action}: {message}")]
    Library {
        /// `encode` or `decode`.
        action: &'static str,
        /// The library's own words.
        message: String,
    },
}
