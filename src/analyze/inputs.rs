//! What a judgment is made of: plan, records, counters and the facts of the run,
//! as plain values. The file knows nothing of where they were read from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counters::Counters;
use crate::engine::EngineFacts;
use crate::measure::{Calibration, RequestRecord};
use crate::rng::Seed;
use crate::scenario::CacheMode;
use crate::stats::Percent;
use crate::theory::{SentRequest, ServerView};
use crate::units::{BlockSize, DpRank, GroupIndex, RunOffset};

/// Everything [`analyze`](super::analyze) looks at.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Cold or warm start.
    pub mode: CacheMode,
    /// Block sizes, as far as known.
    pub block: BlockFacts,
    /// Tokens the server puts in front of each prompt (a BOS is 1).
    pub server_prefix_tokens: u64,
    /// Tokens the server puts behind each prompt (an EOS is 1).
    pub server_suffix_tokens: u64,
    /// The plan, in send order.
    pub planned: &'a [PlannedRow],
    /// What was measured, in any order; at most one record a planned request.
    pub records: &'a [RequestRecord],
    /// What the server's counters say of the formal phase.
    pub counters: &'a Counters,
    /// What the server says of itself.
    pub engine: &'a EngineFacts,
    /// How reset, warm-up and routing went.
    pub control: &'a ControlFacts,
    /// KV usage beside the load.
    pub kv: &'a KvFacts,
    /// The load profile.
    pub profile: &'a ProfileFacts,
    /// How well the client kept time.
    pub client: &'a ClientHealth,
    /// From where on something is worth a finding.
    pub limits: Limits,
    /// Objectives, `ttft` / `tpot` / `e2el` to milliseconds.
    pub slo: &'a BTreeMap<String, f64>,
    /// Percentiles to report besides the standard ones.
    pub percentiles: &'a [Percent],
    /// Seed of the resampling.
    pub seed: &'a Seed,
}

/// One planned request, tokens as the plan counts them (no special tokens).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRow {
    /// Place in the send order, from 0.
    pub sequence_index: u32,
    /// `request-%08d`.
    pub request_id: String,
    /// Prefix group.
    pub group: GroupIndex,
    /// Rank asked for; `None` when the server balances.
    pub dp_rank: Option<DpRank>,
    /// Place in its lane; `None` in warm-up mode.
    pub lane_sequence: Option<u32>,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Leading tokens shared with the group.
    pub shared_prefix_tokens: u64,
    /// Output limit.
    pub max_tokens: u64,
    /// Hit tokens of the planned theory.
    pub theory_hit_tokens: u64,
}

/// A sequence in which each request waits for the one before: group and rank.
pub(super) type Lane = (GroupIndex, Option<DpRank>);

impl PlannedRow {
    pub(super) fn lane(&self) -> Lane {
        (self.group, self.dp_rank)
    }

    /// Prompt tokens as the server counts them.
    pub(super) fn prompt_tokens(&self, view: ServerView) -> u64 {
        view.input_tokens(self.input_tokens)
    }

    /// The request, as if it had been sent and answered.
    pub(super) fn as_sent(&self) -> SentRequest {
        SentRequest {
            group: self.group,
            rank: self.dp_rank,
            shared_prefix_tokens: self.shared_prefix_tokens,
            input_tokens: self.input_tokens,
            reached_server: true,
        }
    }

    /// The most that any cache could serve.
    pub(super) fn potential_tokens(&self, view: ServerView) -> u64 {
        let shared = self.shared_prefix_tokens;
        view.hit_tokens(shared, shared, self.input_tokens)
    }
}

/// The server's prefix-cache block, by source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// The scenario's.
    pub configured: BlockSize,
    /// Stated by the engine; wrong on hybrid models.
    pub engine: Option<BlockSize>,
    /// Measured by probes.
    pub measured: Option<BlockSize>,
}

impl BlockFacts {
    /// Only the scenario's word.
    pub fn configured(block: BlockSize) -> Self {
        Self {
            configured: block,
            engine: None,
            measured: None,
        }
    }

    /// The size the server's view is computed with: measured, else the
    /// engine's, else the scenario's.
    pub fn effective(self) -> BlockSize {
        self.measured.or(self.engine).unwrap_or(self.configured)
    }
}

