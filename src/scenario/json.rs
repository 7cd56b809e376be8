//! JSON as it was written: numbers keep their text, duplicate keys are seen,
//! each value knows its place. Nothing here knows what the keys mean.
//!
//! Each level is read by `serde_json` into raw values that borrow from the
//! text; their addresses give the offsets. A value is read once for each level
//! it is nested in, so the work is bounded by [`DEPTH_MAX`] times the size.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::scenario::problem::{Code, Problem, Problems, join, shown};

/// Deepest nesting of a scenario; the deepest field needs 7.
const DEPTH_MAX: usize = 32;

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node<'t> {
    pub(super) kind: Kind<'t>,
    /// Byte offset in the text.
    pub(super) offset: usize,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Kind<'t> {
    Null,
    Flag(bool),
    /// The number's text.
    Number(&'t str),
    Text(String),
    List(Vec<Node<'t>>),
    /// Keys in written order, none twice.
    Object(Vec<(String, Node<'t>)>),
}

impl<'t> Node<'t> {
    /// The value under `key`, when this is an object that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Node<'t>> {
        let Kind::Object(entries) = &self.kind else {
            return None;
        };
        entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node)
    }

    /// What stands here, for a message: scalars as they are, shortened.
    pub(super) fn found(&self) -> String {
        match &self.kind {
            Kind::Null => "`null`".to_owned(),
            Kind::Flag(flag) => format!("`{flag}`"),
            Kind::Number(text) => {
                let short: String = text.chars().take(40).collect();
                let more = if short.len() < text.len() { "…" } else { "" };
                format!("`{short}{more}`")
            }
            Kind::Text(text) => format!("`{}`", shown(text)),
            Kind::List(_) => "a list".to_owned(),
            Kind::Object(_) => "an object".to_owned(),
        }
    }

    /// The JSON type, for a message that must not show the value.
    pub(super) fn type_name(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "null",
            Kind::Flag(_) => "true or false",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Object(_) => "an object",
        }
    }

    /// The value without places. A number that no 64-bit integer or finite
    /// float can hold becomes null: callers have refused it before.
    pub(super) fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Flag(flag) => Value::Bool(*flag),
            Kind::Number(text) => number(text).map_or(Value::Null, Value::Number),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => items.iter().map(Node::to_value).collect(),
            Kind::Object(entries) => entries
                .iter()
                .map(|(key, node)| (key.clone(), node.to_value()))
                .collect(),
        }
    }
}

/// Whether a number's text is an integer as JSON parsers of the field take it:
/// no point, no exponent.
pub(super) fn is_integer(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// A number's text as a number; `None` when no finite float is near it.
pub(super) fn number(text: &str) -> Option<Number> {
    serde_json::from_str(text).ok()
}

/// Reads a whole document. Duplicate keys become problems (the first one
/// counts); text that is no JSON is the only problem there then is.
pub(super) fn parse<'t>(text: &'t str, problems: &mut Problems) -> Result<Node<'t>, Box<Problem>> {
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| syntax_problem(text, 0, "", &error))?;
    let mut reader = Reader { text, problems };
    reader.node(raw, "", 0)
}

struct Reader<'t, 'p> {
    text: &'t str,
    problems: &'p mut Problems,
}

impl<'t> Reader<'t, '_> {
    fn node(
        &mut self,
        raw: &'t RawValue,
        path: &str,
        depth: usize,
    ) -> Result<Node<'t>, Box<Problem>> {
        let json = raw.get();
        let offset = json.as_ptr().addr() - self.text.as_ptr().addr();
        if depth > DEPTH_MAX {
            let problem = Problem::new(Code::BadJson, path, "nested too deeply")
                .expected(format!("at most {DEPTH_MAX} levels"))
                .at(Some(offset));
            return Err(Box::new(problem));
        }
        let failed = |error| syntax_problem(self.text, offset, path, &error);
        let kind = match json.as_bytes().first() {
            Some(b'n') => Kind::Null,
            Some(b't') => Kind::Flag(true),
            Some(b'f') => Kind::Flag(false),
            Some(b'"') => Kind::Text(serde_json::from_str(json).map_err(failed)?),
            Some(b'[') => {
                let items: Vec<&'t RawValue> = serde_json::from_str(json).map_err(failed)?;
                Kind::List(self.items(items, path, depth)?)
            }
            Some(b'{') => {
                let Entries(entries) = serde_json::from_str(json).map_err(failed)?;
                Kind::Object(self.entries(entries, path, depth)?)
            }
            _ => Kind::Number(json),
        };
        Ok(Node { kind, offset })
    }

    fn items(
        &mut self,
        items: Vec<&'t RawValue>,
        path: &str,
        depth: usize,
    ) -> Result<Vec<Node<'t>>, Box<Problem>> {
        let place = |(index, raw)| self.node(raw, &format!("{path}[{index}]"), depth + 1);
        items.into_iter().enumerate().map(place).collect()
    }

    fn entries(
        &mut self,
        entries: Vec<(String, &'t RawValue)>,
        path: &str,
        depth: usize,
    ) -> Result<Vec<(String, Node<'t>)>, Box<Problem>> {
        let mut seen = std::collections::BTreeSet::new();
        let mut nodes = Vec::with_capacity(entries.len());
        for (key, raw) in entries {
            let path = join(path, &key);
            let node = self.node(raw, &path, depth + 1)?;
            if seen.insert(key.clone()) {
                nodes.push((key, node));
            } else {
                self.problems.push(
                    Problem::new(Code::DuplicateKey, path, "this key stands here twice")
                        .expected("one value")
                        .at(Some(node.offset)),
                );
            }
        }
        Ok(nodes)
    }
}

