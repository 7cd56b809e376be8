//! Holds the house in order: which room may use which, what each file begins
//! with, and how long it may get. It reads the sources as text.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "edge: this test reads the source tree, and fails where it cannot"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file without a word in [`LONG_FILES`].
const FILE_LINES_MAX: usize = 450;

/// Files that may be longer, with their own limit. Each needs a reason.
const LONG_FILES: &[(&str, usize)] = &[
    // Declarations only: the whole field table of the scenario in one place.
    ("src/scenario/model.rs", 520),
];

/// The room table of `src/lib.rs`: each room and the rooms it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("system", &[]),
    ("units", &[]),
    ("rng", &["units"]),
    ("secret", &[]),
    ("stats", &["units", "rng"]),
    ("kvcache", &["units"]),
    ("engine", &["units"]),
    ("tokenizer", &["units"]),
    ("corpus", &["units"]),
    ("scenario", &["units", "rng", "secret"]),
    ("solver", &["kvcache", "units"]),
    ("plan", &["scenario", "solver", "kvcache", "rng", "units"]),
    ("theory", &["plan", "kvcache", "stats", "units", "scenario"]),
    (
        "prompts",
        &["plan", "corpus", "tokenizer", "rng", "units", "scenario"],
    ),
    ("measure", &["stats", "units"]),
    (
        "artifacts",
        &[
            "scenario",
            "plan",
            "theory",
            "prompts",
            "measure",
            "engine",
            "units",
            "solver",
            "tokenizer",
            "secret",
        ],
    ),
    ("service", &["engine", "units", "measure", "secret"]),
    (
        "drive",
        &[
            "plan", "prompts", "service", "measure", "units", "scenario", "engine", "rng", "stats",
            "probe", "secret", "system",
        ],
    ),
    ("sim", &["kvcache", "tokenizer", "rng", "units", "system"]),
    (
        "probe",
        &[
            "plan", "prompts", "measure", "theory", "stats", "units", "rng",
        ],
    ),
    (
        "analyze",
        &[
            "plan", "theory", "measure", "engine", "stats", "units", "kvcache", "scenario", "rng",
        ],
    ),
    (
        "report",
        &["analyze", "probe", "stats", "units", "measure", "engine"],
    ),
];

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
    found.sort();
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn relative(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap();
    path.to_string_lossy().replace('\\', "/")
}

/// Names that follow `crate::` in `text`, alone or in braces.
fn rooms_used(text: &str) -> BTreeSet<String> {
    let word = |text: &str| {
        text.chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect::<String>()
    };
    let mut used = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let list = &list[..list.find('}').unwrap_or(list.len())];
            used.extend(list.split(',').map(|item| word(item.trim())));
        } else {
            used.insert(word(rest));
        }
    }
    used
}

#[test]
fn rooms_use_only_the_rooms_they_may() {
    let arrows: BTreeMap<&str, BTreeSet<&str>> = ARROWS
        .iter()
        .map(|(room, may)| (*room, may.iter().copied().collect()))
        .collect();
    let mut wrong = Vec::new();
    for path in sources(&root().join("src")) {
        let name = relative(&path);
        let Some((room, _)) = name.trim_start_matches("src/").split_once('/') else {
            continue;
        };
        if room == "cli" {
            continue;
        }
        let may = &arrows[room];
        let text = fs::read_to_string(&path).unwrap();
        for other in rooms_used(&text) {
            let is_room = arrows.contains_key(other.as_str()) || other == "cli";
            if is_room && other != room && !may.contains(other.as_str()) {
                wrong.push(format!("{name} uses {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_room_table_has_no_cycle() {
    let mut left: BTreeMap<&str, BTreeSet<&str>> = ARROWS
        .iter()
        .map(|(room, may)| (*room, may.iter().copied().collect()))
        .collect();
    while !left.is_empty() {
        let free: Vec<&str> = left
            .iter()
            .filter(|(_, may)| !may.iter().any(|other| left.contains_key(other)))
            .map(|(room, _)| *room)
            .collect();
        assert!(!free.is_empty(), "a cycle among {:?}", left.keys());
        for room in free {
            left.remove(room);
        }
    }
}

#[test]
fn every_file_says_what_it_is_for_and_stays_short() {
    let mut wrong = Vec::new();
    for folder in ["src", "tests", "benches"] {
        for path in sources(&root().join(folder)) {
            let name = relative(&path);
            let text = fs::read_to_string(&path).unwrap();
            if !text.starts_with("//!") {
                wrong.push(format!("{name} does not begin with //!"));
            }
            let limit = LONG_FILES
                .iter()
                .find(|(long, _)| *long == name)
                .map_or(FILE_LINES_MAX, |(_, limit)| *limit);
            let lines = text.lines().count();
            if lines > limit {
                wrong.push(format!("{name} has {lines} lines, more than {limit}"));
            }
        }
    }
    for (long, _) in LONG_FILES {
        if !root().join(long).exists() {
            wrong.push(format!("LONG_FILES names {long}, which is not there"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_room_of_the_library_has_a_line_in_the_table() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let rooms: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod "))
        .map(|rest| rest.trim_end_matches(';'))
        .collect();
    let table: BTreeSet<&str> = ARROWS
        .iter()
        .map(|(room, _)| *room)
        .chain(["cli"])
        .collect();
    assert_eq!(rooms, table);
    for room in rooms {
        assert!(
            text.contains(&format!("| [`{room}`] |")),
            "no map line for {room}"
        );
    }
}
