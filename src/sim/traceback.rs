//! What 0.24.0 puts behind the message of a request that its framework
//! refused: where in its own source that was, and the refused body in Python's
//! notation. It knows text only.

use std::fmt::Write as _;

use serde_json::Value;

/// Where the recorded server had its source.
const FILE: &str =
    "/opt/server/venv0/lib/python3.11/site-packages/vllm/entrypoints/serve/utils/api_utils.py";

/// The lines behind the message; `problem` is the framework's word for it.
pub(super) fn traceback(problem: &str, chat: bool) -> String {
    let (function, path) = if chat {
        ("create_chat_completion", "/v1/chat/completions")
    } else {
        ("create_completion", "/v1/completions")
    };
    format!("\n\n  File \"{FILE}\", line 34, in {function}\n    POST {path} [{problem}]")
}

/// A JSON value in Python's notation.
pub(super) fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}: {}", quoted(name), python(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
    }
}

/// A string between the quotes that Python would choose.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for char in text.chars() {
        match char {
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            '\\' => out += "\\\\",
            _ if char == quote => {
                out.push('\\');
                out.push(char);
            }
            _ if char.is_control() => {
                write!(out, "\\x{:02x}", u32::from(char)).expect("a string takes any text");
            }
            _ => out.push(char),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_as_python_does() {
        let value = json!({"a": null, "b": [true, 1, 2.5], "c": "it's", "d": "\"'\n\u{1}é"});
        assert_eq!(
            python(&value),
            r#"{'a': None, 'b': [True, 1, 2.5], 'c': "it's", 'd': '"\'\n\x01é'}"#
        );
    }
}
