//! Rules of what is sent where: service, AISBench, generation arguments, and
//! pcload's own section.

use pcload::scenario::{CacheSalt, SpecialTokens};
use serde_json::json;

use crate::input::{base, check_table, load_text, outcome, with};

#[test]
fn services() {
    let map = "service.engine_label_map";
    check_table(&[
        (
            "service.inference_url",
            "\"https://[::1]:8000/v1/completions\"",
            "ok",
        ),
        ("service.inference_url", "\"\"", "BAD_VALUE"),
        ("service.inference_url", "\"127.0.0.1:8000\"", "BAD_VALUE"),
        ("service.metrics_url", "\"ftp://h/metrics\"", "BAD_VALUE"),
        ("service.metrics_url", "null", "WRONG_TYPE"),
        ("service.reset_url", "null", "ok"),
        ("service.reset_url", "\"\"", "ok"),
        ("service.reset_url", "\"reset\"", "BAD_VALUE"),
        ("service.reset_url", "5", "WRONG_TYPE"),
        ("service.model", "\" \"", "BAD_VALUE"),
        ("service.dp_size", "0", "OUT_OF_RANGE"),
        ("service.assume_empty_cache", "0", "WRONG_TYPE"),
        (map, r#"{"a": 0, "b": "1"}"#, "ok"),
        (
            map,
            r#"{"a": 0, "b": 0}"#,
            "CONFLICT service.engine_label_map.b",
        ),
        (
            map,
            r#"{"a": 2}"#,
            "OUT_OF_RANGE service.engine_label_map.a",
        ),
        (
            map,
            r#"{"a": -1}"#,
            "OUT_OF_RANGE service.engine_label_map.a",
        ),
        (
            map,
            r#"{"a": 1.0}"#,
            "WRONG_TYPE service.engine_label_map.a",
        ),
        (map, r#"{"a": "x"}"#, "BAD_VALUE service.engine_label_map.a"),
        (map, "[]", "WRONG_TYPE"),
        ("service.timeout_seconds", "0.5", "ok"),
        ("service.timeout_seconds", "0", "OUT_OF_RANGE"),
        ("service.timeout_seconds", "-5", "OUT_OF_RANGE"),
        ("service.timeout_seconds", "1e300", "OUT_OF_RANGE"),
        ("service.timeout_seconds", "\"abc\"", "WRONG_TYPE"),
        ("service.api_key", "null", "ok"),
        ("service.api_key", "\"k\"", "ok"),
        ("service.api_key", "5", "WRONG_TYPE"),
        ("service.api_key", "\"a\\nb\"", "BAD_VALUE"),
        ("service.poll_interval_seconds", "0", "ok"),
        ("service.poll_interval_seconds", "-1", "OUT_OF_RANGE"),
        ("service.poll_interval_seconds", "true", "WRONG_TYPE"),
        ("validation.target_warning_pp", "0", "ok"),
        ("validation.target_warning_pp", "-1", "OUT_OF_RANGE"),
        ("validation.actual_warning_pp", "null", "WRONG_TYPE"),
        ("validation.actual_warning_pp", "\"5\"", "WRONG_TYPE"),
        ("output.output_key", "\"max_tokens\"", "ok"),
        ("output.output_key", "false", "WRONG_TYPE"),
        ("output.output_key", "\"tokens\"", "BAD_VALUE"),
    ]);
}

#[test]
fn aisbench_settings() {
    let args = "aisbench.extra_args";
    check_table(&[
        ("aisbench.config", "\"\"", "BAD_VALUE"),
        ("aisbench.work_dir", "5", "WRONG_TYPE"),
        (args, r#"["--num-warmups", "0"]"#, "ok"),
        (args, r#"["--x", 1]"#, "WRONG_TYPE aisbench.extra_args[1]"),
        (args, "\"--x\"", "WRONG_TYPE"),
        (
            args,
            r#"{"num-warmups": 0}"#,
            "WRONG_TYPE aisbench.extra_args.num-warmups",
        ),
        (
            args,
            r#"{"--a": null, "--b": [], "--c": [true]}"#,
            "WRONG_TYPE aisbench.extra_args.--a;WRONG_TYPE aisbench.extra_args.--b;\
             WRONG_TYPE aisbench.extra_args.--c",
        ),
        ("aisbench.dataset.abbr", "\"\"", "BAD_VALUE"),
        (
            "aisbench.dataset.input_columns",
            r#"["question"]"#,
            "BAD_VALUE",
        ),
        ("aisbench.dataset.output_column", "\"x\"", "BAD_VALUE"),
        (
            "aisbench.dataset.prompt_template",
            "\"x {question}\"",
            "BAD_VALUE",
        ),
        ("aisbench.dataset.pred_role", "\"\"", "BAD_VALUE"),
        ("aisbench.model.attr", "null", "BAD_VALUE"),
        ("aisbench.model.stream", "1", "WRONG_TYPE"),
        ("aisbench.model.max_out_len", "0", "OUT_OF_RANGE"),
        ("aisbench.model.retry", "0", "ok"),
        ("aisbench.model.retry", "-1", "OUT_OF_RANGE"),
        ("aisbench.model.batch_size", "0", "OUT_OF_RANGE"),
        ("aisbench.model.batch_size", "4294967296", "OUT_OF_RANGE"),
    ]);
}

#[test]
fn options_of_the_object_form_become_arguments() {
    let raw = r#"{"--num-warmups": 0, "--rate": 1.50, "--names": ["a", 2], "--on": true, "--off": false}"#;
    let scenario = load_text(&with(&base(), "aisbench.extra_args", raw)).unwrap();
    let expected = [
        "--num-warmups",
        "0",
        "--rate",
        "1.50",
        "--names",
        "a",
        "2",
        "--on",
    ];
    assert_eq!(scenario.aisbench.extra_args.0, expected);
}

#[test]
fn generation_arguments_that_would_break_the_measurement() {
    let kwargs = "aisbench.model.generation_kwargs";
    for owned in [
        "prompt",
        "stream",
        "model",
        "max_tokens",
        "n",
        "best_of",
        "echo",
        "truncate_prompt_tokens",
        "prompt_logprobs",
    ] {
        for value in ["\"x\"", "false", "5"] {
            let raw = format!("{{\"{owned}\": {value}}}");
            check_table(&[(kwargs, &raw, &format!("CONFLICT {kwargs}.{owned}"))]);
        }
    }
    let number = |key: &str| format!("NOT_FINITE {kwargs}.{key}");
    check_table(&[
        (
            kwargs,
            r#"{"temperature": 0.7, "ignore_eos": false, "stop": ["x"], "seed": -1}"#,
            "ok",
        ),
        (kwargs, "{}", "ok"),
        (kwargs, "[]", "WRONG_TYPE"),
        (kwargs, r#"{"temperature": 1e400}"#, &number("temperature")),
        (
            kwargs,
            r#"{"seed": 123456789012345678901234567890}"#,
            &number("seed"),
        ),
        (
            kwargs,
            r#"{"cache_salt": ""}"#,
            &format!("BAD_VALUE {kwargs}.cache_salt"),
        ),
        (
            kwargs,
            r#"{"cache_salt": ["a", "b"]}"#,
            &format!("BAD_VALUE {kwargs}.cache_salt"),
        ),
        (kwargs, r#"{"min_tokens": 2}"#, "ok"),
        (
            kwargs,
            r#"{"min_tokens": 3}"#,
            &format!("CONFLICT {kwargs}.min_tokens"),
        ),
        (
            kwargs,
            r#"{"min_tokens": "2"}"#,
            &format!("BAD_VALUE {kwargs}.min_tokens"),
        ),
    ]);
    let mut scenario = base();
    scenario["requests"]["output_length"] = json!({"mode": "uniform", "min": 32, "max": 64});
    let refused = load_text(&with(&scenario, kwargs, r#"{"min_tokens": 48}"#));
    assert_eq!(outcome(&refused), [format!("CONFLICT {kwargs}.min_tokens")]);
    assert!(load_text(&with(&scenario, kwargs, r#"{"min_tokens": 32}"#)).is_ok());
}

#[test]
fn a_salt_among_the_generation_arguments_holds_for_the_whole_run() {
    let kwargs = "aisbench.model.generation_kwargs";
    let mut scenario = base();
    let text = with(
        &scenario,
        kwargs,
        r#"{"top_p": 1, "cache_salt": "r1", "temperature": 0}"#,
    );
    let loaded = load_text(&text).unwrap();
    assert_eq!(
        loaded.pcload.cache_salt,
        Some(CacheSalt::Fixed("r1".to_owned()))
    );
    let left: Vec<&str> = loaded
        .aisbench
        .model
        .generation_kwargs
        .iter()
        .map(|(key, _)| key.as_str())
        .collect();
    assert_eq!(left, ["top_p", "temperature"]);
    assert_eq!(
        loaded.effective_config["aisbench"]["model"]["generation_kwargs"]["cache_salt"],
        "r1"
    );
    scenario["pcload"] = json!({"cache_salt": "r1"});
    assert!(load_text(&with(&scenario, kwargs, r#"{"cache_salt": "r1"}"#)).is_ok());
    let refused = load_text(&with(&scenario, kwargs, r#"{"cache_salt": "r2"}"#));
    assert_eq!(outcome(&refused), [format!("CONFLICT {kwargs}.cache_salt")]);
}

#[test]
fn the_pcload_section() {
    check_table(&[
        ("pcload", "{}", "ok"),
        ("pcload", r#"{"zz": 1}"#, "UNKNOWN_KEY pcload.zz"),
        ("pcload.prompt_format", "\"token_ids\"", "ok"),
        ("pcload.prompt_format", "\"tokens\"", "BAD_VALUE"),
        ("pcload.add_special_tokens", "\"auto\"", "ok"),
        ("pcload.add_special_tokens", "\"true\"", "BAD_VALUE"),
        ("pcload.add_special_tokens", "null", "WRONG_TYPE"),
        ("pcload.engine", "\"sglang\"", "ok"),
        ("pcload.engine", "\"trt\"", "BAD_VALUE"),
        ("pcload.profile", "\"\"", "BAD_VALUE"),
        ("pcload.cache_salt", "\"\"", "BAD_VALUE"),
        ("pcload.slo", r#"{"ttft_ms": 200}"#, "ok"),
        (
            "pcload.slo",
            r#"{"ttft_ms": 0}"#,
            "OUT_OF_RANGE pcload.slo.ttft_ms",
        ),
        (
            "pcload.slo",
            r#"{"ttft": 200}"#,
            "UNKNOWN_KEY pcload.slo.ttft",
        ),
    ]);
    let raw = r#"{"add_special_tokens": false, "profile": "../p.toml", "cache_salt": "per_run",
        "slo": {"ttft_ms": 200, "e2el_ms": 1.5}}"#;
    let scenario = load_text(&with(&base(), "pcload", raw)).unwrap();
    assert!(scenario.has_pcload_section);
    assert_eq!(scenario.pcload.add_special_tokens, SpecialTokens::Omit);
    assert_eq!(scenario.pcload.cache_salt, Some(CacheSalt::PerRun));
    assert_eq!(scenario.effective_pcload["profile"], "/p.toml");
    let slo: Vec<(&str, f64)> = scenario
        .pcload
        .slo
        .iter()
        .map(|(name, ms)| (name.as_str(), *ms))
        .collect();
    assert_eq!(slo, [("e2el", 1.5), ("ttft", 200.0)]);
    assert_eq!(scenario.effective_config.get("pcload"), None);
}
