//! What is derived from the stamps of one request: every latency's definition
//! stands here, once. It takes records as they are, failed ones too; who counts
//! is decided where they are aggregated.
//!
//! `t_send` is the last attempt's, so a retried request's latencies are those of
//! the attempt that was answered; what the earlier ones cost is
//! `retry_wasted_ms`. Latencies *from schedule* include all of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::{FailureKind, Outcome, RequestRecord};
use crate::units::RunOffset;

/// Where the output token count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// The server's `usage.completion_tokens`.
    Usage,
    /// The tokenizer's count of the text received.
    Tokenizer,
}

/// The figures of one request. Times are milliseconds; absent means that it was
/// not measured or does not exist, never 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Derived {
    /// Send to first content-bearing chunk.
    pub ttft_ms: Option<f64>,
    /// Send to first chunk with a choice in it.
    pub first_choice_ms: Option<f64>,
    /// Send to the response head; a diagnostic.
    pub first_byte_ms: Option<f64>,
    /// Send to the first event of any kind; a diagnostic.
    pub first_event_ms: Option<f64>,
    /// First to second content-bearing chunk.
    pub second_token_ms: Option<f64>,
    /// Send to the last chunk with a choice in it; of a response that was not
    /// streamed, to its end.
    pub e2el_ms: Option<f64>,
    /// (E2EL − TTFT) / (output tokens − 1).
    pub tpot_ms: Option<f64>,
    /// Send to the end of the stream.
    pub stream_close_ms: Option<f64>,
    /// Time held by the lane after the profile wanted it sent.
    pub lane_wait_ms: f64,
    /// First send − scheduled send, the lane's time included.
    pub queue_delay_ms: f64,
    /// First send − the moment nothing but the client held it back.
    pub send_lag_ms: f64,
    /// Scheduled send to first content-bearing chunk.
    pub ttft_from_schedule_ms: Option<f64>,
    /// Scheduled send to the end of E2EL.
    pub e2el_from_schedule_ms: Option<f64>,
    /// Generated tokens.
    pub output_tokens: Option<u64>,
    /// Who counted them.
    pub output_tokens_source: Option<TokenSource>,
    /// Prompt tokens by the server's count.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens the server says it served from its cache.
    pub cached_tokens: Option<u64>,
    /// Content-bearing chunks.
    pub chunks: u64,
    /// Output tokens for each of them.
    pub tokens_per_chunk: Option<f64>,
    /// First attempt's send to the last one's; 0 without retries.
    pub retry_wasted_ms: f64,
    /// Sends, the first included.
    pub attempts: u64,
}

/// Derives everything that one record says.
pub fn derive(record: &RequestRecord) -> Derived {
    let since_send = |at: RunOffset| at.millis_since(record.t_send_ns);
    let since_schedule = |at: RunOffset| at.millis_since(record.t_sched_ns);
    let first_content = first_content(record);
    let end = end(record);
    let (output_tokens, output_tokens_source) = output_tokens(record);
    let first_send = record.first_sent_at();
    let released = record.t_ready_ns.max(record.t_sched_ns);
    Derived {
        ttft_ms: first_content.map(since_send),
        first_choice_ms: streamed(record, record.first_choice_ns).map(since_send),
        first_byte_ms: record.first_byte_ns.map(since_send),
        first_event_ms: streamed(record, record.first_event_ns).map(since_send),
        second_token_ms: gaps(record).next().map(|nanos| nanos as f64 / 1e6),
        e2el_ms: end.map(since_send),
        tpot_ms: tpot_ms(first_content, end, output_tokens),
        stream_close_ms: record.stream_end_ns.map(since_send),
        lane_wait_ms: released.millis_since(record.t_sched_ns),
        queue_delay_ms: since_schedule(first_send),
        send_lag_ms: first_send.millis_since(released),
        ttft_from_schedule_ms: first_content.map(since_schedule),
        e2el_from_schedule_ms: end.map(since_schedule),
        output_tokens,
        output_tokens_source,
        prompt_tokens: record.usage.map(|usage| usage.prompt_tokens),
        cached_tokens: record.usage.and_then(|usage| usage.cached_tokens),
        chunks: record.content_ns.len() as u64,
        tokens_per_chunk: output_tokens
            .filter(|_| !record.content_ns.is_empty())
            .map(|tokens| tokens as f64 / record.content_ns.len() as f64),
        retry_wasted_ms: record.t_send_ns.millis_since(first_send),
        attempts: record.attempts.len() as u64,
    }
}

