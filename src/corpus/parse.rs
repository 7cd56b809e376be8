//! JSONL bytes to normalized texts, by the reference's rules: a leading BOM is
//! dropped, lines end wherever Python's `splitlines` ends them, white space is
//! folded. It refuses to know files.
//!
//! Two things the reference refuses are accepted, because no index changes by
//! it: blank lines (not counted), and the line separators U+0085, U+2028 and
//! U+2029 inside a JSON string.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::corpus::{Corpus, CorpusError};
use crate::units::sha256_hex;

/// Longest piece of a wrong value that a message repeats, in characters.
const SHOWN_CHARS_MAX: usize = 40;

/// Reads all records of a corpus; the text of each line stands under `field`.
pub fn parse(bytes: &[u8], field: &str) -> Result<Corpus, CorpusError> {
    let text = std::str::from_utf8(bytes).map_err(|error| CorpusError::NotUtf8 {
        line: 1 + memchr::memchr_iter(b'\n', &bytes[..error.valid_up_to()]).count(),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut texts = Vec::new();
    let mut line = 0;
    for whole in lines(text, is_newline) {
        line += 1;
        match record(whole, field, line) {
            Ok(found) => texts.extend(found),
            // A separator that is no newline: the reference ends a line there.
            Err(error) => {
                let parts: Vec<&str> = lines(whole, is_separator).collect();
                if parts.len() < 2 {
                    return Err(error);
                }
                line -= 1;
                for part in parts {
                    line += 1;
                    texts.extend(record(part, field, line)?);
                }
            }
        }
    }
    if texts.is_empty() {
        return Err(CorpusError::Empty);
    }
    Ok(Corpus {
        texts,
        sha256: sha256_hex(bytes),
    })
}

/// Text of one line; `None` for a blank one.
fn record(line_text: &str, field: &str, line: usize) -> Result<Option<Box<str>>, CorpusError> {
    if line_text.chars().all(is_white_space) {
        return Ok(None);
    }
    let not_an_object = |error: serde_json::Error| CorpusError::NotAnObject {
        line,
        message: error.to_string(),
    };
    let mut parser = serde_json::Deserializer::from_str(line_text);
    let found = parser
        .deserialize_map(FieldOf(field))
        .map_err(not_an_object)?;
    parser.end().map_err(not_an_object)?;
    let field = field.to_owned();
    match found {
        None => Err(CorpusError::FieldMissing { line, field }),
        Some(Value::String(text)) => match normalize(&text) {
            text if text.is_empty() => Err(CorpusError::Blank { line, field }),
            text => Ok(Some(text.into_boxed_str())),
        },
        Some(other) => {
            let mut found = other.to_string();
            if let Some((end, _)) = found.char_indices().nth(SHOWN_CHARS_MAX) {
                found.truncate(end);
                found.push('…');
            }
            Err(CorpusError::NotAString {
                line,
                field,
                found: format!("`{found}`"),
            })
        }
    }
}

/// Reads an object for the value of one key; where it stands twice, the last
/// one counts, as in Python.
struct FieldOf<'a>(&'a str);

impl<'de> Visitor<'de> for FieldOf<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Words with one space between them.
fn normalize(text: &str) -> String {
    let words: Vec<&str> = text
        .split(is_white_space)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

/// White space as Python's `str.split` has it: Unicode's, and four control
/// characters that separate information.
fn is_white_space(letter: char) -> bool {
    letter.is_whitespace() || ('\x1c'..='\x1f').contains(&letter)
}

fn is_newline(letter: char) -> bool {
    letter == '\n' || letter == '\r'
}

/// Where Python's `splitlines` ends a line.
fn is_separator(letter: char) -> bool {
    is_newline(letter)
        || matches!(
            letter,
            '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
}

/// Lines of `text`; CR LF is one end, and the end of the text ends no further
/// line.
fn lines(text: &str, ends: fn(char) -> bool) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((at, end)) = rest.char_indices().find(|(_, letter)| ends(*letter)) else {
            return Some(std::mem::take(&mut rest));
        };
        let line = &rest[..at];
        rest = &rest[at + end.len_utf8()..];
        if end == '\r' {
            rest = rest.strip_prefix('\n').unwrap_or(rest);
        }
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: &[u8]) -> Vec<String> {
        let corpus = parse(bytes, "q").unwrap();
        (0..corpus.len())
            .map(|index| corpus.text(index).to_owned())
            .collect()
    }

    fn error(bytes: &[u8]) -> String {
        parse(bytes, "q").unwrap_err().to_string()
    }

    #[test]
    fn white_space_is_folded_and_the_digest_is_of_the_folded_text() {
        let corpus = parse(b"\xef\xbb\xbf{\"q\": \" a \\t\\n b\\u00a0\\u001fc \"}", "q").unwrap();
        assert_eq!(corpus.text(0), "a b c");
        // printf 'a b c' | sha256sum
        assert_eq!(
            corpus.text_sha256(0),
            "0e9f64031fcb2bc708b531c2a20441580425d151a38503f38592a7dd36019d3b"
        );
    }

    #[test]
    fn every_end_of_line_that_python_knows_ends_a_line() {
        for end in [
            "\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\u{85}", "\u{2028}",
            "\u{2029}",
        ] {
            let file = format!("{{\"q\": \"a\"}}{end}{{\"q\": \"b\"}}{end}");
            assert_eq!(texts(file.as_bytes()), ["a", "b"], "{end:?}");
        }
    }

    #[test]
    fn blank_lines_are_not_counted_and_separators_inside_strings_are_white_space() {
        let file = "\n{\"q\": \"a\"}\n  \n\r\n{\"q\": \"b\u{2028}c\"}\n";
        assert_eq!(texts(file.as_bytes()), ["a", "b c"]);
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        assert_eq!(texts(b"{\"q\": 1, \"x\": [{}], \"q\": \"z\"}"), ["z"]);
    }

    #[test]
    fn wrong_lines_are_named_with_line_and_field() {
        assert!(error(b"{\"q\": \"a\"}\n\n[1]\n").starts_with("line 3 of the corpus is not"));
        assert!(error(b"{\"q\": \"a\"} x").starts_with("line 1 of the corpus is not"));
        assert!(error(b"{\"q\": \"a\"}\x0c{\"q\": 1}").contains("`q` in line 2"));
        assert_eq!(
            error(b"{\"p\": \"a\"}"),
            "line 1 of the corpus has no field `q`"
        );
        assert_eq!(
            error(b"{\"q\": null}"),
            "`q` in line 1 of the corpus must be a string, not `null`"
        );
        assert_eq!(
            error(b"{\"q\": \" \\n \"}"),
            "`q` in line 1 of the corpus is blank"
        );
        assert_eq!(
            error(b"{\"q\": \"a\"}\n{\"q\": \"\xff\"}"),
            "the corpus is not UTF-8: line 2 has an invalid byte"
        );
        assert!(error(b"{\"q\": \"\\ud800\"}").starts_with("line 1"));
        assert_eq!(error(b"\xef\xbb\xbf \n"), "the corpus has no records");
    }
}
