//! Where reuse and sizes are read from, and what happens where they are not
//! told.

use super::Run;
use super::server::Server;

#[test]
fn counters_stand_in_for_usage_that_says_nothing() {
    let server = Server::start(|state| state.reports_cached = false);
    let run = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!(run.status, 0, "{}", run.stderr);
    let record = run.record();
    let rows = record["requests"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["source"] == "counters"),
        "{rows:?}"
    );
    assert!(run.noted("read from the hit counters"));
}

#[test]
fn without_usage_and_counters_the_server_option_is_named() {
    let no_counters = Server::start(|state| {
        state.reports_cached = false;
        state.has_metrics = false;
    });
    let busy = Server::start(|state| {
        state.reports_cached = false;
        state.foreign_tokens = 7;
    });
    for (server, why) in [
        (no_counters, "no hit counters"),
        (busy, "other requests moved the counters"),
    ] {
        let run = Run::probe(&server, "single", "--tokens 2000");
        assert_eq!((run.status, run.code()), (2, "REUSE_UNAVAILABLE"));
        assert!(run.stderr.contains("--enable-prompt-tokens-details"));
        assert!(run.stderr.contains(why), "{}", run.stderr);
        assert_eq!(run.stdout, "");
    }
    let silent = Server::start(|state| state.reports_usage = false);
    let run = Run::probe(&silent, "single", "--tokens 2000");
    assert_eq!((run.status, run.code()), (2, "USAGE_MISSING"));
}

#[test]
fn other_traffic_is_noticed_where_usage_tells_the_reuse() {
    let server = Server::start(|state| state.foreign_tokens = 1_000);
    let run = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!(run.status, 0);
    assert!(run.noted("other clients sent 4000 prompt tokens"));
}

#[test]
fn a_first_turn_that_is_off_is_sized_anew() {
    // The sample of 20,000 characters says 4 a token; longer prompts have 3.6.
    let server = Server::start(|state| state.dense_above_bytes = 21_000);
    let run = Run::probe(&server, "single", "--tokens 20000 --turns 2");
    let record = run.record();
    let rows = record["requests"].as_array().unwrap();
    let kinds: Vec<&str> = rows
        .iter()
        .map(|row| row["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["calibration", "calibration", "turn", "turn"]);
    let measured = rows[2]["prompt_tokens"].as_u64().unwrap();
    assert!(measured.abs_diff(20_000) <= 200, "{measured}");
    assert_eq!(record["calibration"]["corrections"], 1);
}

#[test]
fn the_default_body_is_dropped_where_the_server_refuses_it() {
    let server = Server::start(|state| state.refuses_template_kwargs = true);
    let run = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.noted("refuses `chat_template_kwargs`"));
    let state = server.state();
    let with = |body: &&serde_json::Value| body.get("chat_template_kwargs").is_some();
    assert_eq!(state.bodies.iter().filter(with).count(), 1);
    drop(state);
    let accepting = Server::start(|_| {});
    Run::probe(&accepting, "single", "--tokens 2000");
    let state = accepting.state();
    let thinking =
        |body: &serde_json::Value| &body["chat_template_kwargs"]["enable_thinking"] == false;
    assert!(state.bodies.iter().all(thinking));
}

#[test]
fn every_run_and_case_has_a_salt_of_its_own_at_the_very_start() {
    let server = Server::start(|_| {});
    for _ in 0..2 {
        let run = Run::probe(&server, "single", "--tokens 2000");
        assert_eq!(run.verdicts()[0], "COLD");
    }
    let state = server.state();
    let mut starts: Vec<String> = state
        .bodies
        .iter()
        .filter(|body| body["messages"].as_array().unwrap().len() == 1)
        .map(|body| {
            let text = body["messages"][0]["content"].as_str().unwrap();
            text.split(' ').next().unwrap().to_owned()
        })
        .collect();
    assert_eq!(starts.len(), 4);
    starts.sort();
    starts.dedup();
    assert_eq!(starts.len(), 4);
}

#[test]
fn between_ranks_every_request_asks_for_one() {
    let server = Server::start(|state| state.ranks = 2);
    let run = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(server.state().headers["x-data-parallel-rank"], "0");
    assert_eq!(run.record()["engine"]["data_parallel_size"]["value"], 2);
    assert!(run.noted("2 data-parallel ranks"));
    Run::probe(
        &server,
        "single",
        "--tokens 2000 --header X-Data-Parallel-Rank=1",
    );
    assert_eq!(server.state().headers["x-data-parallel-rank"], "1");
}
