//! Rows, documents and figures against the reference plugin's own outputs.

use std::fs;

use pcload::artifacts::{Figures, FullRow, length_summary, pyjson, validate};
use serde_json::Value;

use crate::golden::{GOLDEN_PREPARED, GoldenSet, folder, read, read_json};

#[test]
fn rows_are_written_as_the_reference_writes_them() {
    for name in GOLDEN_PREPARED {
        let set = GoldenSet::copy(name);
        let key = set.open().output_key().unwrap();
        let requests = read(set.requests());
        let mut request_lines = requests.lines();
        for line in read(set.full()).lines() {
            let row: FullRow = serde_json::from_str(line).unwrap();
            assert_eq!(pyjson::line(&row), line, "{name}");
            assert_eq!(
                Some(pyjson::line(&row.request(key)).as_str()),
                request_lines.next(),
                "{name}"
            );
        }
        assert_eq!(request_lines.next(), None, "{name}");
    }
}

#[test]
fn documents_are_written_as_the_reference_writes_them() {
    for name in GOLDEN_PREPARED {
        let set = folder(name);
        for file in ["manifest.json", "analysis.json"] {
            let text = read(set.join(file));
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(pyjson::document(&value), text, "{name}/{file}");
        }
    }
    let inspected = folder("run-after-inspect").join("manifest.json");
    let value = read_json(&inspected);
    assert_eq!(pyjson::document(&value), read(&inspected));
}

#[test]
fn figures_are_those_of_the_reference() {
    for name in GOLDEN_PREPARED {
        let set = GoldenSet::copy(name);
        let open = set.open();
        let facts = open.facts().unwrap();
        let figures = Figures::new(open.cache_settings().unwrap(), &facts);
        let manifest = open.manifest();
        assert_eq!(figures.prefix_cache(), manifest["prefix_cache"], "{name}");
        assert_eq!(
            figures.theory(),
            open.analysis().unwrap()["theory"],
            "{name}"
        );
        for (group, one) in &figures.groups {
            let section = &manifest["groups"][group.to_string()];
            assert_eq!(section["reachable_max"], one.reachable_max(), "{name}");
            assert_eq!(
                section["theoretical_hit_rate"],
                one.theoretical_hit_rate(),
                "{name}"
            );
        }
        let inputs: Vec<u64> = facts.iter().map(|one| one.input_tokens).collect();
        let outputs: Vec<u64> = facts.iter().map(|one| one.output_tokens).collect();
        let requests = &manifest["requests"];
        assert_eq!(length_summary(&inputs), requests["input_length_summary"]);
        assert_eq!(length_summary(&outputs), requests["output_length_summary"]);
    }
}

#[test]
fn intact_sets_are_valid() {
    for name in GOLDEN_PREPARED {
        let set = GoldenSet::copy(name);
        let report = validate(&set.manifest()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let rows = fs::read_to_string(set.full()).unwrap().lines().count();
        assert_eq!(report.rows, rows as u64, "{name}");
        assert_eq!(
            pyjson::line(&report.summary()),
            format!(
                "{{\"ok\": true, \"rows\": {rows}, \"run_id\": \"{}\"}}",
                report.run_id
            )
        );
    }
}
