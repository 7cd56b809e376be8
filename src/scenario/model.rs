//! The resolved scenario: plain values, every default filled, every rule kept.
//! It refuses to know how they were written down.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::secret::{Redactor, Secret, shown_url};
use crate::units::{BlockSize, DpRank, GroupIndex};

/// A scenario with every default filled and every rule checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Path of the scenario file, as given, made absolute.
    pub path: PathBuf,
    /// SHA-256 of the scenario file's bytes, lowercase hex.
    pub sha256: String,
    /// `run`.
    pub run: RunConfig,
    /// `tokenizer`.
    pub tokenizer: TokenizerConfig,
    /// `corpus`.
    pub corpus: CorpusConfig,
    /// `requests`.
    pub requests: RequestsConfig,
    /// `output.output_key`: key under which `requests.jsonl` rows carry the
    /// output length; `None` omits it.
    pub output_key: Option<OutputKey>,
    /// `prefix_cache`.
    pub prefix_cache: PrefixCacheConfig,
    /// `service`.
    pub service: ServiceConfig,
    /// `validation`.
    pub validation: ValidationConfig,
    /// `aisbench`.
    pub aisbench: AisbenchConfig,
    /// `pcload`: what the reference plugin does not know.
    pub pcload: PcloadConfig,
    /// Whether the scenario has a `pcload` section.
    pub has_pcload_section: bool,
    /// The plugin's effective configuration as the manifest stores it: every
    /// default filled, absolute paths, `api_key` replaced by
    /// `api_key_configured`, without the `pcload` section; `run.run_id` and
    /// `run.output_dir` are not stamped yet. A `run.random_seed` that does not
    /// fit 64 bits is its decimal text. Addresses have lost what may be secret.
    /// Of a scenario that was rebuilt from a manifest it is the manifest's own.
    pub effective_config: serde_json::Value,
    /// The resolved `pcload` section in the same form.
    pub effective_pcload: serde_json::Value,
    /// What is legal but deserves a word, e.g. `trust_remote_code`.
    pub notes: Vec<String>,
}

/// `run`.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Task name without time stamp; a single file name component.
    pub run_id: String,
    /// Root of all randomness; an integer of any size or sign.
    pub random_seed: crate::rng::Seed,
    /// Base of the artifact directory, absolute, without time stamp.
    pub output_dir: PathBuf,
    /// Whether `run`'s own prepare may replace existing artifacts.
    pub overwrite: bool,
}

/// `tokenizer`.
#[derive(Clone, Debug)]
pub struct TokenizerConfig {
    /// The path or Hugging Face id as written.
    pub path: String,
    /// The scenario's directory, from which a relative path is meant.
    pub base_dir: PathBuf,
    /// Prefix-cache block of the server.
    pub block_size: BlockSize,
    /// Hugging Face revision.
    pub revision: Option<String>,
    /// Accepted for the plugin's sake; remote code is never executed.
    pub trust_remote_code: bool,
}

/// `corpus`.
#[derive(Clone, Debug)]
pub struct CorpusConfig {
    /// JSONL file, absolute.
    pub path: PathBuf,
    /// Key of the text in each line.
    pub field: String,
    /// Which lines to use.
    pub selection: Selection,
}

/// Which corpus records a group draws its text from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Random shuffles of the whole corpus.
    Random,
    /// These zero-based lines, cyclically.
    Indices(Vec<u64>),
    /// The records whose normalized text has these SHA-256 digests, cyclically.
    QuestionSha256(Vec<String>),
    /// Indices first, then digests, cyclically.
    Mixed {
        /// Zero-based lines.
        indices: Vec<u64>,
        /// Lowercase hex digests.
        question_sha256: Vec<String>,
    },
}

/// `requests`.
#[derive(Clone, Debug)]
pub struct RequestsConfig {
    /// Formal requests; at least 1.
    pub count: usize,
    /// Rule for `target_input_tokens`.
    pub input_length: InputLength,
    /// Rule for `max_tokens`.
    pub output_length: OutputLength,
}

/// Rule for input lengths, in tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum InputLength {
    /// The same for all.
    Fixed(u64),
    /// One value a request; also what a CSV file resolves to.
    Explicit(Vec<u64>),
    /// Uniform draws from each range in turn; counts add up to the requests.
    Ranges(Vec<LengthRange>),
    /// Draws kept when inside the bounds.
    TruncatedNormal(TruncatedNormal),
}

/// `count` uniform draws from `min..=max` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthRange {
    /// Lower bound, at least 1.
    pub min: u64,
    /// Upper bound, at least `min`.
    pub max: u64,
    /// Number of draws.
    pub count: usize,
}