/// How the phases before the load went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlFacts {
    /// Whether the cache is known to have been empty.
    pub cold: ColdProof,
    /// The scenario goes on without a proven reset; the reason, if it had to.
    pub assumed_empty: Option<String>,
    /// Whether the rank header is honored.
    pub routing: Routing,
    /// Groups and ranks whose warm-up could not be verified.
    pub warmup_missing: Vec<(GroupIndex, DpRank)>,
    /// The run was interrupted.
    pub interrupted: bool,
}

/// Whether the cache is known to have been empty after the reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColdProof {
    /// Nothing is known, nothing was promised (offline analysis).
    #[default]
    Unknown,
    /// A prompt that was cached before the reset missed after it.
    Proven,
    /// It could not be established, for this reason.
    Unproven(String),
    /// It still served this many tokens.
    NotCold {
        /// Tokens served from a cache that should have been empty.
        cached_tokens: u64,
    },
}

/// Whether requests go to the rank they ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// One rank, or not looked at.
    #[default]
    Unknown,
    /// Each rank's counters moved for its own probe.
    Proven,
    /// Another rank answered.
    Ignored {
        /// Rank asked for.
        asked: DpRank,
        /// Rank whose counters moved.
        moved: DpRank,
    },
}

/// The load profile as far as a judgment needs it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileFacts {
    /// Stages in order; records name them by index.
    pub stages: Vec<StageFacts>,
}

/// One stage of the profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageFacts {
    /// What paces it.
    pub load: StageLoad,
    /// Requests that were due but never sent.
    pub dropped: u64,
}

/// What paces a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StageLoad {
    /// Completions: this many requests in flight.
    Closed {
        /// Target in flight.
        concurrency: u32,
    },
    /// The clock.
    Open {
        /// Arrivals a second; `None` for all at once.
        rate: Option<f64>,
        /// Most requests in flight.
        max_in_flight: Option<u32>,
    },
}

impl StageLoad {
    /// The most requests it lets be in flight.
    pub(super) fn cap(self) -> Option<u32> {
        match self {
            Self::Closed { concurrency } => Some(concurrency),
            Self::Open { max_in_flight, .. } => max_in_flight,
        }
    }
}

/// How well the client kept time; absent where it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClientHealth {
    /// Lateness of a 1 ms ticker beside the load, 99th percentile, ms.
    pub runtime_lag_p99_ms: Option<f64>,
    /// Process CPU time over the time of its cores, 0..=1.
    pub cpu_share: Option<f64>,
    /// The client's own error on this machine.
    pub calibration: Option<Calibration>,
}

/// What the KV poller saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KvFacts {
    /// Samples in order of time.
    pub samples: Vec<KvSample>,
    /// Scrapes that failed.
    pub failures: u64,
}

/// One look at the gauges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KvSample {
    /// When the scrape was started.
    pub at: RunOffset,
    /// By rank.
    pub ranks: BTreeMap<DpRank, KvGauges>,
}

/// Gauges of one rank; absent where the engine does not publish them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KvGauges {
    /// Share of the KV pool in use, 0..=1.
    pub usage: Option<f64>,
    /// Requests running.
    pub running: Option<u64>,
    /// Requests waiting.
    pub waiting: Option<u64>,
}

/// From where on something is worth a finding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Actual against executed theory, percentage points; strictly more is a
    /// deviation.
    pub actual_warning_pp: f64,
    /// Send lag, 99th percentile, ms.
    pub send_lag_p99_ms: f64,
    /// Ticker lateness, 99th percentile, ms.
    pub runtime_lag_p99_ms: f64,
    /// Process CPU share, 0..=1.
    pub cpu_share: f64,
    /// Mean queue delay of an open stage, ms.
    pub queue_delay_mean_ms: f64,
    /// Successes below which percentiles mean little.
    pub samples_min: u64,
    /// KV pool use, 0..=1.
    pub kv_usage: f64,
    /// Share of content chunks that shared a read with another.
    pub coalesced_share: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            actual_warning_pp: 5.0,
            send_lag_p99_ms: 5.0,
            runtime_lag_p99_ms: 5.0,
            cpu_share: 0.8,
            queue_delay_mean_ms: 100.0,
            samples_min: 100,
            kv_usage: 0.95,
            coalesced_share: 0.1,
        }
    }
}
