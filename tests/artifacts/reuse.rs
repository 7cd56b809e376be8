//! Finding sets again: which one a command works on, and every input that
//! decides it.

use std::fs;
use std::path::{Path, PathBuf};

use pcload::artifacts::{Decision, Purpose, pyjson, validate};
use pcload::scenario::InputLength;

use crate::golden::{read, read_json};
use crate::handmade::{Handmade, PREPARE, RUN, fresh, look, now, prepare, stamp};

const SET: &str = "tiny-cold-dp2-3g-asc";

fn handmade(folder: &Path) -> Handmade {
    Handmade::new(SET, "tiny-bytelevel", folder)
}

/// The directory that was decided for.
pub(crate) fn directory(decision: &Decision) -> PathBuf {
    match decision {
        Decision::Reuse(manifest) => manifest.parent().unwrap().parent().unwrap().to_owned(),
        Decision::Prepare { claim, .. } => claim.location().directory().to_owned(),
    }
}

#[test]
fn overwrite_rebuilds_the_newest_set_and_prepare_makes_another() {
    let temporary = tempfile::tempdir().unwrap();
    let mut set = handmade(temporary.path());
    prepare(&set, fresh(&set, stamp("20260101_000000")));
    let newest = prepare(&set, fresh(&set, stamp("20260201_000000")));
    set.prompts[0].source_indices[0] = 999;
    let overwrite = Purpose::Prepare { overwrite: true };
    let Decision::Prepare { claim, .. } = look(&set, overwrite, now()) else {
        panic!("overwrite used a set");
    };
    let rebuilt = prepare(&set, claim);
    assert_eq!(rebuilt, newest);
    assert!(read(rebuilt.full).contains("\"gsm_indices\": [999]"));
    let another = look(&set, PREPARE, now());
    assert!(directory(&another).ends_with("out_20260825_123456"));
}

#[test]
fn inspect_then_run_completes_the_inspected_set() {
    let temporary = tempfile::tempdir().unwrap();
    let set = handmade(temporary.path());
    let Decision::Prepare { claim, .. } = look(&set, Purpose::Inspect, now()) else {
        panic!("inspect used a set");
    };
    let location = claim.location().clone();
    let manifest = set.data_set().inspect_manifest(&location, None);
    let path = claim.write_inspected(&manifest).unwrap();
    let error = validate(&path).unwrap_err();
    assert_eq!(error.code(), "MANIFEST_INSPECT_ONLY");
    let Decision::Prepare { claim, .. } = look(&set, RUN, stamp("20260901_000000")) else {
        panic!("an inspected set was run");
    };
    assert_eq!(claim.location(), &location);
    let files = prepare(&set, claim);
    assert_eq!(files.manifest, path);
    validate(&path).unwrap();
    let again = look(&set, RUN, stamp("20260901_000000"));
    assert!(matches!(again, Decision::Reuse(manifest) if manifest == path));
}

/// A set that the reference prepared is run without being made again, as long
/// as corpus and vocabulary are the same.
#[test]
fn a_set_of_the_reference_is_used() {
    let temporary = tempfile::tempdir().unwrap();
    let mut set = handmade(temporary.path());
    let files = prepare(&set, fresh(&set, now()));
    let mut manifest = read_json(&files.manifest);
    manifest["plugin_version"] = "0.2.0".into();
    manifest.as_object_mut().unwrap().shift_remove("pcload");
    fs::write(&files.manifest, pyjson::document(&manifest)).unwrap();
    assert!(matches!(look(&set, RUN, now()), Decision::Reuse(found) if found == files.manifest));
    set.corpus_sha256 = "0".repeat(64);
    assert!(matches!(look(&set, RUN, now()), Decision::Prepare { .. }));
}

/// A prepared set stays in use behind a newer inspected one.
#[test]
fn an_inspected_set_does_not_hide_a_prepared_one() {
    let temporary = tempfile::tempdir().unwrap();
    let set = handmade(temporary.path());
    let files = prepare(&set, fresh(&set, stamp("20260101_000000")));
    let claim = fresh(&set, stamp("20260201_000000"));
    let manifest = set.data_set().inspect_manifest(claim.location(), None);
    claim.write_inspected(&manifest).unwrap();
    let found = look(&set, RUN, now());
    assert!(matches!(found, Decision::Reuse(manifest) if manifest == files.manifest));
}

/// An input: its name, how it is changed, and what is said about it; `None`
/// where the set is used again.
type InputEdit = (&'static str, fn(&mut Handmade), Option<&'static str>);

/// O-ART-4: with the scenario's bytes unchanged, each other input still counts.
#[test]
fn reuse_notices_every_input() {
    let edits: [InputEdit; 6] = [
        ("nothing", |_| {}, None),
        (
            "a question of the corpus",
            |set| set.corpus_sha256 = "0".repeat(64),
            Some("the corpus has changed"),
        ),
        (
            "the tokenizer's file",
            |set| set.tokenizer.set_file_sha256("1".repeat(64)),
            Some("the tokenizer has changed"),
        ),
        (
            "a length in a CSV file",
            |set| set.scenario.requests.input_length = InputLength::Explicit(vec![1, 2]),
            Some("the lengths in CSV files have changed"),
        ),
        (
            "the scenario's bytes",
            |set| set.scenario.sha256 = "2".repeat(64),
            Some(""),
        ),
        (
            "the run id",
            |set| set.scenario.run.run_id = "another".to_owned(),
            Some(""),
        ),
    ];
    for (name, edit, expected) in edits {
        let temporary = tempfile::tempdir().unwrap();
        let mut set = handmade(temporary.path());
        let files = prepare(&set, fresh(&set, stamp("20260101_000000")));
        edit(&mut set);
        match (look(&set, RUN, now()), expected) {
            (Decision::Reuse(manifest), None) => assert_eq!(manifest, files.manifest, "{name}"),
            (Decision::Prepare { claim, changed }, Some(reason)) => {
                assert!(
                    claim
                        .location()
                        .directory()
                        .ends_with("out_20260825_123456"),
                    "{name}"
                );
                let said = changed.join("");
                assert!(
                    said.ends_with(reason) && said.is_empty() == reason.is_empty(),
                    "{said}"
                );
            }
            (other, _) => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn another_format_version_is_not_used() {
    let temporary = tempfile::tempdir().unwrap();
    let set = handmade(temporary.path());
    let files = prepare(&set, fresh(&set, stamp("20260101_000000")));
    let mut manifest = read_json(&files.manifest);
    // The program's own version may differ, the format's may not.
    manifest["plugin_version"] = "pcload/99.0.0".into();
    fs::write(&files.manifest, pyjson::document(&manifest)).unwrap();
    assert!(matches!(look(&set, RUN, now()), Decision::Reuse(_)));
    manifest["pcload"]["format_version"] = 0.into();
    fs::write(&files.manifest, pyjson::document(&manifest)).unwrap();
    let Decision::Prepare { changed, .. } = look(&set, RUN, now()) else {
        panic!("a set of another format was used");
    };
    assert!(changed[0].ends_with("the format version has changed"));
}
