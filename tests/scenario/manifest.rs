//! Scenarios rebuilt from manifests, and secrets that must not get into one.

use std::fs;
use std::path::Path;

use pcload::scenario::{
    InputLength, ManifestPurpose, ManifestScenario, Problems, Scenario, from_manifest, load,
};
use pcload::secret::shown_url;
use serde_json::{Value, json};

use crate::input::{base, load_text, outcome, with};
use crate::reference::shared;

fn rebuilt(
    effective_config: &Value,
    purpose: ManifestPurpose,
    key: Option<&str>,
) -> Result<Scenario, Problems> {
    let manifest = ManifestScenario {
        effective_config,
        pcload: None,
        scenario_path: Path::new("/s/scenario.json"),
        scenario_sha256: "00",
        purpose,
    };
    from_manifest(manifest, key)
}

#[test]
fn a_scenario_comes_back_from_its_manifest() {
    let mut scenario = base();
    scenario["requests"]["count"] = json!(12);
    scenario["pcload"] = json!({"prompt_format": "token_ids", "profile": "p.toml"});
    let text = with(
        &scenario,
        "run.random_seed",
        "-123456789012345678901234567890",
    );
    let original = load_text(&text).unwrap();
    let config =
        original.stamped_effective_config("e_20260101_000000", Path::new("/s/out_20260101_000000"));
    let again = from_manifest(
        ManifestScenario {
            effective_config: &config,
            pcload: Some(&original.effective_pcload),
            scenario_path: &original.path,
            scenario_sha256: &original.sha256,
            purpose: ManifestPurpose::Run,
        },
        Some("key"),
    )
    .unwrap();
    assert_eq!(again.run.run_id, "e_20260101_000000");
    assert_eq!(again.run.output_dir, Path::new("/s/out_20260101_000000"));
    assert_eq!(again.effective_config, config);
    let shape = |scenario: &Scenario| {
        format!(
            "{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}",
            (&scenario.path, &scenario.sha256, &scenario.run.random_seed),
            scenario.tokenizer,
            scenario.corpus,
            scenario.requests,
            scenario.prefix_cache,
            (&scenario.service.inference_url, scenario.service.dp_size),
            scenario.validation,
            scenario.aisbench,
            scenario.pcload,
        )
    };
    assert_eq!(shape(&again), shape(&original));
    assert_eq!(again.service.api_key.expose(), Some("key"));
}

#[test]
fn manifests_of_the_reference_are_taken() {
    let Some(golden) = shared("") else {
        return;
    };
    for entry in fs::read_dir(&golden).unwrap() {
        let path = entry.unwrap().path().join("manifest.json");
        let Ok(bytes) = fs::read(&path) else {
            continue;
        };
        let manifest: Value = serde_json::from_slice(&bytes).unwrap();
        for purpose in [ManifestPurpose::Run, ManifestPurpose::Analyze] {
            let loaded = rebuilt(&manifest["effective_config"], purpose, None).unwrap();
            assert_eq!(
                loaded.requests.count as u64,
                manifest["requests"]["count"].as_u64().unwrap_or(12)
            );
        }
    }
}

#[test]
fn manifests_of_other_versions_are_taken() {
    let mut config = load_text(&base().to_string()).unwrap().effective_config;
    config["multimodal"] = json!({"scenarios": []});
    config["service"]["other"] = json!(1);
    config["aisbench"]["extra_args"] = json!({"--num-warmups": 0});
    config.as_object_mut().unwrap().remove("output");
    config["requests"]["input_length"] = json!({"mode": "csv", "path": "/gone.csv"});
    let loaded = rebuilt(&config, ManifestPurpose::Run, None).unwrap();
    assert_eq!(loaded.output_key, None);
    assert_eq!(loaded.aisbench.extra_args.0, ["--num-warmups", "0"]);
    assert_eq!(
        loaded.requests.input_length,
        InputLength::Explicit(Vec::new())
    );
    assert_eq!(loaded.effective_config, config);
    assert!(rebuilt(&json!({}), ManifestPurpose::Run, None).is_ok());
}

