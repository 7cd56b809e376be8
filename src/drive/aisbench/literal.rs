//! Values as Python literals. ASCII only and without braces: AISBench reads its
//! configuration through a loader that substitutes `{{ … }}` in the text.

use std::fmt::Write as _;

use serde_json::Value;

/// `value` as a Python expression.
pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text_literal(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(entries) => {
            // `dict(…)` in place of braces keeps `}}` and `{{` out of the text.
            let items = entries
                .iter()
                .map(|(key, value)| format!("({}, {})", text_literal(key), literal(value)));
            format!("dict([{}])", items.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A Python string.
pub(super) fn text_literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        let code = u32::from(letter);
        let plain = (letter.is_ascii_graphic() || letter == ' ') && !"\"\\{}$%".contains(letter);
        let _infallible = match code {
            _ if plain => {
                out.push(letter);
                Ok(())
            }
            0..=0xff => write!(out, "\\x{code:02x}"),
            0x100..=0xffff => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_become_python() {
        for (value, expected) in [
            (json!(null), "None"),
            (json!([true, false]), "[True, False]"),
            (json!({"a": 1, "b": 0.5}), r#"dict([("a", 1), ("b", 0.5)])"#),
            (json!("{{ x }}"), r#""\x7b\x7b x \x7d\x7d""#),
            (json!("a\"b\\c\n"), r#""a\x22b\x5cc\x0a""#),
            (json!("é…😀"), r#""\xe9\u2026\U0001f600""#),
        ] {
            assert_eq!(literal(&value), expected);
        }
    }
}
