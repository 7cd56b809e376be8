//! Sends chat requests. The stream is never asked for again: the event source's
//! own policy, which re-sends a POST without limit whenever a stream ends, is
//! switched off. An event is seen only when it is whole, so a line without an
//! end is bounded by the time of the request alone.

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
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use super::reading::Reading;
use super::{
    ANSWER_TEXT_BYTES_MAX, ChatError, ChatMessage, ChatReply, ChatRequest, ChatSettings,
    EVENT_BYTES_MAX,
};
use crate::secret::{Redactor, shown_url};
use crate::service::answer::{bounded, error_words};
use crate::service::chunk::Payload;
use crate::service::control_error::ControlError;
use crate::service::control_http::{headers_of, innermost};
use crate::service::endpoint::Endpoint;

/// Most events of one stream.
const EVENTS_MAX: usize = 1_000_000;

/// Largest error body that is read.
const ERROR_BYTES_MAX: usize = 64 << 10;

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

impl ChatClient {
    /// Checks URL, key and headers; opens no connection.
    pub fn new(settings: &ChatSettings) -> Result<Self, ControlError> {
        let mut headers = headers_of(&settings.headers)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let http = client(headers, settings.connect_timeout)?;
        let endpoint = Endpoint::new("--url", &settings.url, &settings.api_key, &http)?;
        let mut redactor = Redactor::new(&settings.api_key, [settings.url.as_str()]);
        settings.headers.keep_out(&mut redactor);
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
        let reason = self
            .redactor
            .clean(&innermost(&error.without_url()))
            .into_owned();
        ChatError::Control(if connect {
            ControlError::Unreachable { url, reason }
        } else {
            ControlError::Broken { url, reason }
        })
    }

    fn url(&self) -> String {
        shown_url(self.endpoint.url.as_str())
    }

    fn words(&self, body: &str) -> String {
        bounded(&self.redactor.clean(&error_words(body)))
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
