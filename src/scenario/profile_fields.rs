//! Typed reading of one TOML table that collects what is wrong with it. It
//! knows no profile.

use std::fmt;
use std::time::Duration;

use toml::{Table, Value};

/// Longest duration that can be written: thirty days.
const DURATION_MAX: Duration = Duration::from_secs(30 * 86_400);

/// How similar a known key must be to be named as a hint (Jaro–Winkler).
const SIMILARITY_MIN: f64 = 0.75;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileProblem {
    /// Where, e.g. `stages[1].rate`.
    pub path: String,
    /// What stands there and what would be right.
    pub message: String,
    /// A way out.
    pub hint: Option<String>,
}

impl fmt::Display for ProfileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML, or a key twice.
    #[error("the profile is not valid TOML: {0}")]
    Syntax(String),
    /// Everything that is wrong with it.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Problems(Vec<ProfileProblem>),
}

impl ProfileError {
    /// The parser's words with the place, on one line.
    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let place = error.span().and_then(|span| text.get(..span.start));
        let place = place.map_or_else(String::new, |before| {
            let line = before.matches('\n').count() + 1;
            let column = before
                .rsplit('\n')
                .next()
                .map_or(0, |row| row.chars().count())
                + 1;
            format!(" (line {line}:{column})")
        });
        let words = error.message().split_whitespace();
        Self::Syntax(format!("{}{place}", words.collect::<Vec<_>>().join(" ")))
    }
}

/// One table and the problems found so far.
pub(super) struct Fields<'a, 'p> {
    table: &'a Table,
    path: String,
    problems: &'p mut Vec<ProfileProblem>,
}

impl<'a, 'p> Fields<'a, 'p> {
    /// The fields of `table`, which stands at `path`.
    pub(super) fn new(
        table: &'a Table,
        path: String,
        problems: &'p mut Vec<ProfileProblem>,
    ) -> Self {
        Self {
            table,
            path,
            problems,
        }
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.table.get(key)
    }