#[test]
fn what_the_purpose_needs_must_be_sound() {
    let mut config = load_text(&base().to_string()).unwrap().effective_config;
    let outcomes = |config: &Value| {
        [ManifestPurpose::Run, ManifestPurpose::Analyze]
            .map(|purpose| outcome(&rebuilt(config, purpose, None)))
    };
    config["requests"]["input_length"] =
        json!({"mode": "truncated_normal", "min": 8, "max": 9, "mean": 50});
    config["run"]["overwrite"] = json!(1);
    assert_eq!(outcomes(&config), [Vec::<String>::new(), Vec::new()]);
    config["service"]["timeout_seconds"] = json!("abc");
    config["aisbench"]["model"]["generation_kwargs"] = json!({"n": 2});
    let run = [
        "WRONG_TYPE service.timeout_seconds",
        "CONFLICT aisbench.model.generation_kwargs.n",
    ];
    assert_eq!(
        outcomes(&config),
        [run.map(str::to_owned).to_vec(), Vec::new()]
    );
    config["prefix_cache"]["groups"]["count"] = json!(0);
    config["prefix_cache"]["groups"]["overrides"] = json!({"group-5": {}});
    assert_eq!(outcomes(&config)[1], Vec::<String>::new());
    config["service"]["dp_size"] = json!(0);
    assert_eq!(outcomes(&config)[1], ["OUT_OF_RANGE service.dp_size"]);
    for broken in [json!([]), json!(null), json!({"service": null})] {
        for outcome in outcomes(&broken) {
            assert_eq!(outcome.len(), 1, "{broken}: {outcome:?}");
        }
    }
}

#[test]
fn no_secret_gets_into_what_is_written() {
    let url = "http://user:pw-0123@127.0.0.1:9/v1/completions?key=qk-0123";
    let mut scenario = base();
    scenario["service"]["api_key"] = json!("sk-test-0123456789abcdef");
    for address in ["inference_url", "metrics_url", "reset_url"] {
        scenario["service"][address] = json!(url);
    }
    let loaded = load_text(&scenario.to_string()).unwrap();
    assert_eq!(loaded.service.inference_url, url);
    assert_eq!(loaded.service.reset_url.as_deref(), Some(url));
    assert_eq!(
        loaded.service.api_key.expose(),
        Some("sk-test-0123456789abcdef")
    );
    let service = &loaded.effective_config["service"];
    assert_eq!(
        service["inference_url"],
        "http://127.0.0.1:9/v1/completions"
    );
    assert_eq!(service["api_key_configured"], true);
    assert_eq!(service.get("api_key"), None);
    assert_eq!(loaded.notes.len(), 3);
    let shown = format!(
        "{:?}{:?}{}{}{:?}",
        loaded, loaded.service, loaded.effective_config, loaded.effective_pcload, loaded.notes
    );
    for secret in ["sk-test", "pw-0123", "qk-0123", "user:"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert_eq!(shown_url(url), "http://127.0.0.1:9/v1/completions");
}

#[test]
fn the_key_of_the_environment_stands_in() {
    let key_of = |scenario: &Value, environment: Option<&str>| {
        let read = |_: &Path| Ok(Vec::new());
        let bytes = scenario.to_string();
        load(bytes.as_bytes(), Path::new("/s/x.json"), environment, &read).map(|scenario| {
            let told = scenario.effective_config["service"]["api_key_configured"] == true;
            let key = scenario.service.api_key.expose().map(str::to_owned);
            assert_eq!(told, key.is_some());
            key
        })
    };
    let mut scenario = base();
    assert_eq!(key_of(&scenario, None), Ok(None));
    assert_eq!(key_of(&scenario, Some("")), Ok(None));
    assert_eq!(key_of(&scenario, Some("env")), Ok(Some("env".to_owned())));
    let refused = key_of(&scenario, Some("two\nlines")).unwrap_err();
    assert_eq!(refused.iter().next().unwrap().path, "PCLOAD_API_KEY");
    assert!(!refused.to_string().contains("two"));
    scenario["service"]["api_key"] = json!("file");
    assert_eq!(key_of(&scenario, Some("env")), Ok(Some("file".to_owned())));
}
