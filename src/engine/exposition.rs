//! The Prometheus text format: one line at a time, borrowed from the page. It
//! reads the classic format, the quoted names of its version 1.0.0, and what
//! `OpenMetrics` adds (exemplars, float timestamps, `# EOF`, which is a comment
//! here). It refuses to know which series matter.
//!
//! Cost: a page is walked once; a line that nobody wants costs the search for
//! its end and for the end of its name.

use std::borrow::Cow;

/// A line that is no sample, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LineError {
    /// Line number on the page, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// A line that holds, or should hold, a sample: not blank, not a comment.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    number: usize,
    text: &'a str,
}

/// One sample. Names and values are borrowed unless they held an escape.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Line number on the page, from 1.
    pub line: usize,
    /// Name of the series.
    pub name: Cow<'a, str>,
    /// Labels in the page's order, escapes resolved.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The value; may be NaN or infinite.
    pub value: f64,
    /// Time stamp as written: milliseconds in the classic format, seconds in
    /// `OpenMetrics`.
    pub timestamp: Option<f64>,
}

impl Sample<'_> {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_ref())
    }
}

/// The lines of `page` that are neither blank nor comments, in order.
pub fn lines(page: &str) -> impl Iterator<Item = Line<'_>> {
    Split { page, number: 0 }
        .map(|(number, text)| Line {
            number,
            text: text.trim_matches([' ', '\t', '\r']),
        })
        .filter(|line| !line.text.is_empty() && !line.text.starts_with('#'))
}

/// Lines with their numbers; only `\n` ends a line (a value may hold U+2028).
struct Split<'a> {
    page: &'a str,
    number: usize,
}

impl<'a> Iterator for Split<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty() {
            return None;
        }
        self.number += 1;
        let end = memchr::memchr(b'\n', self.page.as_bytes());
        let (line, rest) = match end {
            Some(at) => (&self.page[..at], &self.page[at + 1..]),
            None => (self.page, ""),
        };
        self.page = rest;
        Some((self.number, line))
    }
}

impl<'a> Line<'a> {
    /// Line number on the page, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The text without surrounding blanks.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The name in front of the line, without reading the rest; `None` where it
    /// stands quoted inside the braces or is missing.
    pub fn name(&self) -> Option<&'a str> {
        let end = name_length(self.text.as_bytes(), true);
        (end > 0).then(|| &self.text[..end])
    }

    /// Reads the whole line.
    pub fn sample(&self) -> Result<Sample<'a>, LineError> {
        let mut cursor = Cursor {
            text: self.text,
            at: 0,
        };
        cursor.sample(self.number).map_err(|reason| LineError {
            line: self.number,
            reason,
        })
    }
}

/// Bytes of `text` that form a name; colons only in metric names.
fn name_length(text: &[u8], colons: bool) -> usize {
    let in_name = |(at, byte): (usize, &u8)| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => true,
        b'0'..=b'9' => at > 0,
        b':' => colons,
        _ => false,
    };
    text.iter()
        .enumerate()
        .position(|item| !in_name(item))
        .unwrap_or(text.len())
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

type Labels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

impl<'a> Cursor<'a> {
    fn sample(&mut self, line: usize) -> Result<Sample<'a>, &'static str> {
        let bare = self.name(true).map(Cow::Borrowed);
        self.blanks();
        let mut name = bare;
        let labels = match self.peek() {
            Some(b'{') => self.labels(&mut name)?,
            _ => Vec::new(),
        };
        let name = name.ok_or("no metric name")?;
        self.blanks();
        let value = number(self.word()).ok_or("the value is no number")?;
        self.blanks();
        let timestamp = match self.peek() {
            None | Some(b'#') => None,
            Some(_) => Some(number(self.word()).ok_or("the time stamp is no number")?),
        };
        self.exemplar()?;
        Ok(Sample {
            line,
            name,
            labels,
            value,
            timestamp,
        })
    }

