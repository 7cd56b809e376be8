//! Everything that the program writes or prints as JSON, held against the schema
//! of its kind: it conforms, and has no field that the schema does not describe.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcload::analyze::parity::{Side, parity};
use pcload::measure::RequestRecord;
use pcload::rng::Seed;
use serde_json::{Value, json};

use crate::conform::faults;
use crate::pages::root;
use crate::simulated::{Simulated, pcload};

/// The schemas, and which of them were asked for.
#[derive(Default)]
struct Schemas {
    seen: BTreeSet<String>,
}

impl Schemas {
    /// Holds `document` against the schema of `kind`.
    fn hold(&mut self, kind: &str, document: &Value) {
        let schema = schema(kind);
        let found = faults(&schema, document);
        assert!(found.is_empty(), "{kind}: {found:#?}\n{document:#}");
        let described = schema["properties"].as_object().unwrap();
        for field in document.as_object().unwrap().keys() {
            assert!(
                described.contains_key(field),
                "{kind}: `{field}` is not described"
            );
        }
        // One that takes anything would pass everything above.
        assert!(!faults(&schema, &json!([])).is_empty(), "{kind}");
        assert!(!faults(&schema, &json!({})).is_empty(), "{kind}");
        self.seen.insert(kind.to_owned());
    }

    fn hold_lines(&mut self, kind: &str, path: &Path) {
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.is_empty(), "{}", path.display());
        for line in text.lines().take(5) {
            self.hold(kind, &serde_json::from_str(line).unwrap());
        }
    }
}

