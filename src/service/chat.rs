//! Chat over a stream for probes: one request, its text, its usage and two
//! latencies. Not the measured path: events are stamped after they have been
//! parsed, which is milliseconds at worst and what a probe needs.
//!
//! The stream is never asked for again: the event source's own policy, which
//! re-sends a POST without limit whenever a stream ends, is switched off. An
//! event is seen only when it is whole, so a line without an end is bounded by
//! the time of the request alone.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: requests over the network, timed by the clock"
)]

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response};
use reqwest_eventsource::retry::Never;
use reqwest_eventsource::{Error as SourceError, Event, EventSource};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use super::answer::{bounded, error_words};
use super::chunk::{Classifier, EmptyText, Payload};
use super::control::{headers_of, innermost};
use super::control_error::ControlError;
use super::credential::{ApiKey, Redactor, shown};
use super::endpoint::Endpoint;
use crate::measure::Usage;

/// Largest data of one event.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

/// Most text of one answer.
pub const ANSWER_TEXT_BYTES_MAX: usize = 1 << 20;

/// Most events of one stream.
const EVENTS_MAX: usize = 1_000_000;

/// Largest error body that is read.
const ERROR_BYTES_MAX: usize = 64 << 10;

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
    pub api_key: ApiKey,
    /// Further headers; they may hold secrets.
    pub headers: Headers,
    /// Time for opening a connection.
    pub connect_timeout: Duration,
}

/// Header names and values. `Debug` shows the names.
#[derive(Clone, Default)]
pub struct Headers(pub Vec<(String, String)>);

/// Shortest header value that is taken for a secret; shorter ones are flags
/// and numbers.
const HEADER_SECRET_BYTES_MIN: usize = 8;

impl Headers {
    /// Values that must not be shown.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let values = self.0.iter().map(|(_, value)| value.as_str());
        values.filter(|value| value.len() >= HEADER_SECRET_BYTES_MIN)
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

/// Sends chat requests, one at a time and each over its own connection.
#[derive(Clone, Debug)]
pub struct ChatClient {
    http: Client,
    endpoint: Endpoint,
    model: Arc<str>,
    redactor: Redactor,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: &'a [ChatMessage],
    max_tokens: u64,
    temperature: u64,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// Body keys of this client that further keys may not replace, and `n`, whose usage
/// counts a prompt once and looks it up several times.
pub const OWN_BODY_KEYS: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "temperature",
    "stream",
    "stream_options",
    "n",
];

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

impl ChatClient {
    /// Checks URL, key and headers; opens no connection.
    pub fn new(settings: &ChatSettings) -> Result<Self, ControlError> {
        let mut headers = headers_of(&settings.headers)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let http = client(headers, settings.connect_timeout)?;
        let endpoint = Endpoint::new("--url", &settings.url, &settings.api_key, &http)?;
        let mut redactor = Redactor::new(&settings.api_key, [settings.url.as_str()]);
        for value in settings.headers.secrets() {
            redactor.add(value);
        }
        Ok(Self {
            http,
            endpoint,
            model: settings.model.as_str().into(),
            redactor,
        })
    }

    /// Sends one request and reads its answer to the end.
    pub async fn ask(&self, request: ChatRequest<'_>) -> Result<ChatReply, ChatError> {
        let limit = request.timeout;
        match timeout(limit, self.exchange(request)).await {
            Ok(reply) => reply,
            Err(_) => Err(ChatError::Control(ControlError::Timeout {
                url: self.url(),
                seconds: limit.as_secs_f64(),
            })),
        }
    }

    async fn exchange(&self, request: ChatRequest<'_>) -> Result<ChatReply, ChatError> {
        let mut extra = request.extra_body.clone();
        extra.retain(|key, _| !OWN_BODY_KEYS.contains(&key.as_str()));
        let body = Body {
            model: &self.model,
            messages: request.messages,
            max_tokens: request.max_tokens,
            temperature: 0,
            stream: true,
            stream_options: StreamOptions {
                include_usage: true,
            },
            extra,
        };
        let post = self.endpoint.post(&self.http).json(&body);
        let started = Instant::now();
        let mut source = EventSource::new(post).map_err(|_| ControlError::NoClient {
            reason: "the request cannot be built".to_owned(),
        })?;
        source.set_retry_policy(Box::new(Never));
        let mut reading = Reading::new(started);
        while let Some(event) = source.next().await {
            match event {
                Ok(Event::Open) => {}
                Ok(Event::Message(message)) => {
                    if self.take(&mut reading, &message.event, &message.data)? {
                        break;
                    }
                }
                Err(SourceError::StreamEnded) => break,
                Err(error) => return Err(self.source_failure(error).await),
            }
        }
        source.close();
        if reading.done || reading.reply.finish_reason.is_some() {
            Ok(reading.reply)
        } else {
            Err(ChatError::Truncated { url: self.url() })
        }
    }

