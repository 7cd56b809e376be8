//! What one data payload says: content or not, `finish_reason`, usage, error.
//! It knows the OpenAI wire shapes and takes no time stamps.
//!
//! The chunks of a stream differ in one string. The classifier remembers the
//! bytes before and behind that string in the last chunk it has parsed; a
//! chunk with the same bytes around another plain string is the same document
//! with another text, so its meaning follows without a parse. Anything else is
//! parsed in full. Cost: two comparisons and one look at each byte of the text
//! instead of a parse of the document.

use super::payload::{self, Found, PlainText};

pub use super::payload::{ChunkFacts, StreamError};

/// Longest bytes before and behind the text that are worth remembering: larger
/// chunks hold log-probabilities or ids, which differ in each.
const REMEMBERED_BYTES_MAX: usize = 4 << 10;

/// What an empty `text` means in a completions stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyText {
    /// No token: an empty opening event.
    #[default]
    NoToken,
    /// A token whose text is held back, while `finish_reason` is null (vLLM:
    /// half a UTF-8 character).
    Token,
}

/// What a payload is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A chunk, or a whole answer.
    Chunk(ChunkFacts),
    /// `[DONE]`.
    Done,
    /// An error object or an `error` event.
    Error(StreamError),
    /// Nothing, or JSON that is neither chunk nor error.
    Ignored,
    /// Neither JSON nor `[DONE]`.
    NotJson,
}

/// Classifies the payloads of one stream.
#[derive(Debug)]
pub struct Classifier {
    empty_text: EmptyText,
    /// Bytes up to and with the opening quote of the text; empty while none is
    /// known.
    prefix: Vec<u8>,
    /// Bytes from the closing quote on.
    suffix: Vec<u8>,
    /// Whether an empty text between them is content.
    empty_is_content: bool,
}

impl Classifier {
    /// A classifier that has seen nothing.
    pub fn new(empty_text: EmptyText) -> Self {
        Self {
            empty_text,
            prefix: Vec::new(),
            suffix: Vec::new(),
            empty_is_content: false,
        }
    }

    /// Classifies one payload; `name` is the event's name. The text of its
    /// choices is appended to `text`, where the caller wants it.
    pub fn classify(&mut self, name: &[u8], data: &[u8], text: Option<&mut Vec<u8>>) -> Payload {
        let error_event = name == b"error";
        if !error_event && let Some(found) = self.same_but_text(data) {
            if let Some(text) = text {
                text.extend_from_slice(found);
            }
            return Payload::Chunk(ChunkFacts {
                has_choice: true,
                content: !found.is_empty() || self.empty_is_content,
                ..ChunkFacts::default()
            });
        }
        match self.in_full(data, text) {
            Payload::Error(error) => Payload::Error(error),
            _ if error_event => Payload::Error(StreamError::of_text(data)),
            payload => payload,
        }
    }

