//! One request at a time: sends it under the limits of the probe, and finds out
//! what of it was served from the cache: from usage, else from the hit
//! counters where they moved by this request alone.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: deadlines of requests and waits for counters"
)]

use std::future::Future;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::error::ProbeError;
use crate::engine::{Snapshot, difference};
use crate::measure::Usage;
use crate::probe::ReuseSource;
use crate::service::ControlClient;
use crate::service::chat::{ChatClient, ChatMessage, ChatReply, ChatRequest};

/// Longest wait for counters to show a request whose usage says nothing.
const COUNTERS_WAIT: Duration = Duration::from_secs(5);

/// Pause between two looks at the counters.
const COUNTERS_PAUSE: Duration = Duration::from_millis(100);

/// Why a probe stops before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The user stopped it.
    Interrupted,
    /// The budget is used up.
    Budget,
    /// A first turn was not cold.
    NotCold,
    /// Nothing can be judged, and nothing was: there is no record.
    Refused(ProbeError),
    /// The server failed on the way.
    Failed(ProbeError),
}

/// One answered request.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) reply: ChatReply,
    pub(super) usage: Usage,
    pub(super) cached_tokens: Option<u64>,
    pub(super) source: ReuseSource,
}

/// What the counters say of one request.
enum Counted {
    /// Tokens served from the cache.
    Tokens(u64),
    /// Other requests moved them too.
    Foreign,
    /// They cannot be read, or never moved.
    Nothing,
}

/// Sends the requests of one probe.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) chat: ChatClient,
    /// Reads the counters, where there are any.
    pub(super) counters: Option<ControlClient>,
    /// Further body keys.
    pub(super) extra_body: Map<String, Value>,
    /// Longest time of one request.
    pub(super) timeout: Duration,
    /// When the budget is used up.
    pub(super) deadline: Option<Instant>,
    /// Cancelled when the user stops the probe.
    pub(super) stop: CancellationToken,
    /// Counters before the first request.
    first: Option<Snapshot>,
    /// Prompt tokens of all answered requests.
    prompt_tokens: u64,
    /// Whether a request was sent whose tokens are not known.
    uncounted: bool,
    /// Whether counters were seen to move by other requests.
    foreign: bool,
}

impl Sender {
    pub(super) fn new(
        chat: ChatClient,
        counters: Option<ControlClient>,
        timeout: Duration,
        deadline: Option<Instant>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            chat,
            counters,
            extra_body: Map::new(),
            timeout,
            deadline,
            stop,
            first: None,
            prompt_tokens: 0,
            uncounted: false,
            foreign: false,
        }
    }

    /// Sends one request; `attempt` names it in errors.
    pub(super) async fn send(
        &mut self,
        attempt: &str,
        messages: &[ChatMessage],
        max_tokens: u64,
    ) -> Result<Answered, Stop> {
        let before = self.counters_now().await?;
        if self.first.is_none() {
            self.first.clone_from(&before);
        }
        let left = self.time_left()?;
        self.uncounted = true;
        let asking = self.chat.ask(ChatRequest {
            messages,
            max_tokens,
            extra_body: &self.extra_body,
            timeout: left.min(self.timeout),
        });
        let reply = match unless(&self.stop, asking).await? {
            Ok(reply) => reply,
            Err(_) if self.time_left().is_err() => return Err(Stop::Budget),
            Err(error) => {
                let attempt = attempt.to_owned();
                return Err(Stop::Failed(ProbeError::Chat { attempt, error }));
            }
        };
        let Some(usage) = reply.usage else {
            let missing = ProbeError::UsageMissing;
            return Err(match self.prompt_tokens {
                0 => Stop::Refused(missing),
                _ => Stop::Failed(missing),
            });
        };
        self.uncounted = false;
        self.prompt_tokens += usage.prompt_tokens;
        let (cached_tokens, source) = self.reuse(usage, before).await?;
        Ok(Answered {
            reply,
            usage,
            cached_tokens,
            source,
        })
    }

    async fn reuse(
        &mut self,
        usage: Usage,
        before: Option<Snapshot>,
    ) -> Result<(Option<u64>, ReuseSource), Stop> {
        if let Some(cached) = usage.cached_tokens {
            return Ok((Some(cached), ReuseSource::Usage));
        }
        let Some(before) = before else {
            return Ok((None, ReuseSource::Unavailable));
        };
        match self.counted(&before, usage.prompt_tokens).await? {
            Counted::Tokens(cached) => Ok((Some(cached), ReuseSource::Counters)),
            Counted::Foreign => {
                self.foreign = true;
                Ok((None, ReuseSource::Unavailable))
            }
            Counted::Nothing => Ok((None, ReuseSource::Unavailable)),
        }
    }

    /// Waits until the counters have moved by the prompt of one request.
    async fn counted(&self, before: &Snapshot, prompt_tokens: u64) -> Result<Counted, Stop> {
        let give_up = Instant::now() + COUNTERS_WAIT;
        loop {
            if let Some(after) = self.counters_now().await? {
                let Ok(delta) = difference(before, &after) else {
                    return Ok(Counted::Nothing);
                };
                let total = delta.total();
                let seen = total.prompt_tokens.unwrap_or(total.queries);
                if seen > prompt_tokens || total.queries > prompt_tokens {
                    return Ok(Counted::Foreign);
                }
                if seen == prompt_tokens && total.queries == prompt_tokens {
                    let external = total.external_hits.unwrap_or(0);
                    return Ok(Counted::Tokens(total.hits.saturating_add(external)));
                }
            }
            if Instant::now() >= give_up {
                return Ok(Counted::Nothing);
            }
            unless(&self.stop, sleep(COUNTERS_PAUSE)).await?;
        }
    }

    /// The counters; `None` where they cannot be read.
    async fn counters_now(&self) -> Result<Option<Snapshot>, Stop> {
        self.time_left()?;
        let Some(counters) = &self.counters else {
            return Ok(None);
        };
        let scrape = unless(&self.stop, counters.scrape()).await?;
        Ok(scrape.ok().map(|scrape| scrape.snapshot))
    }

    /// Time until the budget is used up, at most a request's own limit.
    fn time_left(&self) -> Result<Duration, Stop> {
        let Some(deadline) = self.deadline else {
            return Ok(self.timeout);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Stop::Budget);
        }
        Ok(left)
    }

    /// Why the counters did not tell the reuse of a request.
    pub(super) fn why_unavailable(&self) -> &'static str {
        match (self.foreign, &self.counters) {
            (true, _) => "other requests moved the counters too",
            (false, Some(_)) => "the hit counters did not follow the request",
            (false, None) => "the metrics page has no hit counters",
        }
    }

    /// Prompt tokens that others sent while the probe ran, where the counters
    /// tell. Usage tells nothing of them, yet they evict.
    pub(super) async fn foreign_tokens(&self) -> Option<u64> {
        let before = self.first.as_ref().filter(|_| !self.uncounted)?;
        let after = self.counters.as_ref()?.scrape().await.ok()?.snapshot;
        let total = difference(before, &after).ok()?.total();
        let seen = total.prompt_tokens.unwrap_or(total.queries);
        Some(seen.saturating_sub(self.prompt_tokens)).filter(|tokens| *tokens > 0)
    }
}

/// Does `work` unless the user stops the probe first.
pub(super) async fn unless<T>(
    stop: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, Stop> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Stop::Interrupted),
        done = work => Ok(done),
    }
}