    /// Takes one event; true after the last one.
    fn take(&self, reading: &mut Reading, name: &str, data: &str) -> Result<bool, ChatError> {
        reading.events += 1;
        let too_long =
            reading.reply.content.len() + reading.reply.reasoning.len() > ANSWER_TEXT_BYTES_MAX;
        if data.len() > EVENT_BYTES_MAX || reading.events > EVENTS_MAX || too_long {
            return Err(ChatError::Control(ControlError::TooLarge {
                url: self.url(),
                limit: EVENT_BYTES_MAX,
            }));
        }
        // A default name is what the standard calls an event without one.
        let name = if name == "message" { "" } else { name };
        match reading
            .classifier
            .classify(name.as_bytes(), data.as_bytes(), None)
        {
            Payload::Chunk(facts) => {
                reading.chunk(facts, data);
                Ok(false)
            }
            Payload::Done => {
                reading.done = true;
                Ok(true)
            }
            Payload::Error(error) => Err(ChatError::Control(ControlError::ErrorInAnswer {
                url: self.url(),
                message: self.words(&error.message),
            })),
            Payload::Ignored => Ok(false),
            Payload::NotJson => Err(ChatError::Control(ControlError::NotJson {
                url: self.url(),
                message: self.words(data),
            })),
        }
    }

    async fn source_failure(&self, error: SourceError) -> ChatError {
        let url = self.url();
        let broken = |reason: String| {
            ChatError::Control(ControlError::Broken {
                url: url.clone(),
                reason,
            })
        };
        match error {
            SourceError::InvalidStatusCode(status, response) => {
                let message = self.words(&beginning(response).await);
                ChatError::Control(ControlError::Status {
                    url,
                    status: status.as_u16(),
                    message,
                })
            }
            SourceError::InvalidContentType(kind, response) => ChatError::NotAStream {
                url,
                content_type: String::from_utf8_lossy(kind.as_bytes()).into_owned(),
                message: self.words(&beginning(response).await),
            },
            SourceError::Transport(error) => self.transport(error),
            SourceError::Utf8(_) => broken("its events are not UTF-8".to_owned()),
            SourceError::Parser(_) => broken("its events cannot be parsed".to_owned()),
            SourceError::InvalidLastEventId(_) | SourceError::StreamEnded => {
                ChatError::Truncated { url }
            }
        }
    }

    fn transport(&self, error: reqwest::Error) -> ChatError {
        let url = self.url();
        let connect = error.is_connect();
        let reason = self.redactor.clean(&innermost(&error.without_url()));
        ChatError::Control(if connect {
            ControlError::Unreachable { url, reason }
        } else {
            ControlError::Broken { url, reason }
        })
    }

    fn url(&self) -> String {
        shown(&self.endpoint.url)
    }

    fn words(&self, body: &str) -> String {
        bounded(&self.redactor.clean(&error_words(body)))
    }
}

/// A stream as far as it has been read.
struct Reading {
    started: Instant,
    classifier: Classifier,
    reply: ChatReply,
    events: usize,
    done: bool,
}

impl Reading {
    fn new(started: Instant) -> Self {
        Self {
            started,
            classifier: Classifier::new(EmptyText::NoToken),
            reply: ChatReply::default(),
            events: 0,
            done: false,
        }
    }

    fn chunk(&mut self, facts: super::chunk::ChunkFacts, data: &str) {
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

/// The beginning of an answer that is not wanted.
async fn beginning(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < ERROR_BYTES_MAX {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            _ => break,
        }
    }
    bytes.truncate(ERROR_BYTES_MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn client(mut headers: HeaderMap, connect_timeout: Duration) -> Result<Client, ControlError> {
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    Client::builder()
        .user_agent(concat!("pcload/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(0)
        .connect_timeout(connect_timeout)
        .no_proxy()
        .build()
        .map_err(|error| ControlError::NoClient {
            reason: innermost(&error.without_url()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::chunk::ChunkFacts;

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

    #[test]
    fn header_values_are_not_shown() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = Headers(vec![
            header("X-Gate", "secret-value"),
            header("X-Rank", "0"),
        ]);
        assert_eq!(format!("{headers:?}"), r#"["X-Gate", "X-Rank"]"#);
        assert_eq!(headers.secrets().collect::<Vec<_>>(), ["secret-value"]);
    }
}
