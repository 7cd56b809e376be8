//! Chat over a stream for probes: one request, its text, its usage and two
//! latencies. Not the measured path: events are stamped after they have been
//! parsed, which is milliseconds at worst and what a probe needs.

mod client;
mod reading;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::control_error::ControlError;
use crate::measure::Usage;
use crate::secret::{Redactor, Secret};

pub use client::{ChatClient, OWN_BODY_KEYS};

/// Largest data of one event.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

/// Most text of one answer.
pub const ANSWER_TEXT_BYTES_MAX: usize = 1 << 20;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `user` or `assistant`.
    pub role: &'static str,
    /// Its text.
    pub content: String,
}

impl ChatMessage {
    /// What a user says.
    pub fn user(content: impl Into<String>) -> Self {
        Self {
            role: "user",
            content: content.into(),
        }
    }

    /// What the model has said.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self {
            role: "assistant",
            content: content.into(),
        }
    }
}

/// Where a [`ChatClient`] sends its requests.
#[derive(Clone, Debug)]
pub struct ChatSettings {
    /// Chat completions endpoint.
    pub url: String,
    /// Model name sent with each request.
    pub model: String,
    /// Credential.
    pub api_key: Secret,
    /// Further headers; they may hold secrets.
    pub headers: Headers,
    /// Time for opening a connection.
    pub connect_timeout: Duration,
}

/// Header names and values. `Debug` shows the names.
#[derive(Clone, Default)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// Tells `redactor` which values must not be shown.
    pub fn keep_out(&self, redactor: &mut Redactor) {
        for (name, value) in &self.0 {
            redactor.add_named(name, value);
        }
    }
}

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct ChatRequest<'a> {
    /// The conversation.
    pub messages: &'a [ChatMessage],
    /// Output limit in tokens.
    pub max_tokens: u64,
    /// Further body keys; those of the client win.
    pub extra_body: &'a Map<String, Value>,
    /// Time for the whole request.
    pub timeout: Duration,
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatReply {
    /// The answer.
    pub content: String,
    /// What the model thought, where the server tells it apart.
    pub reasoning: String,
    /// Token counts, last value seen.
    pub usage: Option<Usage>,
    /// From the request to the first chunk with content.
    pub ttft: Option<Duration>,
    /// From the request to the last chunk with a choice in it.
    pub e2el: Option<Duration>,
    /// `finish_reason`, last value seen.
    pub finish_reason: Option<String>,
}

/// A chat request that gave no whole answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChatError {
    /// What any request may run into.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Something else than an event stream.
    #[error("`{url}` answered a streamed request with `{content_type}`: {message}")]
    NotAStream {
        /// The URL, without secrets.
        url: String,
        /// What it says it is.
        content_type: String,
        /// Its beginning, without secrets.
        message: String,
    },
    /// The stream ended before the answer did.
    #[error("the stream from `{url}` ended without `finish_reason` and `[DONE]`")]
    Truncated {
        /// The URL, without secrets.
        url: String,
    },
}

impl ChatError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Control(error) => error.code(),
            Self::NotAStream { .. } => "SERVICE_NOT_OPENAI",
            Self::Truncated { .. } => "STREAM_TRUNCATED",
        }
    }

    /// HTTP status of the answer, where it was one of refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Control(error) => error.status(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_are_not_shown() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = Headers(vec![
            header("X-Gate", "secret-value"),
            header("X-Rank", "0"),
        ]);
        assert_eq!(format!("{headers:?}"), r#"["X-Gate", "X-Rank"]"#);
        let mut redactor = Redactor::default();
        headers.keep_out(&mut redactor);
        assert_eq!(redactor.clean("secret-value 0"), "[redacted] 0");
    }
}
