//! Each field's rule, at and beyond its limits.

use crate::input::{base, check_table, load_text, outcome, with};
use pcload::rng::Seed;
use pcload::scenario::{Code, OutputKey, Selection};
use serde_json::{Value, json};

#[test]
fn run_and_tokenizer() {
    let long = format!("\"{}\"", "x".repeat(181));
    check_table(&[
        ("schema_version", "\"1.0\"", "ok"),
        ("schema_version", "\"1\"", "BAD_VALUE"),
        ("schema_version", "1.0", "BAD_VALUE"),
        ("run", "null", "WRONG_TYPE"),
        ("run", "[]", "WRONG_TYPE"),
        ("run.run_id", "\"a b-1.é\"", "ok"),
        ("run.run_id", "\" \"", "BAD_VALUE"),
        ("run.run_id", "\"a/b\"", "BAD_VALUE"),
        ("run.run_id", "\"a\\\\b\"", "BAD_VALUE"),
        ("run.run_id", "\"..\"", "BAD_VALUE"),
        ("run.run_id", "\"a\\nb\"", "BAD_VALUE"),
        ("run.run_id", "\"a\\u0000b\"", "BAD_VALUE"),
        ("run.run_id", "5", "WRONG_TYPE"),
        ("run.run_id", &long, "BAD_VALUE"),
        ("run.random_seed", "-0", "ok"),
        ("run.random_seed", "\"42\"", "WRONG_TYPE"),
        ("run.random_seed", "42.0", "WRONG_TYPE"),
        ("run.random_seed", "1e3", "WRONG_TYPE"),
        ("run.random_seed", "true", "WRONG_TYPE"),
        ("run.output_dir", "\"\"", "ok"),
        ("run.output_dir", "\"/\"", "BAD_VALUE"),
        ("run.output_dir", "\"../../..\"", "BAD_VALUE"),
        ("run.output_dir", "\"a\\u0000\"", "BAD_VALUE"),
        ("run.output_dir", "7", "WRONG_TYPE"),
        ("run.overwrite", "true", "ok"),
        ("run.overwrite", "1", "WRONG_TYPE"),
        ("tokenizer.path", "\"\"", "BAD_VALUE"),
        ("tokenizer.path", "null", "WRONG_TYPE"),
        ("tokenizer.block_size", "1", "ok"),
        ("tokenizer.block_size", "0", "OUT_OF_RANGE"),
        ("tokenizer.block_size", "-1", "OUT_OF_RANGE"),
        ("tokenizer.block_size", "16.0", "WRONG_TYPE"),
        ("tokenizer.block_size", "\"16\"", "WRONG_TYPE"),
        ("tokenizer.block_size", "true", "WRONG_TYPE"),
        (
            "tokenizer.block_size",
            "99999999999999999999999",
            "OUT_OF_RANGE",
        ),
        ("tokenizer.revision", "\"main\"", "ok"),
        ("tokenizer.revision", "\"\"", "BAD_VALUE"),
        ("tokenizer.trust_remote_code", "true", "ok"),
        ("tokenizer.trust_remote_code", "\"no\"", "WRONG_TYPE"),
    ]);
}

