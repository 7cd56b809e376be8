//! Reading counters that may lag behind what was sent. A poll goes on until the
//! growth of the prompt tokens is what the requests reported, or its time is
//! up. On vLLM the first reading already agrees (75 of 75 seen on 0.32.0);
//! other engines lag.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: waits for a server, by the clock"
)]

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::drive::phases::{Patience, PhaseError, Sent, Session};
use crate::engine::{Delta, RankDelta, Snapshot, difference};
use crate::service::{Completion, ControlError, ControlPrompt, Scrape};
use crate::units::DpRank;

/// How a reading came about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettleReport {
    /// Whether the counters agree with what was sent, or have at least stopped
    /// moving where that is not known.
    pub settled: bool,
    /// Pages read.
    pub polls: u64,
    /// Prompt tokens that the requests reported, where all did.
    pub expected_prompt_tokens: Option<u64>,
    /// Growth of the counter.
    pub observed_prompt_tokens: u64,
    /// `prompt_tokens`, or `queries` where the engine has no such counter.
    pub counter: &'static str,
    /// From the first poll to the last.
    pub elapsed_seconds: f64,
}

/// One settled reading of the counters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// The page as it came.
    pub raw_prometheus: String,
    /// What it says.
    pub snapshot: Snapshot,
    /// How it came about.
    pub settle: SettleReport,
}

/// One request, and what the counters did meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) completion: Completion,
    pub(super) delta: Delta,
    pub(super) settled: bool,
}

/// Where a number of cached tokens comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CachedSource {
    /// The answer's usage.
    Usage,
    /// The counters, while nobody else was served.
    Counters,
    /// Neither.
    Unavailable,
}

impl Look {
    /// Prompt tokens by usage, else by the counters.
    pub(super) fn prompt_tokens(&self) -> u64 {
        match self.completion.usage {
            Some(usage) => usage.prompt_tokens,
            None => looked_up(&self.delta.total()),
        }
    }

    /// Whether the counters grew by more than this request.
    pub(super) fn is_disturbed(&self) -> bool {
        looked_up(&self.delta.total()) > self.prompt_tokens()
    }

    /// Ranks whose counters moved.
    pub(super) fn moved(&self) -> Vec<DpRank> {
        let moved = self.delta.ranks.iter();
        moved
            .filter(|(_, one)| looked_up(one) > 0)
            .map(|(rank, _)| *rank)
            .collect()
    }

    /// Cached tokens: usage, else the counters if they are about this request
    /// alone. Absent is never taken for 0.
    pub(super) fn cached(&self) -> (Option<u64>, CachedSource) {
        let by_usage = self.completion.usage.and_then(|usage| usage.cached_tokens);
        if by_usage.is_some() {
            return (by_usage, CachedSource::Usage);
        }
        let total = self.delta.total();
        if self.settled && !self.is_disturbed() && looked_up(&total) > 0 {
            let hits = total.hits.saturating_add(total.external_hits.unwrap_or(0));
            return (Some(hits), CachedSource::Counters);
        }
        (None, CachedSource::Unavailable)
    }
}

/// Prompt tokens that went through a rank.
fn looked_up(delta: &RankDelta) -> u64 {
    delta.prompt_tokens.unwrap_or(delta.queries)
}

/// A pause that doubles.
pub(super) struct Pauses {
    next: Duration,
    most: Duration,
    deadline: Instant,
}

impl Pauses {
    pub(super) fn new(patience: &Patience, budget: Duration) -> Self {
        Self {
            next: patience.pause_first,
            most: patience.pause_most,
            deadline: Instant::now() + budget,
        }
    }

    /// Waits, and says whether there was time for it.
    pub(super) async fn wait(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        sleep(self.next.min(left)).await;
        self.next = (self.next * 2).min(self.most);
        true
    }
}

impl Session {
    /// The reading before the formal load: everything sent so far is in it.
    pub async fn baseline(&mut self) -> Result<Reading, PhaseError> {
        let since = self.latest.clone();
        let reading = self.settled(since.as_ref(), self.sent.0).await?;
        self.baseline = Some(reading.snapshot.clone());
        Ok(reading)
    }

    /// The reading after the formal load. `expected_prompt_tokens` is the sum
    /// of what every attempt that reached the server reported; `None` where
    /// one did not report.
    pub async fn after(
        &mut self,
        expected_prompt_tokens: Option<u64>,
    ) -> Result<Reading, PhaseError> {
        let since = self.baseline.clone();
        self.settled(since.as_ref(), expected_prompt_tokens).await
    }