fn schema(kind: &str) -> Value {
    let output = pcload().args(["schema", kind]).output().unwrap();
    assert!(output.status.success(), "{kind}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What `command` prints.
fn printed(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn run(arguments: &[&str]) -> Value {
    printed(pcload().arg("--quiet").args(arguments))
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Every kind by the program's own help.
fn kinds() -> BTreeSet<String> {
    let output = pcload().args(["schema", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let list = help.split_once("Possible values:").unwrap().1;
    let list = list.split_once("Options:").unwrap().0;
    let names = list.lines().filter_map(|line| {
        let (name, _) = line.trim().strip_prefix("- ")?.split_once(':')?;
        Some(name.to_owned())
    });
    names.collect()
}

#[test]
fn all_that_is_written_conforms_to_the_schema_of_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let mut schemas = Schemas::default();

    let demo = run(&["demo", "--out", text(&out("demo"))]);
    schemas.hold("demo", &demo);
    let directory = PathBuf::from(demo["run"].as_str().unwrap());
    let manifest = files_of_a_set(&mut schemas, &directory);
    of_a_scenario(&mut schemas, demo["scenario"].as_str().unwrap());
    of_a_set(&mut schemas, &manifest, folder.path());
    of_comparisons(&mut schemas, &directory, folder.path());
    of_a_server(&mut schemas, folder.path());
    let calibration = ["calibrate", "--concurrency", "2", "--seconds", "0.2"];
    schemas.hold("calibration", &run(&calibration));

    // Those that other tests hold: files that people write.
    let elsewhere = ["scenario", "profile"].map(str::to_owned);
    let all: BTreeSet<String> = schemas.seen.into_iter().chain(elsewhere).collect();
    assert_eq!(all, kinds());
}

/// The files of a run and of its set; the manifest.
fn files_of_a_set(schemas: &mut Schemas, directory: &Path) -> PathBuf {
    schemas.hold("analysis", &read(&directory.join("analysis.json")));
    schemas.hold_lines("record", &directory.join("records.jsonl"));
    schemas.hold_lines("kv", &directory.join("kv.jsonl"));
    let result = directory.ancestors().nth(2).unwrap();
    let mut manifest = None;
    for entry in fs::read_dir(result).unwrap() {
        let path = entry.unwrap().path();
        let name = text(&path);
        if name.ends_with(".full.jsonl") {
            schemas.hold_lines("row", &path);
        } else if name.ends_with(".requests.jsonl") {
            schemas.hold_lines("request", &path);
        } else if name.ends_with(".manifest.json") {
            schemas.hold("manifest", &read(&path));
            manifest = Some(path);
        }
    }
    manifest.unwrap()
}

fn of_a_scenario(schemas: &mut Schemas, scenario: &str) {
    let inspected = run(&["inspect", "--scenario", scenario]);
    schemas.hold("inspect", &inspected);
    let manifest = inspected["manifest"].as_str().unwrap();
    schemas.hold("manifest", &read(Path::new(manifest)));
    schemas.hold("prepare", &run(&["prepare", "--scenario", scenario]));
    // Its server has gone; what can be checked is.
    schemas.hold("doctor", &run(&["doctor", "--scenario", scenario]));
}

fn of_a_set(schemas: &mut Schemas, manifest: &Path, folder: &Path) {
    let manifest = text(manifest);
    schemas.hold("validate", &run(&["validate", "--manifest", manifest]));
    let deep = run(&["validate", "--deep", "--manifest", manifest]);
    schemas.hold("validate", &deep);
    let csv = folder.join("records.csv");
    let report = ["report", "--manifest", manifest, "--csv", text(&csv)];
    schemas.hold("report", &run(&report));
    schemas.hold("analysis", &run(&["report", "--manifest", manifest]));
    let aisbench = folder.join("aisbench");
    let export = [
        "export",
        "aisbench",
        "--manifest",
        manifest,
        "--out",
        text(&aisbench),
    ];
    schemas.hold("aisbench-export", &run(&export));
}

fn of_comparisons(schemas: &mut Schemas, directory: &Path, folder: &Path) {
    let run_directory = text(directory);
    schemas.hold(
        "comparison",
        &run(&["compare", run_directory, run_directory]),
    );
    let page = folder.join("ab.html");
    let with_page = [
        "compare",
        run_directory,
        run_directory,
        "--html",
        text(&page),
    ];
    schemas.hold("comparison", &run(&with_page));

    let lines = fs::read_to_string(directory.join("records.jsonl")).unwrap();
    let records: Vec<RequestRecord> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let side = || Side {
        records: &records,
        hit_rate: Some(0.6),
        origin_ns: 0,
    };
    let parity = json!(parity(side(), side(), None, &Seed::from_decimal("1")));
    schemas.hold("parity", &parity);
    // It takes AISBench to have it printed; its parts are held above.
    let analysis = read(&directory.join("analysis.json"));
    let both = json!({"native": analysis, "aisbench": analysis, "parity": parity});
    schemas.hold("both-drivers", &both);
}

/// What a server says, and what is said of one.
fn of_a_server(schemas: &mut Schemas, folder: &Path) {
    let truth = folder.join("truth.jsonl");
    let server = Simulated::sim(&["--truth-log", text(&truth)], folder);
    schemas.hold("sim", &server.said);
    let record = |name: &str| folder.join(name);
    for (name, page) in [("a.json", None), ("b.json", Some("b.html"))] {
        let record = record(name);
        let mut arguments = vec!["probe", "single", "--url", &server.url];
        arguments.extend(["--tokens", "2000", "--turns", "2", "--out", text(&record)]);
        let page = page.map(|page| folder.join(page));
        if let Some(page) = &page {
            arguments.extend(["--html", text(page)]);
        }
        schemas.hold("probe-summary", &run(&arguments));
        schemas.hold("probe", &read(&record));
    }
    let (left, right) = (record("a.json"), record("b.json"));
    let page = folder.join("probes.html");
    let compare = ["compare", text(&left), text(&right), "--html", text(&page)];
    schemas.hold("probe-comparison", &run(&compare));
    let report = run(&["report", "--probe", text(&left)]);
    schemas.hold("probe-summary", &report);
    schemas.hold_lines("truth", &truth);
    let probe = ["probe", "single", "--url", &server.url, "--tokens", "2000"];
    let output = pcload()
        .args(["-vv", "--log-format", "json"])
        .args(probe)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let mut logged = 0;
    for line in lines {
        schemas.hold("log", &serde_json::from_str(line).unwrap());
        logged += 1;
    }
    assert!(logged > 0, "{said}");
}

#[test]
fn manifests_of_the_reference_conform() {
    let schema = schema("manifest");
    let mut seen = 0;
    for entry in fs::read_dir(root().join("tests/data/golden")).unwrap() {
        let path = entry.unwrap().path().join("manifest.json");
        if path.exists() {
            let found = faults(&schema, &read(&path));
            assert!(found.is_empty(), "{}: {found:#?}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen}");
}

#[test]
fn every_schema_is_one() {
    for kind in kinds() {
        let schema = schema(&kind);
        let meta = jsonschema::meta::validate(&schema);
        assert!(meta.is_ok(), "{kind}: {meta:?}");
        for field in ["$schema", "title", "description"] {
            assert!(schema[field].is_string(), "{kind} has no `{field}`");
        }
    }
}
