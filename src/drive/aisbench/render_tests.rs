//! What is rendered for a set, and what must not be in it.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::render::{Classes, Plan, SetPaths, command, configuration, dataset};
use super::requests::tests::row;
use crate::scenario::{self, Scenario};

fn scenario(service: &Value, key: Option<&str>) -> Scenario {
    let mut document = json!({
        "schema_version": "1.0",
        "run": {"run_id": "set.1", "random_seed": 1, "output_dir": "./out"},
        "tokenizer": {"path": "./tokenizer", "block_size": 16},
        "corpus": {"path": "./corpus.jsonl"},
        "requests": {
            "count": 4,
            "input_length": {"mode": "fixed", "value": 64},
            "output_length": {"mode": "fixed", "value": 8},
        },
        "prefix_cache": {"mode": "warmup", "target_hit_rate": 0.5, "groups": {"count": 1}},
        "service": {
            "inference_url": "http://h:1/v1/completions",
            "metrics_url": "http://h:1/metrics",
            "model": "m",
        },
    });
    if let (Some(entries), Some(more)) = (document["service"].as_object_mut(), service.as_object())
    {
        entries.extend(more.clone());
    }
    let read = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let path = Path::new("/s/scenario.json");
    scenario::load(document.to_string().as_bytes(), path, key, &read).unwrap()
}

fn plan(scenario: &Scenario, classes: Classes) -> Plan<'_> {
    Plan {
        scenario,
        run_id: "set.1_20260101_120000",
        set: SetPaths {
            full: "/o/full.jsonl".into(),
            requests: "/o/requests.jsonl".into(),
            manifest: "/o/manifest.json".into(),
        },
        tokenizer: "/t".into(),
        slots: 4,
        extra_body: Map::new(),
        classes,
        dataset: "/d/dataset.jsonl".into(),
    }
}

#[test]
fn the_stock_configuration_is_plain_data() {
    let scenario = scenario(&json!({}), None);
    let text = configuration(&plan(&scenario, Classes::Stock));
    for part in [
        r#"("type", "ais_bench.benchmark.models.VLLMCustomAPI")"#,
        r#"("abbr", "set_1_20260101_120000-vllm")"#,
        r#"("url", "http://h:1")"#,
        r#"("retry", 3)"#,
        r#"("batch_size", 4)"#,
        r#"("generation_kwargs", dict([("temperature", 0), ("ignore_eos", True)]))"#,
        r#"("path", "/d/dataset.jsonl")"#,
        r#"("template", "\x7bquestion\x7d")"#,
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("import"), "{text}");
}

#[test]
fn no_secret_is_in_the_configuration() {
    let url = "http://user:pw-0123@h:1/v1/completions?key=qk-0123";
    let service = json!({"inference_url": url});
    let scenario = scenario(&service, Some("sk-0123456789"));
    for classes in [Classes::Stock, Classes::Adapter, Classes::Plugin] {
        let plan = plan(&scenario, classes);
        let text = configuration(&plan);
        for secret in ["pw-0123", "qk-0123", "sk-0123456789"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert!(text.contains("pcload_aisbench.keyed_"), "{text}");
        // The key wins over the user part, which would be a second header.
        let hidden = "http://h:1/v1/completions?key=qk-0123";
        assert_eq!(plan.hidden_url().as_deref(), Some(hidden));
    }
}

#[test]
fn the_plugin_reads_the_set_itself() {
    let scenario = scenario(&json!({"inference_url": "http://h:1/x/completions"}), None);
    let plan = plan(&scenario, Classes::Plugin);
    let text = configuration(&plan);
    for part in [
        r#"("inference_url", "http://h:1/x/completions")"#,
        r#"("manifest_path", "/o/manifest.json")"#,
        r#""ais_bench_prefix_cache.models.VLLMPrefixCacheAPI""#,
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!plan.is_wrapped());
}

#[test]
fn an_address_of_another_path_reaches_stock_classes_another_way() {
    let scenario = scenario(&json!({"inference_url": "http://h:1/x/completions"}), None);
    let plan = plan(&scenario, Classes::Stock);
    assert_eq!(
        plan.hidden_url().as_deref(),
        Some("http://h:1/x/completions")
    );
    assert!(plan.is_wrapped());
}

#[test]
fn rows_have_the_length_under_the_key_that_counts() {
    let warm = dataset(&[row(0, "a \u{2028}\n", None)]);
    let expected = "{\"question\":\"a \u{2028}\\n\",\"answer\":\"none\",\"max_tokens\":8}\n";
    assert_eq!(warm, expected);
    let cold: Value = serde_json::from_str(&dataset(&[row(0, "a", Some(3))])).unwrap();
    assert_eq!(cold["lane_sequence"], 3);
    assert_eq!(cold["group_id"], "group-0");
}

#[test]
fn arguments_that_make_it_another_run_are_refused() {
    let with =
        |argument: &str| command(Path::new("c"), Path::new("w"), &[argument.to_owned()]).is_ok();
    for fine in ["--num-warmups", "--max-num-workers=1", "--num-warm", "-x"] {
        assert!(with(fine), "{fine}");
    }
    for wrong in [
        "--work-dir",
        "--work",
        "-w",
        "-wx",
        "--mode=all",
        "-r",
        "--num-prompts=3",
    ] {
        assert!(!with(wrong), "{wrong}");
    }
}
