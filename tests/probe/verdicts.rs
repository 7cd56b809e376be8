//! What each probe says of a server that does this or that.

use super::Run;
use super::server::{Answers, Server};

#[test]
fn a_healthy_conversation_passes_and_claims_no_more_than_its_arm() {
    let server = Server::start(|_| {});
    let run = Run::probe(&server, "single", "--tokens 3000 --turns 4 --arm base");
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(run.verdicts(), ["COLD", "OK", "OK", "OK"]);
    let record = run.record();
    assert_eq!(record["verdict"], "passed");
    assert_eq!(
        (&record["checked_count"], &record["passed_count"]),
        (&3.into(), &3.into())
    );
    assert_eq!(
        (&record["block_tokens"], &record["block_source"]),
        (&16.into(), &"metric".into())
    );
    assert_eq!(record["arm"], "base");
    assert_eq!(record["engine"]["version"]["value"], "0.32.0");
    assert!(run.noted("speaks for this arm only"));
    // Each turn is a request of its own that repeats the conversation.
    let state = server.state();
    let lengths: Vec<usize> = state.bodies[1..]
        .iter()
        .map(|body| body["messages"].as_array().unwrap().len())
        .collect();
    assert_eq!(lengths, [1, 3, 5, 7]);
    assert!(state.bodies.iter().all(|body| body["temperature"] == 0));
}

#[test]
fn interleaving_loss_is_clean_alone_and_named_turn_by_turn_in_alternation() {
    let server = Server::start(|state| state.loses_when_interleaved = true);
    let single = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!(
        (single.status, single.verdicts()),
        (0, ["COLD", "OK", "OK"].map(String::from).to_vec())
    );
    let options = "--tokens 2000 --rounds 2 --noise 1 --noise-tokens 300 --with-control";
    let run = Run::probe(&server, "alternation", options);
    assert_eq!(run.status, 1, "{}", run.stderr);
    assert_eq!(run.verdicts(), ["COLD", "COLD", "LOST", "LOST"]);
    let summary = run.summary();
    assert_eq!(
        summary["failures"],
        serde_json::json!(["A round 2 LOST", "B round 2 LOST"])
    );
    assert_eq!(summary["control"], "passed");
    assert!(run.noted("lost to interleaving"));
    assert!(run.stderr.contains("REPRODUCED: 0 of 2 turns passed"));

    server.state().loses_when_interleaved = false;
    let healthy = Run::probe(&server, "alternation", options);
    assert_eq!(healthy.status, 0, "{}", healthy.stderr);
    let rows = healthy.record()["requests"].as_array().unwrap().clone();
    let order: Vec<&str> = rows
        .iter()
        .filter(|row| row["kind"] != "calibration")
        .map(|row| row["side"].as_str().unwrap())
        .collect();
    assert_eq!(order, ["A", "noise", "B", "noise", "A", "noise", "B"]);
}

#[test]
fn a_recorded_single_arm_is_quoted() {
    let server = Server::start(|state| state.loses_when_interleaved = true);
    let single = Run::probe(&server, "single", "--tokens 2000 --out single.json");
    let record = single.record_path();
    let options = format!("--tokens 2000 --rounds 2 --control {}", record.display());
    let run = Run::probe(&server, "alternation", &options);
    assert_eq!(run.status, 1);
    let control = &run.record()["control"];
    assert_eq!(
        (&control["verdict"], &control["origin"]),
        (&"passed".into(), &"single.json".into())
    );
    // A record of another probe is no control.
    let options = format!("--tokens 2000 --control {}", run.record_path().display());
    let refused = Run::probe(&server, "dose", &options);
    assert_eq!((refused.status, refused.code()), (2, "NOT_A_CONTROL"));
}

#[test]
fn listed_doses_are_judged_one_by_one() {
    // A pool of 6,400 tokens: 2,000 of conversation and 3,000 fit, 8,000 do not.
    let server = Server::start(|state| state.pool_blocks = 400);
    let run = Run::probe(&server, "dose", "--tokens 2000 --doses 0,3000,8000");
    assert_eq!(run.status, 1, "{}", run.stderr);
    let doses = run.summary()["doses"].clone();
    let verdict = |index: usize| doses[index]["verdict"].as_str().unwrap().to_owned();
    assert_eq!([verdict(0), verdict(1), verdict(2)], ["OK", "OK", "WIPED"]);
    assert_eq!(
        run.summary()["failures"],
        serde_json::json!(["dose 8000 WIPED"])
    );
}

/// The search on a pool of `blocks` blocks of 16 tokens: knee interval and its
/// share of the pool.
fn knee(blocks: usize) -> (u64, u64, f64) {
    let server = Server::start(|state| state.pool_blocks = blocks);
    let run = Run::probe(
        &server,
        "dose",
        "--tokens 600 --find-knee --resolution 200 --repeats 2",
    );
    assert_eq!(run.status, 1, "{}", run.stderr);
    let summary = run.summary();
    let knee = &summary["knee"];
    assert_eq!(knee["resolved"], true, "{summary}");
    assert_eq!(knee["harmless_observations"], serde_json::json!([2, 2]));
    assert_eq!(knee["harmful_observations"], serde_json::json!([2, 2]));
    assert!(run.noted("% of the KV pool"));
    (
        knee["harmless_tokens"].as_u64().unwrap(),
        knee["harmful_tokens"].as_u64().unwrap(),
        summary["knee_share"]["harmful_ratio"].as_f64().unwrap(),
    )
}

