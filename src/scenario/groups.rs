//! Prefix groups: how many, how requests are dealt to them, and the rules of
//! single groups.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::scenario::json::{Kind, Node, number};
use crate::scenario::length::{self, Lengths};
use crate::scenario::mode::{Absent, Mode};
use crate::scenario::paths::World;
use crate::scenario::problem::{Code, Problem, join};
use crate::scenario::rule::{Integer, ListOf, Real, Rule};
use crate::scenario::section::{Manner, Section};
use crate::scenario::{
    Assignment, GroupOverride, GroupsConfig, InputLength, OutputLength, Selection, selection,
};
use crate::units::GroupIndex;

/// Most groups; each costs memory whether it has requests or not.
const GROUPS_MAX: u64 = 1_000_000;

/// The groups as read.
pub(super) struct Groups {
    pub(super) count: u32,
    pub(super) assignment: Option<Assignment>,
    pub(super) overrides: Vec<Override>,
}

/// The rules of one group as read.
pub(super) struct Override {
    /// Its key as written.
    pub(super) key: String,
    /// Its group; `None` for a spelling that never matches (`group-00`).
    pub(super) group: Option<GroupIndex>,
    pub(super) input: Option<Lengths<InputLength>>,
    pub(super) output: Option<Lengths<OutputLength>>,
    pub(super) selection: Option<Selection>,
}

impl Groups {
    /// The groups as later rooms see them.
    pub(super) fn resolved(self) -> GroupsConfig {
        let rules = |found: Override| {
            let rules = GroupOverride {
                input_length: found.input.map(|lengths| lengths.rule),
                output_length: found.output.map(|lengths| lengths.rule),
                corpus_selection: found.selection,
            };
            let group = found.group.filter(|group| group.0 < self.count);
            group.map(|group| (group, rules))
        };
        GroupsConfig {
            count: self.count,
            assignment: self.assignment.unwrap_or(Assignment::Uniform),
            overrides: self.overrides.into_iter().filter_map(rules).collect(),
        }
    }
}

impl Assignment {
    /// How many of `requests` each of `groups` groups gets: its quota rounded
    /// down, and what is left goes to the largest fractions, ties to the lower
    /// index. The arithmetic is the reference's (double precision), so the
    /// counts are too. Weights are one a group, at least one of them above 0.
    pub fn request_counts(&self, requests: usize, groups: u32) -> Vec<usize> {
        let weights: Vec<f64> = match self {
            Self::Uniform => vec![1.0; groups as usize],
            Self::Zipf { exponent } => (0..groups)
                .map(|index| 1.0 / libm::pow(f64::from(index) + 1.0, *exponent))
                .collect(),
            Self::Weights(weights) => weights.clone(),
        };
        // Only weights near the end of the range need scaling; elsewhere it
        // would change the last digit of a quota.
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let scale = match largest {
            1e-250..=1e250 => 1.0,
            extreme => extreme,
        };
        let total: f64 = weights.iter().map(|weight| weight / scale).sum();
        let quotas: Vec<f64> = weights
            .iter()
            .map(|weight| requests as f64 * (weight / scale) / total)
            .collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a quota is in 0..=requests, and rounding down is meant"
        )]
        let mut counts: Vec<usize> = quotas.iter().map(|quota| *quota as usize).collect();
        let dealt: usize = counts.iter().sum();
        let mut order: Vec<usize> = (0..counts.len()).collect();
        let fraction = |index: usize| quotas[index] - quotas[index].floor();
        order.sort_by(|&a, &b| fraction(b).total_cmp(&fraction(a)).then(a.cmp(&b)));
        for &index in order.iter().cycle().take(requests.saturating_sub(dealt)) {
            counts[index] += 1;
        }
        counts
    }
}

/// Reads `prefix_cache.groups`.
pub(super) fn read(section: &mut Section<'_>, world: World<'_>) -> Groups {
    let about = "Prefix groups: each has its own canonical prefix.";
    section.object("groups", about, |groups| {
        let rule = Integer {
            min: 1,
            max: GROUPS_MAX,
        };
        let count = groups.value("count", "Number of groups.", &rule, "1");
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let known_count = groups.sound("count").then_some(count);
        let assignment = assignment(groups, known_count);
        let overrides = overrides(groups, known_count, world);
        Groups {
            count,
            assignment,
            overrides,
        }
    })
}

/// A non-negative number; the reference also takes it as text.
struct Weight;

impl Rule for Weight {
    type Output = f64;

    fn expected(&self) -> String {
        "a finite number of at least 0".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]})
    }

    fn read(&self, node: &Node<'_>) -> Result<f64, Code> {
        let value = match &node.kind {
            Kind::Number(text) => number(text).and_then(|number| number.as_f64()),
            Kind::Text(text) => Some(text.trim().parse::<f64>().map_err(|_| Code::BadValue)?),
            _ => return Err(Code::WrongType),
        };
        let value = value
            .filter(|value| value.is_finite())
            .ok_or(Code::NotFinite)?;
        (value >= 0.0).then_some(value).ok_or(Code::OutOfRange)
    }
}