    /// `# {labels} value [timestamp]`, or nothing, up to the end.
    fn exemplar(&mut self) -> Result<(), &'static str> {
        self.blanks();
        match self.peek() {
            None => return Ok(()),
            Some(b'#') => self.at += 1,
            Some(_) => return Err("text after the time stamp"),
        }
        self.blanks();
        if self.peek() != Some(b'{') {
            return Err("an exemplar without labels");
        }
        self.labels(&mut Some(Cow::Borrowed("exemplar")))?;
        self.blanks();
        number(self.word()).ok_or("the exemplar's value is no number")?;
        self.blanks();
        if self.peek().is_some() {
            number(self.word()).ok_or("the exemplar's time stamp is no number")?;
        }
        self.blanks();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err("text after the exemplar"),
        }
    }

    /// `{a="b", …}`. A quoted string without `=` is the metric's name, if it
    /// has none yet.
    fn labels(&mut self, name: &mut Option<Cow<'a, str>>) -> Result<Labels<'a>, &'static str> {
        self.at += 1;
        let mut labels: Labels<'a> = Vec::new();
        loop {
            self.blanks();
            if self.take(b'}') {
                return Ok(labels);
            }
            let quoted = self.peek() == Some(b'"');
            let key = if quoted {
                self.quoted()?
            } else {
                Cow::Borrowed(self.name(false).ok_or("a label name is missing")?)
            };
            self.blanks();
            if self.take(b'=') {
                self.blanks();
                let value = self.quoted()?;
                if labels.iter().any(|(known, _)| *known == key) {
                    return Err("a label stands twice");
                }
                labels.push((key, value));
            } else if quoted && name.is_none() && labels.is_empty() {
                *name = Some(key);
            } else {
                return Err("`=` is missing after a label name");
            }
            self.blanks();
            if !self.take(b',') && self.peek() != Some(b'}') {
                return Err("`,` or `}` is missing after a label");
            }
        }
    }

    /// A quoted string; `\\`, `\"` and `\n` are escapes, any other backslash
    /// stands for itself.
    fn quoted(&mut self) -> Result<Cow<'a, str>, &'static str> {
        if !self.take(b'"') {
            return Err("a label value does not begin with a quote");
        }
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let step = memchr::memchr2(b'"', b'\\', rest).ok_or("a quote is not closed")?;
            self.at += step;
            if rest[step] == b'"' {
                break;
            }
            escaped = true;
            // The byte after a backslash may begin a multi-byte character; its
            // other bytes are neither quotes nor backslashes.
            self.at = (self.at + 2).min(self.text.len());
        }
        let raw = &self.text[start..self.at];
        self.at += 1;
        Ok(if escaped {
            Cow::Owned(unescape(raw))
        } else {
            Cow::Borrowed(raw)
        })
    }

    fn name(&mut self, colons: bool) -> Option<&'a str> {
        let length = name_length(&self.text.as_bytes()[self.at..], colons);
        let name = &self.text[self.at..self.at + length];
        self.at += length;
        (length > 0).then_some(name)
    }

    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.find([' ', '\t']).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }
}

/// Decimal numbers, `NaN`, `Inf` with or without sign, in any case.
fn number(word: &str) -> Option<f64> {
    word.parse().ok()
}

