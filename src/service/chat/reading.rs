//! What a chat stream says, event by event: text and thoughts apart, usage, and
//! when content came.

use serde::Deserialize;
use tokio::time::Instant;

use super::ChatReply;
use crate::service::chunk::{ChunkFacts, Classifier, EmptyText};

/// A stream as far as it has been read.
pub(super) struct Reading {
    started: Instant,
    pub(super) classifier: Classifier,
    pub(super) reply: ChatReply,
    /// Events so far.
    pub(super) events: usize,
    /// Whether `[DONE]` has come.
    pub(super) done: bool,
}

impl Reading {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            classifier: Classifier::new(EmptyText::NoToken),
            reply: ChatReply::default(),
            events: 0,
            done: false,
        }
    }

    /// Takes a chunk that has just come.
    pub(super) fn chunk(&mut self, facts: ChunkFacts, data: &str) {
        let now = self.started.elapsed();
        let reply = &mut self.reply;
        if facts.content {
            reply.ttft.get_or_insert(now);
        }
        if facts.has_choice {
            reply.e2el = Some(now);
        }
        reply.usage = facts.usage.or(reply.usage);
        reply.finish_reason = facts.finish_reason.or(reply.finish_reason.take());
        if !facts.content {
            return;
        }
        let chunk: TextChunk = serde_json::from_str(data).unwrap_or_default();
        let deltas = chunk.choices.into_iter().filter_map(|choice| choice.delta);
        for delta in deltas {
            let reasoning = delta.reasoning_content.or(delta.reasoning);
            reply.reasoning.push_str(&reasoning.unwrap_or_default());
            reply.content.push_str(&delta.content.unwrap_or_default());
        }
    }
}

#[derive(Default, Deserialize)]
struct TextChunk {
    #[serde(default)]
    choices: Vec<TextChoice>,
}

#[derive(Deserialize)]
struct TextChoice {
    #[serde(default)]
    delta: Option<Delta>,
}

#[derive(Default, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "edge: a test reads the clock")]

    use super::*;
    use crate::service::chunk::Payload;

    fn reading(chunks: &[&str]) -> ChatReply {
        let mut reading = Reading::new(Instant::now());
        for data in chunks {
            let found = reading.classifier.classify(b"", data.as_bytes(), None);
            let facts = match found {
                Payload::Chunk(facts) => facts,
                _ => ChunkFacts::default(),
            };
            reading.chunk(facts, data);
        }
        reading.reply
    }

    #[test]
    fn the_role_is_no_content_and_thoughts_are_kept_apart() {
        let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
        let reply = reading(&[role]);
        assert!(reply.ttft.is_none() && reply.e2el.is_some());
        let reply = reading(&[
            role,
            r#"{"choices":[{"delta":{"reasoning_content":"hm","content":null}}]}"#,
            r#"{"choices":[{"delta":{"content":"It "}}]}"#,
            r#"{"choices":[{"delta":{"content":"is \"so\"."}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#,
        ]);
        assert!(reply.ttft <= reply.e2el && reply.ttft.is_some());
        assert_eq!(reply.reasoning, "hm");
        assert_eq!(reply.content, "It is \"so\".");
        assert_eq!(reply.finish_reason.as_deref(), Some("stop"));
        let usage = reply.usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.cached_tokens), (9, None));
    }
}