    /// Notes a problem at `key`.
    pub(super) fn problem(&mut self, key: &str, message: &str, hint: Option<&str>) {
        let path = if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        };
        self.problems.push(ProfileProblem {
            path,
            message: message.to_owned(),
            hint: hint.map(ToOwned::to_owned),
        });
    }

    /// Refuses keys that are not `allowed`; `others` are keys that another mode
    /// knows, with its name.
    pub(super) fn only(&mut self, allowed: &[&str], others: &[(&str, &str)]) {
        for key in self.table.keys() {
            if allowed.contains(&key.as_str()) {
                continue;
            }
            if let Some((_, mode)) = others.iter().find(|(other, _)| other == key) {
                self.problem(key, &format!("belongs to `mode = \"{mode}\"`"), None);
                continue;
            }
            let hint = nearest(key, allowed).map(|known| format!("did you mean `{known}`?"));
            self.problem(key, "is not a known key", hint.as_deref());
        }
    }

    /// A whole number of at least `min`, if the key is there.
    pub(super) fn count(&mut self, key: &str, min: u64) -> Option<usize> {
        let value = self.get(key)?;
        let count = value
            .as_integer()
            .and_then(|number| u64::try_from(number).ok())
            .filter(|number| *number >= min)
            .and_then(|number| usize::try_from(number).ok());
        if count.is_none() {
            let message = format!(
                "is {}; a whole number of at least {min} is needed",
                shown(value)
            );
            self.problem(key, &message, None);
        }
        count
    }

    /// A whole number of at least 1, which must be there.
    pub(super) fn required_count(&mut self, key: &str) -> Option<usize> {
        self.require(key)?;
        self.count(key, 1)
    }

    /// Narrows a count.
    pub(super) fn fits_u32(&mut self, key: &str, count: usize) -> Option<u32> {
        let narrow = u32::try_from(count).ok();
        if narrow.is_none() {
            self.problem(
                key,
                &format!("is {count}; at most {} is possible", u32::MAX),
                None,
            );
        }
        narrow
    }

    /// `true` or `false`, if the key is there.
    pub(super) fn boolean(&mut self, key: &str) -> Option<bool> {
        let value = self.get(key)?;
        if value.as_bool().is_none() {
            let message = format!("is {}; true or false is needed", shown(value));
            self.problem(key, &message, None);
        }
        value.as_bool()
    }

    /// A number that is `right`, which must be there.
    pub(super) fn required_number(
        &mut self,
        key: &str,
        right: impl Fn(f64) -> bool,
        wanted: &str,
    ) -> Option<f64> {
        let value = self.require(key)?;
        let number = match value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        let number = number.filter(|number| right(*number));
        if number.is_none() {
            let message = format!("is {}; {wanted} is needed", shown(value));
            self.problem(key, &message, None);
        }
        number
    }

    /// A text, which must be there.
    pub(super) fn required_text(&mut self, key: &str) -> Option<&'a str> {
        let value = self.require(key)?;
        if value.as_str().is_none() {
            self.problem(key, &format!("is {}; a text is needed", shown(value)), None);
        }
        value.as_str()
    }

    /// One of `choices`, which must be there.
    pub(super) fn choice(&mut self, key: &str, choices: &[&'static str]) -> Option<&'static str> {
        let text = self.required_text(key)?;
        let found = choices.iter().find(|choice| **choice == text).copied();
        if found.is_none() {
            let message = format!("is \"{text}\"; one of {} is needed", choices.join(", "));
            let hint = nearest(text, choices).map(|near| format!("did you mean `{near}`?"));
            self.problem(key, &message, hint.as_deref());
        }
        found
    }

    /// A duration, if the key is there: seconds as a number, or a text such as
    /// `1m30s`.
    pub(super) fn duration(&mut self, key: &str) -> Option<Duration> {
        let value = self.get(key)?;
        let duration = match value {
            Value::Integer(seconds) => parse_duration(&format!("{seconds}s")),
            Value::Float(seconds) => seconds_to_duration(*seconds),
            Value::String(text) => parse_duration(text),
            _ => None,
        };
        if duration.is_none() {
            let message = format!(
                "is {}; seconds or a text such as \"1m30s\" is needed, at most 30 days",
                shown(value)
            );
            self.problem(key, &message, None);
        }
        duration
    }

    fn require(&mut self, key: &str) -> Option<&'a Value> {
        let value = self.get(key);
        if value.is_none() {
            self.problem(key, "is missing", None);
        }
        value
    }
}

/// Reads `1h2m3.5s` and the like: numbers with a unit, each unit at most once,
/// from large to small.
fn parse_duration(text: &str) -> Option<Duration> {
    let units = [("h", 3_600.0), ("ms", 0.001), ("m", 60.0), ("s", 1.0)];
    let mut rest = text.trim();
    let mut seconds = 0.0;
    let mut smallest = f64::INFINITY;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let (unit, scale) = units
            .iter()
            .find(|(unit, _)| rest[digits..].starts_with(unit))?;
        if *scale >= smallest {
            return None;
        }
        smallest = *scale;
        seconds += number * scale;
        rest = &rest[digits + unit.len()..];
    }
    (smallest < f64::INFINITY)
        .then_some(seconds)
        .and_then(seconds_to_duration)
}

fn seconds_to_duration(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    (duration <= DURATION_MAX).then_some(duration)
}

fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(key, known), *known))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_strictly() {
        let ms = |text| parse_duration(text).map(|duration| duration.as_millis());
        for (text, expected) in [
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("1h", 3_600_000),
            ("2m500ms", 120_500),
            ("0s", 0),
        ] {
            assert_eq!(ms(text), Some(expected), "{text}");
        }
        for wrong in [
            "", "5", "s", "5x", "-1s", "1s1m", "1s1s", "1.2.3s", "800h", "1e3s",
        ] {
            assert_eq!(ms(wrong), None, "{wrong}");
        }
    }
}
