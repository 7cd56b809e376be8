//! The parity table on records whose figures are known.

use super::*;
use crate::measure::Usage;
use crate::measure::sample::{at, stream};

/// Requests `apart` ms after each other: first token after `ttft` ms, then one
/// every 10 ms, four in all.
fn run(count: u32, ttft: f64) -> Vec<RequestRecord> {
    (0..count)
        .map(|index| {
            let start = f64::from(index) * 100.0;
            let stamps = [0.0, 10.0, 20.0, 30.0].map(|later| start + ttft + later);
            let mut record = stream(&stamps, 4);
            record.sequence_index = index;
            record.t_send_ns = at(start);
            record
        })
        .collect()
}

fn side(records: &[RequestRecord]) -> Side<'_> {
    Side {
        records,
        hit_rate: Some(0.5),
        origin_ns: 1_000_000_000,
    }
}

fn row_of<'a>(parity: &'a Parity, metric: &str, statistic: &str, by: By) -> &'a ParityRow {
    let found =
        |row: &&ParityRow| row.metric == metric && row.statistic == statistic && row.by == by;
    parity.rows.iter().find(found).unwrap()
}

fn near(actual: Option<f64>, expected: f64) {
    let actual = actual.unwrap();
    assert!(
        (actual - expected).abs() < 1e-6,
        "{actual} is not {expected}"
    );
}

#[test]
fn equal_runs_agree_in_everything() {
    let records = run(8, 50.0);
    let parity = parity(
        side(&records),
        side(&records),
        None,
        &Seed::from_decimal("1"),
    );
    assert!(
        parity
            .rows
            .iter()
            .all(|row| row.agreement == Agreement::Equal)
    );
    assert_eq!((parity.unexplained(), parity.paired_requests), (0, 8));
}

#[test]
fn the_difference_is_of_the_same_requests() {
    let (slow, fast) = (run(8, 62.0), run(8, 50.0));
    let parity = parity(side(&slow), side(&fast), None, &Seed::from_decimal("1"));
    let ttft = row_of(&parity, "ttft_ms", "p50", By::Aisbench);
    near(ttft.aisbench, 62.0);
    near(ttft.native, 50.0);
    near(ttft.difference, 12.0);
    near(ttft.ratio, 1.24);
    assert_eq!(ttft.agreement, Agreement::Expected);
    let interval = ttft.interval.unwrap();
    near(Some(interval.low), 12.0);
    near(Some(interval.high), 12.0);
    // 12 of 80 ms is more than 5 %, and nothing explains a median.
    let e2el = row_of(&parity, "e2el_ms", "p50", By::Pcload);
    assert_eq!(e2el.agreement, Agreement::Differs);
    let tpot = row_of(&parity, "tpot_ms", "p50", By::Pcload);
    assert_eq!(tpot.agreement, Agreement::Equal);
}

#[test]
fn tokens_are_equal_or_they_differ() {
    let (left, mut right) = (run(100, 50.0), run(100, 50.0));
    right[3].usage = Some(Usage {
        prompt_tokens: 64,
        completion_tokens: 5,
        cached_tokens: None,
    });
    let parity = parity(side(&left), side(&right), None, &Seed::from_decimal("1"));
    let tokens = row_of(&parity, "output_tokens", "total", By::Count);
    assert_eq!(tokens.agreement, Agreement::Differs);
}

#[test]
fn the_server_says_who_is_nearer() {
    let (slow, fast) = (run(4, 58.0), run(4, 51.0));
    // The server had each request 1 ms after its send and answered 50 ms later.
    let origin = 1_000_000_000;
    let rows: Vec<TruthRow> = (0..4)
        .map(|index| {
            let recv_ns = origin + index * 100_000_000 + 1_000_000;
            TruthRow {
                recv_ns,
                sends_ns: (0..4)
                    .map(|step| recv_ns + 50_000_000 + step * 10_000_000)
                    .collect(),
                completion_tokens: 4,
                complete: true,
            }
        })
        .collect();
    let parity = parity(
        side(&slow),
        side(&fast),
        Some(&rows),
        &Seed::from_decimal("1"),
    );
    let ttft = row_of(&parity, "ttft_ms", "p50", By::Pcload);
    near(ttft.truth_native, 50.0);
    near(ttft.truth_aisbench, 50.0);
    assert_eq!(ttft.nearer, Some(Nearer::Native));
}

#[test]
fn a_truth_log_is_read_up_to_its_last_whole_line() {
    let line = r#"{"rid":null,"recv_ns":5,"sends_ns":[6,7],"completion_tokens":2,"complete":true}"#;
    let rows = parse_truth(&format!("{line}\n{line}\n{{\"recv")).unwrap();
    assert_eq!(rows.len(), 2);
    let error = parse_truth("{}\n").unwrap_err();
    assert_eq!(error.line, 1);
}
