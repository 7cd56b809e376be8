//! Small tokenizers for the tests of the room; the files lie in `tests/data`.

use std::sync::Arc;

use crate::prompts::context::Context;
use crate::tokenizer::{HfTokenizer, Tokenizer};

/// Byte-level BPE in which `a b` and `Ġ c` merge.
pub(super) fn merging() -> Arc<dyn Tokenizer> {
    read(include_str!("../../tests/data/prompts/toy-merging.json"))
}

/// Metaspace with a dummy prefix in front of the first word.
pub(super) fn metaspace() -> Arc<dyn Tokenizer> {
    read(include_str!("../../tests/data/prompts/toy-metaspace.json"))
}

/// Single bytes, no merges and no space.
pub(super) fn bytes() -> Arc<dyn Tokenizer> {
    read(include_str!("../../tests/data/prompts/toy-bytes.json"))
}

/// A context whose anchor comes from `text`.
pub(super) fn context(tokenizer: Arc<dyn Tokenizer>, text: &str) -> Context {
    Context::new(tokenizer, std::iter::once(text)).unwrap()
}

fn read(text: &str) -> Arc<dyn Tokenizer> {
    Arc::new(HfTokenizer::from_bytes(text.as_bytes(), "toy", None).unwrap())
}
