//! A second client, made of widely used parts (`reqwest-eventsource`), to hold
//! the lean decoder against. It never measures: it allocates several times an
//! event, hides the read whose time would be needed, and by its own default
//! sends a request again whenever a stream ends, which is switched off here.
#![allow(clippy::disallowed_methods, reason = "edge: requests over the network")]

use bytes::Bytes;
use futures_util::StreamExt as _;
use reqwest_eventsource::{Error, Event, EventSource, retry};

/// One event as the second client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenEvent {
    /// The `event` field; `message` when there was none, as the standard says.
    pub name: String,
    /// Its data lines, joined by line feeds.
    pub data: String,
}

/// Why the second client gave no events.
#[derive(Debug, thiserror::Error)]
pub enum SecondClientError {
    /// No client could be made.
    #[error("no second client: {0}")]
    Client(#[source] reqwest::Error),
    /// The request could not be prepared.
    #[error("the request cannot be sent: {0}")]
    Request(String),
    /// The stream failed otherwise than by ending.
    #[error("the stream failed: {0}")]
    Stream(Box<Error>),
}

/// Posts `body` to `url` once, and collects the events of the answer to its
/// end. No proxy is used and nothing is sent again.
pub async fn events(url: &str, body: Bytes) -> Result<Vec<SeenEvent>, SecondClientError> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .http1_only()
        .build()
        .map_err(SecondClientError::Client)?;
    let request = client
        .post(url)
        .header(reqwest::header::CONTENT_TYPE, "application/json")
        .body(body);
    let mut source =
        EventSource::new(request).map_err(|error| SecondClientError::Request(error.to_string()))?;
    source.set_retry_policy(Box::new(retry::Never));
    let mut seen = Vec::new();
    while let Some(event) = source.next().await {
        match event {
            Ok(Event::Open) => {}
            Ok(Event::Message(message)) => seen.push(SeenEvent {
                name: message.event,
                data: message.data,
            }),
            Err(Error::StreamEnded) => break,
            Err(error) => return Err(SecondClientError::Stream(Box::new(error))),
        }
    }
    source.close();
    Ok(seen)
}
