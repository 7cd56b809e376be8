//! The page of findings and errors knows every code that a run can raise.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use pcload::analyze::Code;

use crate::world::package;

fn page() -> BTreeSet<String> {
    let text = fs::read_to_string(package("docs/src/findings.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

/// `"LIKE_THIS"` or `"LIKE_THIS: …"` in a source text.
fn codes_in(source: &str) -> BTreeSet<String> {
    let letter = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit();
    let literals = source.split('"').skip(1);
    literals
        .filter_map(|text| text.split(": ").next())
        .filter(|word| word.contains('_') && !word.starts_with('_') && !word.ends_with('_'))
        .filter(|word| word.chars().all(|one| one == '_' || letter(one)))
        .map(str::to_owned)
        .collect()
}

/// The Rust files of a folder or the file itself.
fn sources(path: &str) -> Vec<PathBuf> {
    let path = package(path);
    if path.is_file() {
        return vec![path];
    }
    let entries = fs::read_dir(&path).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn every_finding_is_on_the_page() {
    let page = page();
    let missing: Vec<&Code> = Code::ALL
        .iter()
        .filter(|code| !page.contains(code.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_code_of_phases_engine_and_service_is_on_the_page() {
    let page = page();
    let folders = [
        "src/drive/phases",
        "src/engine",
        "src/service/control_error.rs",
        "src/cli/run",
    ];
    let mut seen = BTreeSet::new();
    for path in folders.into_iter().flat_map(sources) {
        seen.extend(codes_in(&fs::read_to_string(&path).unwrap()));
    }
    for known in ["RESET_REFUSED", "METRICS_UNPARSABLE", "SERVICE_TIMEOUT"] {
        assert!(seen.contains(known), "the scan misses {known}");
    }
    let missing: Vec<&String> = seen.difference(&page).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
