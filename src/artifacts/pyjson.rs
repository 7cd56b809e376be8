//! JSON text exactly as Python's `json` module writes it, because digests are
//! taken over it and the reference plugin compares them. It knows text and
//! values, and nothing of what they mean.
//!
//! `serde_json` escapes strings as Python does with `ensure_ascii=False`; floats,
//! separators and the order of keys differ and are written here.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};
use serde_json::{Map, Value};

/// How items are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separators {
    /// `, ` and `: `, as `json.dumps` does by default.
    Spaced,
    /// `,` and `:`.
    Compact,
}

/// One line with `", "` and `": "`, keys in their own order: rows of JSONL
/// files, results on stdout. No line end.
pub fn line(value: &impl Serialize) -> String {
    let mut text = Vec::with_capacity(256);
    write_line(&mut text, value).expect("writing to memory does not fail");
    into_text(text)
}

/// [`line()`], into a writer.
pub fn write_line(out: &mut impl io::Write, value: &impl Serialize) -> io::Result<()> {
    write(out, value, OneLine(Separators::Spaced))
}

/// The text that digests are taken of: sorted keys, `,` and `:`.
pub fn canonical(value: &Value) -> String {
    let mut text = Vec::with_capacity(1024);
    write(&mut text, &sorted(value), OneLine(Separators::Compact))
        .expect("writing to memory does not fail");
    into_text(text)
}

/// A document file: sorted keys, indented by two spaces, one line feed at the
/// end.
pub fn document(value: &Value) -> String {
    let mut text = indented(&sorted(value));
    text.push('\n');
    text
}

/// Indented by two spaces, keys in their own order, no line end: results on
/// stdout.
pub fn indented(value: &Value) -> String {
    let mut text = Vec::with_capacity(4096);
    write(&mut text, value, Indented(PrettyFormatter::new()))
        .expect("writing to memory does not fail");
    into_text(text)
}

/// `value` with the keys of all objects sorted by code point.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            Value::Object(
                keys.into_iter()
                    .map(|key| (key.clone(), sorted(&map[key])))
                    .collect::<Map<String, Value>>(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// JSON text without the white space between its tokens. A document that
/// [`document`] wrote becomes what [`canonical`] writes of its value, numbers
/// that no `f64` can hold included.
pub fn squeezed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for letter in text.chars() {
        if in_string {
            out.push(letter);
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
        } else if !matches!(letter, ' ' | '\n' | '\r' | '\t') {
            out.push(letter);
            in_string = letter == '"';
        }
    }
    out
}

/// A float as Python's `repr` writes it: the shortest digits that read back, of
/// these the nearest, of two as near the even ones; always with a point or an
/// exponent; an exponent below 1e-4 and from 1e16, signed, of at least two
/// digits. `value` must be finite.
///
/// The digits are `serde_json`'s: those of `format!` are the odd ones now and
/// then where two are as near.
fn write_float<W: ?Sized + io::Write>(out: &mut W, value: f64) -> io::Result<()> {
    let mut shortest = Vec::with_capacity(32);
    CompactFormatter.write_f64(&mut shortest, value)?;
    let Decimal {
        sign,
        digits,
        exponent,
    } = Decimal::read(&into_text(shortest));
    out.write_all(sign.as_bytes())?;
    let count = i32::try_from(digits.len()).expect("a float has at most 17 digits");
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    match exponent {
        0..16 if count > exponent + 1 => {
            let (whole, rest) = digits.split_at(usize::try_from(exponent).unwrap_or(0) + 1);
            write!(out, "{whole}.{rest}")
        }
        0..16 => write!(out, "{digits}{}.0", zeros(exponent + 1 - count)),
        -4..0 => write!(out, "0.{}{digits}", zeros(-exponent - 1)),
        _ => {
            let (whole, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            let mark = if exponent < 0 { '-' } else { '+' };
            let size = exponent.unsigned_abs();
            write!(out, "{whole}{point}{rest}e{mark}{size:02}")
        }
    }
}

/// A decimal number taken apart: `sign d.ddd · 10^exponent`, without zeros at
/// either end; zero itself is `0`.
struct Decimal {
    sign: &'static str,
    digits: String,
    exponent: i32,
}

impl Decimal {
    /// Reads what `serde_json` writes of a finite float.
    fn read(text: &str) -> Self {
        let (sign, text) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", text),
        };
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let digits = significant.trim_end_matches('0');
        if digits.is_empty() {
            return Self {
                sign,
                digits: "0".to_owned(),
                exponent: 0,
            };
        }
        // `all` stands for `all[0].all[1]… · 10^(whole − 1)`.
        let leading = all.len() - significant.len();
        let shift = |length: usize| i32::try_from(length).expect("a float's text is short");
        let exponent: i32 = exponent.parse().expect("an exponent is a number");
        Self {
            sign,
            digits: digits.to_owned(),
            exponent: exponent + shift(whole.len()) - 1 - shift(leading),
        }
    }
}

