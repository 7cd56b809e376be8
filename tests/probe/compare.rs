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

#[test]
fn a_page_is_written_by_the_probe_by_report_and_by_compare() {
    let server = Server::start(|state| state.loses_when_interleaved = true);
    let options = "--tokens 2000 --rounds 2 --noise 0 --html page.html --out record.json";
    let probe = Run::probe(&server, "alternation", options);
    let path = |name: &str| probe.folder.path().join(name);
    assert_eq!(probe.summary()["html"], "page.html");
    let page = std::fs::read_to_string(path("page.html")).unwrap();
    assert!(page.contains("defect reproduced"), "{page}");

    let record = path("record.json");
    let (record, again) = (record.to_str().unwrap(), path("again.html"));
    let report = Run::of(&[
        "report",
        "--probe",
        record,
        "--html",
        again.to_str().unwrap(),
    ]);
    assert_eq!(report.status, 0, "{}", report.stderr);
    assert!(report.stderr.contains("REPRODUCED: 0 of 2 turns passed"));
    assert_eq!(std::fs::read_to_string(&again).unwrap(), page);
    // A record has no rows of requests to export.
    let csv = Run::of(&["report", "--probe", record, "--csv", "x.csv"]);
    assert_eq!(csv.status, 2, "{}", csv.stderr);

    let both = path("both.html");
    let compared = Run::of(&["compare", record, record, "--html", both.to_str().unwrap()]);
    assert_eq!(compared.status, 0, "{}", compared.stderr);
    let page = std::fs::read_to_string(both).unwrap();
    assert_eq!(page.matches("defect reproduced").count(), 2);
    // A place that cannot be written is known before the first request.
    let refused = Run::probe(&server, "single", "--tokens 2000 --html nowhere/page.html");
    assert_eq!((refused.status, refused.code()), (2, "OUT_UNWRITABLE"));
}
