//! Records for tests: a successful stream, to be bent into any other shape.

use super::record::{
    Attempt, Failure, FailureKind, Outcome, RequestRecord, StatsPhase, TimestampSource, Usage,
};
use crate::units::{GroupIndex, RunOffset};

/// Milliseconds since the start of the run.
pub(crate) fn at(ms: f64) -> RunOffset {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small positive test values"
    )]
    RunOffset((ms * 1e6).round() as u64)
}

/// A successful stream sent at 0 whose content arrives at these milliseconds,
/// the last of them with `finish_reason`.
pub(crate) fn stream(stamps: &[f64], output_tokens: u64) -> RequestRecord {
    let content_ns: Vec<_> = stamps.iter().map(|&ms| at(ms)).collect();
    RequestRecord {
        sequence_index: 0,
        request_id: "request-00000000".to_owned(),
        group_id: GroupIndex(0),
        dp_rank: None,
        lane_sequence: None,
        stage: 0,
        phase: StatsPhase::Measure,
        t_sched_ns: at(0.0),
        t_ready_ns: at(0.0),
        t_send_ns: at(0.0),
        first_byte_ns: content_ns.first().copied(),
        first_event_ns: content_ns.first().copied(),
        last_event_ns: content_ns.last().copied(),
        events: u32::try_from(content_ns.len()).expect("few stamps"),
        first_choice_ns: content_ns.first().copied(),
        last_choice_ns: content_ns.last().copied(),
        stream_end_ns: content_ns.last().copied(),
        content_ns,
        coalesced_events: 0,
        timestamp_source: TimestampSource::Kernel,
        streamed: true,
        usage: Some(Usage {
            prompt_tokens: 64,
            completion_tokens: output_tokens,
            cached_tokens: Some(0),
        }),
        counted_output_tokens: None,
        planned_prompt_tokens: 64,
        max_tokens: output_tokens,
        text: None,
        finish_reason: Some("length".to_owned()),
        outcome: Outcome::Success,
        attempts: vec![],
    }
}

/// A request sent at the first stamp that failed at the second, without a token.
pub(crate) fn failed(kind: FailureKind, code: Option<u16>, sent: f64, ended: f64) -> RequestRecord {
    let failure = Failure {
        kind,
        code,
        message: String::new(),
    };
    let mut record = stream(&[], 0);
    record.t_sched_ns = at(sent);
    record.t_ready_ns = at(sent);
    record.t_send_ns = at(sent);
    record.usage = None;
    record.finish_reason = None;
    record.outcome = Outcome::Failure(failure.clone());
    record.attempts = vec![Attempt {
        t_send_ns: at(sent),
        t_end_ns: at(ended),
        body_started: false,
        failure: Some(failure),
    }];
    record
}
