//! Whether a JSON value conforms to a JSON Schema, by a validator that is not
//! this program's.

use serde_json::Value;

/// Whether `value` conforms to `schema`.
pub(crate) fn conforms(schema: &Value, value: &Value) -> bool {
    faults(schema, value).is_empty()
}

/// Where `value` does not conform to `schema`, and why.
pub(crate) fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(schema).unwrap();
    let errors = validator.iter_errors(value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}
