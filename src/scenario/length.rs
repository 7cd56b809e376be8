//! Rules for input and output lengths: their modes, bounds and counts.

use serde_json::Value;

use crate::scenario::length_file::{INPUT_COLUMNS, OUTPUT_COLUMNS, lengths};
use crate::scenario::mode::{Absent, Mode};
use crate::scenario::paths::World;
use crate::scenario::problem::{Code, Problem};
use crate::scenario::rule::{Integer, ListOf, Real, Text};
use crate::scenario::section::Section;
use crate::scenario::{InputLength, LengthRange, OutputLength, TruncatedNormal};

/// Longest prompt or output, in tokens: far above any context window, and low
/// enough that sums over all requests stay within 64 bits.
pub(super) const TOKENS_MAX: u64 = 100_000_000;

/// Most requests: what the eight digits of `request-%08d` can tell apart.
pub(super) const REQUESTS_MAX: u64 = 100_000_000;

/// A length or a number of tokens.
pub(super) const TOKENS: Integer = Integer {
    min: 1,
    max: TOKENS_MAX,
};

/// A length rule as read, with what its counts must add up to checked later.
#[derive(Clone, Debug)]
pub(super) struct Lengths<T> {
    pub(super) rule: T,
    /// How many requests it speaks of, and the key that says so; `None` for any
    /// number.
    pub(super) count: Option<(u64, &'static str)>,
}

impl<T> Lengths<T> {
    fn any(rule: T) -> Self {
        Self { rule, count: None }
    }

    fn of(rule: T, count: u64, key: &'static str) -> Self {
        let count = Some((count, key));
        Self { rule, count }
    }

    /// The problem when the rule at `path` does not speak of `count` requests;
    /// `why` says where that number comes from.
    pub(super) fn miscount(&self, path: &str, count: u64, why: &str) -> Option<Problem> {
        let (found, key) = self.count.filter(|(found, _)| *found != count)?;
        let what = match key {
            "ranges" => format!("the ranges' counts add up to {found}, but {why}"),
            "path" => format!("the file has {found} rows, but {why}"),
            _ => format!("{found} lengths, but {why}"),
        };
        let problem = Problem::new(Code::CountMismatch, format!("{path}.{key}"), what);
        Some(problem.expected(format!("{count} in all")))
    }
}

impl InputLength {
    /// The shortest length the rule can give, in tokens.
    pub fn shortest(&self) -> u64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Explicit(values) => values.iter().copied().min().unwrap_or(0),
            Self::Ranges(ranges) => ranges.iter().map(|range| range.min).min().unwrap_or(0),
            Self::TruncatedNormal(normal) => normal.min,
        }
    }
}

impl OutputLength {
    /// The shortest length the rule can give, in tokens.
    pub fn shortest(&self) -> u64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Explicit(values) => values.iter().copied().min().unwrap_or(0),
            Self::Uniform { min, .. } => *min,
            Self::TruncatedNormal(normal) => normal.min,
        }
    }
}

/// Reads an input length rule.
pub(super) fn input(
    section: &mut Section<'_>,
    key: &'static str,
    absent: Absent,
    world: World<'_>,
) -> Option<Lengths<InputLength>> {
    let csv = |section: &mut Section<'_>| {
        let values = file(section, world, INPUT_COLUMNS)?;
        Some(values.map_rule(InputLength::Explicit))
    };
    let modes = [
        Mode {
            name: "fixed",
            read: &|section| Some(Lengths::any(InputLength::Fixed(fixed(section, "1024")))),
        },
        Mode {
            name: "explicit",
            read: &|section| {
                let about = "One length a request, in tokens.";
                let values = section.required("values", about, &ListOf(TOKENS))?;
                let count = values.len() as u64;
                Some(Lengths::of(InputLength::Explicit(values), count, "values"))
            },
        },
        Mode {
            name: "range",
            read: &ranges,
        },
        Mode {
            name: "truncated_normal",
            read: &|section| {
                truncated_normal(section)
                    .map(|normal| Lengths::any(InputLength::TruncatedNormal(normal)))
            },
        },
        Mode {
            name: "csv",
            read: &csv,
        },
    ];
    let about = "Rule for the prompt lengths, in tokens without special tokens.";
    section.modes(key, about, absent, &modes)
}

