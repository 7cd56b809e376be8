//! The phases around the formal load: precheck, reset, warm-up, and the two
//! readings of the counters. Each is bounded in time and number of requests;
//! each failure has a code and a hint; what is only doubtful is a warning. It
//! decides nothing about results: `analyze` does.
//!
//! | error | means |
//! |---|---|
//! | `SERVICE_UNREACHABLE`, `SERVICE_TIMEOUT`, `SERVICE_CONNECTION_BROKEN` | no answer |
//! | `SERVICE_NOT_READY` | not up in the time that was given for it |
//! | `UNAUTHORIZED`, `MODEL_NOT_FOUND`, `CONTEXT_TOO_SHORT`, `PREFIX_CACHING_OFF` | the wrong server, or wrongly started |
//! | `METRICS_UNAVAILABLE`, `COUNTERS_NOT_MOVING`, codes of [`crate::engine::MetricsError`] | no counters to go by |
//! | `DP_SIZE_MISMATCH`, `DP_ROUTING_NOT_HONORED` | ranks are not what was configured, or not reachable one by one |
//! | `RESET_UNAVAILABLE`, `RESET_REFUSED`, `NOT_COLD` | the cache is not empty |
//! | `WARMUP_FAILED` | a prefix could not be sent |
//!
//! | warning | means |
//! |---|---|
//! | `BLOCK_SIZE_MISMATCH`, `BLOCK_SIZE_UNMEASURED`, `NO_REUSE_SEEN` | the theory's block is not the server's, or nobody knows |
//! | `CACHED_TOKENS_NOT_REPORTED` | hits per request are not known |
//! | `DP_ROUTING_UNPROVEN`, `COUNTERS_NOT_MOVING` | other traffic, or another server's page |
//! | `RESET_UNPROVEN`, `ASSUME_EMPTY_CACHE` | nobody saw that the cache is empty |
//! | `WARMUP_NOT_CACHED`, `WARMUP_UNVERIFIED` | a prefix is gone again, or nobody knows |

mod ladder;
mod precheck;
mod reset;
mod settle;
mod warm_up;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use serde::Serialize;

pub use ladder::BlockReport;
pub use precheck::{Precheck, RoutingProbe};
pub use reset::{Canary, Proof, ResetOutcome, ResetReport};
pub use settle::{CachedSource, Reading, SettleReport};
pub use warm_up::{WarmupItem, WarmupReport, WarmupResult};

use crate::engine::{DifferenceError, Snapshot};
use crate::service::{ControlClient, ControlError, ControlSettings};
use crate::units::BlockSize;

/// What stops a run before or after its formal load: the world failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct PhaseError {
    /// Stable code.
    pub code: &'static str,
    /// What happened, without secrets.
    pub message: String,
    /// A way out.
    pub hint: Option<String>,
}

impl PhaseError {
    fn new(code: &'static str, message: impl Into<String>, hint: &str) -> Self {
        Self {
            code,
            message: message.into(),
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
        }
    }

    /// The same error, its message led by what was attempted.
    fn during(mut self, attempt: &str) -> Self {
        self.message = format!("{attempt}: {}", self.message);
        self
    }
}

impl From<ControlError> for PhaseError {
    fn from(error: ControlError) -> Self {
        Self::new(
            error.code(),
            error.to_string(),
            error.hint().unwrap_or_default(),
        )
    }
}

impl From<DifferenceError> for PhaseError {
    fn from(error: DifferenceError) -> Self {
        Self::new(
            error.code(),
            error.to_string(),
            error.hint().unwrap_or_default(),
        )
    }
}

/// Something a reader of the results must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseWarning {
    /// Stable code.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

impl PhaseWarning {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// How long the phases wait for a server to get ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For counters to agree with what was sent.
    pub settle: Duration,
    /// For a reset that is refused while blocks are held.
    pub reset: Duration,
    /// First pause between two tries; doubled up to `pause_most`.
    pub pause_first: Duration,
    /// Longest pause between two tries.
    pub pause_most: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(10),
            reset: Duration::from_secs(30),
            pause_first: Duration::from_millis(50),
            pause_most: Duration::from_secs(1),
        }
    }
}

