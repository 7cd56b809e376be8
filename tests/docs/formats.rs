//! JSON and TOML examples load.

use std::path::Path;

use pcload::scenario::{self, LoadProfile};
use serde_json::Value;

use crate::pages::{all, blocks};

/// Keys that only a whole scenario has.
const SCENARIO_KEYS: [&str; 2] = ["prefix_cache", "corpus"];

#[test]
fn json_examples_parse_and_scenarios_load() {
    let (mut parsed, mut loaded) = (0, 0);
    for page in all() {
        for block in blocks(&page.text) {
            let place = format!("{}:{}", page.name, block.line);
            if block.is("json") {
                let value: Value = serde_json::from_str(&block.text)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                parsed += 1;
                if SCENARIO_KEYS.iter().all(|key| value.get(key).is_some()) {
                    let read = scenario::load(
                        block.text.as_bytes(),
                        Path::new("/page/scenario.json"),
                        None,
                        &|_: &Path| Err(std::io::ErrorKind::NotFound.into()),
                    );
                    assert!(read.is_ok(), "{place}: {read:?}");
                    loaded += 1;
                }
            }
            if block.is("jsonl") {
                for line in block.text.lines() {
                    let read: Result<Value, _> = serde_json::from_str(line);
                    assert!(read.is_ok(), "{place}: {line}");
                }
            }
        }
    }
    assert!(
        parsed >= 3 && loaded >= 2,
        "{parsed} parsed, {loaded} loaded"
    );
}

#[test]
fn toml_examples_are_profiles() {
    let mut read = 0;
    for page in all() {
        for block in blocks(&page.text).iter().filter(|block| block.is("toml")) {
            let times = |_: &Path| Ok(b"seconds\n0\n0.5\n".to_vec());
            let profile = LoadProfile::parse(&block.text, &times);
            assert!(profile.is_ok(), "{}:{}: {profile:?}", page.name, block.line);
            read += 1;
        }
    }
    assert!(read >= 3, "only {read} profiles");
}