#[test]
fn corpus_selections() {
    let digest = "a".repeat(64);
    let check = |raw: &str, expected: &str| check_table(&[("corpus.selection", raw, expected)]);
    check("{}", "ok");
    check(r#"{"mode": "indices", "values": [0, "1_0", " 2 "]}"#, "ok");
    check(r#"{"mode": "indices", "indices": [3]}"#, "ok");
    check(r#"{"mode": "indices"}"#, "MISSING corpus.selection.values");
    check(
        r#"{"mode": "indices", "values": []}"#,
        "MISSING corpus.selection.values",
    );
    check(
        r#"{"mode": "indices", "values": [0, -1, 1.5, "x", true]}"#,
        "OUT_OF_RANGE corpus.selection.values[1];WRONG_TYPE corpus.selection.values[2];\
         BAD_VALUE corpus.selection.values[3];WRONG_TYPE corpus.selection.values[4]",
    );
    check(
        &format!(r#"{{"mode": "question_sha256", "values": ["{digest}"]}}"#),
        "ok",
    );
    check(
        r#"{"mode": "question_sha256", "question_sha256": ["AB"]}"#,
        "BAD_VALUE corpus.selection.question_sha256[0]",
    );
    check(
        &format!(r#"{{"mode": "mixed", "question_sha256": ["{digest}"]}}"#),
        "ok",
    );
    check(
        r#"{"mode": "mixed", "indices": [], "question_sha256": []}"#,
        "MISSING corpus.selection.indices",
    );
    check(
        r#"{"mode": "mixed", "values": [1]}"#,
        "MISSING corpus.selection.indices;FOREIGN_KEY corpus.selection.values",
    );
    check(
        r#"{"mode": "random", "values": [1]}"#,
        "FOREIGN_KEY corpus.selection.values",
    );
    check(
        r#"{"mode": "index", "values": [1]}"#,
        "BAD_VALUE corpus.selection.mode",
    );
    check("[]", "WRONG_TYPE");
    check_table(&[
        ("corpus.path", "\"\"", "BAD_VALUE"),
        ("corpus.field", "1", "WRONG_TYPE"),
    ]);
}

#[test]
fn values_of_a_selection_come_before_its_named_list() {
    let raw = r#"{"mode": "indices", "values": [1], "indices": [2]}"#;
    let scenario = load_text(&with(&base(), "corpus.selection", raw)).unwrap();
    assert_eq!(scenario.corpus.selection, Selection::Indices(vec![1]));
    let raw = r#"{"mode": "indices", "values": [], "indices": [2]}"#;
    let scenario = load_text(&with(&base(), "corpus.selection", raw)).unwrap();
    assert_eq!(scenario.corpus.selection, Selection::Indices(vec![2]));
}

#[test]
fn prefixes_groups_and_order() {
    let groups = "prefix_cache.groups";
    check_table(&[
        ("prefix_cache.mode", "\"cold\"", "ok"),
        ("prefix_cache.mode", "\"hot\"", "BAD_VALUE"),
        ("prefix_cache.target_hit_rate", "0", "ok"),
        ("prefix_cache.target_hit_rate", "1.0", "ok"),
        ("prefix_cache.target_hit_rate", "1.0001", "OUT_OF_RANGE"),
        ("prefix_cache.target_hit_rate", "-1e-9", "OUT_OF_RANGE"),
        ("prefix_cache.target_hit_rate", "\"0.5\"", "WRONG_TYPE"),
        ("prefix_cache.target_hit_rate", "true", "WRONG_TYPE"),
        ("prefix_cache.target_hit_rate", "1e400", "NOT_FINITE"),
        ("prefix_cache.seed_blocks", "8", "ok"),
        (
            "prefix_cache.seed_blocks",
            "9",
            "TOO_SHORT requests.input_length",
        ),
        ("prefix_cache.seed_blocks", "0", "OUT_OF_RANGE"),
        (
            "prefix_cache.seed_blocks",
            "100000000",
            "TOO_SHORT requests.input_length",
        ),
        ("prefix_cache.minimum_non_shared_length", "8", "ok"),
        ("prefix_cache.minimum_non_shared_length", "20", "ok"),
        (
            "prefix_cache.minimum_non_shared_length",
            "7",
            "OUT_OF_RANGE",
        ),
        (
            "prefix_cache.minimum_non_shared_length",
            "65",
            "TOO_SHORT requests.input_length",
        ),
        ("prefix_cache.order.strategy", "\"input_len_asc\"", "ok"),
        ("prefix_cache.order.strategy", "\"random\"", "BAD_VALUE"),
        (groups, r#"{"count": 9}"#, "ok"),
        (
            groups,
            r#"{"count": 0}"#,
            "OUT_OF_RANGE prefix_cache.groups.count",
        ),
        (
            groups,
            r#"{"count": 4000000000}"#,
            "OUT_OF_RANGE prefix_cache.groups.count",
        ),
        (groups, "\"x\"", "WRONG_TYPE"),
    ]);
    let check = |raw: &str, expected: &str| {
        check_table(&[("prefix_cache.groups.assignment", raw, expected)]);
    };
    let weights = "prefix_cache.groups.assignment.weights";
    check(r#"{"mode": "zipf"}"#, "ok");
    check(
        r#"{"mode": "zipf", "exponent": 0}"#,
        "OUT_OF_RANGE prefix_cache.groups.assignment.exponent",
    );
    check(r#"{"mode": "weights", "weights": ["3", 1e-3]}"#, "ok");
    check(r#"{"mode": "weights"}"#, &format!("MISSING {weights}"));
    check(
        r#"{"mode": "weights", "weights": [1]}"#,
        &format!("COUNT_MISMATCH {weights}"),
    );
    check(
        r#"{"mode": "weights", "weights": [0, 0]}"#,
        &format!("OUT_OF_RANGE {weights}"),
    );
    check(
        r#"{"mode": "weights", "weights": [1e308, 1e308]}"#,
        &format!("OUT_OF_RANGE {weights}"),
    );
    check(
        r#"{"mode": "weights", "weights": [-1, "x", "inf", null]}"#,
        &["OUT_OF_RANGE", "BAD_VALUE", "NOT_FINITE", "WRONG_TYPE"]
            .iter()
            .enumerate()
            .map(|(index, code)| format!("{code} {weights}[{index}]"))
            .collect::<Vec<_>>()
            .join(";"),
    );
    check(
        r#"{"mode": "uniform", "weights": [1, 1]}"#,
        &format!("FOREIGN_KEY {weights}"),
    );
}

#[test]
fn a_wrong_block_size_does_not_bring_further_problems() {
    check_table(&[(
        "tokenizer.block_size",
        "1000",
        "TOO_SHORT requests.input_length",
    )]);
    let mut scenario = base();
    scenario["prefix_cache"]["minimum_non_shared_length"] = json!(3);
    let text = with(&scenario, "tokenizer.block_size", "\"8\"");
    assert_eq!(
        outcome(&load_text(&text)),
        ["WRONG_TYPE tokenizer.block_size"]
    );
}

#[test]
fn seeds_keep_every_digit() {
    for seed in [
        "0",
        "-7",
        "18446744073709551615",
        "-123456789012345678901234567890",
    ] {
        let scenario = load_text(&with(&base(), "run.random_seed", seed)).unwrap();
        assert_eq!(scenario.run.random_seed, Seed::from_decimal(seed));
        let written = &scenario.effective_config["run"]["random_seed"];
        let digits = written
            .as_str()
            .map_or_else(|| written.to_string(), str::to_owned);
        assert_eq!(digits, seed);
    }
    let scenario = load_text(&with(&base(), "run.random_seed", "-0")).unwrap();
    assert_eq!(scenario.run.random_seed, Seed::from(0));
}

#[test]
fn the_target_is_echoed_as_it_was_written() {
    for (written, echoed) in [
        ("1", "1"),
        ("1.0", "1.0"),
        ("0", "0"),
        ("0.00001", "0.00001"),
        ("0.60", "0.6"),
    ] {
        let scenario = load_text(&with(&base(), "prefix_cache.target_hit_rate", written)).unwrap();
        assert_eq!(
            scenario.prefix_cache.target_hit_rate_written.to_string(),
            echoed
        );
        let effective = &scenario.effective_config["prefix_cache"]["target_hit_rate"];
        assert_eq!(effective.to_string(), echoed);
    }
}

#[test]
fn whatever_is_absent_has_its_default() {
    let scenario = load_text("{}").unwrap();
    assert_eq!(scenario.run.run_id, "gsm8k-prefix-cache-60");
    assert_eq!(scenario.run.random_seed, Seed::from(42));
    assert_eq!(scenario.service.dp_size, 2);
    assert_eq!(scenario.prefix_cache.minimum_non_shared_length, 16);
    assert_eq!(scenario.output_key, None);
    assert!(!scenario.has_pcload_section);
    assert!(scenario.notes.is_empty());
    let expected: Value = serde_json::from_str(
        r#"{
        "schema_version": "1.0",
        "run": {"run_id": "gsm8k-prefix-cache-60", "random_seed": 42,
            "output_dir": "/s/outputs/gsm8k-prefix-cache-60", "overwrite": false},
        "tokenizer": {"path": "/home/weights/Qwen3.6-27B", "block_size": 16, "revision": null,
            "trust_remote_code": false},
        "corpus": {"path": "/s/GSM8K.jsonl", "field": "question", "selection": {"mode": "random"}},
        "requests": {"count": 100, "input_length": {"mode": "fixed", "value": 1024},
            "output_length": {"mode": "fixed", "value": 32}},
        "output": {"output_key": null},
        "prefix_cache": {"mode": "warmup", "target_hit_rate": 0.6, "seed_blocks": 1,
            "minimum_non_shared_length": 16,
            "groups": {"count": 1, "assignment": {"mode": "uniform"}, "overrides": {}},
            "order": {"strategy": "interleave"}},
        "service": {"inference_url": "http://127.0.0.1:8000/v1/completions",
            "metrics_url": "http://127.0.0.1:8000/metrics",
            "reset_url": "http://127.0.0.1:8000/reset_prefix_cache", "model": "model-name",
            "dp_size": 2, "assume_empty_cache": false, "engine_label_map": {},
            "timeout_seconds": 30, "poll_interval_seconds": 5.0, "api_key_configured": false},
        "validation": {"target_warning_pp": 1.0, "actual_warning_pp": 5.0},
        "aisbench": {"config": "./plugins/prefix_cache/config_examples/prefix_cache_perf.py",
            "work_dir": "./outputs/default", "extra_args": [],
            "dataset": {"abbr": null, "input_columns": ["question", "max_out_len"],
                "output_column": "answer", "prompt_template": "{question}", "pred_role": "BOT"},
            "model": {"abbr": null, "attr": "service", "stream": true, "max_out_len": 1, "retry": 2,
                "batch_size": 1, "generation_kwargs": {"temperature": 0, "ignore_eos": true}}}
        }"#,
    )
    .unwrap();
    assert_eq!(scenario.effective_config, expected);
    let scenario = load_text(r#"{"output": {"output_key": "output_tokens"}}"#).unwrap();
    assert_eq!(scenario.output_key, Some(OutputKey::OutputTokens));
}

#[test]
fn a_byte_order_mark_is_fine_and_other_encodings_are_not() {
    assert!(load_text("\u{feff}{}").is_ok());
    let read = |_: &std::path::Path| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    let path = std::path::Path::new("/s/scenario.json");
    let problems = pcload::scenario::load(b"{\"a\": \"\xff\"}", path, None, &read).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "BAD_JSON: not UTF-8 at byte 7; expected JSON in UTF-8"
    );
    for text in ["", "[]", "null", "{\"run\": NaN}", "{} {}", "{'a': 1}"] {
        let problems = load_text(text).unwrap_err();
        assert_eq!(problems.len(), 1, "{text}");
        let code = problems.iter().next().unwrap().code;
        assert!(
            matches!(code, Code::BadJson | Code::WrongType | Code::NotFinite),
            "{text}"
        );
    }
}
