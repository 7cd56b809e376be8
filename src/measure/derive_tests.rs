//! The definitions of latency, checked against stamps with known answers.

use super::sample::{at, stream};
use super::*;
use crate::stats::summarize;

fn gaps_ms(record: &RequestRecord) -> Vec<f64> {
    gaps(record).map(|nanos| nanos as f64 / 1e6).collect()
}

fn near(actual: Option<f64>, expected: f64) {
    let actual = actual.unwrap();
    assert!(
        (actual - expected).abs() < 1e-6,
        "{actual} is not {expected}"
    );
}

#[test]
fn a_role_chunk_is_no_token() {
    let mut record = stream(&[2_200.0, 2_220.0, 2_240.0], 4);
    record.first_choice_ns = Some(at(900.0));
    record.first_event_ns = Some(at(900.0));
    record.last_choice_ns = Some(at(2_260.0));
    record.stream_end_ns = Some(at(2_261.0));
    let derived = derive(&record);
    near(derived.ttft_ms, 2_200.0);
    near(derived.first_choice_ms, 900.0);
    near(derived.e2el_ms, 2_260.0);
    near(derived.tpot_ms, 20.0);
    near(derived.second_token_ms, 20.0);
    assert_eq!(gaps_ms(&record), [20.0, 20.0]);
    assert_eq!((derived.chunks, derived.output_tokens), (3, Some(4)));
}

#[test]
fn a_chunk_may_hold_several_tokens() {
    let record = stream(&[100.0, 130.0, 160.0, 190.0], 12);
    let derived = derive(&record);
    near(derived.ttft_ms, 100.0);
    near(derived.e2el_ms, 190.0);
    near(derived.tpot_ms, 90.0 / 11.0);
    near(derived.tokens_per_chunk, 3.0);
    assert_eq!(gaps_ms(&record), [30.0, 30.0, 30.0]);
}

#[test]
fn late_usage_and_done_do_not_lengthen_the_request() {
    let mut record = stream(&[50.0, 60.0, 70.0], 3);
    record.stream_end_ns = Some(at(905.0));
    let derived = derive(&record);
    near(derived.ttft_ms, 50.0);
    near(derived.e2el_ms, 70.0);
    near(derived.tpot_ms, 10.0);
    near(derived.stream_close_ms, 905.0);
    assert_eq!(gaps_ms(&record), [10.0, 10.0]);
    assert_eq!(record.ended_at(), Some(at(905.0)));
}

#[test]
fn without_a_decode_window_tpot_is_absent() {
    let records = [
        stream(&[850.0], 16),
        stream(&[40.0], 1),
        stream(&[100.0, 110.0, 120.0], 3),
    ];
    let derived: Vec<_> = records.iter().map(derive).collect();
    let tpot: Vec<_> = derived.iter().map(|derived| derived.tpot_ms).collect();
    assert_eq!(tpot, [None, None, Some(10.0)]);
    let e2el: Vec<_> = derived.iter().map(|derived| derived.e2el_ms).collect();
    assert_eq!(e2el, [Some(850.0), Some(40.0), Some(120.0)]);
    let pooled: Vec<_> = records.iter().flat_map(gaps_ms).collect();
    assert_eq!(pooled, [10.0, 10.0]);
    assert_eq!(derive(&stream(&[40.0, 40.0], 2)).tpot_ms, None, "one read");
}

#[test]
fn aggregates_over_requests_match_the_reference_values() {
    let records = [
        stream(&[100.0, 110.0, 120.0, 130.0], 4),
        stream(&[200.0, 250.0], 2),
        stream(&[300.0, 320.0, 360.0], 3),
    ];
    let of = |pick: fn(&Derived) -> Option<f64>| {
        let values: Vec<_> = records.iter().filter_map(|r| pick(&derive(r))).collect();
        summarize(&values, &[])
    };
    near(of(|derived| derived.ttft_ms).p99, 298.0);
    near(of(|derived| derived.tpot_ms).mean, 30.0);
    near(of(|derived| derived.tpot_ms).p90, 46.0);
    near(of(|derived| derived.e2el_ms).p99, 357.8);
}