fn write<F: Formatter>(
    out: &mut impl io::Write,
    value: &impl Serialize,
    formatter: F,
) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(out, formatter);
    value.serialize(&mut serializer).map_err(io::Error::from)
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("serde_json writes UTF-8")
}

/// Everything on one line.
struct OneLine(Separators);

impl OneLine {
    fn between<W: ?Sized + io::Write>(&self, out: &mut W, first: bool) -> io::Result<()> {
        match (first, self.0) {
            (true, _) => Ok(()),
            (false, Separators::Spaced) => out.write_all(b", "),
            (false, Separators::Compact) => out.write_all(b","),
        }
    }
}

impl Formatter for OneLine {
    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        write_float(out, value)
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.between(out, first)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.between(out, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        match self.0 {
            Separators::Spaced => out.write_all(b": "),
            Separators::Compact => out.write_all(b":"),
        }
    }
}

/// Indented by two spaces; empty containers stay on their line.
struct Indented(PrettyFormatter<'static>);

impl Formatter for Indented {
    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        write_float(out, value)
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (value, expected) in [
            (0.6, "0.6"),
            (1024.0, "1024.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1e-7, "1e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (3.544_171_458_442_235_7, "3.5441714584422357"),
            (-1.5e-300, "-1.5e-300"),
            (5e-324, "5e-324"),
            (201.100_000_000_000_02, "201.10000000000002"),
            (120.0, "120.0"),
            (1.25e22, "1.25e+22"),
            (0.000_123, "0.000123"),
        ] {
            assert_eq!(line(&value), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_float_reads_back_and_looks_like_one(bits: u64) {
            let value = f64::from_bits(bits);
            if value.is_finite() {
                let text = line(&value);
                let back: f64 = text.parse().unwrap();
                proptest::prop_assert_eq!(back.to_bits(), bits);
                proptest::prop_assert!(text.contains(['.', 'e']), "{}", text);
            }
        }
    }

    /// Exactly between two floats' shortest texts: the even digits win.
    #[test]
    fn of_two_texts_as_near_the_even_one_is_written() {
        let value = -4_452_712_482_368_009.0 / 4.0;
        assert_eq!(line(&value), "-1113178120592002.2");
    }

    #[test]
    fn what_is_not_finite_is_null() {
        assert_eq!(line(&[f64::NAN, f64::INFINITY]), "[null, null]");
    }

    #[test]
    fn strings_are_escaped_as_python_does_without_ascii() {
        let text = "a\"b\\c\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}\u{2028}é漢😀/";
        let expected = "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u001f\u{7f}\u{2028}é漢😀/\"";
        assert_eq!(line(&text), expected);
    }

    #[test]
    fn layouts_differ_in_separators_and_order() {
        let value = json!({"b": [1, 2.0], "a": {}, "c": []});
        assert_eq!(line(&value), r#"{"b": [1, 2.0], "a": {}, "c": []}"#);
        assert_eq!(canonical(&value), r#"{"a":{},"b":[1,2.0],"c":[]}"#);
        assert_eq!(
            document(&value),
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    2.0\n  ],\n  \"c\": []\n}\n"
        );
    }

    #[test]
    fn squeezing_keeps_strings_and_big_numbers() {
        let text = "{\n  \"a b\": \" \\\" x \\\\\",\n  \"n\": 123456789012345678901234567890\n}";
        assert_eq!(
            squeezed(text),
            "{\"a b\":\" \\\" x \\\\\",\"n\":123456789012345678901234567890}"
        );
    }
}