/// A normal distribution cut to `min..=max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TruncatedNormal {
    /// Lower bound, at least 1.
    pub min: u64,
    /// Upper bound, at least `min`.
    pub max: u64,
    /// Mean before cutting; default the middle.
    pub mean: f64,
    /// Standard deviation before cutting; default a quarter of the width, at
    /// least 1.
    pub std: f64,
}

/// Rule for output lengths, in tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputLength {
    /// The same for all.
    Fixed(u64),
    /// One value a request (from a CSV file).
    Explicit(Vec<u64>),
    /// Uniform draws from `min..=max`.
    Uniform {
        /// Lower bound, at least 1.
        min: u64,
        /// Upper bound, at least `min`.
        max: u64,
    },
    /// Draws kept when inside the bounds.
    TruncatedNormal(TruncatedNormal),
}

/// `output.output_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKey {
    /// `max_tokens`.
    MaxTokens,
    /// `output_tokens`.
    OutputTokens,
}

/// `prefix_cache.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheMode {
    /// The cache starts empty; each (group, rank) lane is sent in order.
    Cold,
    /// Every group's prefix is in every rank's cache before the formal phase.
    Warmup,
}

/// `prefix_cache`.
#[derive(Clone, Debug)]
pub struct PrefixCacheConfig {
    /// Cold or warm start.
    pub mode: CacheMode,
    /// Requested hit rate, 0..=1.
    pub target_hit_rate: f64,
    /// The same number as it was written (`1` stays `1`).
    pub target_hit_rate_written: serde_json::Number,
    /// Blocks of each unique seed, at least 1.
    pub seed_blocks: u64,
    /// Tokens of each request that are never shared, at least
    /// `seed_blocks · block_size`.
    pub minimum_non_shared_length: u64,
    /// Groups.
    pub groups: GroupsConfig,
    /// Send order.
    pub order: OrderStrategy,
}

impl PrefixCacheConfig {
    /// Length of the unique seed in tokens.
    pub fn seed_tokens(&self, block_size: BlockSize) -> u64 {
        self.seed_blocks * block_size.tokens()
    }
}

/// `prefix_cache.groups`.
#[derive(Clone, Debug)]
pub struct GroupsConfig {
    /// Number of groups, at least 1; may exceed the number of requests.
    pub count: u32,
    /// How requests are dealt to groups.
    pub assignment: Assignment,
    /// Rules of single groups.
    pub overrides: BTreeMap<GroupIndex, GroupOverride>,
}

/// How requests are dealt to groups: shares by largest remainder.
#[derive(Clone, Debug, PartialEq)]
pub enum Assignment {
    /// Equal shares.
    Uniform,
    /// Share of group `i` proportional to `1 / (i + 1)^exponent`, shuffled.
    Zipf {
        /// Greater than 0.
        exponent: f64,
    },
    /// Shares proportional to these non-negative weights.
    Weights(Vec<f64>),
}

/// Rules of one group in place of the general ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupOverride {
    /// Input lengths of the group's requests.
    pub input_length: Option<InputLength>,
    /// Output lengths of the group's requests.
    pub output_length: Option<OutputLength>,
    /// Corpus records of the group.
    pub corpus_selection: Option<Selection>,
}

/// `prefix_cache.order.strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderStrategy {
    /// As the groups were dealt.
    Sequential,
    /// Groups one after the other, each shuffled.
    WithinGroupShuffle,
    /// Round robin over the groups.
    Interleave,
    /// Everything shuffled.
    GlobalShuffle,
    /// Each group by ascending length, then round robin.
    InputLenAsc,
}

/// `service`. Its addresses may hold secrets: show them only through
/// [`shown_url`](crate::secret::shown_url), as `Debug` does.
#[derive(Clone)]
pub struct ServiceConfig {
    /// Completions endpoint.
    pub inference_url: String,
    /// Prometheus endpoint.
    pub metrics_url: String,
    /// Reset endpoint; `None` when there is none.
    pub reset_url: Option<String>,
    /// Model name sent with each request.
    pub model: String,
    /// Data-parallel ranks behind the endpoint, at least 1.
    pub dp_size: u32,
    /// Go on when the reset is missing or fails.
    pub assume_empty_cache: bool,
    /// Prometheus `engine` label to rank.
    pub engine_label_map: BTreeMap<String, DpRank>,
    /// Timeout of probes, warm-up, reset and metrics requests.
    pub timeout_seconds: f64,
    /// Credential.
    pub api_key: Secret,
    /// Interval of KV usage samples; 0 for none.
    pub poll_interval_seconds: f64,
}

