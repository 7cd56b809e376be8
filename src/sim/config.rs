//! What a simulated server can be told. Every default is a healthy vLLM on
//! loopback; everything that is wrong with a server is in [`Faults`].

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::sim::faults::Faults;
use crate::units::BlockSize;

/// Which vLLM the server looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// 0.24.0: empty reset answers, lookups counted at every scheduler step.
    V0_24,
    /// 0.32.0.
    #[default]
    V0_32,
}

impl Release {
    /// The version as `/version` says it.
    pub const fn version(self) -> &'static str {
        match self {
            Self::V0_24 => "0.24.0",
            Self::V0_32 => "0.32.0",
        }
    }

    /// `system_fingerprint` of its answers (the hash is the recorded one).
    pub(super) const fn fingerprint(self) -> &'static str {
        match self {
            Self::V0_24 => "vllm-0.24.0-08b3fa1d",
            Self::V0_32 => "vllm-0.32.0-827171ee",
        }
    }
}

/// Where the time goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Continuous batching, each step as long as its cost.
    Batched(CostModel),
    /// Fixed times after arrival, whatever else runs: token `k` leaves at
    /// `ttft + k · itl`.
    Fixed {
        /// Arrival to first token.
        ttft: Duration,
        /// Token to token.
        itl: Duration,
    },
    /// Everything at once, as fast as the client reads.
    Flood,
}

impl Default for Pace {
    fn default() -> Self {
        Self::Batched(CostModel::default())
    }
}

/// What one step of the engine costs: `base + sequences · per_sequence +
/// prefill tokens / prefill rate`, times a seeded jitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Prompt tokens computed per second; above 0.
    pub prefill_tokens_per_second: f64,
    /// Fixed part of a step.
    pub step: Duration,
    /// What each sequence adds to a step.
    pub per_sequence: Duration,
    /// Relative standard deviation of a step's length, 0..1.
    pub jitter_ratio: f64,
}

impl Default for CostModel {
    fn default() -> Self {
        Self {
            prefill_tokens_per_second: 20_000.0,
            step: Duration::from_millis(5),
            per_sequence: Duration::from_micros(50),
            jitter_ratio: 0.05,
        }
    }
}

/// A model with recurrent layers: it resumes from stored states, not from any
/// block, and never from the block that holds a prompt's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hybrid {
    /// Tokens between stored states on a first (cold) pass; a multiple of the
    /// block size. `None`: a state at every block.
    pub retention_interval: Option<u64>,
    /// The defect: a conversation's states are lost when another one speaks.
    pub interleaving_loss: bool,
}

/// A second tier behind the pool (a KV connector), which a local reset does
/// not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External {
    /// Blocks it holds, least recently stored out first.
    pub blocks: usize,
}

/// What the model does when it is asked for the pass phrase of its prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// Says what its prompt says.
    #[default]
    Right,
    /// The defect: after a cache hit it answers from another prompt.
    Stale,
    /// Never answers, as a model with random weights.
    Never,
}

/// When the prefix-cache counters move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookupCounting {
    /// As the release does.
    #[default]
    Release,
    /// Once, when a request is admitted (from 0.27).
    Admission,
    /// At every lookup, also of a request that has to go on waiting.
    EveryLookup,
}

/// The whole configuration of a simulated server.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Config {
    /// Where to listen; port 0 takes a free one. `None` opens no socket: the
    /// server then only serves streams that are handed to it.
    pub listen: Option<SocketAddr>,
    /// Which vLLM it looks like.
    pub release: Release,
    /// The model's name.
    pub model: String,
    /// Root of all its randomness.
    pub seed: u64,
    /// Data-parallel ranks, at least 1; each has its own cache and queue.
    pub ranks: u32,
    /// Tokens of a cache block.
    pub block: BlockSize,
    /// Blocks of each rank's pool; one of them is never usable.
    pub pool_blocks: u32,
    /// Longest prompt and output together, in tokens.
    pub max_model_len: u64,
    /// Sequences that run side by side on a rank.
    pub max_sequences: usize,
    /// Tokens one step computes at most.
    pub step_tokens: u64,
    /// Waiting requests of a rank before 503; `None` for no limit.
    pub max_queued_requests: Option<usize>,
    /// Where the time goes.
    pub pace: Pace,
    /// Recurrent layers.
    pub hybrid: Option<Hybrid>,
    /// Second cache tier.
    pub external: Option<External>,
    /// Whether prefixes are cached at all.
    pub prefix_caching: bool,
    /// When the cache counters move.
    pub counting: LookupCounting,
    /// Whether usage has `prompt_tokens_details`.
    pub prompt_tokens_details: bool,
    /// Development endpoints: reset, abort, server info.
    pub dev_mode: bool,
    /// Whether every answer carries `X-Request-Id`: the request's own or a new
    /// one.
    pub request_id_headers: bool,
    /// Tokens per stream event after the first.
    pub stream_interval: u32,
    /// Comments sent this often before the first token.
    pub sse_keep_alive: Option<Duration>,
    /// Bearer key asked for under `/v1`.
    pub api_key: Option<String>,
    /// Idle time after which a connection is closed.
    pub keep_alive: Duration,
    /// Largest request body, in bytes.
    pub body_bytes_max: usize,
    /// Connections open side by side; more wait in the listener's queue.
    pub connections_max: usize,
    /// Output of a request that names no limit and does not ignore the end
    /// token, in tokens.
    pub natural_tokens: u64,
    /// System message of chats that bring none.
    pub default_system: Option<String>,
    /// Pass phrase behavior.
    pub answers: Answers,
    /// Wake by a timer of microseconds instead of tokio's milliseconds
    /// (Linux; not for paused clocks).
    pub precise_timers: bool,
    /// Where to write one JSON line a request with its true times.
    pub truth_log: Option<PathBuf>,
    /// What is wrong with it.
    pub faults: Faults,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            release: Release::default(),
            model: "sim".to_owned(),
            seed: 42,
            ranks: 1,
            block: BlockSize::new(16).expect("16 is above zero"),
            pool_blocks: 65_536,
            max_model_len: 131_072,
            max_sequences: 128,
            step_tokens: 2_048,
            max_queued_requests: None,
            pace: Pace::default(),
            hybrid: None,
            external: None,
            prefix_caching: true,
            counting: LookupCounting::default(),
            prompt_tokens_details: true,
            dev_mode: true,
            request_id_headers: false,
            stream_interval: 1,
            sse_keep_alive: None,
            api_key: None,
            keep_alive: Duration::from_secs(5),
            body_bytes_max: 64 << 20,
            connections_max: 16_384,
            natural_tokens: 128,
            default_system: None,
            answers: Answers::default(),
            precise_timers: false,
            truth_log: None,
            faults: Faults::default(),
        }
    }
}

