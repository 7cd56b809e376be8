//! Recorded runs of the real AISBench: its tables, computed again from its time
//! points by its own definitions, are the same to the last digit.

use std::fs;
use std::path::{Path, PathBuf};

use pcload::measure::aisbench::{
    Detail, Results, SentRow, StageRule, Timed, joined, recompute, to_record,
};
use pcload::measure::{Outcome, derive};
use pcload::tokenizer::{self, Tokenizer as _};
use pcload::units::GroupIndex;
use serde_json::Value;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/aisbench-3.1")
}

fn read(run: &str, file: &str) -> String {
    fs::read_to_string(data().join(run).join(file)).unwrap()
}

fn slots(run: &str) -> u32 {
    let config = read(run, "config.py");
    let rest = config.split_once("batch_size=").unwrap().1;
    rest.split(',').next().unwrap().parse().unwrap()
}

/// Tokens where the server reported none: both texts encoded, special tokens
/// included, as AISBench does.
fn counted(run: &str, line: usize, detail: &Detail) -> (u64, u64) {
    if detail.input_tokens > 0 && detail.output_tokens > 0 {
        return (detail.input_tokens, detail.output_tokens);
    }
    let name = if run.ends_with("-bos") {
        "tokenizer-bos"
    } else {
        "tokenizer"
    };
    let tokenizer = tokenizer::load(name, &data(), None).unwrap();
    let details = read(run, "pcload_details.jsonl");
    let row: Value = serde_json::from_str(details.lines().nth(line).unwrap()).unwrap();
    let special = tokenizer.prefix_ids().len() + tokenizer.suffix_ids().len();
    let count = |key: &str| {
        let text = row[key].as_str().unwrap();
        (tokenizer.encode(text).unwrap().len() + special) as u64
    };
    let or_counted = |tokens: u64, key: &str| if tokens > 0 { tokens } else { count(key) };
    (
        or_counted(detail.input_tokens, "input"),
        or_counted(detail.output_tokens, "prediction"),
    )
}

/// The successes of a run and how many failed.
fn timed(run: &str) -> (Vec<Timed>, u64) {
    let rows = joined(
        &read(run, "pcload_details.jsonl"),
        &read(run, "time_points.jsonl"),
    )
    .unwrap();
    let successes = rows
        .iter()
        .enumerate()
        .filter(|(_, (detail, _))| detail.success);
    let successes: Vec<Timed> = successes
        .map(|(line, (detail, times))| {
            let (input, output) = counted(run, line, detail);
            Timed::new(times.time_points.clone(), input, output).unwrap()
        })
        .collect();
    let failed = (rows.len() - successes.len()) as u64;
    (successes, failed)
}

fn printed(run: &str) -> Results {
    Results::parse(&read(run, "pcload.csv"), &read(run, "pcload.json")).unwrap()
}

#[test]
fn every_table_comes_out_of_the_time_points() {
    let runs = [
        "basic",
        "concurrency-32",
        "four-tokens-a-chunk",
        "empty-first-chunk",
        "late-usage-chunk",
        "one-token",
        "no-usage",
        "no-usage-bos",
        "no-stream",
        "stable-stage",
        "http-500",
        "broken-stream-retried",
        "error-event",
    ];
    for run in runs {
        let (successes, failed) = timed(run);
        let stage = if run == "stable-stage" {
            StageRule::Stable
        } else {
            StageRule::Total
        };
        let computed = recompute(&successes, failed, slots(run), stage);
        assert_eq!(computed, Some(printed(run)), "{run}");
    }
}

#[test]
fn nothing_comes_of_a_run_without_a_success() {
    let (successes, failed) = timed("all-failed");
    assert_eq!((successes.len(), failed), (0, 16));
    assert_eq!(recompute(&successes, failed, 4, StageRule::Total), None);
}

/// The figures that the fixtures are recorded for.
#[test]
fn the_tables_read_as_their_description_says() {
    for (run, metric, statistic, expected) in [
        ("basic", "TTFT", "Median", 53.7),
        ("basic", "ITL", "Average", 9.0),
        ("basic", "ITL", "Min", 0.0),
        ("concurrency-32", "ITL", "Average", 9.4),
        ("empty-first-chunk", "TTFT", "Median", 9.4),
        ("empty-first-chunk", "TPOT", "Median", 15.4),
        ("four-tokens-a-chunk", "ITL", "Median", 39.4),
        ("four-tokens-a-chunk", "ITL", "Average", 24.0),
        ("late-usage-chunk", "TPOT", "Average", 14.8),
        ("late-usage-chunk", "ITL", "Average", 12.0),
        ("no-usage-bos", "OutputTokens", "Average", 11.0),
        ("one-token", "TPOT", "Average", 2.2),
    ] {
        assert_eq!(
            printed(run).cell(metric, statistic),
            Some(expected),
            "{run} {metric}"
        );
    }
    let failed = printed("http-500");
    assert_eq!(failed.figure("Total Requests"), Some(16.0));
    assert_eq!(failed.figure("Failed Requests"), Some(4.0));
    assert_eq!(printed("no-stream").cell("ITL", "Average"), None);
}

fn sent(id: u64) -> SentRow {
    SentRow {
        sequence_index: u32::try_from(id).unwrap(),
        request_id: format!("request-{id:08}"),
        group: GroupIndex(0),
        dp_rank: None,
        lane_sequence: None,
        planned_prompt_tokens: 1,
        max_tokens: 16,
    }
}

/// A record made of AISBench's request gives AISBench's table again: nothing is
/// lost on the way but tokens that nobody reported.
#[test]
fn records_keep_what_the_tables_are_made_of() {
    for run in [
        "basic",
        "concurrency-32",
        "late-usage-chunk",
        "four-tokens-a-chunk",
        "one-token",
        "http-500",
        "broken-stream-retried",
    ] {
        let rows = joined(
            &read(run, "pcload_details.jsonl"),
            &read(run, "time_points.jsonl"),
        )
        .unwrap();
        let origin_ns = 1_000_000_000;
        let records: Vec<_> = rows
            .iter()
            .map(|(detail, times)| to_record(&sent(detail.id), detail, times, origin_ns, true))
            .collect();
        let successes: Vec<Timed> = records.iter().filter_map(Timed::of).collect();
        let failed = (records.len() - successes.len()) as u64;
        let computed = recompute(&successes, failed, slots(run), StageRule::Total);
        assert_eq!(computed, Some(printed(run)), "{run}");
    }
}

#[test]
fn own_definitions_of_the_same_stamps_leave_the_usage_event_out() {
    let run = "late-usage-chunk";
    let rows = joined(
        &read(run, "pcload_details.jsonl"),
        &read(run, "time_points.jsonl"),
    )
    .unwrap();
    let mut tpot: Vec<f64> = rows
        .iter()
        .map(|(detail, times)| to_record(&sent(detail.id), detail, times, 0, true))
        .filter(|record| record.outcome == Outcome::Success)
        .filter_map(|record| derive(&record).tpot_ms)
        .collect();
    tpot.sort_unstable_by(f64::total_cmp);
    let median = f64::midpoint(tpot[tpot.len() / 2 - 1], tpot[tpot.len() / 2]);
    // One token every 10 ms, and a usage event 30 ms after the last.
    assert!((median - 10.0).abs() < 0.5, "{median}");
}
