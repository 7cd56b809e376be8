//! The control client: every request that is not measured. It sends what the
//! reference plugin sends (body keys, headers), bounds time and size of every
//! answer, and lets no secret into an error. It never follows a redirect,
//! never retries, and uses a proxy only when one is named.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: requests over the network, timed by the clock"
)]

use std::sync::Arc;

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use url::Url;

use crate::engine::read;
use crate::secret::{Redactor, shown_url};
use crate::service::answer::{ServedModel, bounded, error_words, models_of, usage_of};
use crate::service::control_error::ControlError;
use crate::service::control_http::{self, client, innermost};
use crate::service::endpoint::Endpoint;
use crate::service::reset_answer::{classify_reset, success_of};
use crate::service::settings::{Completion, ControlPrompt, ControlSettings, ResetAttempt, Scrape};
use crate::units::DpRank;

/// Largest metrics page that is read. 32 ranks publish some 2 MB.
pub const METRICS_BYTES_MAX: usize = 32 << 20;

/// Largest other answer that is read.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Asks for one data-parallel rank (vLLM from 0.11.2 on).
pub const RANK_HEADER: &str = "X-data-parallel-rank";

/// Sends control requests. Cloning shares settings, not connections: each
/// request opens its own, since servers close idle ones within seconds.
#[derive(Clone, Debug)]
pub struct ControlClient {
    http: Client,
    settings: Arc<ControlSettings>,
    redactor: Redactor,
    inference: Endpoint,
    metrics: Endpoint,
    reset: Option<Endpoint>,
}

/// Body of a completion, keys in the reference's order.
#[derive(Serialize)]
struct CompletionBody<'a> {
    model: &'a str,
    prompt: &'a ControlPrompt,
    max_tokens: u64,
    temperature: u64,
    stream: bool,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// Keys of [`CompletionBody`] that further keys may not replace.
const OWN_KEYS: &[&str] = &["model", "prompt", "max_tokens", "temperature", "stream"];

impl ControlClient {
    /// Checks URLs and credential; opens no connection.
    pub fn new(settings: ControlSettings) -> Result<Self, ControlError> {
        let http = client(&settings, None)?;
        let redactor = settings.redactor();
        let endpoint = |field, url: &str| Endpoint::new(field, url, &settings.api_key, &http);
        let inference = endpoint("service.inference_url", &settings.inference_url)?;
        let metrics = endpoint("service.metrics_url", &settings.metrics_url)?;
        let reset = match &settings.reset_url {
            Some(url) => Some(endpoint("service.reset_url", url)?),
            None => None,
        };
        Ok(Self {
            http,
            settings: Arc::new(settings),
            redactor,
            inference,
            metrics,
            reset,
        })
    }

    /// The settings it was made of.
    pub fn settings(&self) -> &ControlSettings {
        &self.settings
    }

    /// Takes the connection's secrets out of `text`.
    pub fn redact(&self, text: &str) -> String {
        self.redactor.clean(text).into_owned()
    }

    /// The words of a server's answer, bounded, without secrets.
    fn words(&self, body: &str) -> String {
        bounded(&self.redact(&error_words(body)))
    }

    /// A completion of one token for `rank` (sent as a header only when there
    /// are several ranks), under the settings' salt.
    pub async fn complete(
        &self,
        prompt: &ControlPrompt,
        rank: Option<DpRank>,
    ) -> Result<Completion, ControlError> {
        self.complete_salted(prompt, rank, self.settings.cache_salt.as_deref())
            .await
    }