#[test]
fn comments_before_the_first_token_are_not_it() {
    let mut record = stream(&[1_500.0, 1_800.0], 2);
    record.stream_end_ns = Some(at(1_801.0));
    let derived = derive(&record);
    near(derived.ttft_ms, 1_500.0);
    near(derived.e2el_ms, 1_800.0);
    near(derived.tpot_ms, 300.0);
    assert_eq!(gaps_ms(&record), [300.0]);
}

#[test]
fn a_retried_request_is_timed_from_its_last_send() {
    let mut record = stream(&[2_100.0, 2_500.0], 2);
    record.t_send_ns = at(2_000.0);
    let failed = Failure {
        kind: FailureKind::HttpStatus,
        code: Some(503),
        message: String::new(),
    };
    let attempt = |from: f64, to: f64, failure| Attempt {
        t_send_ns: at(from),
        t_end_ns: at(to),
        body_started: false,
        failure,
    };
    record.attempts = vec![
        attempt(0.0, 2_000.0, Some(failed)),
        attempt(2_000.0, 2_500.0, None),
    ];
    let derived = derive(&record);
    near(derived.ttft_ms, 100.0);
    near(derived.e2el_ms, 500.0);
    near(derived.e2el_from_schedule_ms, 2_500.0);
    near(Some(derived.retry_wasted_ms), 2_000.0);
    near(Some(derived.queue_delay_ms), 0.0);
    assert_eq!(derived.attempts, 2);
}

#[test]
fn waiting_for_a_slot_is_told_apart_from_latency() {
    // 10 a second, one slot, 500 ms each: request i waits 0.4 · i seconds.
    let waited: Vec<_> = (0..8_u32)
        .map(|index| {
            let sent = f64::from(index) * 500.0;
            let mut record = stream(&[sent + 500.0], 1);
            record.t_sched_ns = at(f64::from(index) * 100.0);
            record.t_ready_ns = record.t_sched_ns;
            record.t_send_ns = at(sent);
            derive(&record)
        })
        .collect();
    let delays: Vec<_> = waited
        .iter()
        .map(|derived| derived.queue_delay_ms)
        .collect();
    near(summarize(&delays, &[]).mean, 1_400.0);
    let total: Vec<_> = waited
        .iter()
        .filter_map(|derived| derived.e2el_from_schedule_ms)
        .collect();
    let total = summarize(&total, &[]);
    near(total.mean, 1_900.0);
    near(total.p99, 3_272.0);
    near(total.max, 3_300.0);
    assert!(waited.iter().all(|derived| derived.e2el_ms == Some(500.0)));
}

#[test]
fn a_lane_holds_a_request_without_blaming_the_client() {
    let mut record = stream(&[900.0], 1);
    record.t_ready_ns = at(300.0);
    record.t_send_ns = at(301.0);
    let derived = derive(&record);
    near(Some(derived.lane_wait_ms), 300.0);
    near(Some(derived.queue_delay_ms), 301.0);
    near(Some(derived.send_lag_ms), 1.0);
}

#[test]
fn without_streaming_only_the_end_is_known() {
    let mut record = stream(&[700.0, 700.0], 8);
    record.streamed = false;
    let derived = derive(&record);
    assert_eq!((derived.ttft_ms, derived.tpot_ms), (None, None));
    assert_eq!(
        (derived.first_choice_ms, derived.second_token_ms),
        (None, None)
    );
    assert!(gaps_ms(&record).is_empty());
    near(derived.e2el_ms, 700.0);
}

#[test]
fn tokens_come_from_usage_then_from_the_tokenizer_never_from_chunks() {
    let mut record = stream(&[10.0, 20.0], 7);
    record.counted_output_tokens = Some(6);
    assert_eq!(
        derive(&record).output_tokens_source,
        Some(TokenSource::Usage)
    );
    record.usage = None;
    let derived = derive(&record);
    assert_eq!(derived.output_tokens, Some(6));
    assert_eq!(derived.output_tokens_source, Some(TokenSource::Tokenizer));
    record.counted_output_tokens = None;
    let derived = derive(&record);
    assert_eq!((derived.output_tokens, derived.tpot_ms), (None, None));
    assert_eq!(derived.cached_tokens, None);
}
