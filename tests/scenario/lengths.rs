//! Length rules: degenerate distributions, counts that must add up, and how
//! requests are dealt to groups.

use crate::input::{base, check_table, load_text, load_with, outcome, with};
use pcload::scenario::{Assignment, InputLength, OutputLength, TruncatedNormal};
use proptest::prelude::*;
use serde_json::json;

const INPUT: &str = "requests.input_length";

#[test]
fn truncated_normals() {
    let check = |min: &str, max: &str, rest: &str, expected: &str| {
        let raw =
            format!("{{\"mode\": \"truncated_normal\", \"min\": {min}, \"max\": {max}{rest}}}");
        check_table(&[(INPUT, &raw, expected)]);
    };
    check("64", "64", "", "ok");
    check("64", "32", "", "OUT_OF_RANGE requests.input_length.max");
    check("0", "64", "", "OUT_OF_RANGE requests.input_length.min");
    check(
        "64",
        "128",
        ", \"mean\": 96, \"std\": 0",
        "OUT_OF_RANGE requests.input_length.std",
    );
    check(
        "64",
        "128",
        ", \"mean\": 96, \"std\": \"NaN\"",
        "WRONG_TYPE requests.input_length.std",
    );
    check(
        "64",
        "128",
        ", \"mean\": 96, \"std\": 1e400",
        "NOT_FINITE requests.input_length.std",
    );
    check(
        "64",
        "128",
        ", \"mean\": null",
        "WRONG_TYPE requests.input_length.mean",
    );
    check(
        "1",
        "100",
        ", \"mean\": 10000, \"std\": 1",
        "OUT_OF_RANGE requests.input_length.mean",
    );
    check("64", "128", ", \"mean\": 96, \"std\": 1e9", "ok");
    check("64", "128.5", "", "WRONG_TYPE requests.input_length.max");
    check("64", "\"128\"", "", "WRONG_TYPE requests.input_length.max");
}

#[test]
fn a_normal_without_mean_and_deviation_is_centered() {
    let rule = |raw: &str| {
        load_text(&with(&base(), INPUT, raw))
            .unwrap()
            .requests
            .input_length
    };
    let normal = |min, max, mean, std| {
        InputLength::TruncatedNormal(TruncatedNormal {
            min,
            max,
            mean,
            std,
        })
    };
    let raw = r#"{"mode": "truncated_normal", "min": 32, "max": 65}"#;
    assert_eq!(rule(raw), normal(32, 65, 48.5, 8.25));
    let raw = r#"{"mode": "truncated_normal", "min": 64, "max": 64}"#;
    assert_eq!(rule(raw), normal(64, 64, 64.0, 1.0));
}

