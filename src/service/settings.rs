//! What the control client is told, and what it gives back: plain values.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::engine::{EngineChoice, ReadOptions, Snapshot};
use crate::measure::Usage;
use crate::secret::{Redactor, Secret, shown_url};
use crate::service::chat::Headers;
use crate::service::reset_answer::ResetVerdict;
use crate::units::DpRank;

/// What the control client needs to know. `Debug` shows no credential.
#[derive(Clone)]
pub struct ControlSettings {
    /// Completions endpoint.
    pub inference_url: String,
    /// Prometheus endpoint.
    pub metrics_url: String,
    /// Reset endpoint, if there is one.
    pub reset_url: Option<String>,
    /// Model name sent with each request.
    pub model: String,
    /// Data-parallel ranks behind the endpoint, at least 1.
    pub dp_size: u32,
    /// Prometheus `engine` label to rank.
    pub engine_label_map: BTreeMap<String, DpRank>,
    /// Whose metric names are read.
    pub engine: EngineChoice,
    /// Time for one request, from connecting to the end of its answer.
    pub timeout: Duration,
    /// Credential.
    pub api_key: Secret,
    /// Sent with each completion, so that no other salt shares its blocks.
    pub cache_salt: Option<String>,
    /// Further body keys, e.g. `add_special_tokens`; those of the client win.
    pub extra_body: Map<String, Value>,
    /// Proxy for every request; the environment's are never used.
    pub proxy: Option<String>,
    /// Further headers of every request; they may hold secrets.
    pub headers: Headers,
    /// Root certificates trusted besides the public ones, PEM.
    pub roots_pem: Option<Bytes>,
}

impl ControlSettings {
    /// Settings of a server with one rank, with nothing optional.
    pub fn new(
        inference_url: impl Into<String>,
        metrics_url: impl Into<String>,
        model: impl Into<String>,
    ) -> Self {
        Self {
            inference_url: inference_url.into(),
            metrics_url: metrics_url.into(),
            reset_url: None,
            model: model.into(),
            dp_size: 1,
            engine_label_map: BTreeMap::new(),
            engine: EngineChoice::Auto,
            timeout: Duration::from_secs(30),
            api_key: Secret::default(),
            cache_salt: None,
            extra_body: Map::new(),
            proxy: None,
            headers: Headers::default(),
            roots_pem: None,
        }
    }

    /// How this server's metrics page is read.
    pub fn read_options(&self) -> ReadOptions {
        ReadOptions {
            dp_size: self.dp_size,
            engine_label_map: self.engine_label_map.clone(),
            model: Some(self.model.clone()),
            engine: self.engine,
        }
    }
}

impl ControlSettings {
    /// Everything in them that must not be shown.
    pub fn redactor(&self) -> Redactor {
        let urls = [&self.inference_url, &self.metrics_url]
            .into_iter()
            .chain(&self.reset_url)
            .chain(&self.proxy);
        let mut redactor = Redactor::new(&self.api_key, urls.map(String::as_str));
        self.headers.keep_out(&mut redactor);
        redactor
    }
}

impl fmt::Debug for ControlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlSettings")
            .field("inference_url", &shown_url(&self.inference_url))
            .field("metrics_url", &shown_url(&self.metrics_url))
            .field("reset_url", &self.reset_url.as_deref().map(shown_url))
            .field("model", &self.model)
            .field("dp_size", &self.dp_size)
            .field("engine_label_map", &self.engine_label_map)
            .field("engine", &self.engine)
            .field("timeout", &self.timeout)
            .field("api_key", &self.api_key)
            .field("cache_salt", &self.cache_salt.is_some())
            .field("extra_body", &self.extra_body)
            .field("proxy", &self.proxy.as_deref().map(shown_url))
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// A prompt as it goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ControlPrompt {
    /// Text.
    Text(String),
    /// Token ids.
    TokenIds(Vec<u32>),
}

impl From<&str> for ControlPrompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// One answered completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Token counts, where the server reports them.
    pub usage: Option<Usage>,
    /// From sending to the end of the answer.
    pub elapsed: Duration,
}

/// One read metrics page.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// The page as it came.
    pub page: String,
    /// What it says.
    pub snapshot: Snapshot,
    /// From asking to the end of the page.
    pub elapsed: Duration,
}

/// One answer to a reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResetAttempt {
    /// HTTP status.
    pub status: u16,
    /// `success` of the body, where it says so.
    pub success: Option<bool>,
    /// What it means.
    pub verdict: ResetVerdict,
    /// The server's text, bounded, without secrets.
    pub message: String,
    /// From asking to the end of the answer, in milliseconds.
    pub elapsed_ms: u64,
}
