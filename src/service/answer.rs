//! The few things that are read out of a server's JSON: usage, models, and the
//! words of an error. Absent is absent: a count that a server leaves out is
//! never taken for 0.

use serde::Serialize;
use serde_json::Value;

use crate::measure::Usage;

/// Characters of a server's text that are kept.
pub const ERROR_CHARS_MAX: usize = 300;

/// One entry of `/v1/models`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServedModel {
    /// Its name.
    pub id: String,
    /// Context length in tokens, prompt and output together.
    pub max_model_len: Option<u64>,
}

/// `usage` of an answer. `cached_tokens` is absent where a server does not
/// report it, and up to vLLM 0.19.1 also where it is 0.
pub fn usage_of(answer: &Value) -> Option<Usage> {
    let usage = answer.get("usage")?;
    let count = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64);
    Some(Usage {
        prompt_tokens: count(usage, "prompt_tokens")?,
        completion_tokens: count(usage, "completion_tokens").unwrap_or(0),
        cached_tokens: usage
            .get("prompt_tokens_details")
            .and_then(|details| count(details, "cached_tokens")),
    })
}

/// The entries of a model list.
pub fn models_of(answer: &Value) -> Vec<ServedModel> {
    let model = |entry: &Value| {
        Some(ServedModel {
            id: entry.get("id")?.as_str()?.to_owned(),
            max_model_len: entry.get("max_model_len").and_then(Value::as_u64),
        })
    };
    let entries = answer.get("data").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(model).collect()
}

/// The words of an error body: its message where it has one of the known
/// shapes, else all of it, on one line.
pub fn error_words(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let error = value.get("error").unwrap_or(&value);
    let words = error
        .get("message")
        .or_else(|| value.get("detail"))
        .or_else(|| value.get("message"))
        .unwrap_or(error)
        .as_str()
        .unwrap_or(body);
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return "(no text)".to_owned();
    }
    line
}

/// At most [`ERROR_CHARS_MAX`] characters of `text`. Secrets are taken out
/// before: a cut would leave a part of one.
pub fn bounded(text: &str) -> String {
    match text.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// vllm-project/vllm-ascend#9030, vllm-project/vllm#44475: a field that is
    /// left out must not read as 0.
    #[test]
    fn cached_tokens_that_are_not_reported_are_not_zero() {
        let cached = |usage: Value| {
            let usage = usage_of(&json!({ "usage": usage })).unwrap();
            assert_eq!(usage.prompt_tokens, 3_040);
            usage.cached_tokens
        };
        let details = |details: Value| json!({"prompt_tokens": 3_040, "completion_tokens": 1, "prompt_tokens_details": details});
        assert_eq!(cached(json!({"prompt_tokens": 3_040})), None);
        assert_eq!(cached(details(Value::Null)), None);
        assert_eq!(cached(details(json!({}))), None);
        assert_eq!(cached(details(json!({"cached_tokens": 0}))), Some(0));
        assert_eq!(
            cached(details(json!({"cached_tokens": 2_400}))),
            Some(2_400)
        );
        assert_eq!(usage_of(&json!({"usage": null})), None);
        assert_eq!(usage_of(&json!({"usage": {"prompt_tokens": -1}})), None);
    }

    #[test]
    fn error_bodies_give_their_message() {
        for (body, text) in [
            ("{\"error\":{\"message\":\"a\\n b\",\"code\":404}}", "a b"),
            ("{\"detail\":\"Not Found\"}", "Not Found"),
            ("{\"message\":\"m\"}", "m"),
            ("{\"error\":\"plain\"}", "plain"),
            ("<html>\n no", "<html> no"),
            ("{\"x\":1}", "{\"x\":1}"),
            (" \n", "(no text)"),
        ] {
            assert_eq!(error_words(body), text, "{body}");
        }
        let long = bounded(&error_words(&"ä".repeat(1_000)));
        assert_eq!(long.chars().count(), ERROR_CHARS_MAX + 1);
    }

    #[test]
    fn model_lists_are_read_leniently() {
        let list = json!({"data": [{"id": "a", "max_model_len": 32_768}, {"id": 7}, {"id": "b"}]});
        let models = models_of(&list);
        assert_eq!(models[0].max_model_len, Some(32_768));
        assert_eq!((models.len(), models[1].id.as_str()), (2, "b"));
        assert!(models_of(&json!({"data": "x"})).is_empty());
    }
}