/// What the phases need to know of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseOptions {
    /// `tokenizer.block_size`.
    pub block_size: BlockSize,
    /// Tokens of the longest prompt as the server will see it.
    pub longest_prompt_tokens: u64,
    /// Output limit of that request.
    pub max_output_tokens: u64,
    /// Go on with a warning when the reset is missing, fails or is disproved.
    pub assume_empty_cache: bool,
    /// The settings' salt is fresh in this run: nothing cached before can hit.
    pub isolated_by_salt: bool,
    /// Whether the precheck measures the block size.
    pub measure_block_size: bool,
    /// How long to wait.
    pub patience: Patience,
    /// Makes the texts of one [`Session`] unique. See [`fresh_nonce`].
    pub nonce: String,
}

impl PhaseOptions {
    /// Options for prompts of at most `longest_prompt_tokens`, everything else
    /// as usual.
    pub fn new(block_size: BlockSize, longest_prompt_tokens: u64, max_output_tokens: u64) -> Self {
        Self {
            block_size,
            longest_prompt_tokens,
            max_output_tokens,
            assume_empty_cache: false,
            isolated_by_salt: false,
            measure_block_size: true,
            patience: Patience::default(),
            nonce: fresh_nonce(),
        }
    }
}

/// 16 hex digits that no other session has, from the system's randomness.
pub fn fresh_nonce() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// One server through the phases of one run.
#[derive(Debug)]
pub struct Session {
    client: ControlClient,
    options: PhaseOptions,
    /// The newest reading, and the prompt tokens sent since.
    latest: Option<Snapshot>,
    sent: Sent,
    /// Where `after` counts from.
    baseline: Option<Snapshot>,
    /// Block sizes learnt in the precheck.
    block: BlockReport,
}

/// Prompt tokens of control requests since a reading; unknown as soon as one
/// of them did not report its usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent(Option<u64>);

impl Sent {
    const NOTHING: Self = Self(Some(0));

    fn add(&mut self, prompt_tokens: Option<u64>) {
        self.0 = self
            .0
            .zip(prompt_tokens)
            .map(|(sum, one)| sum.saturating_add(one));
    }
}

impl Session {
    /// Checks the settings; opens no connection.
    pub fn new(settings: ControlSettings, options: PhaseOptions) -> Result<Self, PhaseError> {
        Ok(Self {
            client: ControlClient::new(settings)?,
            options,
            latest: None,
            sent: Sent::NOTHING,
            baseline: None,
            block: BlockReport::default(),
        })
    }

    /// The control client, e.g. for a [`crate::service::KvPoller`].
    pub fn client(&self) -> &ControlClient {
        &self.client
    }

    /// The largest block size that anything known speaks for: prompts that
    /// must hold whole blocks are cut by this one.
    fn safe_block(&self) -> BlockSize {
        let known = [
            Some(self.options.block_size.tokens()),
            self.block.metric_tokens,
            self.block.measured_tokens,
        ];
        known
            .into_iter()
            .flatten()
            .filter_map(BlockSize::new)
            .max()
            .unwrap_or(self.options.block_size)
    }

    /// The block size that replays are judged by: what was measured, else what
    /// the engine says, else what the scenario says.
    fn working_block(&self) -> BlockSize {
        self.block
            .measured_tokens
            .or(self.block.metric_tokens)
            .and_then(BlockSize::new)
            .unwrap_or(self.options.block_size)
    }
}

/// Common words: in most vocabularies one token each, with the blank before.
const WORDS: &[&str] = &[
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country",
];

/// A text of `words` words that begins like no other text: `label` and nonce
/// stand in front.
fn unique_text(label: &str, nonce: &str, words: u64) -> String {
    let mut text = format!("{nonce} {label}");
    for word in WORDS.iter().cycle().zip(0..words).map(|(word, _)| word) {
        text.push(' ');
        text.push_str(word);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_begin_with_what_makes_them_unique() {
        assert_eq!(unique_text("x", "n", 3), "n x time year people");
        let long = unique_text("x", "n", 100);
        assert!(long.starts_with(&unique_text("x", "n", 99)));
        assert_ne!(fresh_nonce(), fresh_nonce());
    }

    #[test]
    fn one_request_without_usage_makes_the_sum_unknown() {
        let mut sent = Sent::NOTHING;
        sent.add(Some(12));
        assert_eq!(sent, Sent(Some(12)));
        sent.add(None);
        sent.add(Some(1));
        assert_eq!(sent, Sent(None));
    }
}
