//! An empty cache, asked for and then proved. A reset that answers 200 may have
//! done nothing, and one that emptied the GPU tier may leave another one warm
//! (vllm-project/vllm#12284, #57727), so a canary that was cached before must
//! be found nowhere after.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: asks a server to reset, timed by the clock"
)]

use serde::Serialize;
use tokio::time::Instant;

use crate::drive::phases::settle::{CachedSource, Look, Pauses};
use crate::drive::phases::{PhaseError, PhaseWarning, Session, unique_text};
use crate::service::{ControlPrompt, ResetAttempt, ResetVerdict};
use crate::units::DpRank;

/// How the cache came to be taken for empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetOutcome {
    /// The server did it.
    Reset,
    /// The run's salt keeps everything older away; the cache was left alone.
    IsolatedBySalt,
    /// Nobody did it; the scenario says to go on.
    Assumed,
}

/// What the canaries showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Every rank found its canary before and did not find it after.
    Cold,
    /// A canary was not found after, but it is not known whether it was cached
    /// before, or other traffic blurred the counters.
    Unproven,
    /// A canary was found after.
    NotCold,
    /// There was nothing to prove.
    Skipped,
}

/// One rank's canary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Canary {
    /// The rank.
    pub dp_rank: DpRank,
    /// Tokens of the canary.
    pub prompt_tokens: u64,
    /// Tokens found when it was sent a second time before the reset.
    pub cached_tokens_before: Option<u64>,
    /// Tokens found after, by usage or by the counters.
    pub cached_tokens_after: Option<u64>,
    /// Where that number comes from.
    pub source: CachedSource,
    /// Growth of the local hits with the request after.
    pub local_hits: u64,
    /// Growth of the external tier's hits with the request after.
    pub external_hits: Option<u64>,
    /// Whether other requests were counted meanwhile.
    pub disturbed: bool,
}

/// What the reset did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResetReport {
    /// How the cache came to be taken for empty.
    pub outcome: ResetOutcome,
    /// Every request to the reset endpoint.
    pub attempts: Vec<ResetAttempt>,
    /// What the canaries showed.
    pub proof: Proof,
    /// The canaries, where there was something to prove.
    pub canaries: Vec<Canary>,
    /// Why it failed, where the run goes on all the same.
    pub failure: Option<PhaseError>,
    /// What is doubtful.
    pub warnings: Vec<PhaseWarning>,
    /// Time it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// The canaries between the request before and the one after the reset.
struct Sown {
    prompt: ControlPrompt,
    rank: DpRank,
    cached: Option<u64>,
}

impl Session {
    /// Empties every cache tier and proves it. With `assume_empty_cache` a
    /// failure is a warning.
    pub async fn reset(&mut self) -> Result<ResetReport, PhaseError> {
        let started = Instant::now();
        let mut report = ResetReport {
            outcome: ResetOutcome::Reset,
            attempts: Vec::new(),
            proof: Proof::Skipped,
            canaries: Vec::new(),
            failure: None,
            warnings: Vec::new(),
            elapsed_ms: 0,
        };
        let configured = self.client.settings().reset_url.is_some();
        let done = if configured || self.options.isolated_by_salt {
            self.empty_and_prove(&mut report).await
        } else {
            Err(PhaseError::new(
                "RESET_UNAVAILABLE",
                "reset_url is not configured",
                "set service.reset_url, or pcload.cache_salt to per_run, or \
                 service.assume_empty_cache to true",
            ))
        };
        if let Err(error) = done {
            if !self.options.assume_empty_cache {
                return Err(error);
            }
            report.outcome = ResetOutcome::Assumed;
            report.warnings.push(PhaseWarning::new(
                "ASSUME_EMPTY_CACHE",
                if configured {
                    "reset failed; continuing by explicit configuration"
                } else {
                    "reset_url is not configured"
                },
            ));
            report.failure = Some(error);
        }
        let elapsed = started.elapsed().as_millis();
        report.elapsed_ms = u64::try_from(elapsed).unwrap_or(u64::MAX);
        Ok(report)
    }

    async fn empty_and_prove(&mut self, report: &mut ResetReport) -> Result<(), PhaseError> {
        let sown = self.sow().await?;
        if let Err(error) = self.ask(report).await {
            // A fresh salt isolates as well as a reset does.
            if !self.options.isolated_by_salt {
                return Err(error);
            }
            report.outcome = ResetOutcome::IsolatedBySalt;
            report.failure = Some(error);
        }
        // Requests that held blocks have ended meanwhile.
        self.refresh().await?;
        for one in sown {
            let canary = self.harvest(one).await?;
            report.canaries.push(canary);
        }
        judge_canaries(report)
    }

    /// Sends each rank a canary twice: the second answer shows that the first
    /// was cached.
    async fn sow(&mut self) -> Result<Vec<Sown>, PhaseError> {
        let salt = self.salt_before();
        // More than two whole blocks, a word being at least one token.
        let words = self.safe_block().tokens() * 2 + 8;
        let mut sown = Vec::new();
        self.refresh().await?;
        for rank in (0..self.client.settings().dp_size).map(DpRank) {
            let text = unique_text(&format!("canary-{rank}"), &self.options.nonce, words);
            let prompt = ControlPrompt::Text(text);
            self.canary_look(&prompt, rank, salt.as_deref()).await?;
            let second = self.canary_look(&prompt, rank, salt.as_deref()).await?;
            sown.push(Sown {
                prompt,
                rank,
                cached: second.cached().0,
            });
        }
        Ok(sown)
    }

