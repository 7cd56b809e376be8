//! The JSON Schema of load profiles against their reader: what one takes, the
//! other takes.

use std::fs;
use std::path::Path;

use pcload::scenario::{LoadProfile, ProfileError, profile_schema};
use serde_json::{Value, json};

use crate::conform::conforms;

fn parse(document: &Value) -> Result<LoadProfile, ProfileError> {
    let text = toml::to_string(document).unwrap();
    LoadProfile::parse(&text, &|_: &Path| Ok(b"seconds\n0\n1\n".to_vec()))
}

/// Values that a key may and may not have; `null` leaves it out.
fn values(key: &str) -> Vec<Value> {
    match key {
        "mode" => vec![json!("closed"), json!("open"), json!("trace"), json!("x")],
        "concurrency" | "max_in_flight" => vec![json!(null), json!(0), json!(3), json!("3")],
        "rate" => vec![json!(null), json!(0), json!(2.5), json!(4), json!(-1)],
        "arrival" => vec![json!(null), json!("poisson"), json!("gamma"), json!("x")],
        "burstiness" => vec![json!(null), json!(0.5), json!(0)],
        "requests" => vec![json!(null), json!(5), json!("20%"), json!(0)],
        "duration" => vec![json!(null), json!(90), json!("1m30s"), json!(0)],
        "ramp" => vec![json!(null), json!(0), json!("10s"), json!(true)],
        "times" => vec![json!(null), json!("t.csv"), json!(1)],
        other => panic!("no values for {other}"),
    }
}

/// Every stage that the values of `keys` can make.
fn stages(keys: &[&str]) -> Vec<Value> {
    let mut stages = vec![json!({})];
    for key in keys {
        let longer = stages.iter().flat_map(|stage| {
            values(key).into_iter().map(|value| {
                let mut stage = stage.clone();
                if !value.is_null() {
                    stage[*key] = value;
                }
                stage
            })
        });
        stages = longer.collect();
    }
    stages
}

fn compare(document: &Value) {
    let read = parse(document);
    assert_eq!(
        conforms(&profile_schema(), document),
        read.is_ok(),
        "{document}: {read:?}"
    );
}

#[test]
fn a_stage_conforms_where_it_is_read() {
    let keys: [&[&str]; 4] = [
        &["mode", "concurrency", "ramp", "requests", "duration"],
        &["mode", "rate", "arrival", "burstiness", "max_in_flight"],
        &["mode", "times", "max_in_flight", "requests"],
        &["mode", "concurrency", "rate", "times"],
    ];
    let mut compared = 0;
    for stage in keys.iter().flat_map(|keys| stages(keys)) {
        compare(&json!({"stages": [stage]}));
        compared += 1;
    }
    assert!(compared > 1_000);
}

#[test]
fn what_stands_beside_the_stages_conforms_where_it_is_read() {
    let stage = json!({"mode": "closed", "concurrency": 1});
    for beside in [
        json!({}),
        json!({"warmup_requests": 0, "cooldown_requests": 2, "partial": true}),
        json!({"warmup_requests": -1}),
        json!({"partial": "yes"}),
        json!({"warmup": 1}),
    ] {
        let mut document = beside;
        document["stages"] = json!([stage]);
        compare(&document);
    }
    for wrong in [json!({}), json!({"stages": []}), json!({"stages": [1]})] {
        compare(&wrong);
    }
}

#[test]
fn shipped_profiles_conform() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let mut found = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let text = fs::read_to_string(&path).unwrap();
            let document: Value = toml::from_str(&text).unwrap();
            assert!(conforms(&profile_schema(), &document), "{path:?}");
            found += 1;
        }
    }
    assert_eq!(found, 9);
}