/// An object's entries as written, duplicates included.
struct Entries<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<String, &'de RawValue>()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// Turns the parser's complaint about the part of `text` that begins at
/// `offset` into a problem at its place in the whole.
fn syntax_problem(
    text: &str,
    offset: usize,
    path: &str,
    error: &serde_json::Error,
) -> Box<Problem> {
    let offset = offset + offset_of(&text[offset..], error.line(), error.column());
    let full = error.to_string();
    let what = full.split(" at line ").next().unwrap_or(&full);
    let problem = if let Some(word) = non_finite_word(text, offset) {
        Problem::new(Code::NotFinite, path, format!("`{word}` is no JSON number"))
            .expected("a finite number")
    } else {
        Problem::new(Code::BadJson, path, format!("not JSON: {what}"))
    };
    Box::new(problem.at(Some(offset)))
}

/// Byte offset of a line and column (from 1, in bytes) of `text`.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start = match line {
        0 | 1 => 0,
        _ => memchr::memchr_iter(b'\n', text.as_bytes())
            .nth(line - 2)
            .map_or(text.len(), |at| at + 1),
    };
    let mut offset = (start + column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// The not-a-number or infinity that stands at `offset`, or just before it.
fn non_finite_word(text: &str, offset: usize) -> Option<&'static str> {
    ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| {
        (0..=word.len()).any(|back| {
            let start = offset.checked_sub(back);
            start.is_some_and(|start| text.get(start..).is_some_and(|rest| rest.starts_with(word)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(text: &str) -> Problems {
        let mut problems = Problems::default();
        if let Err(problem) = parse(text, &mut problems) {
            problems.push(*problem);
        }
        problems.located(text)
    }

    #[test]
    fn duplicate_keys_are_seen_at_every_level() {
        let problems = problems_of("{\"a\": {\"b\": 1,\n \"b\": 2}, \"a\": [{\"c\":1,\"c\":1}]}");
        assert_eq!(
            problems.to_string(),
            "DUPLICATE_KEY: a.b: this key stands here twice (line 2:7); expected one value\n\
             DUPLICATE_KEY: a: this key stands here twice (line 2:16); expected one value\n\
             DUPLICATE_KEY: a[0].c: this key stands here twice (line 2:28); expected one value"
        );
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place() {
        let check =
            |text: &str, expected: &str| assert_eq!(problems_of(text).to_string(), expected);
        check(
            "{\"a\": NaN}",
            "NOT_FINITE: `NaN` is no JSON number (line 1:7); expected a finite number",
        );
        check(
            "{\"a\":\n [-Infinity]}",
            "NOT_FINITE: `-Infinity` is no JSON number (line 2:4); expected a finite number",
        );
        check(
            "",
            "BAD_JSON: not JSON: EOF while parsing a value (line 1:1)",
        );
        check(
            "{\"a\": \"\\ud83d x\"}",
            "BAD_JSON: a: not JSON: unexpected end of hex escape (line 1:14)",
        );
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(
            problems_of(&deep).iter().next().unwrap().what,
            "nested too deeply"
        );
    }

    #[test]
    fn numbers_keep_their_text() {
        let text = "[123456789012345678901234567890, 1e400, 0.60]";
        let node = parse(text, &mut Problems::default()).unwrap();
        let Kind::List(items) = &node.kind else {
            panic!("a list");
        };
        let texts: Vec<String> = items.iter().map(Node::found).collect();
        assert_eq!(
            texts,
            ["`123456789012345678901234567890`", "`1e400`", "`0.60`"]
        );
        assert!(number("1e400").is_none());
    }
}
