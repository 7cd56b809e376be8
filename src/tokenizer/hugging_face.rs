//! A `tokenizer.json` behind the room's trait, by the `tokenizers` library. It
//! takes bytes and refuses to know where they come from.

use tokenizers::ModelWrapper;

#[cfg(feature = "fast-tokenizer")]
use crate::tokenizer::fast::Fast;
use crate::tokenizer::{Identity, Tokenizer, TokenizerError};
use crate::units::sha256_hex;

/// Texts that show what the post-processor adds. Each is tried until one has
/// tokens of its own: a toy vocabulary may know none of the letters.
const PROBES: [&str; 4] = ["a b", "0", "w0", "."];

/// A tokenizer read from `tokenizer.json`.
pub struct HfTokenizer {
    inner: tokenizers::Tokenizer,
    #[cfg(feature = "fast-tokenizer")]
    fast: Option<Fast>,
    special_ids: Vec<u32>,
    prefix_ids: Vec<u32>,
    suffix_ids: Vec<u32>,
    identity: Identity,
}

impl HfTokenizer {
    /// Reads the bytes of a `tokenizer.json`; `path` and `revision` are how the
    /// scenario names it. Truncation and padding that the file asks for are
    /// switched off: a server applies neither to a prompt.
    pub fn from_bytes(
        bytes: &[u8],
        path: &str,
        revision: Option<&str>,
    ) -> Result<Self, TokenizerError> {
        let invalid = |message: String| TokenizerError::Invalid {
            path: path.to_owned(),
            message,
        };
        let mut inner =
            tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| invalid(error.to_string()))?;
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|error| invalid(error.to_string()))?;
        let (prefix_ids, suffix_ids) = frame(&inner).map_err(invalid)?;
        let mut special_ids: Vec<u32> = inner
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special && !is_byte(&token.content))
            .map(|(id, _)| id)
            .collect();
        special_ids.sort_unstable();
        let identity = Identity {
            class: class(inner.get_model()).to_owned(),
            path: path.to_owned(),
            revision: revision.map(str::to_owned),
            file_sha256: sha256_hex(bytes),
        };
        Ok(Self {
            #[cfg(feature = "fast-tokenizer")]
            fast: Fast::agreeing_with(&inner, bytes),
            inner,
            special_ids,
            prefix_ids,
            suffix_ids,
            identity,
        })
    }
}

impl HfTokenizer {
    /// Ids of `text` by the stable library, the judge of any faster one.
    pub fn encode_by_reference(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match self.inner.encode_fast(text, false) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(error) => Err(library("encode", error.as_ref())),
        }
    }
}

impl Tokenizer for HfTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        #[cfg(feature = "fast-tokenizer")]
        if let Some(ids) = self.fast.as_ref().and_then(|fast| fast.encode(text)) {
            return Ok(ids);
        }
        self.encode_by_reference(text)
    }

    fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.inner
            .decode(ids, false)
            .map_err(|error| library("decode", error.as_ref()))
    }

    fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    fn special_ids(&self) -> &[u32] {
        &self.special_ids
    }

    fn prefix_ids(&self) -> &[u32] {
        &self.prefix_ids
    }

    fn suffix_ids(&self) -> &[u32] {
        &self.suffix_ids
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}

fn library(action: &'static str, error: &dyn std::error::Error) -> TokenizerError {
    TokenizerError::Library {
        action,
        message: error.to_string(),
    }
}

fn class(model: &ModelWrapper) -> &'static str {
    match model {
        ModelWrapper::BPE(_) => "tokenizers.BPE",
        ModelWrapper::WordPiece(_) => "tokenizers.WordPiece",
        ModelWrapper::WordLevel(_) => "tokenizers.WordLevel",
        ModelWrapper::Unigram(_) => "tokenizers.Unigram",
    }
}

/// Whether a token is one byte of ordinary text (`<0xE2>`). Some files list
/// these with the special tokens, though byte fallback makes them of any text.
fn is_byte(content: &str) -> bool {
    content
        .strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'))
        .is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}

/// What the post-processor puts in front of and behind a single text.
fn frame(inner: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>), String> {
    let encode = |text: &str, framed: bool| match inner.encode_fast(text, framed) {
        Ok(encoding) => Ok(encoding.get_ids().to_vec()),
        Err(error) => Err(error.to_string()),
    };
    for probe in PROBES {
        let plain = encode(probe, false)?;
        if plain.is_empty() {
            continue;
        }
        let framed = encode(probe, true)?;
        return framed
            .windows(plain.len())
            .position(|window| window == plain)
            .map(|at| {
                let (front, rest) = framed.split_at(at);
                (front.to_vec(), rest[plain.len()..].to_vec())
            })
            .ok_or_else(|| "its post-processor changes the text's own tokens".to_owned());
    }
    Ok((Vec::new(), Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Word level with a BOS: `<s>` is 1, `w0`.. are 2...
    const WITH_BOS: &str = r#"{"version":"1.0",
        "truncation":{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0},
        "padding":{"strategy":{"Fixed":9},"direction":"Right","pad_to_multiple_of":null,
            "pad_id":0,"pad_type_id":0,"pad_token":"<unk>"},
        "added_tokens":[{"id":1,"content":"<s>","single_word":false,"lstrip":false,
            "rstrip":false,"normalized":false,"special":true}],
        "normalizer":null,"pre_tokenizer":{"type":"WhitespaceSplit"},
        "post_processor":{"type":"TemplateProcessing",
            "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
            "pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],
            "special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}},
        "decoder":null,
        "model":{"type":"WordLevel","vocab":{"<unk>":0,"<s>":1,"w0":2,"w1":3},"unk_token":"<unk>"}}"#;

    #[test]
    fn a_template_gives_the_frame_and_nothing_is_cut_or_padded() {
        let tokenizer = HfTokenizer::from_bytes(WITH_BOS.as_bytes(), "toy", None).unwrap();
        assert_eq!(tokenizer.prefix_ids(), [1]);
        assert_eq!(tokenizer.suffix_ids(), [0_u32; 0]);
        assert_eq!(tokenizer.special_ids(), [1]);
        assert_eq!(tokenizer.vocab_size(), 4);
        assert_eq!(tokenizer.encode("w0 w1 w0").unwrap(), [2, 3, 2]);
        assert_eq!(tokenizer.identity().class, "tokenizers.WordLevel");
    }

    #[test]
    fn special_text_inside_the_input_is_counted_as_the_server_counts_it() {
        let tokenizer = HfTokenizer::from_bytes(WITH_BOS.as_bytes(), "toy", None).unwrap();
        assert_eq!(tokenizer.encode("w0 <s> w1").unwrap(), [2, 1, 3]);
        assert_eq!(tokenizer.decode(&[2, 1, 3]).unwrap(), "w0 <s> w1");
    }

    #[test]
    fn bytes_of_text_are_not_special() {
        for (content, expected) in [("<0xE2>", true), ("<0x1>", false), ("<s>", false)] {
            assert_eq!(is_byte(content), expected, "{content}");
        }
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_named() {
        for text in ["", "{}", "[1]", "{\"model\":{\"type\":\"Markov\"}}"] {
            let error = HfTokenizer::from_bytes(text.as_bytes(), "x.json", None)
                .err()
                .unwrap();
            assert_eq!(error.code(), "TOKENIZER_INVALID");
            assert!(error.to_string().starts_with("`x.json` is not"), "{error}");
        }
    }
}