#[test]
fn other_modes() {
    let check = |raw: &str, expected: &str| check_table(&[(INPUT, raw, expected)]);
    check("{}", "ok");
    check(r#"{"mode": "fixed"}"#, "ok");
    check(r#"{"value": 64}"#, "ok");
    check(r#"{"mode": "fixed", "value": 7}"#, "TOO_SHORT");
    check(
        r#"{"mode": "fixed", "value": 64, "values": [64]}"#,
        "FOREIGN_KEY requests.input_length.values",
    );
    check(
        r#"{"mode": "fixed", "value": 64, "valeu": 1}"#,
        "UNKNOWN_KEY requests.input_length.valeu",
    );
    check(r#"{"mode": "explicit", "values": [64, 64, 64, 64]}"#, "ok");
    check(
        r#"{"mode": "explicit", "values": [64, 0, 64.0, 64]}"#,
        "OUT_OF_RANGE requests.input_length.values[1];WRONG_TYPE requests.input_length.values[2]",
    );
    check(
        r#"{"mode": "explicit", "values": []}"#,
        "BAD_VALUE requests.input_length.values",
    );
    check(
        r#"{"mode": "explicit"}"#,
        "MISSING requests.input_length.values",
    );
    check(
        r#"{"mode": "range", "ranges": [{"min": 32, "max": 64, "count": 4}]}"#,
        "ok",
    );
    check(
        r#"{"mode": "range", "ranges": [{"min": 32, "max": 64, "count": 3}, {"min": 9, "max": 8, "count": 1}]}"#,
        "OUT_OF_RANGE requests.input_length.ranges[1].max",
    );
    check(
        r#"{"mode": "range", "ranges": [{"min": 32, "count": 4, "zz": 1}]}"#,
        "MISSING requests.input_length.ranges[0].max;UNKNOWN_KEY requests.input_length.ranges[0].zz",
    );
    check(
        r#"{"mode": "range", "ranges": []}"#,
        "BAD_VALUE requests.input_length.ranges",
    );
    check(
        r#"{"mode": "range", "ranges": 5}"#,
        "WRONG_TYPE requests.input_length.ranges",
    );
    check(
        r#"{"mode": "range", "ranges": [5]}"#,
        "WRONG_TYPE requests.input_length.ranges[0]",
    );
    check(r#"{"mode": "csv"}"#, "MISSING requests.input_length.path");
    check(
        r#"{"mode": "csv", "path": "none.csv"}"#,
        "FILE_UNREADABLE requests.input_length.path",
    );
    check(
        r#"{"mode": "uniform", "min": 64, "max": 64}"#,
        "BAD_VALUE requests.input_length.mode",
    );
    check("5", "WRONG_TYPE");
    let check =
        |raw: &str, expected: &str| check_table(&[("requests.output_length", raw, expected)]);
    check(r#"{"mode": "uniform", "min": 1, "max": 3}"#, "ok");
    check(
        r#"{"mode": "uniform", "min": 3, "max": 2}"#,
        "OUT_OF_RANGE requests.output_length.max",
    );
    check(
        r#"{"mode": "fixed", "value": 0}"#,
        "OUT_OF_RANGE requests.output_length.value",
    );
    check(
        r#"{"mode": "explicit", "values": [1, 1, 1, 1]}"#,
        "BAD_VALUE requests.output_length.mode;UNKNOWN_KEY requests.output_length.values",
    );
    let scenario = load_text(&with(&base(), "requests.output_length", "{}")).unwrap();
    assert_eq!(scenario.requests.output_length, OutputLength::Fixed(32));
}

#[test]
fn counts_must_add_up_and_both_numbers_are_said() {
    let mut scenario = base();
    scenario["requests"]["count"] = json!(100);
    let problem = |raw: &str| {
        let problems = load_text(&with(&scenario, INPUT, raw)).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems}");
        let problem = problems.iter().next().unwrap();
        (
            problem.code.as_str(),
            problem.path.clone(),
            problem.what.clone(),
        )
    };
    let values = format!("{{\"mode\": \"explicit\", \"values\": {:?}}}", [64; 99]);
    assert_eq!(
        problem(&values),
        (
            "COUNT_MISMATCH",
            format!("{INPUT}.values"),
            "99 lengths, but `requests.count` is 100".to_owned()
        )
    );
    let ranges = r#"{"mode": "range", "ranges": [
        {"min": 32, "max": 64, "count": 80}, {"min": 64, "max": 64, "count": 19}]}"#;
    let what = "the ranges' counts add up to 99, but `requests.count` is 100".to_owned();
    assert_eq!(
        problem(ranges),
        ("COUNT_MISMATCH", format!("{INPUT}.ranges"), what)
    );
}

#[test]
fn lengths_come_from_csv_files_beside_the_scenario() {
    let rows = format!("\u{feff}input_tokens\r\n{}\r\n", "64\r\n".repeat(100));
    let mut scenario = base();
    scenario["requests"]["count"] = json!(100);
    let text = with(
        &scenario,
        INPUT,
        r#"{"mode": "csv", "path": "../lengths.csv"}"#,
    );
    let loaded = load_with(&text, &[("/lengths.csv", &rows)]).unwrap();
    assert_eq!(
        loaded.requests.input_length,
        InputLength::Explicit(vec![64; 100])
    );
    assert_eq!(
        loaded.effective_config["requests"]["input_length"]["path"],
        "/lengths.csv"
    );
    let short = load_with(&text, &[("/lengths.csv", "input_tokens\n64\n")]);
    assert_eq!(
        outcome(&short),
        ["COUNT_MISMATCH requests.input_length.path"]
    );
    let word = load_with(&text, &[("/lengths.csv", "input_tokens\nx\n")]);
    assert_eq!(outcome(&word), ["BAD_FILE requests.input_length.path"]);
}

#[test]
fn requests_are_dealt_by_largest_remainder() {
    let uniform = |requests, groups| Assignment::Uniform.request_counts(requests, groups);
    let zipf =
        |exponent, requests, groups| Assignment::Zipf { exponent }.request_counts(requests, groups);
    let weights = |weights: &[f64], requests| {
        let groups = u32::try_from(weights.len()).unwrap();
        Assignment::Weights(weights.to_vec()).request_counts(requests, groups)
    };
    assert_eq!(zipf(1.0, 10, 3), [5, 3, 2]);
    assert_eq!(weights(&[0.5, 0.3, 0.15, 0.05], 10), [5, 3, 2, 0]);
    assert_eq!(uniform(10, 3), [4, 3, 3]);
    assert_eq!(uniform(4, 9), [1, 1, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!(weights(&[0.0, 2.0], 3), [0, 3]);
    // Weights at the ends of the range still deal everything.
    assert_eq!(weights(&[f64::MAX, f64::MAX], 5), [3, 2]);
    assert_eq!(weights(&[5e-324, 5e-324], 4), [2, 2]);
    assert_eq!(weights(&[0.0, 1e-300, 0.0], 4), [0, 4, 0]);
    assert_eq!(zipf(1e9, 4, 2), [4, 0]);
    // What the reference dealt.
    assert_eq!(uniform(3, 5), [1, 1, 1, 0, 0]);
    assert_eq!(uniform(100, 3), [34, 33, 33]);
    assert_eq!(zipf(1.2, 10, 3), [6, 2, 2]);
    assert_eq!(zipf(1.2, 100, 3), [59, 25, 16]);
    assert_eq!(weights(&[5.0, 3.0, 2.0], 24), [12, 7, 5]);
    assert_eq!(weights(&[0.5, 0.3, 0.2], 40), [20, 12, 8]);
}

proptest! {
    #[test]
    fn every_request_is_dealt_and_no_group_is_off_by_more_than_one(
        weights in proptest::collection::vec(0.0..1e6_f64, 1..40),
        requests in 0_usize..10_000,
    ) {
        let total: f64 = weights.iter().sum();
        prop_assume!(total > 0.0);
        let groups = u32::try_from(weights.len()).unwrap();
        let counts = Assignment::Weights(weights.clone()).request_counts(requests, groups);
        prop_assert_eq!(counts.iter().sum::<usize>(), requests);
        for (count, weight) in counts.iter().zip(&weights) {
            let share = requests as f64 * weight / total;
            prop_assert!((*count as f64 - share).abs() < 1.0 + 1e-9, "{count} for {share}");
        }
    }
}

#[test]
fn rules_of_a_group_must_fit_its_requests() {
    let mut scenario = base();
    scenario["requests"]["count"] = json!(10);
    scenario["prefix_cache"]["groups"] = json!({"count": 3, "assignment": {"mode": "zipf"}});
    let overrides = "prefix_cache.groups.overrides";
    let load = |raw: &str| load_text(&with(&scenario, overrides, raw));
    let two =
        load(r#"{"group-2": {"input_length": {"mode": "explicit", "values": [64, 72]}}}"#).unwrap();
    let rules = &two.prefix_cache.groups.overrides[&pcload::units::GroupIndex(2)];
    assert_eq!(
        rules.input_length,
        Some(InputLength::Explicit(vec![64, 72]))
    );
    let three =
        load(r#"{"group-2": {"input_length": {"mode": "explicit", "values": [64, 72, 80]}}}"#);
    let message = three.unwrap_err().to_string();
    assert!(
        message.contains("3 lengths, but group-2 has 2 requests"),
        "{message}"
    );
    let check = |raw: &str, expected: &[&str]| {
        let expected: Vec<String> = expected
            .iter()
            .map(|line| line.replace('@', overrides))
            .collect();
        assert_eq!(outcome(&load(raw)), expected, "{raw}");
    };
    check(
        r#"{"group-0": {}, "group-1": {"corpus_selection": {"mode": "indices", "values": [1]}}}"#,
        &[],
    );
    check(r#"{"group-3": {}}"#, &["BAD_VALUE @.group-3"]);
    check(
        r#"{"group-": {}, "g": {}, "group--1": {}, "group-+1": {}}"#,
        &[
            "BAD_VALUE @.group-",
            "BAD_VALUE @.g",
            "BAD_VALUE @.group--1",
            "BAD_VALUE @[\"group-+1\"]",
        ],
    );
    check(r#"{"group-0": {"zz": 1}}"#, &["UNKNOWN_KEY @.group-0.zz"]);
    check(r#"{"group-0": 5}"#, &["WRONG_TYPE @.group-0"]);
    check(
        r#"{"group-0": {"input_length": 5}}"#,
        &["WRONG_TYPE @.group-0.input_length"],
    );
    check(
        r#"{"group-0": {"input_length": {"value": 64}}}"#,
        &["MISSING @.group-0.input_length.mode"],
    );
    check(
        r#"{"group-0": {"input_length": {"mode": "fixed", "value": 4}}}"#,
        &["TOO_SHORT @.group-0.input_length"],
    );
    check(r#"{"group-0": {"output_length": {"value": 9}}}"#, &[]);
    check(
        r#"{"group-0": {"corpus_selection": {"mode": "random", "zz": 1}}}"#,
        &["UNKNOWN_KEY @.group-0.corpus_selection.zz"],
    );
    check("[]", &["WRONG_TYPE @"]);
}

#[test]
fn rules_that_no_request_uses_deserve_a_word() {
    let overrides = "prefix_cache.groups.overrides";
    let raw = r#"{"group-00": {"input_length": {"mode": "explicit", "values": [64]}}}"#;
    let loaded = load_text(&with(&base(), overrides, raw)).unwrap();
    assert!(loaded.prefix_cache.groups.overrides.is_empty());
    assert!(
        loaded.notes[0].contains("never matches"),
        "{:?}",
        loaded.notes
    );
    let mut scenario = base();
    scenario["prefix_cache"]["groups"] = json!({"count": 9});
    let raw = r#"{"group-8": {"input_length": {"mode": "explicit", "values": [64]}}}"#;
    let loaded = load_text(&with(&scenario, overrides, raw)).unwrap();
    assert!(
        loaded.notes[0].contains("group-8 has no requests"),
        "{:?}",
        loaded.notes
    );
}
