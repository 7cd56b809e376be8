//! What the native driver is told: how to send, and what. Values only.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::pacing::TimerKind;
use crate::secret::Secret;
use crate::service::chunk::EmptyText;
use crate::service::client::Timeouts;
use crate::service::wire::{Api, BodyTemplate, HttpVersion};
use crate::units::{DpRank, GroupIndex};

/// How requests are sent.
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that do not depend on each other"
)]
#[derive(Clone, Debug)]
pub struct NativeConfig {
    /// Endpoint.
    pub url: String,
    /// Credential, sent as a bearer token.
    pub api_key: Secret,
    /// Further headers; they replace ours.
    pub headers: Vec<(String, String)>,
    /// Whether answers are streamed.
    pub stream: bool,
    /// Re-sends allowed after a failure before any body byte.
    pub retry: u32,
    /// Limits of time.
    pub timeouts: Timeouts,
    /// What an empty text in a completions stream means; vLLM's is a token.
    pub empty_text: EmptyText,
    /// Whether the text of failed answers, and of answers without usage, is
    /// kept in their records.
    pub keep_text: bool,
    /// Whether each request names itself in an `X-Request-Id` header, to find it
    /// again in the server's log. All its attempts have the same name.
    pub name_requests: bool,
    /// HTTP proxy to tunnel through; the environment's is never used.
    pub proxy: Option<String>,
    /// Which HTTP is spoken.
    pub version: HttpVersion,
    /// Root certificates trusted besides the public ones, PEM.
    pub roots_pem: Option<Bytes>,
    /// Threads that read streams, at least 1.
    pub threads: usize,
    /// Whether connections are opened before the first request.
    pub open_ahead: bool,
    /// How long an interrupted run waits for requests under way.
    pub drain: Duration,
    /// Timers; tests on paused time use Tokio's.
    pub timers: TimerKind,
}

impl NativeConfig {
    /// Streams from `url`, everything else as by default.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            api_key: Secret::default(),
            headers: Vec::new(),
            stream: true,
            retry: 0,
            timeouts: Timeouts::default(),
            empty_text: EmptyText::Token,
            keep_text: true,
            name_requests: false,
            proxy: None,
            version: HttpVersion::Http1,
            roots_pem: None,
            threads: 1,
            open_ahead: true,
            drain: Duration::from_secs(30),
            timers: TimerKind::Kernel,
        }
    }

    /// The template of all bodies of a run at this endpoint.
    pub fn body_template(
        &self,
        model: &str,
        generation_kwargs: &[(String, Value)],
    ) -> BodyTemplate {
        let path = self.url.split(['?', '#']).next().unwrap_or("");
        BodyTemplate {
            api: Api::of_path(path),
            model: model.to_owned(),
            stream: self.stream,
            generation_kwargs: generation_kwargs.to_vec(),
            add_special_tokens: None,
            cache_salt: None,
        }
    }
}

/// One request of the data set, ready to be sent. Their order is the send
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadRequest {
    /// Place in the send order, as recorded.
    pub sequence_index: u32,
    /// Its name, as recorded.
    pub request_id: String,
    /// Prefix group.
    pub group: GroupIndex,
    /// Rank asked for by header.
    pub dp_rank: Option<DpRank>,
    /// Place in its (group, rank) lane; without one it waits for nobody.
    pub lane_sequence: Option<u32>,
    /// The body, built by [`BodyTemplate::build`].
    pub body: Bytes,
    /// Prompt tokens the server should see.
    pub planned_prompt_tokens: u64,
    /// Output limit in the body.
    pub max_tokens: u64,
}