fn unescape(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut letters = raw.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => text.push('\n'),
            Some(known @ ('\\' | '"')) => text.push(known),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(line: &str) -> Result<Sample<'_>, &'static str> {
        let mut found = lines(line);
        let sample = found.next().expect("a line").sample();
        assert!(found.next().is_none());
        sample.map_err(|error| error.reason)
    }

    fn check(line: &str, labels: &[(&str, &str)], value: f64) {
        let sample = one(line).unwrap_or_else(|reason| panic!("{line}: {reason}"));
        let found: Vec<(&str, &str)> = sample
            .labels
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
            .collect();
        assert_eq!(sample.name, "m:x_total", "{line}");
        assert_eq!(found, labels, "{line}");
        assert!(
            sample.value.total_cmp(&value).is_eq() || (sample.value.is_nan() && value.is_nan()),
            "{line}"
        );
    }

    #[test]
    fn every_spelling_of_a_sample_is_read() {
        check("m:x_total 5", &[], 5.0);
        check("  m:x_total\t1.03176e+05\r", &[], 103_176.0);
        check("m:x_total{} +Inf", &[], f64::INFINITY);
        check("m:x_total -inf 1700000000000", &[], f64::NEG_INFINITY);
        check("m:x_total {a=\"b\"} NaN", &[("a", "b")], f64::NAN);
        check("m:x_total{a=\"b\",} .5 -3", &[("a", "b")], 0.5);
        check(
            "m:x_total{ a = \"b\" , c = \"}\" , } 1e3 1.5",
            &[("a", "b"), ("c", "}")],
            1_000.0,
        );
        check("{\"m:x_total\",a=\"b\"} 5", &[("a", "b")], 5.0);
        check("{\"m:x_total\", \"a b\"=\"c\"} 5", &[("a b", "c")], 5.0);
        check("m:x_total{a=\"b\"} 5 # {t=\"#\"} 1 2.5", &[("a", "b")], 5.0);
        check("m:x_total 5 17 # {} 0.3", &[], 5.0);
        check(
            "m:x_total{a=\"\\\\\",b=\"\\\"\",c=\"\\n\",d=\"\\é\\x\"} 5",
            &[("a", "\\"), ("b", "\""), ("c", "\n"), ("d", "\\é\\x")],
            5.0,
        );
    }

    #[test]
    fn what_is_no_sample_says_why() {
        for (line, reason) in [
            ("5", "no metric name"),
            ("x", "the value is no number"),
            ("x 1e", "the value is no number"),
            ("x 1_000", "the value is no number"),
            ("x 0x10", "the value is no number"),
            ("x{a=\"b} 5", "a quote is not closed"),
            ("x{a=\"b\\", "a quote is not closed"),
            ("x{a=b} 5", "a label value does not begin with a quote"),
            ("x{a} 5", "`=` is missing after a label name"),
            ("x{\"a\"} 5", "`=` is missing after a label name"),
            (
                "x{a=\"b\" c=\"d\"} 5",
                "`,` or `}` is missing after a label",
            ),
            ("x{a=\"b\",,} 5", "a label name is missing"),
            ("x{,} 5", "a label name is missing"),
            ("x{a=\"1\",a=\"2\"} 5", "a label stands twice"),
            ("x 5 y", "the time stamp is no number"),
            ("x 5 6 7", "text after the time stamp"),
            ("x 5 # 7", "an exemplar without labels"),
            ("x 5 # {} y", "the exemplar's value is no number"),
            ("x 5 # {} 1 y", "the exemplar's time stamp is no number"),
            ("x 5 # {} 1 2 3", "text after the exemplar"),
            ("x.y 5", "the value is no number"),
        ] {
            assert_eq!(one(line), Err(reason), "{line}");
        }
    }

    #[test]
    fn comments_and_blank_lines_are_passed_over_but_counted() {
        let page = "# HELP x y\n\n \t\r\nx 1\n# EOF\n  # TYPE y z\ny 2";
        let found: Vec<_> = lines(page)
            .map(|line| (line.number(), line.name()))
            .collect();
        assert_eq!(found, [(4, Some("x")), (7, Some("y"))]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(page in "\\PC{0,200}|[a-z{}\"\\\\=,# \\n0-9.]{0,200}") {
            for line in lines(&page) {
                let (name, sample) = (line.name(), line.sample());
                if let (Some(name), Ok(sample)) = (name, sample) {
                    prop_assert_eq!(name, sample.name);
                }
            }
        }

        #[test]
        fn what_is_written_is_read_back(
            labels in proptest::collection::btree_map("[a-z_][a-z0-9_]{0,5}", "\\PC{0,9}|[\\\\\"\\n{},#]{0,9}", 0..4),
            value in any::<f64>(),
        ) {
            let written: Vec<String> = labels
                .iter()
                .map(|(key, text)| {
                    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                    format!("{key}=\"{text}\"")
                })
                .collect();
            let line = format!("x{{{}}} {value:e} # {{}} 1", written.join(","));
            let sample = one(&line).unwrap();
            let found: Vec<(String, String)> = sample
                .labels
                .iter()
                .map(|(key, text)| (key.to_string(), text.to_string()))
                .collect();
            prop_assert_eq!(found, labels.into_iter().collect::<Vec<_>>());
            prop_assert!(sample.value.total_cmp(&value).is_eq() || value.is_nan());
        }
    }
}
