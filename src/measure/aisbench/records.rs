//! AISBench's requests as records of this program, so that one analysis serves
//! both drivers. What AISBench does not keep is absent: the schedule (its clock
//! starts after its queue), the response head, cached tokens, the status code of
//! a failure, the times of attempts before the last.

use super::{Detail, RequestTimes};
use crate::measure::{
    Attempt, Failure, FailureKind, Outcome, RequestRecord, StatsPhase, TimestampSource, Usage,
};
use crate::units::{DpRank, GroupIndex, RunOffset};

/// The row of the data set that a request was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentRow {
    /// Place in the send order.
    pub sequence_index: u32,
    /// Its name.
    pub request_id: String,
    /// Prefix group.
    pub group: GroupIndex,
    /// Rank asked for.
    pub dp_rank: Option<DpRank>,
    /// Place in its lane.
    pub lane_sequence: Option<u32>,
    /// Prompt tokens the server should see.
    pub planned_prompt_tokens: u64,
    /// Output limit.
    pub max_tokens: u64,
}

/// The record of one request. `origin_ns` is the start of the run on the
/// system's monotonic clock, which AISBench's time points are on.
///
/// Which events carried text AISBench does not say. The last one is taken for
/// the usage event where tokens were reported, since AISBench asks for it; the
/// others count as content.
pub fn to_record(
    row: &SentRow,
    detail: &Detail,
    times: &RequestTimes,
    origin_ns: u64,
    streamed: bool,
) -> RequestRecord {
    let stamps: Vec<RunOffset> = times
        .time_points
        .iter()
        .map(|&seconds| offset(seconds, origin_ns))
        .collect();
    let send = stamps.first().copied().unwrap_or_default();
    let events = stamps.get(1..).unwrap_or_default();
    let reported = detail.input_tokens > 0 && detail.output_tokens > 0;
    let usage = reported.then_some(Usage {
        prompt_tokens: detail.input_tokens,
        completion_tokens: detail.output_tokens,
        cached_tokens: None,
    });
    let has_usage_event = streamed && reported && events.len() > 1;
    let content = match (streamed, has_usage_event) {
        (false, _) => &[],
        (true, true) => &events[..events.len() - 1],
        (true, false) => events,
    };
    let failure = (!detail.success).then(|| failure(detail.error_info.as_deref()));
    let end = stamps.last().copied().unwrap_or(send);
    RequestRecord {
        sequence_index: row.sequence_index,
        request_id: row.request_id.clone(),
        group_id: row.group,
        dp_rank: row.dp_rank,
        lane_sequence: row.lane_sequence,
        stage: 0,
        phase: StatsPhase::Measure,
        t_sched_ns: send,
        t_ready_ns: send,
        t_send_ns: send,
        first_byte_ns: None,
        first_event_ns: events.first().copied(),
        last_event_ns: events.last().copied(),
        events: u32::try_from(events.len()).unwrap_or(u32::MAX),
        first_choice_ns: events.first().copied(),
        last_choice_ns: content.last().or(events.last()).copied(),
        stream_end_ns: events.last().copied(),
        content_ns: content.to_vec(),
        coalesced_events: 0,
        timestamp_source: TimestampSource::Read,
        streamed,
        usage,
        counted_output_tokens: None,
        text: None,
        planned_prompt_tokens: row.planned_prompt_tokens,
        max_tokens: row.max_tokens,
        finish_reason: None,
        outcome: failure.clone().map_or(Outcome::Success, Outcome::Failure),
        attempts: attempts(detail, send, end, !events.is_empty(), failure),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "time points are positive, below 2^63 ns"
)]
fn offset(seconds: f64, origin_ns: u64) -> RunOffset {
    RunOffset(((seconds * 1e9).round() as u64).saturating_sub(origin_ns))
}

/// The last attempt, and before it those that failed, of which only the number
/// is known: they stand at the last one's send.
fn attempts(
    detail: &Detail,
    send: RunOffset,
    end: RunOffset,
    body_started: bool,
    failure: Option<Failure>,
) -> Vec<Attempt> {
    let info = detail.error_info.as_deref();
    let failed = info.and_then(retries).unwrap_or(0);
    // Of a request that failed for good the last of them is the last attempt.
    let earlier = if detail.success {
        failed
    } else {
        failed.saturating_sub(1)
    };
    let wasted = Attempt {
        t_send_ns: send,
        t_end_ns: send,
        body_started: false,
        failure: Some(self::failure(info)),
    };
    let last = Attempt {
        t_send_ns: send,
        t_end_ns: end,
        body_started,
        failure,
    };
    let mut attempts = vec![wasted; earlier];
    attempts.push(last);
    attempts
}

