//! Text to token ids and back, behind one trait. The room knows tokenizer
//! files and nothing of prompts. Only `load.rs` touches files, and `hub.rs` the
//! network.

#[cfg(feature = "fast-tokenizer")]
mod fast;
#[cfg(feature = "hub")]
mod hub;
mod hugging_face;
mod load;

use std::path::PathBuf;

pub use hugging_face::HfTokenizer;
pub use load::{load, locate, resolve};

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

/// Why a tokenizer could not be had, or could not do its work.
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
    /// Nothing was found under the name.
    #[error("no tokenizer `{name}`; looked at {}", listed(.looked_at))]
    NotFound {
        /// `tokenizer.path` as written.
        name: String,
        /// Every place that was looked at, in order.
        looked_at: Vec<PathBuf>,
    },
    /// A directory that holds no `tokenizer.json`.
    #[error("no `tokenizer.json` in `{}`", .directory.display())]
    NoTokenizerJson {
        /// The directory.
        directory: PathBuf,
    },
    /// The file could not be read.
    #[error("cannot read the tokenizer `{}`: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is in no local cache, and could not be downloaded.
    #[error(
        "no tokenizer `{name}`; looked at {}, and could not download it: {message}",
        listed(.looked_at)
    )]
    Download {
        /// The model's id.
        name: String,
        /// What the library said.
        message: String,
        /// Every place that was looked at, in order.
        looked_at: Vec<PathBuf>,
    },
    /// The file is no tokenizer that can be used.
    #[error("`{path}` is not a usable tokenizer: {message}")]
    Invalid {
        /// The file, or the name it goes by.
        path: String,
        /// What is wrong with it.
        message: String,
    },
}

impl TokenizerError {
    /// The stable code of the error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Library { .. } => "TOKENIZER_FAILED",
            Self::NotFound { .. } => "TOKENIZER_NOT_FOUND",
            Self::NoTokenizerJson { .. } => "TOKENIZER_JSON_MISSING",
            Self::Download { .. } => "TOKENIZER_DOWNLOAD_FAILED",
            Self::Unreadable { .. } => "TOKENIZER_UNREADABLE",
            Self::Invalid { .. } => "TOKENIZER_INVALID",
        }
    }

    /// The way out, where there is one.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some(
                "`tokenizer.path` is a directory with a tokenizer.json, that file itself, or the \
                 id of a model whose files are in the local Hugging Face cache (HF_HOME); \
                 `hf download ID tokenizer.json` puts it there, or a pcload built with the \
                 feature `hub` gets it (unless HF_HUB_OFFLINE is set)",
            ),
            Self::NoTokenizerJson { .. } => Some(
                "make one with Python: \
                 transformers.AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
            ),
            _ => None,
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| format!("`{}`", path.display()))
        .collect();
    paths.join(", ")
}