/// Reads an output length rule.
pub(super) fn output(
    section: &mut Section<'_>,
    key: &'static str,
    absent: Absent,
    world: World<'_>,
) -> Option<Lengths<OutputLength>> {
    let csv = |section: &mut Section<'_>| {
        let values = file(section, world, OUTPUT_COLUMNS)?;
        Some(values.map_rule(OutputLength::Explicit))
    };
    let modes = [
        Mode {
            name: "fixed",
            read: &|section| Some(Lengths::any(OutputLength::Fixed(fixed(section, "32")))),
        },
        Mode {
            name: "uniform",
            read: &|section| {
                let (min, max) = bounds(section)?;
                Some(Lengths::any(OutputLength::Uniform { min, max }))
            },
        },
        Mode {
            name: "truncated_normal",
            read: &|section| {
                truncated_normal(section)
                    .map(|normal| Lengths::any(OutputLength::TruncatedNormal(normal)))
            },
        },
        Mode {
            name: "csv",
            read: &csv,
        },
    ];
    let about = "Rule for the output limits (`max_tokens`), in tokens.";
    section.modes(key, about, absent, &modes)
}

impl Lengths<Vec<u64>> {
    fn map_rule<T>(self, rule: impl FnOnce(Vec<u64>) -> T) -> Lengths<T> {
        Lengths {
            rule: rule(self.rule),
            count: self.count,
        }
    }
}

fn fixed(section: &mut Section<'_>, default: &'static str) -> u64 {
    section.value(
        "value",
        "The same length for all, in tokens.",
        &TOKENS,
        default,
    )
}

fn bounds(section: &mut Section<'_>) -> Option<(u64, u64)> {
    let min = section.required("min", "Shortest length, in tokens.", &TOKENS);
    let max = section.required("max", "Longest length, in tokens; at least `min`.", &TOKENS);
    let (min, max) = (min?, max?);
    if max < min {
        let path = section.path_of("max");
        let problem = Problem::new(Code::OutOfRange, path, "below `min`").found(format!("`{max}`"));
        section.refuse(
            "max",
            problem.expected(format!("an integer of at least {min}")),
        );
        return None;
    }
    Some((min, max))
}

fn truncated_normal(section: &mut Section<'_>) -> Option<TruncatedNormal> {
    let bounds = bounds(section);
    let inside = bounds.map_or_else(Real::default, |(min, max)| Real {
        min: Some(min as f64),
        max: Some(max as f64),
        above: None,
    });
    let about = "Mean before cutting, within the bounds; default the middle.";
    let mean = section.optional("mean", about, &inside);
    let about = "Standard deviation before cutting; default a quarter of the width, at least 1.";
    let std = section.optional("std", about, &Real::POSITIVE);
    let (min, max) = bounds?;
    Some(TruncatedNormal {
        min,
        max,
        mean: mean.unwrap_or((min + max) as f64 / 2.0),
        std: std.unwrap_or(((max - min) as f64 / 4.0).max(1.0)),
    })
}

fn ranges(section: &mut Section<'_>) -> Option<Lengths<InputLength>> {
    let about = "Ranges, drawn from one after the other; their counts add up to the requests.";
    let ranges = section.list("ranges", about, |range| {
        let bounds = bounds(range);
        let rule = Integer {
            min: 1,
            max: REQUESTS_MAX,
        };
        let count = range.required("count", "Number of draws.", &rule);
        let (min, max) = bounds?;
        let count = usize::try_from(count?).ok()?;
        Some(LengthRange { min, max, count })
    })?;
    let count = ranges.iter().map(|range| range.count as u64).sum();
    Some(Lengths::of(InputLength::Ranges(ranges), count, "ranges"))
}

/// Lengths out of a CSV file. Without a reader they are settled elsewhere: the
/// list is empty and not counted.
fn file(
    section: &mut Section<'_>,
    world: World<'_>,
    columns: &[&str],
) -> Option<Lengths<Vec<u64>>> {
    let about = format!(
        "CSV file with a column {}.",
        crate::scenario::problem::one_of(columns.iter().copied())
    );
    let path = section.required("path", &about, &Text::NonEmptyPath)?;
    let path = world.resolve(&path);
    section.set("path", Value::String(path.to_string_lossy().into_owned()));
    let Some(read) = world.read else {
        return Some(Lengths::any(Vec::new()));
    };
    match lengths(&path, read, columns, TOKENS_MAX) {
        Ok(values) => {
            let count = values.len() as u64;
            Some(Lengths::of(values, count, "path"))
        }
        Err(mut problem) => {
            problem.path = section.path_of("path");
            section.refuse("path", *problem);
            None
        }
    }
}
