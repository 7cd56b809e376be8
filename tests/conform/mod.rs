//! Whether a JSON value conforms to a JSON Schema: the few keywords that the
//! program's schemas use, and a panic at any other.

use serde_json::{Value, json};

/// Whether `value` conforms to `schema`, for the keywords that our schemas use;
/// patterns are left out.
pub(crate) fn conforms(schema: &Value, value: &Value) -> bool {
    within(schema, schema, value)
}

/// [`conforms`] for a part of `root`, which holds the definitions.
fn within(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else {
        return schema != &Value::Bool(false);
    };
    keywords
        .iter()
        .all(|(keyword, rule)| match keyword.as_str() {
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/").unwrap();
                within(root, root.pointer(&format!("/{name}")).unwrap(), value)
            }
            "$schema" | "$defs" | "title" | "description" | "default" | "pattern" | "format" => {
                true
            }
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
                .any(|rule| within(root, rule, value)),
            "oneOf" => {
                rule.as_array()
                    .unwrap()
                    .iter()
                    .filter(|rule| within(root, rule, value))
                    .count()
                    == 1
            }
            "not" => !within(root, rule, value),
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
            "maxItems" => value
                .as_array()
                .is_none_or(|list| list.len() as u64 <= rule.as_u64().unwrap()),
            "prefixItems" => value.as_array().is_none_or(|list| {
                let rules = rule.as_array().unwrap();
                list.iter()
                    .zip(rules)
                    .all(|(item, rule)| within(root, rule, item))
            }),
            "minItems" => value
                .as_array()
                .is_none_or(|list| list.len() as u64 >= rule.as_u64().unwrap()),
            "items" => value
                .as_array()
                .is_none_or(|list| list.iter().all(|item| within(root, rule, item))),
            "required" => value.as_object().is_none_or(|object| {
                rule.as_array()
                    .unwrap()
                    .iter()
                    .all(|key| object.contains_key(key.as_str().unwrap()))
            }),
            "properties" => value.as_object().is_none_or(|object| {
                object
                    .iter()
                    .all(|(key, value)| rule.get(key).is_none_or(|rule| within(root, rule, value)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let known = schema.get("properties");
                let numbered = schema.get("patternProperties").is_some();
                let further = object
                    .iter()
                    .filter(|(key, _)| known.is_none_or(|known| known.get(key).is_none()))
                    .filter(|(key, _)| !(numbered && is_number(key)));
                further
                    .into_iter()
                    .all(|(_, value)| within(root, rule, value))
            }),
            // Maps with number keys are all that our schemas say by patterns.
            "patternProperties" => {
                let rule = rule.get(NUMBER).unwrap();
                value.as_object().is_none_or(|object| {
                    let numbered = object.iter().filter(|(key, _)| is_number(key));
                    numbered
                        .into_iter()
                        .all(|(_, value)| within(root, rule, value))
                })
            }
            "propertyNames" => value
                .as_object()
                .is_none_or(|object| object.keys().all(|key| within(root, rule, &json!(key)))),
            other => panic!("the schema has a keyword the test does not know: {other}"),
        })
}

/// The one pattern of keys that is known.
const NUMBER: &str = r"^\d+$";

fn is_number(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit())
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
