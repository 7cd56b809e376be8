//! What the author of a broken scenario sees.

use crate::input::{base, load_text, with};

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let text = r#"{
  "schema_version": "1",
  "run": {"run_id": "a/b", "random_sed": 7},
  "tokenizer": {"path": "./tokenizer", "block_size": "16"},
  "corpus": {"path": "./corpus.jsonl", "selection": {"mode": "index", "values": [1]}},
  "requests": {
    "count": 100,
    "count": 10,
    "input_length": {"mode": "range", "ranges": [
      {"min": 512, "max": 1024, "count": 80},
      {"min": 64, "max": 32, "count": 20}
    ]},
    "output_length": {"mode": "fixed", "value": 32, "values": [32]}
  },
  "prefix_cache": {
    "mode": "warm-up",
    "target_hit_rate": 60,
    "seed_block": 2,
    "groups": {"count": 2, "assignment": {"mode": "weights", "weights": [1, 2, 3]}}
  },
  "service": {
    "inference_url": "http://user:pw-0123@127.0.0.1:99999/v1?key=qk-0123",
    "engine_label_map": {"0": 0, "1": 2},
    "timeout_seconds": 1e400,
    "api_key": ["sk-test-0123456789abcdef"],
    "api_kye": "sk-test-0123456789abcdef"
  },
  "aisbench": {"model": {"generation_kwargs": {"n": 2, "max_tokens": 5}, "retry": 2.0}},
  "pcload": {"slo": {"ttft": 200}}
}"#;
    let problems = load_text(text).unwrap_err();
    insta::assert_snapshot!(problems, @r#"
    BAD_VALUE: schema_version: not allowed here (found `"1"`, line 2:21); expected `"1.0"`
    BAD_VALUE: run.run_id: not allowed here (found `"a/b"`, line 3:21); expected one file name component of at most 180 bytes: no `/`, `\` or control character, not blank
    UNKNOWN_KEY: run.random_sed: unknown key (line 3:42); expected `run_id`, `random_seed`, `output_dir` or `overwrite`
      hint: did you mean `random_seed`?
    WRONG_TYPE: tokenizer.block_size: wrong type (found `"16"`, line 4:54); expected an integer from 1 to 100000000
      hint: write `16`
    BAD_VALUE: corpus.selection.mode: not allowed here (found `"index"`, line 5:62); expected `random`, `indices`, `question_sha256` or `mixed`
      hint: did you mean `indices`?
    DUPLICATE_KEY: requests.count: this key stands here twice (line 8:14); expected one value
    OUT_OF_RANGE: requests.input_length.ranges[1].max: below `min` (found `32`, line 11:26); expected an integer of at least 64
    UNKNOWN_KEY: requests.output_length.values: unknown key (line 13:63); expected `mode` or `value`
      hint: did you mean `value`?
    BAD_VALUE: prefix_cache.mode: not allowed here (found `"warm-up"`, line 16:13); expected `cold` or `warmup`
      hint: did you mean `warmup`?
    OUT_OF_RANGE: prefix_cache.target_hit_rate: out of range (found `60`, line 17:24); expected a finite number, at least 0 and at most 1
    UNKNOWN_KEY: prefix_cache.seed_block: unknown key (line 18:19); expected `mode`, `target_hit_rate`, `seed_blocks`, `minimum_non_shared_length`, `groups` or `order`
      hint: did you mean `seed_blocks`?
    COUNT_MISMATCH: prefix_cache.groups.assignment.weights: 3 weights for 2 groups (line 19:73); expected one weight a group
    BAD_VALUE: service.inference_url: not a usable address (found `"http://127.0.0.1:99999/v1"`, line 22:22); expected an http:// or https:// URL with a host
    OUT_OF_RANGE: service.engine_label_map.1: no such rank (found `2`, line 23:39); expected a rank from 0 to 1
      hint: ranks end below `service.dp_size`
    NOT_FINITE: service.timeout_seconds: not a finite number (found `1e400`, line 24:24); expected a finite number, above 0 and at most 1000000
    WRONG_TYPE: service.api_key: not a usable key (found a list, line 25:16); expected a string of visible ASCII characters, "" or null for no key
    UNKNOWN_KEY: service.api_kye: unknown key (line 26:16); expected `inference_url`, `metrics_url`, `reset_url`, `model`, `dp_size`, `assume_empty_cache`, `engine_label_map`, `timeout_seconds`, `api_key` or `poll_interval_seconds`
      hint: did you mean `api_key`?
    CONFLICT: aisbench.model.generation_kwargs.n: this field is set for each request by pcload itself (line 28:53)
      hint: remove it
    CONFLICT: aisbench.model.generation_kwargs.max_tokens: this field is set for each request by pcload itself (line 28:70)
      hint: use `requests.output_length`
    WRONG_TYPE: aisbench.model.retry: wrong type (found `2.0`, line 28:83); expected an integer from 0 to 4294967295
      hint: write `2`
    UNKNOWN_KEY: pcload.slo.ttft: unknown key (line 29:30); expected `ttft_ms`, `tpot_ms` or `e2el_ms`
      hint: did you mean `ttft_ms`?
    "#);
    for secret in ["sk-test", "pw-0123", "qk-0123"] {
        assert!(!problems.to_string().contains(secret), "{secret}");
        assert!(!format!("{problems:?}").contains(secret), "{secret}");
    }
}

#[test]
fn counts_and_rooms_that_do_not_fit_are_told_together() {
    let text = r#"{
  "requests": {
    "count": 10,
    "input_length": {"mode": "explicit", "values": [64, 15, 64]},
    "output_length": {"mode": "uniform", "min": 32, "max": 64}
  },
  "prefix_cache": {
    "groups": {
      "count": 3,
      "assignment": {"mode": "zipf"},
      "overrides": {
        "group-2": {"input_length": {"mode": "explicit", "values": [64, 64, 64]}},
        "group-3": {}
      }
    }
  },
  "aisbench": {"model": {"generation_kwargs": {"min_tokens": 48}}}
}"#;
    insta::assert_snapshot!(load_text(text).unwrap_err(), @r#"
    TOO_SHORT: requests.input_length: a request of 15 tokens cannot hold its non-shared part (line 4:21); expected at least 16 tokens
      hint: the part is `prefix_cache.minimum_non_shared_length`, by default `seed_blocks` × `block_size`
    COUNT_MISMATCH: requests.input_length.values: 3 lengths, but `requests.count` is 10 (line 4:52); expected 10 in all
    COUNT_MISMATCH: prefix_cache.groups.overrides.group-2.input_length.values: 3 lengths, but group-2 has 2 requests (line 12:68); expected 2 in all
    BAD_VALUE: prefix_cache.groups.overrides.group-3: no such group (line 13:20); expected `group-0` to `group-2`
    CONFLICT: aisbench.model.generation_kwargs.min_tokens: outputs are limited to 32 tokens in some requests (found `48`, line 17:62); expected at most 32
      hint: raise the shortest `requests.output_length`, or lower `min_tokens`
    "#);
}

#[test]
fn a_misspelt_key_is_told_with_the_one_that_was_meant() {
    let hint = |path: &str| {
        let problems = load_text(&with(&base(), path, "1")).unwrap_err();
        let problem = problems.iter().next().unwrap().clone();
        assert_eq!(
            (problem.code.as_str(), problem.path.as_str()),
            ("UNKNOWN_KEY", path)
        );
        problem.hint.unwrap_or_default()
    };
    assert_eq!(
        hint("prefix_cache.seed_block"),
        "did you mean `seed_blocks`?"
    );
    assert_eq!(hint("tokeniser"), "did you mean `tokenizer`?");
    assert_eq!(hint("service.dpsize"), "did you mean `dp_size`?");
    assert_eq!(
        hint("aisbench.model.batchSize"),
        "did you mean `batch_size`?"
    );
    assert_eq!(hint("requests.input_length.valeu"), "did you mean `value`?");
    assert_eq!(hint("run.zz"), "");
}
