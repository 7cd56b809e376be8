//! Servers that cannot be measured: `run` says what is wrong and what to do,
//! ends with 3, and records no run.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use pcload::sim::{Config, Faults};
use serde_json::{Value, json};

use crate::folder::{Folder, scenario, with};
use crate::server::{Simulated, instant};

/// Runs `scenario`: it fails with this code and these words, a hint, and no
/// directory of a run.
#[track_caller]
fn refused(scenario: &Value, code: &str, words: &[&str]) {
    let folder = Folder::new();
    folder.write_scenario(scenario);
    let ran = folder.run(&["run", "--quiet", "--scenario", "scenario.json"]);
    ran.fails(3, code, words);
    assert!(ran.stderr.contains("\nhint: "), "no hint: {}", ran.stderr);
    let runs: Vec<String> = folder
        .listing()
        .into_keys()
        .filter(|name| name.contains("/runs/"))
        .collect();
    assert_eq!(runs, [""; 0]);
}

/// A port on which nobody listens.
fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_server_that_is_not_there() {
    let server = Simulated::start(instant());
    let url = format!("http://127.0.0.1:{}/v1/completions", closed_port());
    refused(
        &with(server.scenario(), "service.inference_url", json!(url)),
        "SERVICE_UNREACHABLE",
        &["127.0.0.1", "refused"],
    );
    let url = "http://no-such-host.invalid/v1/completions";
    refused(
        &with(server.scenario(), "service.inference_url", json!(url)),
        "SERVICE_UNREACHABLE",
        &["no-such-host.invalid"],
    );
}

#[test]
fn a_server_that_is_still_starting() {
    let port = closed_port();
    let folder = Folder::new();
    let base = format!("http://127.0.0.1:{port}");
    let mut scenario = scenario();
    for (field, path) in [
        ("service.inference_url", "/v1/completions"),
        ("service.metrics_url", "/metrics"),
        ("service.reset_url", "/reset_prefix_cache"),
    ] {
        scenario = with(scenario, field, json!(format!("{base}{path}")));
    }
    folder.write_scenario(&with(scenario, "service.model", json!("sim")));
    let run = ["run", "--scenario", "scenario.json", "--wait-ready"];
    folder.run(&[&run[..], &["200ms"]].concat()).fails(
        3,
        "SERVICE_NOT_READY",
        &["0.2 s", "refused"],
    );
    let starts = thread::spawn(move || {
        thread::sleep(Duration::from_millis(1_500));
        Simulated::start(Config {
            listen: Some(([127, 0, 0, 1], port).into()),
            ..instant()
        })
    });
    let ran = folder.done(&[&run[..], &["60s"]].concat());
    assert!(
        ran.stderr.contains("ready: wait for the server"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.json()["status"], "complete");
    drop(starts.join());
}

#[test]
fn a_server_without_metrics() {
    let server = Simulated::start(instant());
    let url = server.url("/nothing");
    refused(
        &with(server.scenario(), "service.metrics_url", json!(url)),
        "METRICS_UNAVAILABLE",
        &["/nothing", "404", "service.metrics_url"],
    );
}

#[test]
fn a_page_that_is_no_metrics_page() {
    let server = Simulated::start(instant());
    let url = server.url("/v1/models");
    refused(
        &with(server.scenario(), "service.metrics_url", json!(url)),
        "METRICS_UNKNOWN_ENGINE",
        &["service.metrics_url"],
    );
}

#[test]
fn a_server_with_another_model() {
    let server = Simulated::start(instant());
    refused(
        &with(server.scenario(), "service.model", json!("other")),
        "MODEL_NOT_FOUND",
        &["`other`", "`sim`", "service.model"],
    );
}

#[test]
fn a_path_that_is_not_served() {
    let server = Simulated::start(instant());
    let url = server.url("/v1/nothing");
    refused(
        &with(server.scenario(), "service.inference_url", json!(url)),
        "SERVICE_REFUSED",
        &["/v1/nothing", "404"],
    );
}

#[test]
fn a_server_with_other_ranks() {
    let one = Simulated::start(instant());
    refused(
        &with(one.scenario(), "service.dp_size", json!(2)),
        "DP_SIZE_MISMATCH",
        &["dp_size is 2", "service.dp_size"],
    );
    let three = Simulated::start(Config {
        ranks: 3,
        ..instant()
    });
    refused(
        &with(three.scenario(), "service.dp_size", json!(2)),
        "DP_SIZE_MISMATCH",
        &["service.dp_size"],
    );
}

#[test]
fn a_server_that_ignores_the_rank_header() {
    let faults = Faults {
        ignore_rank_header: true,
        ..Faults::default()
    };
    let server = Simulated::start(Config {
        ranks: 2,
        faults,
        ..instant()
    });
    refused(
        &with(server.scenario(), "service.dp_size", json!(2)),
        "DP_ROUTING_NOT_HONORED",
        &["RANK_HEADER_IGNORED"],
    );
}

#[test]
fn a_prompt_longer_than_the_model_takes() {
    let server = Simulated::start(Config {
        max_model_len: 100,
        ..instant()
    });
    refused(&server.scenario(), "CONTEXT_TOO_SHORT", &["128", "100"]);
}

#[test]
fn a_reset_that_is_not_there_or_refused() {
    let server = Simulated::start(Config {
        dev_mode: false,
        ..instant()
    });
    refused(
        &server.scenario(),
        "RESET_UNAVAILABLE",
        &["VLLM_SERVER_DEV_MODE=1"],
    );
    refused(
        &with(server.scenario(), "service.reset_url", json!(null)),
        "RESET_UNAVAILABLE",
        &["reset_url is not configured"],
    );
}

/// With a salt of its own a run needs no reset.
#[test]
fn a_salt_makes_up_for_a_reset() {
    let server = Simulated::start(Config {
        dev_mode: false,
        ..instant()
    });
    let folder = Folder::new();
    folder.write_scenario(&with(
        server.scenario(),
        "pcload",
        json!({"cache_salt": "per_run"}),
    ));
    for _ in 0..2 {
        let ran = folder.done(&["run", "-q", "--scenario", "scenario.json"]);
        assert_eq!(ran.json()["actual"]["global_hits"], 12 * 64);
    }
}

#[test]
fn a_key_that_is_refused() {
    let server = Simulated::start(Config {
        api_key: Some("sk-right".to_owned()),
        ..instant()
    });
    refused(
        &with(server.scenario(), "service.api_key", json!("sk-wrong")),
        "UNAUTHORIZED",
        &["401", "PCLOAD_API_KEY"],
    );
}
