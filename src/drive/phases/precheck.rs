//! Before anything is sent that counts: is the server there, is it the right
//! one, does it understand what will be asked of it? Ranks are proved by their
//! counters; a 200 says nothing, since a server that does not know the rank
//! header ignores it (SemiAnalysisAI/InferenceX#2696).

#![allow(
    clippy::disallowed_methods,
    reason = "edge: probes a server, timed by the clock"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::drive::phases::settle::{Look, metrics_failure};
use crate::drive::phases::{BlockReport, PhaseError, PhaseWarning, Session};
use crate::engine::EngineFacts;
use crate::service::{ControlError, ControlPrompt, ServedModel};
use crate::units::DpRank;

/// Probes that prove routing, over all ranks. A server that ignores the header
/// and picks at random passes them with probability `dp_size^-8`.
const ROUTING_PROBES_MIN: u32 = 8;

/// Each rank is probed at least twice in a row, which a server that takes turns
/// does not survive.
const PROBES_PER_RANK_MIN: u32 = 2;

/// Attempts at a probe that other traffic blurs.
const BLURRED_ATTEMPTS_MAX: u32 = 5;

/// What the precheck found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Precheck {
    /// Always true: a failure is an error.
    pub ok: bool,
    /// Ranks that answered.
    pub ranks: Vec<DpRank>,
    /// Names of the series that are read.
    pub metric_names: BTreeMap<String, String>,
    /// What the engine says of itself.
    pub facts: EngineFacts,
    /// The server's version, where it tells.
    pub version: Option<String>,
    /// Its model list, where it has one.
    pub models: Vec<ServedModel>,
    /// Context length of the model in tokens.
    pub max_model_len: Option<u64>,
    /// The probes of the ranks.
    pub routing: Vec<RoutingProbe>,
    /// What is known of the block size.
    pub block: BlockReport,
    /// What is doubtful.
    pub warnings: Vec<PhaseWarning>,
    /// Time it took.
    pub elapsed_seconds: f64,
}

impl Precheck {
    /// Whether each of several ranks was seen to serve what it was asked for.
    pub fn routing_proven(&self) -> bool {
        let clear = |probe: &RoutingProbe| probe.moved == [probe.dp_rank];
        self.ranks.len() > 1
            && self
                .ranks
                .iter()
                .all(|rank| self.routing.iter().any(|one| one.dp_rank == *rank))
            && self.routing.iter().all(clear)
    }
}

/// One probe of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoutingProbe {
    /// The rank asked for.
    pub dp_rank: DpRank,
    /// Ranks whose counters moved.
    pub moved: Vec<DpRank>,
    /// Prompt tokens of the probe.
    pub prompt_tokens: u64,
}

impl Session {
    /// Waits for a server that is still starting, at most `limit`.
    pub async fn ready(&self, limit: Duration) -> Result<(), PhaseError> {
        Ok(self.client.ready(limit).await?)
    }

