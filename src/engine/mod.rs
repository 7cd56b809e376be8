//! What a server's metrics page says: Prometheus text, engine adapters, and the
//! difference of two snapshots. Pure; bytes come from `service`. It has never
//! heard of requests: what was sent is told to [`agreement`] as a number.

mod adapter;
mod agreement;
mod delta;
mod error;
mod exposition;
mod facts;
mod page;
mod rank;

use std::collections::BTreeMap;

use serde::Serialize;

pub use adapter::EngineChoice;
pub use agreement::{CounterFinding, agreement};
pub use delta::{Delta, DifferenceError, Gains, Regression, difference, gains};
pub use error::MetricsError;
pub use exposition::{Line, LineError, Sample, lines};

use crate::units::DpRank;

/// How a page is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Ranks that must be there, at least 1.
    pub dp_size: u32,
    /// Engine label to rank, before the digits at the label's end are tried.
    pub engine_label_map: BTreeMap<String, DpRank>,
    /// `model_name` to choose where the page shows several.
    pub model: Option<String>,
    /// Whose names are read.
    pub engine: EngineChoice,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            dp_size: 1,
            engine_label_map: BTreeMap::new(),
            model: None,
            engine: EngineChoice::Auto,
        }
    }
}

/// Reads one metrics page. Queries and hits of every rank `0..dp_size` must be
/// there; everything else is `None` where the page lacks it.
pub fn read(page: &str, options: &ReadOptions) -> Result<Snapshot, MetricsError> {
    page::read(page, options)
}

/// Counters and gauges of one rank at one moment. Counts are tokens unless the
/// name says otherwise; `None` where the engine does not publish the series.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RankSnapshot {
    /// Prompt tokens looked up in the local prefix cache.
    pub queries: u64,
    /// Prompt tokens found there.
    pub hits: u64,
    /// Tokens looked up in an external (connector) tier.
    pub external_queries: Option<u64>,
    /// Tokens found in an external tier.
    pub external_hits: Option<u64>,
    /// Prompt tokens of all admitted requests.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens served from any cache, each request counted once.
    pub prompt_tokens_cached: Option<u64>,
    /// Generated tokens.
    pub generation_tokens: Option<u64>,
    /// Requests preempted so far.
    pub preemptions: Option<u64>,
    /// Share of the KV pool in use, 0..=1.
    pub kv_cache_usage: Option<f64>,
    /// Requests running now.
    pub requests_running: Option<u64>,
    /// Requests waiting now.
    pub requests_waiting: Option<u64>,
    /// When the counters began, in milliseconds of Unix time: a restart moves
    /// it, whatever the counters have reached since. vLLM behind several API
    /// servers does not say.
    pub counting_since_ms: Option<u64>,
}

/// One metrics page, read by an engine adapter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// Ranks 0…dp−1.
    pub ranks: BTreeMap<DpRank, RankSnapshot>,
    /// Names actually used: `queries`, `hits`, `kv` to the series' name.
    pub metric_names: BTreeMap<String, String>,
    /// The same for the quantities that the reference does not read.
    pub other_metric_names: BTreeMap<String, String>,
    /// The engine's own facts, where the page has them.
    pub facts: EngineFacts,
}

/// What the metrics page says of the engine's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineFacts {
    /// `vllm` or `sglang`.
    pub engine: Option<String>,
    /// Tokens per block as the engine states it.
    pub block_size: Option<u64>,
    /// Blocks of the pool of one rank.
    pub num_gpu_blocks: Option<u64>,
    /// Tokens that the pool of one rank holds.
    pub kv_cache_tokens: Option<u64>,
    /// Whether prefix caching is on.
    pub prefix_caching: Option<bool>,
    /// Whether the block size was given on the engine's command line, in which
    /// case the page repeats it whatever the model really uses.
    pub block_size_set_by_user: Option<bool>,
    /// Model names with series on the page, sorted.
    pub model_names: Vec<String>,
}

/// `after − before` of one rank's counters, in tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RankDelta {
    /// Local cache queries.
    pub queries: u64,
    /// Local cache hits.
    pub hits: u64,
    /// External tier queries.
    pub external_queries: Option<u64>,
    /// External tier hits.
    pub external_hits: Option<u64>,
    /// Prompt tokens admitted.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens served from a cache.
    pub prompt_tokens_cached: Option<u64>,
    /// Generated tokens.
    pub generation_tokens: Option<u64>,
    /// Preempted requests.
    pub preemptions: Option<u64>,
}
