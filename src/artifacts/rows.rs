//! The rows of `full.jsonl` and `requests.jsonl`. Key order is part of the
//! format: fields stand here in the order in which they are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::PlannedRequest;
use crate::prompts::BuiltPrompt;
use crate::scenario::OutputKey;
use crate::theory::RequestTheory;
use crate::units::{DpRank, GroupIndex, ratio};

/// The answer every row carries; the data set asks nothing that has one.
pub const ANSWER: &str = "none";

/// One row of `full.jsonl`. Lengths are tokens, special tokens not counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FullRow {
    /// `request-%08d` by send order.
    pub request_id: String,
    /// Place in the send order, from 0; the line's own number.
    pub sequence_index: u32,
    /// Prefix group.
    #[schemars(with = "String")]
    pub group_id: GroupIndex,
    /// Requests of the group before this one.
    pub occurrence_index_within_group: u32,
    /// Rank it is sent to; absent in warm-up mode.
    pub dp_rank: Option<DpRank>,
    /// Place in its lane; absent in warm-up mode.
    pub lane_sequence: Option<u32>,
    /// Planned length of the prompt.
    pub target_input_tokens: u64,
    /// Length as the tokenizer counts it.
    pub actual_input_tokens: u64,
    /// Output limit.
    pub max_tokens: u64,
    /// Leading tokens shared with the group.
    pub shared_prefix_tokens: u64,
    /// Tokens of the unique seed behind them.
    pub seed_tokens: u64,
    /// The rest.
    pub natural_suffix_tokens: u64,
    /// The prompt.
    pub question: String,
    /// Always [`ANSWER`].
    pub answer: String,
    /// Corpus lines of the suffix, from 0.
    pub gsm_indices: Vec<u64>,
    /// SHA-256 of their normalized texts.
    pub gsm_hashes: Vec<String>,
    /// Digest of the group's canonical prefix.
    pub canonical_prefix_sha256: String,
    /// Digest of the seed's ids.
    pub seed_sha256: String,
    /// Seed of the request's own randomness.
    pub request_random_seed: u64,
    /// Longest cached prefix of the group before the request.
    pub watermark_before: u64,
    /// Expected hit, in tokens.
    pub theoretical_hit_tokens: u64,
    /// Longest cached prefix of the group after the request.
    pub watermark_after: u64,
    /// Expected hit over the length, 0..=1.
    pub theoretical_hit_rate: f64,
    /// The reference's other name of `seed_sha256`.
    pub divergence_block_sha256: String,
    /// Always true: uniqueness holds by construction.
    pub divergence_unique: bool,
    /// Always `pass`.
    pub collision_status: String,
    /// What the reference plugin does not know; absent in its rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcload: Option<RowExtension>,
}

/// `pcload` of a row: the request as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RowExtension {
    /// Prompt tokens, special tokens included.
    pub server_input_tokens: u64,
    /// Expected hit in whole blocks as the server cuts them, in tokens.
    pub server_hit_tokens: u64,
    /// Digest of the first block that holds an unshared token, as the server
    /// cuts blocks; added tokens are left out of it.
    pub first_divergent_block_sha256: String,
    /// The prompt's ids, where ids are sent in place of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

impl FullRow {
    /// The row of one planned request, its theory and its prompt.
    pub fn new(
        planned: &PlannedRequest,
        seed_tokens: u64,
        theory: &RequestTheory,
        prompt: &BuiltPrompt,
        extension: RowExtension,
    ) -> Self {
        Self {
            request_id: planned.request_id.clone(),
            sequence_index: u32::try_from(prompt.index).expect("a data set has at most 2^32 rows"),
            group_id: planned.group,
            occurrence_index_within_group: planned.occurrence,
            dp_rank: planned.dp_rank,
            lane_sequence: planned.lane_sequence,
            target_input_tokens: planned.input_tokens,
            actual_input_tokens: prompt.ids.len() as u64,
            max_tokens: planned.output_tokens,
            shared_prefix_tokens: planned.shared_prefix_tokens,
            seed_tokens,
            natural_suffix_tokens: prompt.natural_suffix_tokens,
            question: prompt.text.clone(),
            answer: ANSWER.to_owned(),
            gsm_indices: prompt.source_indices.clone(),
            gsm_hashes: prompt.source_sha256.clone(),
            canonical_prefix_sha256: prompt.canonical_prefix_sha256.to_string(),
            seed_sha256: prompt.seed_sha256.clone(),
            request_random_seed: planned.random_seed,
            watermark_before: theory.watermark_before,
            theoretical_hit_tokens: theory.hit_tokens,
            watermark_after: theory.watermark_after,
            theoretical_hit_rate: ratio(theory.hit_tokens, planned.input_tokens).unwrap_or(0.0),
            divergence_block_sha256: prompt.seed_sha256.clone(),
            divergence_unique: true,
            collision_status: "pass".to_owned(),
            pcload: Some(extension),
        }
    }

