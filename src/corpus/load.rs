//! Reads a corpus file. It refuses to know what stands in it.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: the one place where a corpus is read"
)]

use std::fs;
use std::path::Path;

use crate::corpus::{Corpus, CorpusError, parse};

/// Reads the corpus at `path`, with the text of each line under `field`.
pub fn load(path: &Path, field: &str) -> Result<Corpus, CorpusError> {
    let bytes = fs::read(path).map_err(|source| CorpusError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    parse(&bytes, field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named() {
        let error = load(Path::new("/nowhere/corpus.jsonl"), "question").unwrap_err();
        assert_eq!(error.code(), "CORPUS_UNREADABLE");
        assert!(error.to_string().contains("/nowhere/corpus.jsonl"));
    }
}