    async fn harvest(&mut self, sown: Sown) -> Result<Canary, PhaseError> {
        let salt = self.client.settings().cache_salt.clone();
        let look = self
            .canary_look(&sown.prompt, sown.rank, salt.as_deref())
            .await?;
        let (cached_tokens_after, source) = look.cached();
        let total = look.delta.total();
        Ok(Canary {
            dp_rank: sown.rank,
            prompt_tokens: look.prompt_tokens(),
            cached_tokens_before: sown.cached,
            cached_tokens_after,
            source,
            local_hits: total.hits,
            external_hits: total.external_hits,
            disturbed: look.is_disturbed() || !look.settled,
        })
    }

    async fn canary_look(
        &mut self,
        prompt: &ControlPrompt,
        rank: DpRank,
        salt: Option<&str>,
    ) -> Result<Look, PhaseError> {
        self.look(prompt, Some(rank), salt)
            .await
            .map_err(|error| error.during(&format!("reset canary of DP rank {rank}")))
    }

    /// The salt of requests that stand for older traffic: none where the run's
    /// own salt is what must keep them away.
    fn salt_before(&self) -> Option<String> {
        if self.options.isolated_by_salt {
            return None;
        }
        self.client.settings().cache_salt.clone()
    }

    /// Asks for the reset until it is done, refused for good, or the time for
    /// it is up.
    async fn ask(&mut self, report: &mut ResetReport) -> Result<(), PhaseError> {
        let patience = self.options.patience;
        let mut pauses = Pauses::new(&patience, patience.reset);
        loop {
            let attempt = match self.client.reset().await {
                Ok(Some(attempt)) => attempt,
                Ok(None) => {
                    return Err(PhaseError::new(
                        "RESET_UNAVAILABLE",
                        "reset_url is not configured",
                        "",
                    ));
                }
                Err(error) => return Err(PhaseError::from(error).during("reset")),
            };
            report.attempts.push(attempt.clone());
            match attempt.verdict {
                ResetVerdict::Confirmed | ResetVerdict::Unconfirmed => return Ok(()),
                ResetVerdict::Busy => {
                    if !pauses.wait().await {
                        return Err(refused(&attempt, report.attempts.len()));
                    }
                }
                ResetVerdict::Unavailable => return Err(unavailable(&attempt)),
                ResetVerdict::Unauthorized => return Err(unauthorized(&attempt)),
                ResetVerdict::Refused => return Err(refused(&attempt, report.attempts.len())),
            }
        }
    }
}

fn judge_canaries(report: &mut ResetReport) -> Result<(), PhaseError> {
    if let Some(warm) = report.canaries.iter().find(|canary| canary.is_warm()) {
        report.proof = Proof::NotCold;
        return Err(not_cold(warm));
    }
    let unproven = report.canaries.iter().find(|canary| !canary.proves());
    report.proof = match unproven {
        None => Proof::Cold,
        Some(canary) => {
            report.warnings.push(PhaseWarning::new(
                "RESET_UNPROVEN",
                format!("DP rank {}: {}", canary.dp_rank, canary.doubt()),
            ));
            Proof::Unproven
        }
    };
    Ok(())
}

impl Canary {
    /// Whether anything gave a part of it back. Counters speak only while
    /// nobody else was served.
    fn is_warm(&self) -> bool {
        let counted = self.local_hits > 0 || self.external_hits.unwrap_or(0) > 0;
        self.cached_tokens_after.is_some_and(|tokens| tokens > 0) || (counted && !self.disturbed)
    }

    fn proves(&self) -> bool {
        self.cached_tokens_before.is_some_and(|tokens| tokens > 0)
            && self.cached_tokens_after == Some(0)
    }

    fn doubt(&self) -> &'static str {
        match (self.cached_tokens_before, self.cached_tokens_after) {
            (_, None) => "neither usage nor counters tell what the canary found after the reset",
            (None, _) => "neither usage nor counters tell whether the canary was cached before",
            (Some(0), _) => {
                "the canary was not cached before the reset, so its absence proves nothing"
            }
            _ => "the canary's answers do not agree",
        }
    }
}

fn refused(attempt: &ResetAttempt, attempts: usize) -> PhaseError {
    let success = match attempt.success {
        Some(success) => format!(", success {success}"),
        None => String::new(),
    };
    PhaseError::new(
        "RESET_REFUSED",
        format!(
            "the server refused to reset its cache in {attempts} attempts (status {}{success}: {})",
            attempt.status, attempt.message
        ),
        "blocks are held while requests run: stop other traffic, or set pcload.cache_salt to per_run",
    )
}

fn unavailable(attempt: &ResetAttempt) -> PhaseError {
    PhaseError::new(
        "RESET_UNAVAILABLE",
        format!(
            "the server has no such reset (status {}: {})",
            attempt.status, attempt.message
        ),
        "vLLM has /reset_prefix_cache only when started with VLLM_SERVER_DEV_MODE=1; SGLang's is \
         /flush_cache; pcload.cache_salt per_run needs no reset",
    )
}

fn unauthorized(attempt: &ResetAttempt) -> PhaseError {
    PhaseError::new(
        "UNAUTHORIZED",
        format!(
            "the reset was answered with {}: {}",
            attempt.status, attempt.message
        ),
        "set service.api_key or the environment variable PCLOAD_API_KEY",
    )
}

fn not_cold(canary: &Canary) -> PhaseError {
    let external = canary.external_hits.unwrap_or(0);
    let tier = if external > 0 && canary.local_hits == 0 {
        " (an external cache tier is still warm)"
    } else {
        ""
    };
    PhaseError::new(
        "NOT_COLD",
        format!(
            "after the reset, DP rank {} still found a part of what it had seen before{tier}: \
             cached tokens {}, local hits {}, external hits {external}",
            canary.dp_rank,
            canary
                .cached_tokens_after
                .map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string()),
            canary.local_hits,
        ),
        "reset the other tiers too (restart the server or the connector), or set \
         pcload.cache_salt to per_run",
    )
}
