//! The reference's recorded sets through the program: both checks, every
//! recorded corruption, and a run against the simulated server.

use std::fs;
use std::path::Path;

use pcload::artifacts::PreparedSet;
use pcload::sim::Config;
use pcload::units::BlockSize;
use serde_json::Value;

use crate::corruptions::CORRUPTIONS;
use crate::folder::{Folder, Ran};
use crate::golden::{GOLDEN_PREPARED, GoldenSet, folder};
use crate::server::{Simulated, instant};

/// Runs the program where the recorded scenario lies: from there its tokenizer
/// is found.
fn ran(name: &str, arguments: &[&str], set: &GoldenSet) -> Ran {
    let manifest = set.manifest();
    let manifest = manifest.to_str().unwrap();
    let mut command = Folder::empty().command(&[arguments, &["--manifest", manifest]].concat());
    command.current_dir(folder(name));
    Ran::of(command)
}

#[test]
fn every_recorded_set_is_valid() {
    for name in GOLDEN_PREPARED {
        let set = GoldenSet::copy(name);
        let rows = fs::read_to_string(set.full()).unwrap().lines().count();
        let plain = ran(name, &["validate"], &set);
        assert_eq!(plain.status, 0, "{name}: {}", plain.stderr);
        assert_eq!(plain.json()["rows"], rows, "{name}");
        let deep = ran(name, &["validate", "--deep"], &set);
        assert_eq!(deep.status, 0, "{name}: {}", deep.stderr);
        let warmup = set.open().warmup_plan().unwrap().len();
        assert_eq!(deep.json()["deep"]["retokenized"], rows + warmup, "{name}");
    }
}

#[test]
fn the_deep_check_finds_every_recorded_corruption() {
    const SET: &str = "tiny-cold-dp2-3g-asc";
    for (name, corrupt, plain_code) in CORRUPTIONS {
        let set = GoldenSet::copy(SET);
        corrupt(&set);
        let ran = ran(SET, &["validate", "--deep"], &set);
        if name == "untouched" {
            assert_eq!(ran.status, 0, "{}", ran.stderr);
            continue;
        }
        ran.fails(2, plain_code.unwrap_or_else(|| code(&ran)), &[]);
    }
}

/// The code that was given, where the plain check has none to compare with.
fn code(ran: &Ran) -> &'static str {
    let codes = [
        "ARTIFACTS_INCONSISTENT",
        "ARTIFACT_MISSING",
        "ARTIFACT_FIELD",
    ];
    codes
        .into_iter()
        .find(|code| ran.stderr.contains(code))
        .unwrap_or_else(|| panic!("{}", ran.stderr))
}

/// Sets that the reference made run natively; without special tokens in front
/// the server finds exactly what theory says.
#[test]
fn recorded_sets_run_natively() {
    for name in GOLDEN_PREPARED {
        let set = GoldenSet::copy(name);
        let config = PreparedSet::open(&set.manifest()).unwrap();
        let config = config.effective_config().clone();
        let tokenizer = folder(name).join(config["tokenizer"]["path"].as_str().unwrap());
        let server = server(&config, &tokenizer);
        set.edit_manifest(|manifest| {
            let service = &mut manifest["effective_config"]["service"];
            for (field, value) in server.service().as_object().unwrap() {
                if field != "dp_size" {
                    service[field] = value.clone();
                }
            }
        });
        let ran = ran(name, &["run", "--quiet"], &set);
        assert_eq!(ran.status, 0, "{name}: {}", ran.stderr);
        let analysis = ran.json();
        let (theory, actual) = (&analysis["theory"], &analysis["actual"]);
        let has_bos = tokenizer.ends_with("tiny-bytelevel-bos");
        if has_bos {
            let found = actual["global_hits"].as_u64().unwrap();
            assert!(found <= theory["hit_tokens"].as_u64().unwrap(), "{name}");
        } else {
            assert_eq!(actual["global_queries"], theory["input_tokens"], "{name}");
            assert_eq!(actual["global_hits"], theory["hit_tokens"], "{name}");
        }
    }
}

/// A server as the set's scenario has it in mind.
fn server(config: &Value, tokenizer: &Path) -> Simulated {
    let number = |value: &Value| value.as_u64().unwrap();
    let config = Config {
        ranks: u32::try_from(number(&config["service"]["dp_size"])).unwrap(),
        block: BlockSize::new(number(&config["tokenizer"]["block_size"])).unwrap(),
        max_model_len: 4_096,
        ..instant()
    };
    Simulated::start_with(config, &tokenizer.join("tokenizer.json"))
}

/// A set that was only inspected holds nothing to run.
#[test]
fn the_recorded_inspect_manifest_is_refused() {
    let manifest = folder("run-after-inspect").join("manifest.json");
    let manifest = manifest.to_str().unwrap();
    for command in ["validate", "run"] {
        let ran = Folder::empty().run(&[command, "--manifest", manifest]);
        ran.fails(2, "MANIFEST_INSPECT_ONLY", &["hint: "]);
    }
}