    /// Checks the server. Nothing it sends can hit or be hit by a formal
    /// request: its texts carry the session's nonce.
    pub async fn precheck(&mut self) -> Result<Precheck, PhaseError> {
        let started = Instant::now();
        let mut warnings = Vec::new();
        let models = self.served_models().await?;
        let max_model_len = self.check_context(&models)?;
        let version = self.client.version().await.unwrap_or(None);
        self.first_reading().await?;
        let routing = self.probe_ranks(&mut warnings).await?;
        let snapshot = self.latest.clone().unwrap_or_default();
        check_facts(&snapshot.facts)?;
        self.block.configured_tokens = self.options.block_size.tokens();
        self.block.metric_tokens = snapshot.facts.block_size;
        if self.options.measure_block_size {
            self.measure_block(max_model_len, &mut warnings).await?;
        }
        self.compare_metric_block(&mut warnings);
        self.warn_of_absent_usage(&mut warnings);
        Ok(Precheck {
            ok: true,
            ranks: snapshot.ranks.keys().copied().collect(),
            metric_names: snapshot.metric_names,
            facts: snapshot.facts,
            version,
            models,
            max_model_len,
            routing,
            block: self.block.clone(),
            warnings,
            elapsed_seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// The model list, which must hold the model. A server without a list is
    /// asked nothing; one that is not there, or refuses the key, is an error.
    async fn served_models(&self) -> Result<Vec<ServedModel>, PhaseError> {
        let models = match self.client.models().await {
            Ok(models) => models,
            Err(error) if matches!(error.status(), Some(401 | 403)) => return Err(error.into()),
            Err(
                error @ (ControlError::Unreachable { .. }
                | ControlError::Timeout { .. }
                | ControlError::Broken { .. }),
            ) => return Err(error.into()),
            Err(_) => Vec::new(),
        };
        let wanted = &self.client.settings().model;
        if !models.is_empty() && !models.iter().any(|model| model.id == *wanted) {
            return Err(model_not_found(wanted, &models));
        }
        Ok(models)
    }

    fn check_context(&self, models: &[ServedModel]) -> Result<Option<u64>, PhaseError> {
        let wanted = &self.client.settings().model;
        let found = models.iter().find(|model| model.id == *wanted);
        let limit = found.and_then(|model| model.max_model_len);
        let prompt = self.options.longest_prompt_tokens;
        let output = self.options.max_output_tokens;
        match limit {
            Some(limit) if prompt.saturating_add(output) > limit => Err(PhaseError::new(
                "CONTEXT_TOO_SHORT",
                format!(
                    "the longest request needs {prompt} prompt and {output} output tokens, the \
                     model's context is {limit} tokens"
                ),
                "shorten the requests, or start the server with a larger --max-model-len",
            )),
            _ => Ok(limit),
        }
    }

    /// A first page, if the server has one already: some series appear only
    /// with the first request.
    async fn first_reading(&mut self) -> Result<(), PhaseError> {
        match self.client.scrape().await {
            Ok(scrape) => self.latest = Some(scrape.snapshot),
            Err(ControlError::Metrics(error)) if error.may_pass_with_traffic() => {}
            Err(error) => return Err(metrics_failure(error)),
        }
        Ok(())
    }

    async fn probe_ranks(
        &mut self,
        warnings: &mut Vec<PhaseWarning>,
    ) -> Result<Vec<RoutingProbe>, PhaseError> {
        let dp_size = self.client.settings().dp_size;
        if self.latest.is_none() {
            self.first_requests(dp_size).await?;
        }
        let repeats = match dp_size {
            1 => 1,
            ranks => ROUTING_PROBES_MIN.div_ceil(ranks).max(PROBES_PER_RANK_MIN),
        };
        let mut probes = Vec::new();
        for rank in (0..dp_size).map(DpRank) {
            for repeat in 0..repeats {
                probes.push(self.probe(rank, repeat, warnings).await?);
            }
        }
        Ok(probes)
    }

    /// One request to each rank of a server whose page says nothing yet, and
    /// the page that must follow.
    async fn first_requests(&mut self, dp_size: u32) -> Result<(), PhaseError> {
        for rank in (0..dp_size).map(DpRank) {
            let prompt = self.probe_prompt(rank, "first");
            let sent = self.client.complete(&prompt, Some(rank)).await;
            sent.map_err(|error| self.probe_failed(rank, error))?;
        }
        self.settled(None, None).await?;
        Ok(())
    }

    fn probe_prompt(&self, rank: DpRank, which: &str) -> ControlPrompt {
        let nonce = &self.options.nonce;
        ControlPrompt::Text(format!(
            "{nonce} prefix-cache-capability-probe-{rank} {which}"
        ))
    }

    /// Probes one rank until its answer is clear.
    async fn probe(
        &mut self,
        rank: DpRank,
        repeat: u32,
        warnings: &mut Vec<PhaseWarning>,
    ) -> Result<RoutingProbe, PhaseError> {
        let alone = self.client.settings().dp_size == 1;
        let mut attempt = 1;
        loop {
            let prompt = self.probe_prompt(rank, &format!("{repeat}.{attempt}"));
            let look = self.probe_look(&prompt, rank).await?;
            let probe = RoutingProbe {
                dp_rank: rank,
                moved: look.moved(),
                prompt_tokens: look.prompt_tokens(),
            };
            if probe.moved.is_empty() {
                return self.nothing_moved(probe, alone, warnings);
            }
            if alone || probe.moved == [rank] {
                return Ok(probe);
            }
            if look.settled && !look.is_disturbed() {
                return Err(not_honored(&probe));
            }
            if attempt == BLURRED_ATTEMPTS_MAX {
                return blurred(probe, warnings);
            }
            attempt += 1;
        }
    }

    async fn probe_look(
        &mut self,
        prompt: &ControlPrompt,
        rank: DpRank,
    ) -> Result<Look, PhaseError> {
        let before = self.in_sync().await?;
        let sent = self.client.complete(prompt, Some(rank)).await;
        let completion = sent.map_err(|error| self.probe_failed(rank, error))?;
        self.look_after(&before, completion).await
    }

    fn nothing_moved(
        &self,
        probe: RoutingProbe,
        alone: bool,
        warnings: &mut Vec<PhaseWarning>,
    ) -> Result<RoutingProbe, PhaseError> {
        let message = format!(
            "no counter moved within {} s of a probe of rank {}",
            self.options.patience.settle.as_secs_f64(),
            probe.dp_rank
        );
        if alone {
            warnings.push(PhaseWarning::new("COUNTERS_NOT_MOVING", message));
            return Ok(probe);
        }
        Err(PhaseError::new(
            "COUNTERS_NOT_MOVING",
            message,
            "is service.metrics_url the page of the server behind service.inference_url?",
        ))
    }

    /// A refused probe. The same request to rank 0 passed, so that a refusal
    /// of a later rank is about the rank.
    fn probe_failed(&self, rank: DpRank, error: ControlError) -> PhaseError {
        let attempt = format!("probe of DP rank {rank}");
        let settings = self.client.settings();
        match error.status() {
            Some(400..=599) if rank.0 > 0 && !matches!(error.status(), Some(401 | 403)) => {
                PhaseError::new(
                    "DP_SIZE_MISMATCH",
                    format!("{attempt} (dp_size is {}): {error}", settings.dp_size),
                    "set service.dp_size to the number of ranks the server has",
                )
            }
            Some(404) if error.to_string().contains(&settings.model) => PhaseError::new(
                "MODEL_NOT_FOUND",
                format!("{attempt}: {error}"),
                "set service.model to a model that the server serves",
            ),
            _ => PhaseError::from(error).during(&attempt),
        }
    }

    fn warn_of_absent_usage(&self, warnings: &mut Vec<PhaseWarning>) {
        if self.block.cached_tokens_in_usage == Some(false) {
            warnings.push(PhaseWarning::new(
                "CACHED_TOKENS_NOT_REPORTED",
                "answers do not tell their cached tokens; hits per request are not known (vLLM: \
                 --enable-prompt-tokens-details, SGLang: --enable-cache-report)",
            ));
        }
    }
}

fn check_facts(facts: &EngineFacts) -> Result<(), PhaseError> {
    if facts.prefix_caching == Some(false) {
        return Err(PhaseError::new(
            "PREFIX_CACHING_OFF",
            "the engine says that prefix caching is off",
            "start the server with --enable-prefix-caching",
        ));
    }
    Ok(())
}

fn model_not_found(wanted: &str, models: &[ServedModel]) -> PhaseError {
    let served: Vec<String> = models.iter().map(|one| format!("`{}`", one.id)).collect();
    PhaseError::new(
        "MODEL_NOT_FOUND",
        format!(
            "the server does not serve `{wanted}`; it serves {}",
            served.join(", ")
        ),
        "set service.model to one of them",
    )
}

/// The verdict on a probe that other traffic blurred each time.
fn blurred(
    probe: RoutingProbe,
    warnings: &mut Vec<PhaseWarning>,
) -> Result<RoutingProbe, PhaseError> {
    if !probe.moved.contains(&probe.dp_rank) {
        return Err(not_honored(&probe));
    }
    warnings.push(PhaseWarning::new(
        "DP_ROUTING_UNPROVEN",
        format!(
            "other traffic moved several ranks in each of {BLURRED_ATTEMPTS_MAX} probes of rank {}",
            probe.dp_rank
        ),
    ));
    Ok(probe)
}

fn not_honored(probe: &RoutingProbe) -> PhaseError {
    let moved: Vec<String> = probe.moved.iter().map(ToString::to_string).collect();
    PhaseError::new(
        "DP_ROUTING_NOT_HONORED",
        format!(
            "a request for DP rank {} was served by rank {} (the rank header is ignored: \
             RANK_HEADER_IGNORED)",
            probe.dp_rank,
            moved.join(", ")
        ),
        "vLLM honors X-data-parallel-rank from 0.11.2 on, and a proxy in between must pass it on",
    )
}
