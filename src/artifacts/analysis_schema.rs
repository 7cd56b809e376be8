//! The JSON Schema of `analysis.json`: the reference's fields, and the `pcload`
//! section as its own room describes it.

use serde_json::{Map, Value, json};

/// Sections that a run adds to the judgment under `pcload`.
const RUN_SECTIONS: &[(&str, &str)] = &[
    ("run", "Number, start and driver of the run."),
    ("precheck", "What the server said of itself."),
    ("reset", "How the cache was emptied, and the proof."),
    ("warmup", "Each warm-up request; null from a cold start."),
    ("settle", "How the counters were waited for."),
    ("client_health", "The load generator's own measurements."),
];

/// The JSON Schema (draft 2020-12) of `analysis.json`. `judgment` is the schema
/// of what a run writes under `pcload`.
pub fn analysis_schema(mut judgment: Value) -> Value {
    let definitions = take(&mut judgment, "$defs");
    take(&mut judgment, "$schema");
    for (name, description) in RUN_SECTIONS {
        judgment["properties"][*name] = json!({"description": description});
    }
    let mut properties = fields();
    properties.insert("pcload".to_owned(), judgment);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pcload analysis",
        "description": "The judgment of a prepared set or of its newest run.",
        "type": "object",
        "properties": properties,
        "required": [
            "schema_version", "run_id", "status", "requested_target_hit_rate",
            "effective_target_hit_rate", "theoretical_hit_rate", "validation", "theory",
            "warnings",
        ],
        "$defs": definitions,
    })
}

fn take(schema: &mut Value, key: &str) -> Value {
    let object = schema.as_object_mut();
    object
        .and_then(|object| object.remove(key))
        .unwrap_or_else(|| json!({}))
}

/// The reference's fields.
fn fields() -> Map<String, Value> {
    let mut fields = Map::new();
    let mut add = |name: &str, schema: Value| fields.insert(name.to_owned(), schema);
    add("schema_version", json!({"const": "1.0"}));
    add(
        "run_id",
        described("string", "`run.run_id` with its time stamp."),
    );
    add(
        "status",
        json!({"enum": ["prepared", "complete", "analyzed", "incomplete", "interrupted", "failed"]}),
    );
    let rates = [
        ("requested_target_hit_rate", "Asked for."),
        ("effective_target_hit_rate", "Nearest reachable; planned."),
        (
            "theoretical_hit_rate",
            "Hit tokens / prompt tokens by theory.",
        ),
    ];
    for (name, description) in rates {
        add(name, rate("number", description));
    }
    let differences = [
        "target_difference_pp",
        "target_signed_difference_pp",
        "target_absolute_difference_pp",
        "theory_actual_difference_pp",
        "theory_actual_signed_difference_pp",
        "theory_actual_absolute_difference_pp",
    ];
    for name in differences {
        let words = "Percentage points; null where the actual rate is not known.";
        add(
            name,
            json!({"type": ["number", "null"], "description": words}),
        );
    }
    add(
        "validation",
        described("object", "Warnings by the thresholds of the scenario."),
    );
    add("theory", theory());
    add(
        "runtime",
        described("object", "Phases and the two metrics pages."),
    );
    add("actual", actual());
    add(
        "warnings",
        json!({"type": "array", "items": {"type": "object"}}),
    );
    fields
}

fn described(kind: &str, description: &str) -> Value {
    json!({"type": kind, "description": description})
}

fn rate(kind: &str, description: &str) -> Value {
    json!({"type": kind, "minimum": 0, "maximum": 1, "description": description})
}

fn tokens(description: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "description": description})
}

fn theory() -> Value {
    json!({
        "type": "object",
        "properties": {
            "input_tokens": tokens("Prompt tokens."),
            "hit_tokens": tokens("Those a perfect cache would serve."),
            "dp": described("object", "The same by rank; empty in warm-up mode."),
            "groups": described("object", "The same by group."),
        },
    })
}

fn actual() -> Value {
    json!({
        "type": ["object", "null"],
        "description": "What the counters counted between baseline and after.",
        "properties": {
            "global_queries": tokens("Tokens looked up."),
            "global_hits": tokens("Tokens found."),
            "global_hit_rate": {"type": ["number", "null"]},
            "by_dp": described("object", "The same by rank."),
        },
    })
}