#[test]
fn a_knee_is_found_within_the_resolution_and_moves_with_the_pool() {
    for pool_tokens in [4_800_u64, 9_600] {
        let blocks = usize::try_from(pool_tokens / 16).unwrap();
        let (low, high, share) = knee(blocks);
        // What fits beside the conversation, its answer and one spare block.
        let fits = pool_tokens - 600;
        assert!(high - low <= 200 && low <= fits + 32, "{low} {high} {fits}");
        assert!(high + 200 >= fits, "{low} {high} {fits}");
        assert!((share - high as f64 / pool_tokens as f64).abs() < 1e-9);
    }
}

#[test]
fn a_needle_needs_reuse_and_the_right_answer() {
    let options = "--tokens 2000 --depths 0.05,0.95 --interleave 400";
    for (answers, status, verdict) in [
        (Answers::Right, 0, "OK"),
        (Answers::StaleOnReuse, 1, "WRONG-ANSWER"),
        (Answers::Never, 2, "MODEL-CANNOT"),
    ] {
        let server = Server::start(|state| state.answers = answers);
        let run = Run::probe(&server, "needle", options);
        assert_eq!(run.status, status, "{answers:?} {}", run.stderr);
        let needles = run.summary()["needles"].as_array().unwrap().clone();
        let verdicts: Vec<&str> = needles
            .iter()
            .map(|case| case["verdict"].as_str().unwrap())
            .collect();
        assert_eq!(verdicts, [verdict; 2]);
        assert_eq!(run.verdicts(), ["COLD", "OK", "COLD", "COLD", "OK", "COLD"]);
        if answers == Answers::Never {
            assert_eq!(run.code(), "NOTHING_JUDGED");
            assert!(run.stderr.contains("cannot answer a cold copy"));
        }
    }
}

#[test]
fn a_needle_without_reuse_tests_nothing_and_fails() {
    let server = Server::start(|state| state.loses_when_interleaved = true);
    let run = Run::probe(
        &server,
        "needle",
        "--tokens 2000 --depths 0.5 --interleave 400",
    );
    assert_eq!(run.status, 1);
    assert_eq!(run.summary()["needles"][0]["verdict"], "NO-REUSE");
}

#[test]
fn a_first_turn_that_is_not_cold_makes_the_run_invalid() {
    let server = Server::start(|state| state.ignores_salt = true);
    // The texts differ behind their first line, so a copy is what is warm.
    let run = Run::probe(&server, "needle", "--tokens 2000 --depths 0.5");
    assert_eq!((run.status, run.code()), (2, "NOT_COLD"), "{}", run.stderr);
    assert_eq!(run.record()["end"], "not_cold");
    assert_eq!(run.record()["verdict"], "not_cold");
}

#[test]
fn the_first_reuse_may_be_rounded_to_the_retention_interval() {
    let start = || Server::start(|state| state.first_reuse_interval = 512);
    let server = start();
    let run = Run::probe(&server, "single", "--tokens 2000 --turns 3");
    assert_eq!(run.status, 1);
    assert_eq!(run.verdicts(), ["COLD", "PARTIAL", "OK"]);
    let server = start();
    let run = Run::probe(&server, "single", "--tokens 2000 --turns 3 --retention 512");
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(run.verdicts(), ["COLD", "OK", "OK"]);
    let run = Run::probe(
        &start(),
        "single",
        "--tokens 2000 --turns 2 --retention 512",
    );
    assert!(run.noted("only the first-reuse case was seen"));
}

#[test]
fn a_metric_that_the_cached_values_contradict_is_not_confirmed() {
    // The page says 16; the engine really shares blocks of 528 tokens.
    let server = Server::start(|state| state.block = 528);
    let run = Run::probe(&server, "single", "--tokens 2700 --turns 2");
    assert_eq!(
        (run.status, run.code()),
        (2, "NOTHING_JUDGED"),
        "{}",
        run.stderr
    );
    assert_eq!(run.verdicts(), ["COLD", "UNDECIDED"]);
    assert!(run.stderr.contains("block size not confirmed"));
    let run = Run::probe(&server, "single", "--tokens 2700 --turns 2 --block 528");
    assert_eq!(run.status, 0, "{}", run.stderr);
}

#[test]
fn conversations_shorter_than_two_blocks_are_undecided() {
    let server = Server::start(|state| {
        state.block = 2_176;
        state.metric_block = "2176".to_owned();
    });
    let run = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!((run.status, run.code()), (2, "NOTHING_JUDGED"));
    assert!(run.stderr.contains("shorter than two blocks"));
}