impl ServiceConfig {
    /// Everything in it that must not be shown.
    pub fn redactor(&self) -> Redactor {
        let urls = [&self.inference_url, &self.metrics_url];
        let urls = urls.into_iter().chain(&self.reset_url);
        Redactor::new(&self.api_key, urls.map(String::as_str))
    }
}

impl fmt::Debug for ServiceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reset_url = self.reset_url.as_deref().map(shown_url);
        f.debug_struct("ServiceConfig")
            .field("inference_url", &shown_url(&self.inference_url))
            .field("metrics_url", &shown_url(&self.metrics_url))
            .field("reset_url", &reset_url)
            .field("model", &self.model)
            .field("dp_size", &self.dp_size)
            .field("assume_empty_cache", &self.assume_empty_cache)
            .field("engine_label_map", &self.engine_label_map)
            .field("timeout_seconds", &self.timeout_seconds)
            .field("api_key", &self.api_key)
            .field("poll_interval_seconds", &self.poll_interval_seconds)
            .finish()
    }
}

/// `validation`: thresholds in percentage points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValidationConfig {
    /// Theory against target.
    pub target_warning_pp: f64,
    /// Actual against theory.
    pub actual_warning_pp: f64,
}

/// `aisbench`.
#[derive(Clone, Debug)]
pub struct AisbenchConfig {
    /// Template of the AISBench configuration, absolute.
    pub config: PathBuf,
    /// Work directory, absolute.
    pub work_dir: PathBuf,
    /// Further command-line arguments.
    pub extra_args: AisbenchArgs,
    /// Data set entry.
    pub dataset: AisbenchDataset,
    /// Model entry; `retry`, `batch_size`, `stream` and `generation_kwargs`
    /// hold for the native driver too.
    pub model: AisbenchModel,
}

/// `aisbench.extra_args`, in both forms, as the command line wants them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AisbenchArgs(pub Vec<String>);

/// `aisbench.dataset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AisbenchDataset {
    /// Abbreviation; `None` for the run id.
    pub abbr: Option<String>,
    /// Role of the prediction.
    pub pred_role: String,
}

/// `aisbench.model`.
#[derive(Clone, Debug, PartialEq)]
pub struct AisbenchModel {
    /// Abbreviation; `None` for `<run id>-vllm`.
    pub abbr: Option<String>,
    /// Whether responses are streamed.
    pub stream: bool,
    /// Fallback for an output length, at least 1.
    pub max_out_len: u64,
    /// Re-sends allowed after a failure before any body byte (0: exactly one
    /// send).
    pub retry: u32,
    /// Closed-loop concurrency when no profile is given, at least 1.
    pub batch_size: u32,
    /// Further body fields of each formal request, in their written order; a
    /// `cache_salt` among them is in [`PcloadConfig::cache_salt`] instead.
    pub generation_kwargs: Vec<(String, serde_json::Value)>,
}

/// `pcload`: what the reference plugin does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct PcloadConfig {
    /// Text or token ids.
    pub prompt_format: PromptFormat,
    /// Whether the server adds special tokens such as BOS.
    pub add_special_tokens: SpecialTokens,
    /// Engine behind the endpoint.
    pub engine: EngineChoice,
    /// Load profile file, absolute.
    pub profile: Option<PathBuf>,
    /// Salt sent with each request, warm-up included; also the one that was
    /// written among the generation arguments.
    pub cache_salt: Option<CacheSalt>,
    /// Objectives per request, name (`ttft`, `tpot`, `e2el`) to milliseconds.
    pub slo: BTreeMap<String, f64>,
}

impl Default for PcloadConfig {
    fn default() -> Self {
        Self {
            prompt_format: PromptFormat::Text,
            add_special_tokens: SpecialTokens::Auto,
            engine: EngineChoice::Auto,
            profile: None,
            cache_salt: None,
            slo: BTreeMap::new(),
        }
    }
}

/// `pcload.prompt_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptFormat {
    /// Prompts are sent as text.
    Text,
    /// Prompts are sent as token ids.
    TokenIds,
}

/// `pcload.add_special_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// What the tokenizer's post-processor would add; nothing is sent.
    Auto,
    /// `add_special_tokens: true` is sent.
    Add,
    /// `add_special_tokens: false` is sent.
    Omit,
}

/// `pcload.engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// Detected from the metrics page.
    Auto,
    /// vLLM and its derivatives.
    Vllm,
    /// SGLang.
    Sglang,
}

/// `pcload.cache_salt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheSalt {
    /// The same text in every run.
    Fixed(String),
    /// A fresh salt for each run, the same for its warm-up and formal requests.
    PerRun,
}
