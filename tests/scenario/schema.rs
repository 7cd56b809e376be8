//! The JSON Schema against the loader: the same keys, defaults and limits.

use std::fs;

use pcload::scenario::schema;
use serde_json::{Value, json};

use crate::input::{base, load_text, outcome, with};
use crate::reference::shared;

/// Whether `value` conforms to `schema`, for the keywords that scenarios use;
/// patterns are left out.
fn conforms(schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else {
        return schema != &Value::Bool(false);
    };
    keywords
        .iter()
        .all(|(keyword, rule)| match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "pattern" | "format" => true,
            "type" => match rule {
                Value::Array(names) => names.iter().any(|name| is_a(name, value)),
                name => is_a(name, value),
            },
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "anyOf" => rule
                .as_array()
                .unwrap()
                .iter()
                .any(|rule| conforms(rule, value)),
            "oneOf" => {
                rule.as_array()
                    .unwrap()
                    .iter()
                    .filter(|rule| conforms(rule, value))
                    .count()
                    == 1
            }
            "not" => !conforms(rule, value),
            "minimum" => value
                .as_f64()
                .is_none_or(|value| value >= rule.as_f64().unwrap()),
            "maximum" => value
                .as_f64()
                .is_none_or(|value| value <= rule.as_f64().unwrap()),
            "exclusiveMinimum" => value
                .as_f64()
                .is_none_or(|value| value > rule.as_f64().unwrap()),
            "minLength" => value
                .as_str()
                .is_none_or(|text| text.len() as u64 >= rule.as_u64().unwrap()),
            "maxLength" => value
                .as_str()
                .is_none_or(|text| text.len() as u64 <= rule.as_u64().unwrap()),
            "minItems" => value
                .as_array()
                .is_none_or(|list| list.len() as u64 >= rule.as_u64().unwrap()),
            "items" => value
                .as_array()
                .is_none_or(|list| list.iter().all(|item| conforms(rule, item))),
            "required" => value.as_object().is_none_or(|object| {
                rule.as_array()
                    .unwrap()
                    .iter()
                    .all(|key| object.contains_key(key.as_str().unwrap()))
            }),
            "properties" => value.as_object().is_none_or(|object| {
                object
                    .iter()
                    .all(|(key, value)| rule.get(key).is_none_or(|rule| conforms(rule, value)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let known = schema.get("properties");
                let further = object
                    .iter()
                    .filter(|(key, _)| known.is_none_or(|known| known.get(key).is_none()));
                further.into_iter().all(|(_, value)| conforms(rule, value))
            }),
            "propertyNames" => value
                .as_object()
                .is_none_or(|object| object.keys().all(|key| conforms(rule, &json!(key)))),
            other => panic!("the schema has a keyword the test does not know: {other}"),
        })
}

fn is_a(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("no such type: {other}"),
    }
}

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
