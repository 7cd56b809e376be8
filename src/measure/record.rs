//! One row of `records.jsonl`: the raw stamps of one request, from which every
//! latency is derived, and nothing that could not be checked against them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{DpRank, GroupIndex, RunOffset};

/// Where a chunk's time stamp comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimestampSource {
    /// The kernel's receive time of the bytes that completed the event.
    Kernel,
    /// The return of the socket read that completed it.
    Read,
}

/// Which part of a run a request belongs to, for statistics. Hit accounting
/// takes them all.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum StatsPhase {
    /// Excluded by the profile's `warmup_requests`.
    Warmup,
    /// Counts.
    Measure,
    /// Excluded by the profile's `cooldown_requests`.
    Cooldown,
}

/// Everything known of one formal request. All offsets are nanoseconds since
/// the start of the run on one monotonic clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestRecord {
    /// Place in the send order, `full.jsonl`'s `sequence_index`.
    pub sequence_index: u32,
    /// `full.jsonl`'s `request_id`.
    pub request_id: String,
    /// Prefix group.
    #[schemars(with = "String")]
    pub group_id: GroupIndex,
    /// Rank asked for by header.
    pub dp_rank: Option<DpRank>,
    /// Place in the lane.
    pub lane_sequence: Option<u32>,
    /// Stage of the load profile, from 0.
    pub stage: u32,
    /// Whether the request enters the statistics.
    pub phase: StatsPhase,
    /// When the load profile wanted it sent.
    pub t_sched_ns: RunOffset,
    /// When its lane let it go.
    pub t_ready_ns: RunOffset,
    /// Just before the last attempt was handed to the HTTP client.
    pub t_send_ns: RunOffset,
    /// Response head of the last attempt.
    pub first_byte_ns: Option<RunOffset>,
    /// First SSE event of any kind, comments not counted.
    pub first_event_ns: Option<RunOffset>,
    /// Last SSE event of any kind but `[DONE]`, comments not counted; with
    /// `include_usage` usually the usage event. Absent in older records.
    #[serde(default)]
    pub last_event_ns: Option<RunOffset>,
    /// SSE events of any kind but `[DONE]`, comments not counted; 0 in older
    /// records.
    #[serde(default)]
    pub events: u32,
    /// First chunk with a non-empty `choices` array.
    pub first_choice_ns: Option<RunOffset>,
    /// Last chunk with a non-empty `choices` array; where the request ends.
    pub last_choice_ns: Option<RunOffset>,
    /// When the stream (or the body) was at its end.
    pub stream_end_ns: Option<RunOffset>,
    /// Stamps of the content-bearing chunks, in order.
    pub content_ns: Vec<RunOffset>,
    /// Content-bearing chunks that shared a read with an earlier one.
    pub coalesced_events: u32,
    /// Where the stamps come from.
    pub timestamp_source: TimestampSource,
    /// Whether the response was streamed; if not, only its end is known.
    pub streamed: bool,
    /// Token counts as the server reported them, last value seen.
    pub usage: Option<Usage>,
    /// Output tokens by the tokenizer's count of the text, where usage is
    /// missing.
    pub counted_output_tokens: Option<u64>,
    /// Text received, bounded; kept for requests that failed (for audit) and
    /// where usage is missing (for counting).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Prompt tokens the plan expects the server to see.
    pub planned_prompt_tokens: u64,
    /// Output limit sent.
    pub max_tokens: u64,
    /// `finish_reason`, last value seen.
    pub finish_reason: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// All attempts, the last one included; at least one unless cancelled
    /// before sending.
    pub attempts: Vec<Attempt>,
}

/// Token counts as the server reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// `prompt_tokens`.
    pub prompt_tokens: u64,
    /// `completion_tokens`.
    pub completion_tokens: u64,
    /// `prompt_tokens_details.cached_tokens`; absent is unavailable, not 0.
    pub cached_tokens: Option<u64>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Outcome {
    /// Status 2xx, no error object, at least one choice, a proper end.
    Success,
    /// Anything else.
    Failure(Failure),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// Counted by this.
    pub kind: FailureKind,
    /// HTTP status, or the code inside an error event.
    pub code: Option<u16>,
    /// For people; bounded, credentials removed.
    pub message: String,
}

/// Kinds of failure. They are counted by kind, never by message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No connection.
    Connect,
    /// The connection broke.
    ConnectionError,
    /// A status other than 2xx.
    HttpStatus,
    /// An error object in a 2xx answer.
    ServerErrorEvent,
    /// The stream ended without `finish_reason` and `[DONE]`.
    TruncatedStream,
    /// Nothing arrived for too long.
    IdleTimeout,
    /// The whole request took too long.
    RequestTimeout,
    /// Not HTTP, not SSE, not JSON, or over a limit.
    Protocol,
    /// Interrupted by the user.
    Cancelled,
}

/// One attempt of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// Just before it was handed to the HTTP client.
    pub t_send_ns: RunOffset,
    /// When it had ended.
    pub t_end_ns: RunOffset,
    /// Whether any byte of a response body arrived.
    pub body_started: bool,
    /// `None` when it succeeded.
    pub failure: Option<Failure>,
}