fn assignment(groups: &mut Section<'_>, count: Option<u32>) -> Option<Assignment> {
    let weights = |section: &mut Section<'_>| {
        let about = "One weight a group, not all of them 0.";
        let weights = section.required("weights", about, &ListOf(Weight))?;
        let total: f64 = weights.iter().sum();
        let wrong = if count.is_some_and(|count| weights.len() != count as usize) {
            let what = format!(
                "{} weights for {} groups",
                weights.len(),
                count.unwrap_or(0)
            );
            Some((Code::CountMismatch, what, "one weight a group"))
        } else if !total.is_finite() || total <= 0.0 {
            let what = format!("the weights add up to {total}");
            Some((Code::OutOfRange, what, "a finite sum above 0"))
        } else {
            None
        };
        let Some((code, what, expected)) = wrong else {
            return Some(Assignment::Weights(weights));
        };
        let problem = Problem::new(code, section.path_of("weights"), what);
        section.refuse("weights", problem.expected(expected));
        None
    };
    let modes = [
        Mode {
            name: "uniform",
            read: &|_| Some(Assignment::Uniform),
        },
        Mode {
            name: "zipf",
            read: &|section| {
                let about = "Group i gets a share proportional to 1 / (i + 1)^exponent.";
                let exponent = section.value("exponent", about, &Real::POSITIVE, "1.0");
                Some(Assignment::Zipf { exponent })
            },
        },
        Mode {
            name: "weights",
            read: &weights,
        },
    ];
    let absent = Absent {
        object: Some(r#"{"mode": "uniform"}"#),
        mode: Some("uniform"),
    };
    groups.modes(
        "assignment",
        "How requests are dealt to the groups.",
        absent,
        &modes,
    )
}

/// Reads the rules of single groups; the keys are `group-<index>`.
fn overrides(groups: &mut Section<'_>, count: Option<u32>, world: World<'_>) -> Vec<Override> {
    const KEY: &str = "overrides";
    let about = "Rules of single groups, by `group-<index>`, in place of the general ones.";
    groups.describe(
        KEY,
        about,
        overrides_schema(groups.manner(), world),
        Some("{}"),
    );
    groups.set(KEY, json!({}));
    let Some(node) = groups.node(KEY) else {
        return Vec::new();
    };
    let path = groups.path_of(KEY);
    let Kind::Object(entries) = &node.kind else {
        let problem = Problem::new(Code::WrongType, path, "wrong type");
        groups.refuse(KEY, problem.found(node.found()).expected("an object"));
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut filled = Map::new();
    for (key, node) in entries {
        let path = join(&path, key);
        let group = group_of(groups, key, node, &path, count);
        let manner = Manner {
            fill: false,
            ..groups.manner()
        };
        let mut section = Section::new(Some(node), path, manner);
        let (input, output, selection) = read_rules(&mut section, world);
        let finished = section.finish();
        filled.insert(key.clone(), Value::Object(finished.filled));
        groups.problems().append(finished.problems);
        found.push(Override {
            key: key.clone(),
            group,
            input,
            output,
            selection,
        });
    }
    groups.set(KEY, Value::Object(filled));
    found
}

fn overrides_schema(manner: Manner, world: World<'_>) -> Value {
    let mut template = Section::new(None, "", manner);
    read_rules(&mut template, world);
    json!({
        "type": "object",
        "propertyNames": {"pattern": "^group-[0-9]+$"},
        "additionalProperties": template.finish().schema,
    })
}

type Rules = (
    Option<Lengths<InputLength>>,
    Option<Lengths<OutputLength>>,
    Option<Selection>,
);

fn read_rules(section: &mut Section<'_>, world: World<'_>) -> Rules {
    let fixed = Absent {
        object: None,
        mode: Some("fixed"),
    };
    (
        length::input(section, "input_length", Absent::default(), world),
        length::output(section, "output_length", fixed, world),
        selection::read(section, "corpus_selection", None),
    )
}

/// The group that `key` names. A spelling with leading zeros is legal and never
/// matches.
fn group_of(
    groups: &mut Section<'_>,
    key: &str,
    node: &Node<'_>,
    path: &str,
    count: Option<u32>,
) -> Option<GroupIndex> {
    let digits = key.strip_prefix("group-").unwrap_or_default();
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let index = digits.parse::<u32>().ok().filter(|_| numeric);
    let inside = index.is_some_and(|index| count.is_none_or(|count| index < count));
    if !inside {
        let last = count.unwrap_or(u32::MAX).saturating_sub(1);
        let problem = Problem::new(Code::BadValue, path, "no such group");
        let problem = problem.expected(format!("`group-0` to `group-{last}`"));
        groups.problems().push(problem.at(Some(node.offset)));
        return None;
    }
    key.parse().ok()
}

/// Groups that have requests, out of `counts`.
pub(super) fn by_group(counts: &[usize]) -> BTreeMap<GroupIndex, usize> {
    (0..).map(GroupIndex).zip(counts.iter().copied()).collect()
}
