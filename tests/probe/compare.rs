//! Two records side by side.

use super::Run;
use super::server::Server;

#[test]
fn two_records_of_one_probe_stand_side_by_side() {
    let server = Server::start(|state| state.loses_when_interleaved = true);
    let options = "--tokens 2000 --rounds 2 --noise 0 --arm";
    let before = Run::probe(&server, "alternation", &format!("{options} before"));
    server.state().loses_when_interleaved = false;
    let after = Run::probe(&server, "alternation", &format!("{options} after"));
    let path = |run: &Run| run.record_path().to_str().unwrap().to_owned();
    let run = Run::of(&["compare", &path(&before), &path(&after)]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let comparison = run.summary();
    let line = |part: &str, name: &str| {
        let lines = comparison[part].as_array().unwrap().clone();
        lines.into_iter().find(|line| line["name"] == name).unwrap()
    };
    assert_eq!(line("setting", "arm")["left"], "before");
    assert_eq!(line("result", "verdict")["left"], "reproduced");
    assert_eq!(line("result", "verdict")["right"], "passed");
    assert!(
        line("result", "A round 2")["left"]
            .as_str()
            .unwrap()
            .ends_with("LOST")
    );
    assert!(run.stderr.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let server = Server::start(|_| {});
    let single = Run::probe(&server, "single", "--tokens 2000");
    let dose = Run::probe(&server, "dose", "--tokens 2000 --doses 0");
    let path = |run: &Run| run.record_path().to_str().unwrap().to_owned();
    let run = Run::of(&["compare", &path(&single), &path(&dose)]);
    assert_eq!((run.status, run.code()), (2, "PROBES_DIFFER"));
    let other = single.folder.path().join("other.json");
    for (text, code) in [
        ("{}", "NOT_A_PROBE_RECORD"),
        ("not json", "NOT_A_PROBE_RECORD"),
        (
            r#"{"kind":"pcload.probe","schema_version":99}"#,
            "RECORD_VERSION",
        ),
        (
            r#"{"kind":"pcload.probe","schema_version":1}"#,
            "NOT_A_PROBE_RECORD",
        ),
    ] {
        std::fs::write(&other, text).unwrap();
        let run = Run::of(&["compare", &path(&single), other.to_str().unwrap()]);
        assert_eq!((run.status, run.code()), (2, code), "{text}");
    }
}
