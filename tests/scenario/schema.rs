//! The JSON Schema against the loader: the same keys, defaults and limits.

use std::fs;

use pcload::scenario::schema;
use serde_json::{Value, json};

use crate::conform::conforms;
use crate::input::{base, load_text, outcome, with};
use crate::reference::shared;

/// Every object of the schema with fixed keys, by path, those told by a mode
/// once for each mode.
fn objects<'s>(schema: &'s Value, path: &str, found: &mut Vec<(String, &'s Value)>) {
    if let Some(Value::Object(properties)) = schema.get("properties") {
        found.push((path.to_owned(), schema));
        for (key, below) in properties {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            objects(below, &path, found);
        }
    }
    for branch in schema
        .get("oneOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        objects(branch, path, found);
    }
}

#[test]
fn every_object_refuses_unknown_keys_and_describes_its_own() {
    let schema = schema();
    let mut found = Vec::new();
    objects(&schema, "", &mut found);
    assert!(found.len() > 25, "only {} objects", found.len());
    for (path, object) in found {
        for (key, property) in object["properties"].as_object().unwrap() {
            let told = property
                .get("description")
                .is_some_and(|text| !text.as_str().unwrap().is_empty());
            assert!(told || key == "mode", "{path}.{key} is not described");
        }
        // Generation arguments are the engine's: any other key may stand there.
        if path.ends_with("generation_kwargs") {
            continue;
        }
        assert_eq!(object["additionalProperties"], false, "{path}");
        let mut mode = json!({"zz": 1});
        if let Some(name) = object["properties"]["mode"].get("const") {
            mode["mode"] = name.clone();
        }
        let text = match path.as_str() {
            "" => mode.to_string(),
            path => with(&base(), path, &mode.to_string()),
        };
        let unknown = if path.is_empty() {
            "UNKNOWN_KEY zz".to_owned()
        } else {
            format!("UNKNOWN_KEY {path}.zz")
        };
        assert!(
            outcome(&load_text(&text)).contains(&unknown),
            "{unknown}: {text}"
        );
    }
}

#[test]
fn defaults_are_those_of_the_loader_and_conform() {
    let schema = schema();
    let filled = load_text("{}").unwrap();
    let mut found = Vec::new();
    objects(&schema, "", &mut found);
    let mut compared = 0;
    for (path, object) in found {
        let at = format!("/{}", path.replace('.', "/"));
        for (key, property) in object["properties"].as_object().unwrap() {
            let Some(default) = property.get("default") else {
                continue;
            };
            assert!(conforms(property, default), "{path}.{key}");
            if object["properties"]
                .get("mode")
                .is_some_and(|mode| mode.get("const").is_some())
            {
                continue;
            }
            let config = match path.strip_prefix("pcload") {
                Some(_) => filled.effective_pcload.get(key),
                None if path.is_empty() => filled.effective_config.get(key),
                None => filled.effective_config.pointer(&format!("{at}/{key}")),
            };
            let is_path = ["output_dir", "path"].contains(&key.as_str()) && path != "tokenizer";
            if key != "api_key" && !is_path {
                assert_eq!(config, Some(default), "{path}.{key}");
                compared += 1;
            }
        }
    }
    assert!(compared > 35, "only {compared} defaults");
}

#[test]
fn numbers_are_refused_where_the_schema_ends() {
    let schema = schema();
    let mut found = Vec::new();
    objects(&schema, "", &mut found);
    let mut tried = 0;
    for (path, object) in found {
        // Objects told by a mode have tables of their own.
        if object["properties"]
            .get("mode")
            .is_some_and(|mode| mode.get("const").is_some())
        {
            continue;
        }
        for (key, property) in object["properties"].as_object().unwrap() {
            let beyond = [
                property
                    .get("minimum")
                    .map(|minimum| minimum.as_f64().unwrap() - 1.0),
                property
                    .get("maximum")
                    .map(|maximum| maximum.as_f64().unwrap() + 1.0),
                property
                    .get("exclusiveMinimum")
                    .map(|bound| bound.as_f64().unwrap()),
            ];
            for value in beyond.into_iter().flatten() {
                let path = format!("{path}.{key}");
                let text = with(&base(), &path, &value.to_string());
                let refused = format!("OUT_OF_RANGE {path}");
                if !path.ends_with("min_tokens") {
                    assert_eq!(outcome(&load_text(&text)), [refused], "{value}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 20, "only {tried} limits");
}

#[test]
fn what_the_loader_takes_conforms() {
    let schema = schema();
    assert!(conforms(&schema, &json!({})));
    assert!(conforms(&schema, &base()));
    let Some(cases) = shared("scenario-errors.jsonl") else {
        return;
    };
    let (mut taken, mut refused) = (0, 0);
    for line in fs::read_to_string(cases).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let text = case["scenario"].to_string();
        if load_text(&text).is_ok() {
            assert!(conforms(&schema, &case["scenario"]), "{}", case["case"]);
            taken += 1;
        } else if !conforms(&schema, &case["scenario"]) {
            refused += 1;
        }
    }
    assert!(
        taken > 30 && refused > 55,
        "{taken} taken, {refused} refused by the schema alone"
    );
}