/// Why a simulated server could not start.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// An option makes no sense, alone or beside another.
    #[error("`{option}` {problem}")]
    Option {
        /// The option's name in [`Config`].
        option: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The truth log cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    TruthLog {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The tokenizer cannot say a single usable word.
    #[error("{0}")]
    Tokenizer(String),
}

impl SimError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Option { .. } => "SIM_OPTION",
            Self::Listen { .. } => "SIM_LISTEN",
            Self::TruthLog { .. } => "SIM_TRUTH_LOG",
            Self::Tokenizer(_) => "SIM_TOKENIZER",
        }
    }

    /// Whether the system refused (exit status 3), not the options (2).
    pub const fn is_world(&self) -> bool {
        matches!(self, Self::Listen { .. } | Self::TruthLog { .. })
    }
}

impl Config {
    /// Refuses options that contradict each other.
    pub fn check(&self) -> Result<(), SimError> {
        let wrong = |option, problem: String| Err(SimError::Option { option, problem });
        if self.ranks == 0 {
            return wrong("ranks", "must be at least 1".to_owned());
        }
        if self.step_tokens == 0 || self.max_sequences == 0 || self.stream_interval == 0 {
            return wrong(
                "step_tokens",
                "and max_sequences, stream_interval must be at least 1".to_owned(),
            );
        }
        if self.model.is_empty() {
            return wrong("model", "must not be empty".to_owned());
        }
        let usable = u64::from(self.pool_blocks.saturating_sub(1)) * self.block.tokens();
        if self.max_model_len > usable || self.max_model_len == 0 {
            return wrong(
                "max_model_len",
                format!(
                    "is {}, but a pool of {} blocks of {} tokens holds one request of 1 to {usable}",
                    self.max_model_len,
                    self.pool_blocks,
                    self.block.tokens()
                ),
            );
        }
        if let Pace::Batched(cost) = self.pace {
            check_cost(&cost)?;
        }
        if let Some(interval) = self.hybrid.and_then(|hybrid| hybrid.retention_interval)
            && (interval == 0 || interval % self.block.tokens() != 0)
        {
            return wrong(
                "retention_interval",
                format!(
                    "is {interval}, no multiple of the block of {}",
                    self.block.tokens()
                ),
            );
        }
        self.faults.check(self.ranks)
    }
}

fn check_cost(cost: &CostModel) -> Result<(), SimError> {
    let rate = cost.prefill_tokens_per_second;
    if !(rate.is_finite() && rate > 0.0) {
        return Err(SimError::Option {
            option: "prefill_tokens_per_second",
            problem: format!("is {rate}, must be above 0"),
        });
    }
    if !(0.0..1.0).contains(&cost.jitter_ratio) {
        return Err(SimError::Option {
            option: "jitter_ratio",
            problem: format!("is {}, must be in 0..1", cost.jitter_ratio),
        });
    }
    if cost.step + cost.per_sequence == Duration::ZERO {
        return Err(SimError::Option {
            option: "step",
            problem: "and per_sequence are both zero: a step must take time (use flood)".to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(config: &Config) -> String {
        let error = config.check().unwrap_err();
        assert_eq!((error.code(), error.is_world()), ("SIM_OPTION", false));
        error.to_string()
    }

    #[test]
    fn the_default_is_a_healthy_server() {
        Config::default().check().unwrap();
        assert!(Config::default().listen.unwrap().ip().is_loopback());
        assert_eq!(Config::default().faults, Faults::default());
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        let mut config = Config {
            pool_blocks: 65,
            max_model_len: 1_025,
            ..Config::default()
        };
        assert!(problem(&config).contains("`max_model_len` is 1025"));
        config.max_model_len = 1_024;
        config.check().unwrap();
        config.hybrid = Some(Hybrid {
            retention_interval: Some(40),
            interleaving_loss: false,
        });
        assert!(problem(&config).contains("no multiple of the block of 16"));
        config.hybrid = None;
        config.faults.stall = 1.5;
        assert!(problem(&config).starts_with("`stall` is 1.5"));
    }
}
