//! The requests of an AISBench run as samples of a comparison, by this program's
//! definitions: TTFT to its first event, E2EL to the last event but the usage
//! event. It says nothing of cached tokens.

use super::sample::Sample;
use crate::measure::RequestRecord;
use crate::measure::aisbench::{Detail, RequestTimes, SentRow, to_record};
use crate::units::GroupIndex;

/// The samples of `requests`, named by their row of the data set.
pub fn aisbench_samples(requests: &[(Detail, RequestTimes)]) -> Vec<Sample> {
    let sends = requests
        .iter()
        .filter_map(|(_, times)| times.time_points.first());
    let origin = sends.copied().fold(f64::INFINITY, f64::min);
    let origin_ns = if origin.is_finite() { nanos(origin) } else { 0 };
    // One event a request is a body that came whole.
    let events = requests.iter().map(|(_, times)| times.time_points.len());
    let streamed = events.max().is_some_and(|most| most > 2);
    let records: Vec<RequestRecord> = requests
        .iter()
        .map(|(detail, times)| to_record(&row(detail), detail, times, origin_ns, streamed))
        .collect();
    Sample::of_records(&records, 0)
}

fn row(detail: &Detail) -> SentRow {
    SentRow {
        sequence_index: u32::try_from(detail.id).unwrap_or(u32::MAX),
        request_id: format!("row-{}", detail.id),
        group: GroupIndex(0),
        dp_rank: None,
        lane_sequence: None,
        planned_prompt_tokens: detail.input_tokens,
        max_tokens: detail.output_tokens,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "time points are positive, below 2^63 ns"
)]
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::aisbench::{Results, joined};
    use crate::stats::summarize;

    const DETAILS: &str =
        include_str!("../../../tests/data/aisbench-3.1/basic/pcload_details.jsonl");
    const TIMES: &str = include_str!("../../../tests/data/aisbench-3.1/basic/time_points.jsonl");
    const CSV: &str = include_str!("../../../tests/data/aisbench-3.1/basic/pcload.csv");
    const JSON: &str = include_str!("../../../tests/data/aisbench-3.1/basic/pcload.json");

    #[test]
    fn the_samples_of_a_recorded_run_give_its_own_table() {
        let samples = aisbench_samples(&joined(DETAILS, TIMES).unwrap());
        let results = Results::parse(CSV, JSON).unwrap();
        assert_eq!(samples.len(), 16);
        let stated = |metric: &str, statistic: &str| results.cell(metric, statistic).unwrap();
        let ttft: Vec<f64> = samples.iter().filter_map(|sample| sample.ttft_ms).collect();
        let ttft = summarize(&ttft, &[]);
        // Its table has steps of 0.1 ms.
        assert!((ttft.mean.unwrap() - stated("TTFT", "Average")).abs() < 0.051);
        assert!((ttft.p50.unwrap() - stated("TTFT", "Median")).abs() < 0.051);
        // Its E2EL ends with the usage event, which this server sends at once.
        let e2el: Vec<f64> = samples.iter().filter_map(|sample| sample.e2el_ms).collect();
        let e2el = summarize(&e2el, &[]).mean.unwrap();
        let theirs = stated("E2EL", "Average");
        assert!(
            e2el <= theirs + 0.051 && theirs - e2el < 3.0,
            "{e2el} {theirs}"
        );
        let tokens: u64 = samples.iter().filter_map(|one| one.output_tokens).sum();
        assert_eq!(
            Some(tokens as f64),
            results.figure("Total Generated Tokens")
        );
        assert!(samples.iter().all(|one| one.ok && one.cached.is_none()));
        let last = samples.iter().map(|one| one.ended_s).fold(0.0, f64::max);
        let duration = results.figure("Benchmark Duration").unwrap() / 1e3;
        assert!((last - duration).abs() < 0.003, "{last} {duration}");
    }

    #[test]
    fn a_body_that_came_whole_has_no_first_token() {
        let details = "{\"id\":0,\"success\":true,\"input_tokens\":8,\"output_tokens\":4}\n";
        let times = "{\"id\":0,\"time_points\":[10.0,10.5]}\n";
        let samples = aisbench_samples(&joined(details, times).unwrap());
        assert_eq!(
            (samples[0].ttft_ms, samples[0].e2el_ms),
            (None, Some(500.0))
        );
    }
}
