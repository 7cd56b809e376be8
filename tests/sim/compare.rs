//! An answer beside a recorded one: status, headers, bodies, events. Text, ids
//! and times are the only things that may differ.

use serde_json::{Value, json};

use crate::wire::Answer;

/// `Err` says what differs first.
pub(crate) type Same = Result<(), String>;

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Same {
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{what}: {ours:?}, recorded {theirs:?}"))
}

/// Status, and every header but dates, lengths and ids drawn at random.
pub(crate) fn head(ours: &Answer, theirs: &Answer) -> Same {
    equal("status", &ours.status, &theirs.status)?;
    let names = |answer: &Answer| {
        let mut names: Vec<String> = answer
            .headers
            .iter()
            .map(|(name, _)| name.clone())
            .filter(|name| name != "connection")
            .collect();
        names.sort_unstable();
        names
    };
    equal("headers", &names(ours), &names(theirs))?;
    for (header, value) in &theirs.headers {
        if !matches!(
            header.as_str(),
            "date" | "content-length" | "x-request-id" | "connection"
        ) {
            equal(header, &ours.header(header), &Some(value.as_str()))?;
        }
    }
    Ok(())
}

/// Keys of a JSON text in their order.
fn keys(text: &str) -> Vec<String> {
    let mut keys = Vec::new();
    collect(&serde_json::from_str(text).unwrap(), &mut keys);
    keys
}

fn collect(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                keys.push(name.clone());
                match value.as_array() {
                    // Tokens are members there; only their number is no chance.
                    Some(items) if name == "top_logprobs" && is_map(items) => {
                        let members =
                            |item: &Value| item.as_object().map_or(0, serde_json::Map::len);
                        let counts: Vec<usize> = items.iter().map(members).collect();
                        keys.push(format!("{counts:?}"));
                    }
                    _ => collect(value, keys),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                collect(item, keys);
            }
        }
        _ => {}
    }
}

/// Alternatives by their text, as completions have them.
fn is_map(alternatives: &[Value]) -> bool {
    let first = alternatives.first();
    first.is_some_and(|first| first.get("token").is_none())
}

/// Members that may differ.
const VOLATILE: [&str; 8] = [
    "id",
    "created",
    "text",
    "content",
    "token_ids",
    "root",
    "logprobs",
    "permission",
];

/// The value with what may differ blanked.
fn blanked(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| {
                let volatile = VOLATILE.contains(&name.as_str()) && !value.is_null();
                let value = match value.as_str().and_then(|text| text.rsplit_once('-')) {
                    _ if volatile => json!("*"),
                    // Its end depends on how the server was configured.
                    Some((release, _)) if name == "system_fingerprint" => json!(release),
                    _ => blanked(value),
                };
                (name.clone(), value)
            })
            .collect(),
        Value::Array(items) => items.iter().map(blanked).collect(),
        other => other.clone(),
    }
}

/// A body, byte for byte.
pub(crate) fn exact(ours: &Answer, theirs: &Answer) -> Same {
    equal("body", &ours.text(), &theirs.text())
}

/// A document: its members, their order, and all values but text and ids.
pub(crate) fn document(ours: &Answer, theirs: &Answer) -> Same {
    equal("members", &keys(ours.text()), &keys(theirs.text()))?;
    equal("document", &blanked(&ours.json()), &blanked(&theirs.json()))
}

/// Events of one choice (or of none: usage), blanked, with their keys.
fn events_of(answer: &Answer, index: Option<u64>) -> Vec<(Vec<String>, Value)> {
    let lines = answer
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    lines
        .filter(|data| *data != "[DONE]")
        .map(|data| (keys(data), serde_json::from_str::<Value>(data).unwrap()))
        .filter(|(_, event)| event["choices"][0]["index"].as_u64() == index)
        .map(|(keys, event)| (keys, blanked(&event)))
        .collect()
}

/// A stream: one event a chunk, then `[DONE]`; per choice the same events.
pub(crate) fn stream(ours: &Answer, theirs: &Answer) -> Same {
    for answer in [ours, theirs] {
        equal("complete", &answer.complete, &true)?;
        let last = answer.chunks.last().map(Vec::as_slice);
        equal("last chunk", &last, &Some(b"data: [DONE]\n\n".as_slice()))?;
        let whole = |chunk: &Vec<u8>| chunk.ends_with(b"\n\n");
        equal("one event a chunk", &answer.chunks.iter().all(whole), &true)?;
    }
    for index in [Some(0), Some(1), None] {
        let (ours, theirs) = (events_of(ours, index), events_of(theirs, index));
        for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            equal(&format!("members of event {at}"), &ours.0, &theirs.0)?;
            equal(&format!("event {at}"), &ours.1, &theirs.1)?;
        }
        equal("events", &ours.len(), &theirs.len())?;
    }
    Ok(())
}