    /// Reads until the growth since `since` reaches `expected`, or, where that
    /// is not known, until two readings are alike.
    pub(super) async fn settled(
        &mut self,
        since: Option<&Snapshot>,
        expected: Option<u64>,
    ) -> Result<Reading, PhaseError> {
        let started = Instant::now();
        let patience = self.options.patience;
        let mut pauses = Pauses::new(&patience, patience.settle);
        let mut polls = 0;
        let mut previous: Option<Snapshot> = None;
        loop {
            polls += 1;
            let scrape = match self.client.scrape().await {
                Ok(scrape) => scrape,
                Err(error) if may_pass(&error) && pauses.wait().await => continue,
                Err(error) => return Err(metrics_failure(error)),
            };
            let (observed, counter, sound) = growth(since, &scrape.snapshot);
            let settled = match expected {
                Some(expected) if since.is_some() => observed >= expected,
                _ => previous
                    .as_ref()
                    .is_some_and(|earlier| earlier.ranks == scrape.snapshot.ranks),
            };
            if settled || !sound || !pauses.wait().await {
                self.latest = Some(scrape.snapshot.clone());
                self.sent = Sent::NOTHING;
                return Ok(reading(
                    scrape,
                    SettleReport {
                        settled: settled && sound,
                        polls,
                        expected_prompt_tokens: expected,
                        observed_prompt_tokens: observed,
                        counter,
                        elapsed_seconds: started.elapsed().as_secs_f64(),
                    },
                ));
            }
            previous = Some(scrape.snapshot);
        }
    }

    /// A reading that everything sent so far is in.
    pub(super) async fn in_sync(&mut self) -> Result<Snapshot, PhaseError> {
        match self.latest.clone() {
            Some(latest) if self.sent == Sent::NOTHING => Ok(latest),
            since => Ok(self.settled(since.as_ref(), self.sent.0).await?.snapshot),
        }
    }

    /// A reading of now, so that traffic of others up to here is behind.
    pub(super) async fn refresh(&mut self) -> Result<Snapshot, PhaseError> {
        let since = self.latest.clone();
        let expected = self.sent.0.or(Some(0));
        Ok(self.settled(since.as_ref(), expected).await?.snapshot)
    }

    /// Sends one request and reads what the counters made of it.
    pub(super) async fn look(
        &mut self,
        prompt: &ControlPrompt,
        rank: Option<DpRank>,
        salt: Option<&str>,
    ) -> Result<Look, PhaseError> {
        let before = self.in_sync().await?;
        let completion = self.client.complete_salted(prompt, rank, salt).await?;
        self.look_after(&before, completion).await
    }

    /// What the counters made of a request that is answered. Without usage at
    /// least one token must have been counted.
    pub(super) async fn look_after(
        &mut self,
        before: &Snapshot,
        completion: Completion,
    ) -> Result<Look, PhaseError> {
        let expected = completion.usage.map_or(1, |usage| usage.prompt_tokens);
        let reading = self.settled(Some(before), Some(expected)).await?;
        Ok(Look {
            completion,
            delta: difference(before, &reading.snapshot)?,
            settled: reading.settle.settled,
        })
    }
}

fn reading(scrape: Scrape, settle: SettleReport) -> Reading {
    Reading {
        raw_prometheus: scrape.page,
        snapshot: scrape.snapshot,
        settle,
    }
}

/// Growth of the prompt tokens since `since`, the counter that tells it, and
/// whether no counter went backwards.
fn growth(since: Option<&Snapshot>, now: &Snapshot) -> (u64, &'static str, bool) {
    let Some(since) = since else {
        return (0, "prompt_tokens", true);
    };
    let Ok(delta) = difference(since, now) else {
        return (0, "prompt_tokens", false);
    };
    let total = delta.total();
    match total.prompt_tokens {
        Some(tokens) => (tokens, "prompt_tokens", true),
        None => (total.queries, "queries", true),
    }
}

/// Whether a later page may be better.
fn may_pass(error: &ControlError) -> bool {
    match error {
        ControlError::Metrics(error) => error.may_pass_with_traffic(),
        other => other.is_transient(),
    }
}

/// A missing or refused page is a failure of the metrics endpoint, whatever
/// its status was.
pub(super) fn metrics_failure(error: ControlError) -> PhaseError {
    match &error {
        ControlError::Status { status, .. } if !matches!(status, 401 | 403) => PhaseError::new(
            "METRICS_UNAVAILABLE",
            error.to_string(),
            "check service.metrics_url; SGLang needs --enable-metrics",
        ),
        _ => error.into(),
    }
}