    /// The row of `requests.jsonl` that belongs to it.
    pub fn request(&self, key: Option<OutputKey>) -> RequestRow<'_> {
        let mut row = RequestRow {
            question: &self.question,
            answer: &self.answer,
            max_tokens: None,
            output_tokens: None,
        };
        match key {
            Some(OutputKey::MaxTokens) => row.max_tokens = Some(self.max_tokens),
            Some(OutputKey::OutputTokens) => row.output_tokens = Some(self.max_tokens),
            None => {}
        }
        row
    }
}

/// One row of `requests.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RequestRow<'a> {
    /// The prompt.
    pub question: &'a str,
    /// Always [`ANSWER`].
    pub answer: &'a str,
    /// Output limit, under this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Output limit, under this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
}

/// One request of the warm-up plan, as `manifest.warmup.plan` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmupItem {
    /// `warmup:<group>:<rank>`.
    pub request_id: String,
    /// Group whose prefix it brings into the cache.
    pub group_id: GroupIndex,
    /// Rank it is sent to.
    pub dp_rank: DpRank,
    /// What is sent.
    pub prompt: String,
    /// Its length, special tokens not counted.
    pub input_tokens: u64,
    /// Leading tokens that are the group's prefix.
    pub shared_prefix_tokens: u64,
    /// Output limit, 1.
    pub max_tokens: u64,
    /// Always false.
    pub included_in_formal_statistics: bool,
    /// The prompt's ids where ids are sent; kept under `pcload` in the
    /// manifest.
    #[serde(skip)]
    pub token_ids: Option<Vec<u32>>,
}

impl From<&crate::prompts::WarmupPrompt> for WarmupItem {
    fn from(prompt: &crate::prompts::WarmupPrompt) -> Self {
        Self {
            request_id: prompt.request_id.clone(),
            group_id: prompt.group,
            dp_rank: prompt.dp_rank,
            prompt: prompt.text.clone(),
            input_tokens: prompt.ids.len() as u64,
            shared_prefix_tokens: prompt.shared_prefix_tokens,
            max_tokens: 1,
            included_in_formal_statistics: false,
            token_ids: None,
        }
    }
}

/// The keys a row of `requests.jsonl` must have, in order.
pub(crate) fn request_keys(key: Option<OutputKey>) -> &'static [&'static str] {
    match key {
        None => &["question", "answer"],
        Some(OutputKey::MaxTokens) => &["question", "answer", "max_tokens"],
        Some(OutputKey::OutputTokens) => &["question", "answer", "output_tokens"],
    }
}

/// `output.output_key` of an effective configuration. Sets older than the
/// section always carry `max_tokens`.
pub(crate) fn output_key(effective_config: &Value) -> Result<Option<OutputKey>, String> {
    let Some(output) = effective_config.get("output") else {
        return Ok(Some(OutputKey::MaxTokens));
    };
    match output.get("output_key") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(key)) if key == "max_tokens" => Ok(Some(OutputKey::MaxTokens)),
        Some(Value::String(key)) if key == "output_tokens" => Ok(Some(OutputKey::OutputTokens)),
        Some(other) => Err(format!(
            "`{other}` is neither null, `max_tokens` nor `output_tokens`"
        )),
    }
}
