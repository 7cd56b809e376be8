//! The page of findings and errors knows every code that a run can raise.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pcload::analyze::Code;

use crate::world::package;

fn page() -> BTreeSet<String> {
    let text = fs::read_to_string(package("docs/src/findings.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

/// Every page of the book: probes and comparisons have codes of their own.
fn pages() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for entry in fs::read_dir(package("docs/src")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        words.extend(text.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    words
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

/// Words of the same form that are no codes: variables of the environment, and
/// names of values.
const NO_CODES: &[&str] = &[
    "AISBENCH_PREFIX_CACHE_MANIFEST",
    "AISBENCH_PREFIX_CACHE_WORK_DIR",
    "BASE_URL_B",
    "CARGO_PKG_VERSION",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HUGGINGFACE_HUB_CACHE",
    "NO_PROXY",
    "OPENAI_API_KEY",
    "PASS_WITH_WARNING",
    "PCLOAD_AISBENCH_KEY",
    "PCLOAD_AISBENCH_URL",
    "PCLOAD_API_KEY",
    "PCLOAD_SIM_API_KEY",
    "PER_SECOND",
    "VIRTUAL_ENV",
    "VLLM_API",
    "VLLM_API_KEY",
    "VLLM_MODEL",
    "VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
    "XDG_CACHE_HOME",
];

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
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
fn every_code_of_the_program_is_in_the_book() {
    let pages = pages();
    let mut seen = BTreeSet::new();
    for path in sources(&package("src")) {
        seen.extend(codes_in(&fs::read_to_string(&path).unwrap()));
    }
    seen.retain(|word| {
        let is_code = word.starts_with(|letter: char| letter.is_ascii_uppercase());
        is_code && !NO_CODES.contains(&word.as_str())
    });
    for known in ["RESET_REFUSED", "METRICS_UNPARSABLE", "NO_RUN", "NO_MODEL"] {
        assert!(seen.contains(known), "the scan misses {known}");
    }
    let missing: Vec<&String> = seen.difference(&pages).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