/// N of `After N retries, request failed with exception: …`; N counts failed
/// attempts. AISBench allows 1,000.
fn retries(info: &str) -> Option<usize> {
    let rest = info.strip_prefix("After ")?;
    let count: usize = rest.split(' ').next()?.parse().ok()?;
    Some(count.min(1_000))
}

/// The kind by what AISBench writes: a reason phrase, or the name of an
/// exception.
fn failure(info: Option<&str>) -> Failure {
    let message = info.unwrap_or_default().to_owned();
    let exception = message
        .split_once("exception: ")
        .map(|(_, rest)| rest.split(':').next().unwrap_or_default());
    let kind = match exception {
        Some("ClientConnectorError" | "ClientConnectorDNSError" | "ClientConnectorSSLError") => {
            FailureKind::Connect
        }
        Some(name) if name.contains("Timeout") => FailureKind::RequestTimeout,
        Some("KeyError" | "AISBenchValueError" | "UnicodeDecodeError" | "InvalidURL") => {
            FailureKind::Protocol
        }
        Some(_) => FailureKind::ConnectionError,
        None if message.contains("cancelled") => FailureKind::Cancelled,
        None if message.starts_with("Unexpected response format") => FailureKind::Protocol,
        None if message.contains("chunk size is less than 2") => FailureKind::TruncatedStream,
        None => FailureKind::HttpStatus,
    };
    Failure {
        kind,
        code: None,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::derive;

    fn row() -> SentRow {
        SentRow {
            sequence_index: 3,
            request_id: "request-00000003".to_owned(),
            group: GroupIndex(1),
            dp_rank: None,
            lane_sequence: None,
            planned_prompt_tokens: 64,
            max_tokens: 4,
        }
    }

    fn detail(success: bool, info: &str, tokens: u64) -> Detail {
        Detail {
            id: 3,
            success,
            error_info: Some(info.to_owned()),
            input_tokens: tokens * 16,
            output_tokens: tokens,
        }
    }

    fn record(detail: &Detail, points: &[f64]) -> RequestRecord {
        let times = RequestTimes {
            id: 3,
            time_points: points.to_vec(),
        };
        to_record(&row(), detail, &times, 10_000_000_000, true)
    }

    #[test]
    fn the_usage_event_is_not_content() {
        let record = record(
            &detail(true, "", 4),
            &[11.0, 11.05, 11.06, 11.07, 11.08, 11.11],
        );
        let derived = derive(&record);
        assert_eq!(record.content_ns.len(), 4);
        assert_eq!(derived.ttft_ms, Some(50.0));
        assert_eq!(derived.e2el_ms, Some(80.0));
        assert_eq!(derived.tpot_ms, Some(10.0));
        assert_eq!(derived.stream_close_ms, Some(110.0));
        assert_eq!(record.t_send_ns, RunOffset(1_000_000_000));
    }

    #[test]
    fn attempts_that_failed_before_a_success_are_counted() {
        let info = "After 2 retries, request failed with exception: ClientPayloadError: x";
        let record = record(&detail(true, info, 4), &[11.0, 11.05, 11.06]);
        assert_eq!(record.attempts.len(), 3);
        assert!(record.succeeded());
        assert_eq!(derive(&record).attempts, 3);
    }

    #[test]
    fn failures_have_their_kind() {
        let after = "After 2 retries, request failed with exception:";
        for (info, kind, attempts) in [
            (
                "Internal Server Error".to_owned(),
                FailureKind::HttpStatus,
                1,
            ),
            (
                format!("{after} ClientConnectorError: Cannot"),
                FailureKind::Connect,
                2,
            ),
            (
                format!("{after} ServerDisconnectedError: gone"),
                FailureKind::ConnectionError,
                2,
            ),
            (
                "Request cancelled by user".to_owned(),
                FailureKind::Cancelled,
                1,
            ),
        ] {
            let record = record(&detail(false, &info, 0), &[11.0]);
            let Outcome::Failure(failure) = &record.outcome else {
                panic!("{info} is a failure");
            };
            assert_eq!(
                (failure.kind, record.attempts.len()),
                (kind, attempts),
                "{info}"
            );
        }
    }

    #[test]
    fn a_request_without_stamps_keeps_its_row() {
        let record = record(&detail(false, "", 0), &[]);
        assert_eq!(record.sequence_index, 3);
        assert_eq!(record.content_ns, []);
    }
}
