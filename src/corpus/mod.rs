//! Passages out of JSONL bytes: one normalized text a line. The room knows
//! nothing of tokens, nor of who uses which text. Only `load.rs` touches files.

mod load;
mod parse;

use std::path::PathBuf;

pub use load::load;
pub use parse::parse;

use crate::units::sha256_hex;

/// All texts of a corpus file, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    texts: Vec<Box<str>>,
    sha256: String,
}

impl Corpus {
    /// Number of records; their indices are below it.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is no record. [`parse`] refuses such a file.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Text of record `index` (zero-based among the lines that are not blank):
    /// words with one space between them.
    pub fn text(&self, index: usize) -> &str {
        &self.texts[index]
    }

    /// SHA-256 of the record's text, lowercase hex.
    pub fn text_sha256(&self, index: usize) -> String {
        sha256_hex(self.text(index).as_bytes())
    }

    /// SHA-256 of the file's bytes, lowercase hex.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

/// Why a file is no corpus.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// The file could not be read.
    #[error("cannot read the corpus `{}`: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are not UTF-8.
    #[error("the corpus is not UTF-8: line {line} has an invalid byte")]
    NotUtf8 {
        /// Line of the byte, from 1.
        line: usize,
    },
    /// No line holds anything.
    #[error("the corpus has no records")]
    Empty,
    /// A line that is no JSON object.
    #[error("line {line} of the corpus is not a JSON object: {message}")]
    NotAnObject {
        /// From 1.
        line: usize,
        /// What the parser found.
        message: String,
    },
    /// A line without the field.
    #[error("line {line} of the corpus has no field `{field}`")]
    FieldMissing {
        /// From 1.
        line: usize,
        /// `corpus.field`.
        field: String,
    },
    /// A field that is no text.
    #[error("`{field}` in line {line} of the corpus must be a string, not {found}")]
    NotAString {
        /// From 1.
        line: usize,
        /// `corpus.field`.
        field: String,
        /// What stands there.
        found: String,
    },
    /// A text without a single visible character.
    #[error("`{field}` in line {line} of the corpus is blank")]
    Blank {
        /// From 1.
        line: usize,
        /// `corpus.field`.
        field: String,
    },
}

impl CorpusError {
    /// The stable code of the error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "CORPUS_UNREADABLE",
            Self::NotUtf8 { .. } => "CORPUS_NOT_UTF8",
            Self::Empty => "CORPUS_EMPTY",
            Self::NotAnObject { .. }
            | Self::FieldMissing { .. }
            | Self::NotAString { .. }
            | Self::Blank { .. } => "CORPUS_INVALID",
        }
    }

    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::FieldMissing { field, .. } => Some(format!(
                "`corpus.field` names the key of the text in every line; it is `{field}` now"
            )),
            _ => None,
        }
    }
}