/// The ITL samples of one record in nanoseconds: gaps between successive
/// content-bearing chunks, zero gaps kept. None of a response that was not
/// streamed.
pub fn gaps(record: &RequestRecord) -> impl ExactSizeIterator<Item = u64> + '_ {
    let stamps: &[RunOffset] = if record.streamed {
        &record.content_ns
    } else {
        &[]
    };
    stamps
        .windows(2)
        .map(|pair| pair[1].nanos().saturating_sub(pair[0].nanos()))
}

impl RequestRecord {
    /// Whether it ended as it should.
    pub fn succeeded(&self) -> bool {
        self.outcome == Outcome::Success
    }

    /// Whether the server is known to have computed its prompt: it answered
    /// with content.
    pub fn was_served(&self) -> bool {
        self.succeeded() || !self.content_ns.is_empty()
    }

    /// Whether it was sent at all; one that was cancelled in time was not.
    pub fn was_sent(&self) -> bool {
        self.was_served() || !self.attempts.is_empty()
    }

    /// Send of its first attempt.
    pub fn first_sent_at(&self) -> RunOffset {
        self.attempts
            .first()
            .map_or(self.t_send_ns, |attempt| attempt.t_send_ns)
    }

    /// When it stopped being in flight: the end of its stream, of its last
    /// attempt, or its last stamp.
    pub fn ended_at(&self) -> Option<RunOffset> {
        self.stream_end_ns
            .or_else(|| self.attempts.last().map(|attempt| attempt.t_end_ns))
            .or(self.last_choice_ns)
    }
}

impl FailureKind {
    /// The name of the artifacts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectionError => "connection_error",
            Self::HttpStatus => "http_status",
            Self::ServerErrorEvent => "server_error_event",
            Self::TruncatedStream => "truncated_stream",
            Self::IdleTimeout => "idle_timeout",
            Self::RequestTimeout => "request_timeout",
            Self::Protocol => "protocol",
            Self::Cancelled => "cancelled",
        }
    }
}

fn streamed(record: &RequestRecord, at: Option<RunOffset>) -> Option<RunOffset> {
    at.filter(|_| record.streamed)
}

fn first_content(record: &RequestRecord) -> Option<RunOffset> {
    streamed(record, record.content_ns.first().copied())
}

/// A response that was not streamed ends with its body.
fn end(record: &RequestRecord) -> Option<RunOffset> {
    if record.streamed {
        record.last_choice_ns
    } else {
        record.last_choice_ns.or(record.stream_end_ns)
    }
}

fn output_tokens(record: &RequestRecord) -> (Option<u64>, Option<TokenSource>) {
    match (record.usage, record.counted_output_tokens) {
        (Some(usage), _) => (Some(usage.completion_tokens), Some(TokenSource::Usage)),
        (None, Some(counted)) => (Some(counted), Some(TokenSource::Tokenizer)),
        (None, None) => (None, None),
    }
}

/// Absent when there is no decode window: below two output tokens, or nothing
/// stamped after the first content-bearing chunk.
fn tpot_ms(
    first_content: Option<RunOffset>,
    end: Option<RunOffset>,
    output_tokens: Option<u64>,
) -> Option<f64> {
    let (first, end) = (first_content?, end?);
    let intervals = output_tokens?.checked_sub(1).filter(|&count| count > 0)?;
    (end > first).then(|| end.millis_since(first) / intervals as f64)
}