    /// The text of a chunk that differs from the remembered one in its text
    /// alone, if it is plain: no escapes, no control characters, UTF-8.
    fn same_but_text<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        if self.prefix.is_empty() {
            return None;
        }
        let rest = data.strip_prefix(self.prefix.as_slice())?;
        let text = rest.strip_suffix(self.suffix.as_slice())?;
        let plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
        let is_text = text.iter().all(plain) && std::str::from_utf8(text).is_ok();
        is_text.then_some(text)
    }

    fn in_full(&mut self, data: &[u8], text: Option<&mut Vec<u8>>) -> Payload {
        match data.trim_ascii() {
            b"" => return Payload::Ignored,
            b"[DONE]" => return Payload::Done,
            _ => {}
        }
        let Some(found) = payload::parse(data, self.empty_text) else {
            return Payload::NotJson;
        };
        match found {
            Found::Error(error) => Payload::Error(error),
            Found::Other => Payload::Ignored,
            Found::Chunk {
                facts,
                texts,
                plain,
            } => {
                if let Some(text) = text {
                    text.extend(texts.iter().flat_map(|part| part.bytes()));
                }
                if let Some(plain) = plain {
                    self.remember(data, plain);
                }
                Payload::Chunk(facts)
            }
        }
    }

    fn remember(&mut self, data: &[u8], plain: PlainText) {
        let (prefix, suffix) = (&data[..plain.start], &data[plain.end..]);
        if prefix.len() + suffix.len() <= REMEMBERED_BYTES_MAX {
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
            self.suffix.clear();
            self.suffix.extend_from_slice(suffix);
            self.empty_is_content = plain.empty_is_content;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::measure::Usage;

    fn full(data: &str) -> Payload {
        full_with(EmptyText::Token, data)
    }

    fn full_with(empty_text: EmptyText, data: &str) -> Payload {
        Classifier::new(empty_text).classify(b"", data.as_bytes(), None)
    }

    fn content(data: &str) -> bool {
        match full(data) {
            Payload::Chunk(facts) => facts.content,
            other => panic!("{data} is {other:?}"),
        }
    }

    #[test]
    fn what_counts_as_content() {
        for yes in [
            r#"{"choices":[{"text":"a"}]}"#,
            r#"{"choices":[{"text":"","finish_reason":null}]}"#,
            r#"{"choices":[{"text":"\n"}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"a","content":null}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"a"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}"#,
            r#"{"choices":[{"delta":{}},{"delta":{"content":"b"}}]}"#,
        ] {
            assert!(content(yes), "{yes}");
        }
        for no in [
            r#"{"choices":[]}"#,
            r#"{"choices":[{"text":"","finish_reason":"stop"}]}"#,
            r#"{"choices":[{"text":null}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":null}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{}}],"text":"not here"}"#,
        ] {
            assert!(!content(no), "{no}");
        }
        let empty = r#"{"choices":[{"text":"","finish_reason":null}]}"#;
        assert_eq!(
            full_with(EmptyText::NoToken, empty),
            Payload::Chunk(ChunkFacts {
                has_choice: true,
                ..ChunkFacts::default()
            })
        );
    }

    #[test]
    fn usage_is_read_and_absent_is_not_zero() {
        let usage = |data: &str| match full(data) {
            Payload::Chunk(facts) => facts.usage,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            usage(
                r#"{"choices":[],"usage":{"prompt_tokens":129,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":128}}}"#
            ),
            Some(Usage {
                prompt_tokens: 129,
                completion_tokens: 16,
                cached_tokens: Some(128)
            })
        );
        for details in [
            "",
            r#","prompt_tokens_details":null"#,
            r#","prompt_tokens_details":{}"#,
        ] {
            let data = format!(
                r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":2{details}}}}}"#
            );
            assert_eq!(
                usage(&data),
                Some(Usage {
                    prompt_tokens: 5,
                    completion_tokens: 2,
                    cached_tokens: None
                })
            );
        }
        assert_eq!(usage(r#"{"choices":[],"usage":null}"#), None);
    }

    #[test]
    fn errors_are_found_in_all_their_shapes() {
        let error = |code, message: &str| {
            let message = message.to_owned();
            Payload::Error(StreamError { code, message })
        };
        assert_eq!(
            full(
                r#"{"error":{"message":"engine stopped","type":"InternalServerError","param":null,"code":500}}"#
            ),
            error(Some(500), "engine stopped")
        );
        assert_eq!(
            full(r#"{"error":"out of memory"}"#),
            error(None, "out of memory")
        );
        assert_eq!(full(r#"{"error":{"x":1}}"#), error(None, r#"{"x":1}"#));
        assert_eq!(
            full(r#"{"object":"error","message":"too long","code":"400"}"#),
            error(Some(400), "too long")
        );
        let named =
            Classifier::new(EmptyText::Token).classify(b"error", br#"{"message":"x"}"#, None);
        assert_eq!(named, error(None, "x"));
        assert!(matches!(
            full(r#"{"error":null,"choices":[]}"#),
            Payload::Chunk(_)
        ));
    }

    #[test]
    fn ends_and_noise() {
        assert_eq!(full("[DONE]"), Payload::Done);
        assert_eq!(full(" [DONE] "), Payload::Done);
        assert_eq!(full(""), Payload::Ignored);
        assert_eq!(full("7"), Payload::Ignored);
        assert_eq!(full(r#"{"detail":"x"}"#), Payload::Ignored);
        assert_eq!(full(r#"{"choices":[{"ind"#), Payload::NotJson);
        assert_eq!(full("hello"), Payload::NotJson);
    }

    /// A chunk in the shape of a completions or a chat server.
    fn chunk(chat: bool, text: &str, finish: Option<&str>) -> Vec<u8> {
        let text = serde_json::to_string(text).unwrap();
        let finish = serde_json::to_string(&finish).unwrap();
        let output = if chat {
            format!(r#""delta":{{"content":{text}}}"#)
        } else {
            format!(r#""text":{text}"#)
        };
        format!(
            r#"{{"id":"cmpl-1","created":7,"choices":[{{"index":0,{output},"logprobs":null,"finish_reason":{finish}}}]}}"#
        )
        .into_bytes()
    }

    /// Payloads of one stream, as the lazy way and as the full parse read them.
    fn agree(payloads: &[Vec<u8>], empty_text: EmptyText) {
        let mut lazy = Classifier::new(empty_text);
        let mut lazy_text = Vec::new();
        let mut full_text = Vec::new();
        for data in payloads {
            let mut fresh = Classifier::new(empty_text);
            assert_eq!(
                lazy.classify(b"", data, Some(&mut lazy_text)),
                fresh.classify(b"", data, Some(&mut full_text)),
                "{}",
                String::from_utf8_lossy(data)
            );
        }
        assert_eq!(lazy_text, full_text);
    }

    proptest! {
        #[test]
        fn lazy_and_full_agree(
            texts in proptest::collection::vec(("[a\"\\\\é\u{1}\n]{0,4}", any::<bool>(), proptest::option::weighted(0.2, Just("stop"))), 1..8),
            raw in proptest::collection::vec(any::<u8>(), 0..4),
            token in any::<bool>(),
        ) {
            let mut payloads: Vec<Vec<u8>> = texts
                .iter()
                .map(|(text, chat, finish)| chunk(*chat, text, *finish))
                .collect();
            // Bytes no serializer would write, where a plain text would stand.
            let mut broken = chunk(false, "@", None);
            let at = broken.iter().position(|byte| *byte == b'@').unwrap();
            broken.splice(at..=at, raw);
            payloads.insert(1, chunk(false, "b", None));
            payloads.insert(2, broken);
            let empty_text = if token { EmptyText::Token } else { EmptyText::NoToken };
            agree(&payloads, empty_text);
        }
    }

    #[test]
    fn a_text_that_would_close_its_string_is_parsed() {
        let first = br#"{"choices":[{"text":"a"}]}"#.to_vec();
        let tricky = br#"{"choices":[{"text":"a","finish_reason":"stop","x":"b"}]}"#.to_vec();
        agree(&[first, tricky], EmptyText::NoToken);
    }
}
