//! How a probe ends when the world or the user does not let it finish.

use super::server::Server;
use super::{Run, program};

#[test]
fn an_interrupt_writes_the_record_so_far() {
    // The sample, two turns of each side, and then silence.
    let server = Server::start(|state| state.hangs_from = Some(6));
    let folder = tempfile::tempdir().unwrap();
    let url = server.url();
    let arguments = [
        "probe",
        "alternation",
        "--url",
        &url,
        "--tokens",
        "2000",
        "--rounds",
        "3",
        "--noise",
        "0",
    ];
    let mut command = program(folder.path(), &arguments);
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    server.wait_for(6);
    let interrupt = ["-INT", &child.id().to_string()];
    let sent = std::process::Command::new("kill").args(interrupt).status();
    assert!(sent.unwrap().success());
    let run = Run::ended(folder, &child.wait_with_output().unwrap());
    assert_eq!(run.status, 130, "{}", run.stderr);
    let record = run.record();
    assert_eq!(record["end"], "interrupted");
    assert_eq!(record["requests"].as_array().unwrap().len(), 5);
    assert_eq!(
        record["not_reached"],
        serde_json::json!(["A round 3", "B round 3"])
    );
    assert_eq!(run.verdicts(), ["COLD", "COLD", "OK", "OK"]);
}

#[test]
fn a_budget_that_is_used_up_says_what_was_not_reached() {
    let server = Server::start(|state| state.hangs_from = Some(4));
    let run = Run::probe(&server, "single", "--tokens 2000 --turns 3 --budget 3s");
    // Sample, turn 1 and turn 2 were answered; what was checked passed.
    assert_eq!(run.status, 0, "{}", run.stderr);
    let record = run.record();
    assert_eq!(
        (&record["end"], &record["not_reached"]),
        (&"budget".into(), &serde_json::json!(["A round 3"]))
    );
    assert!(run.stderr.contains("not reached: A round 3"));
}

#[test]
fn a_server_that_fails_on_the_way_is_the_world_s_fault() {
    let dead = Server::start(|state| state.fails_from = Some((1, 500)));
    let run = Run::probe(&dead, "single", "--tokens 2000");
    assert_eq!((run.status, run.code()), (3, "SERVICE_REFUSED"));
    assert!(run.stderr.contains("the calibration") && run.stderr.contains("the engine is gone"));
    assert_eq!(run.stdout, "");

    let dying = Server::start(|state| state.fails_from = Some((3, 503)));
    let run = Run::probe(&dying, "single", "--tokens 2000");
    assert_eq!((run.status, run.code()), (3, "SERVICE_REFUSED"));
    assert_eq!(run.record()["end"], "failed");
    assert_eq!(
        run.record()["not_reached"],
        serde_json::json!(["A round 2", "A round 3"])
    );
    // Not sent again.
    assert_eq!(dying.state().bodies.len(), 3);
}

#[test]
fn an_error_event_and_a_cut_stream_are_no_answers() {
    let server = Server::start(|state| state.error_event_at = Some(2));
    let run = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!((run.status, run.code()), (3, "SERVICE_REFUSED"));
    assert!(run.stderr.contains("EngineCore died"));
    let server = Server::start(|state| state.cut_at = Some(2));
    let run = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!((run.status, run.code()), (3, "STREAM_TRUNCATED"));
    assert_eq!(server.state().bodies.len(), 2);
}

#[test]
fn a_request_that_takes_too_long_is_given_up() {
    let server = Server::start(|state| state.hangs_from = Some(1));
    let run = Run::probe(&server, "single", "--tokens 2000 --timeout 1s");
    assert_eq!(
        (run.status, run.code()),
        (3, "SERVICE_TIMEOUT"),
        "{}",
        run.stderr
    );
}
