//! The JSON Schema of load profiles, for editors that check TOML against one. It
//! says what `profile.rs` reads; a test holds the two together.
//!
//! Two rules it cannot say: only the last stage may do without `requests` and
//! `duration`, and `rate` may be TOML's `inf`.

use serde_json::{Value, json};

use super::profile::STAGES_MAX;

/// Longest duration in seconds: thirty days.
const DURATION_SECONDS_MAX: u32 = 30 * 86_400;

/// The JSON Schema (draft 2020-12) of a load profile.
pub fn profile_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pcload load profile",
        "description": "When the requests of a data set are released. Stages run in order over \
                        its send order.",
        "type": "object",
        "properties": {
            "stages": {
                "description": "The stages, in order. Only the last may have neither `requests` \
                                nor `duration`: it takes the rest.",
                "type": "array",
                "minItems": 1,
                "maxItems": STAGES_MAX,
                "items": {"oneOf": [closed(), open(), trace()]},
            },
            "warmup_requests": count(0, "Leading requests kept out of the statistics; hit \
                                         accounting takes them all."),
            "cooldown_requests": count(0, "Trailing requests kept out of the statistics."),
            "partial": {
                "description": "Whether the profile may end before the data set does.",
                "type": "boolean",
            },
        },
        "required": ["stages"],
        "additionalProperties": false,
    })
}

/// By completions.
fn closed() -> Value {
    stage(
        "closed",
        &["concurrency"],
        json!({
            "concurrency": count32("Requests in flight."),
            "ramp": duration("Time in which the concurrency moves here from the stage before.", "minimum"),
        }),
    )
}

/// By the clock.
fn open() -> Value {
    let mut stage = stage(
        "open",
        &["rate"],
        json!({
            "rate": {
                "description": "Requests a second.",
                "type": "number",
                "exclusiveMinimum": 0,
            },
            "arrival": {
                "description": "Law of the gaps between arrivals; `constant` when absent.",
                "enum": ["constant", "poisson", "gamma"],
            },
            "burstiness": {
                "description": "Shape of the gamma gaps: 1 is Poisson, smaller is burstier.",
                "type": "number",
                "exclusiveMinimum": 0,
            },
            "max_in_flight": count32("Most requests in flight; no limit when absent."),
        }),
    );
    stage["anyOf"] = json!([
        {"properties": {"arrival": {"const": "gamma"}}, "required": ["arrival", "burstiness"]},
        {
            "properties": {"arrival": {"enum": ["constant", "poisson"]}},
            "not": {"required": ["burstiness"]},
        },
    ]);
    stage
}

/// By recorded times.
fn trace() -> Value {
    stage(
        "trace",
        &["times"],
        json!({
            "times": {
                "description": "CSV or JSONL file of arrival times, relative to the profile.",
                "type": "string",
            },
            "max_in_flight": count32("Most requests in flight; no limit when absent."),
        }),
    )
}

fn stage(mode: &str, required: &[&str], mut properties: Value) -> Value {
    properties["mode"] = json!({"const": mode});
    properties["requests"] = json!({
        "description": "Requests of the stage: a count, or a share of the data set such as \
                        \"25%\".",
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": "^ *[0-9.]+ *%$"},
        ],
    });
    properties["duration"] = duration("Length of the stage.", "exclusiveMinimum");
    let required: Vec<&str> = ["mode"].iter().chain(required).copied().collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "not": {"required": ["requests", "duration"]},
        "additionalProperties": false,
    })
}

fn count(least: u32, description: &str) -> Value {
    json!({"description": description, "type": "integer", "minimum": least})
}

fn count32(description: &str) -> Value {
    let mut count = count(1, description);
    count["maximum"] = json!(u32::MAX);
    count
}

/// Seconds, or a text such as `1m30s`; `bound` is `minimum` where zero is
/// allowed, `exclusiveMinimum` where it is not.
fn duration(description: &str, bound: &str) -> Value {
    json!({
        "description": format!("{description} Seconds, or a text such as \"1m30s\"; at most 30 \
                                days."),
        "anyOf": [
            {"type": "number", bound: 0, "maximum": DURATION_SECONDS_MAX},
            {
                "type": "string",
                "minLength": 2,
                "pattern": "^ *([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)? *$",
            },
        ],
    })
}