    /// The same under another salt, or none.
    pub async fn complete_salted(
        &self,
        prompt: &ControlPrompt,
        rank: Option<DpRank>,
        salt: Option<&str>,
    ) -> Result<Completion, ControlError> {
        let mut extra = self.settings.extra_body.clone();
        extra.retain(|key, _| !OWN_KEYS.contains(&key.as_str()));
        match salt {
            Some(salt) => drop(extra.insert("cache_salt".to_owned(), salt.into())),
            None => drop(extra.remove("cache_salt")),
        }
        let body = CompletionBody {
            model: &self.settings.model,
            prompt,
            max_tokens: 1,
            temperature: 0,
            stream: false,
            extra,
        };
        let mut request = self.inference.post(&self.http).json(&body);
        if let Some(rank) = rank
            && self.settings.dp_size > 1
        {
            request = request.header(RANK_HEADER, rank.to_string());
        }
        let started = Instant::now();
        let answer = self.successful(request, &self.inference.url).await?;
        let elapsed = started.elapsed();
        let value = self.json(&answer, &self.inference.url)?;
        if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
            return Err(ControlError::ErrorInAnswer {
                url: shown_url(self.inference.url.as_str()),
                message: self.words(&error.to_string()),
            });
        }
        Ok(Completion {
            usage: usage_of(&value),
            elapsed,
        })
    }

    /// Reads the metrics page.
    pub async fn scrape(&self) -> Result<Scrape, ControlError> {
        let started = Instant::now();
        let request = self.metrics.get(&self.http);
        let response = self.send(request, &self.metrics.url).await?;
        let (status, page) = self
            .body(response, &self.metrics.url, METRICS_BYTES_MAX)
            .await?;
        self.refuse_status(status, &page, &self.metrics.url)?;
        let elapsed = started.elapsed();
        let snapshot = read(&page, &self.settings.read_options())?;
        Ok(Scrape {
            page,
            snapshot,
            elapsed,
        })
    }

    /// The models the server lists beside its completions endpoint.
    pub async fn models(&self) -> Result<Vec<ServedModel>, ControlError> {
        let value = self.sibling("v1/models").await?;
        Ok(models_of(&value))
    }

    /// The server's version, where it tells.
    pub async fn version(&self) -> Result<Option<String>, ControlError> {
        let value = self.sibling("version").await?;
        Ok(value
            .get("version")
            .and_then(Value::as_str)
            .map(str::to_owned))
    }

    /// Asks once for a reset of all cache tiers. `None` without a reset URL.
    pub async fn reset(&self) -> Result<Option<ResetAttempt>, ControlError> {
        let Some(reset) = &self.reset else {
            return Ok(None);
        };
        let mut endpoint = reset.clone();
        // vLLM's name for connector tiers; other servers ignore it.
        endpoint
            .url
            .query_pairs_mut()
            .append_pair("reset_external", "true");
        let started = Instant::now();
        let request = endpoint.post(&self.http).body("{}");
        let response = self.send(request, &endpoint.url).await?;
        let (status, body) = self.body(response, &endpoint.url, ANSWER_BYTES_MAX).await?;
        Ok(Some(ResetAttempt {
            status: status.as_u16(),
            success: success_of(&body),
            verdict: classify_reset(status.as_u16(), &body),
            message: self.words(&body),
            elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        }))
    }

    /// GET of a path beside `/v1/…` of the inference URL.
    async fn sibling(&self, path: &str) -> Result<Value, ControlError> {
        let mut endpoint = self.inference.clone();
        let base = self.inference.url.path();
        let base = base.find("/v1/").map_or("", |at| &base[..at]);
        endpoint.url.set_path(&format!("{base}/{path}"));
        let request = endpoint.get(&self.http);
        let body = self.successful(request, &endpoint.url).await?;
        self.json(&body, &endpoint.url)
    }

    async fn successful(&self, request: RequestBuilder, url: &Url) -> Result<String, ControlError> {
        let response = self.send(request, url).await?;
        let (status, body) = self.body(response, url, ANSWER_BYTES_MAX).await?;
        self.refuse_status(status, &body, url)?;
        Ok(body)
    }

    async fn send(&self, request: RequestBuilder, url: &Url) -> Result<Response, ControlError> {
        let sent = control_http::send(request, url, &self.settings).await?;
        sent.map_err(|error| self.failure(error, url))
    }

    /// The whole body as text, at most `limit` bytes; bytes that are no UTF-8
    /// are replaced.
    async fn body(
        &self,
        mut response: Response,
        url: &Url,
        limit: usize,
    ) -> Result<(StatusCode, String), ControlError> {
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.failure(error, url))?
        {
            if body.len() + chunk.len() > limit {
                return Err(ControlError::TooLarge {
                    url: shown_url(url.as_str()),
                    limit,
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn refuse_status(&self, status: StatusCode, body: &str, url: &Url) -> Result<(), ControlError> {
        if status.is_success() {
            return Ok(());
        }
        Err(ControlError::Status {
            url: shown_url(url.as_str()),
            status: status.as_u16(),
            message: self.words(body),
        })
    }

    fn json(&self, body: &str, url: &Url) -> Result<Value, ControlError> {
        match serde_json::from_str::<Value>(body) {
            Ok(value) if value.is_object() => Ok(value),
            _ => Err(ControlError::NotJson {
                url: shown_url(url.as_str()),
                message: self.words(body),
            }),
        }
    }

    fn failure(&self, error: reqwest::Error, url: &Url) -> ControlError {
        let url = shown_url(url.as_str());
        if error.is_timeout() {
            return ControlError::Timeout {
                url,
                seconds: self.settings.timeout.as_secs_f64(),
            };
        }
        let connect = error.is_connect();
        let reason = self.redact(&innermost(&error.without_url()));
        if connect {
            ControlError::Unreachable { url, reason }
        } else {
            ControlError::Broken { url, reason }
        }
    }
}
