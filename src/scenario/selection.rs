//! Which corpus records a group draws its text from.

use serde_json::{Value, json};

use crate::scenario::Selection;
use crate::scenario::json::{Kind, Node};
use crate::scenario::mode::{Absent, Mode};
use crate::scenario::problem::{Code, Problem, Problems};
use crate::scenario::rule::{ListOf, Rule, cast_integer, cast_integer_schema};
use crate::scenario::section::Section;

/// A zero-based line of the corpus; the reference also takes it as text.
#[derive(Clone, Copy)]
struct LineIndex;

impl Rule for LineIndex {
    type Output = u64;

    fn expected(&self) -> String {
        "a line number from 0".to_owned()
    }

    fn schema(&self) -> Value {
        cast_integer_schema()
    }

    fn read(&self, node: &Node<'_>) -> Result<u64, Code> {
        cast_integer(node)
    }
}

/// The SHA-256 of a record's normalized text.
#[derive(Clone, Copy)]
struct Digest;

impl Rule for Digest {
    type Output = String;

    fn expected(&self) -> String {
        "a SHA-256 as 64 lowercase hex digits".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"type": "string", "pattern": "^[0-9a-f]{64}$"})
    }

    fn read(&self, node: &Node<'_>) -> Result<String, Code> {
        let Kind::Text(text) = &node.kind else {
            return Err(Code::WrongType);
        };
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let sound = text.len() == 64 && text.bytes().all(hex);
        sound.then(|| text.clone()).ok_or(Code::BadValue)
    }
}

/// A list that may be empty, as long as another one is not.
struct Perhaps<R>(R);

impl<R: Rule + Copy> Rule for Perhaps<R> {
    type Output = Vec<R::Output>;

    fn expected(&self) -> String {
        "a list".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"type": "array", "items": self.0.schema()})
    }

    fn read(&self, node: &Node<'_>) -> Result<Self::Output, Code> {
        match &node.kind {
            Kind::List(items) if items.is_empty() => Ok(Vec::new()),
            _ => ListOf(self.0).read(node),
        }
    }

    fn check(&self, node: &Node<'_>, path: &str, problems: &mut Problems) -> Option<Self::Output> {
        match &node.kind {
            Kind::List(items) if items.is_empty() => Some(Vec::new()),
            _ => ListOf(self.0).check(node, path, problems),
        }
    }
}

const INDICES: &str = "Zero-based lines of the corpus, used in turn.";
const DIGESTS: &str = "SHA-256 of the records' normalized texts, used in turn.";

/// Reads a selection.
pub(super) fn read(
    section: &mut Section<'_>,
    key: &'static str,
    absent: Option<&'static str>,
) -> Option<Selection> {
    let modes = [
        Mode {
            name: "random",
            read: &|_| Some(Selection::Random),
        },
        Mode {
            name: "indices",
            read: &|section| {
                one_list(section, "indices", INDICES, LineIndex).map(Selection::Indices)
            },
        },
        Mode {
            name: "question_sha256",
            read: &|section| {
                one_list(section, "question_sha256", DIGESTS, Digest).map(Selection::QuestionSha256)
            },
        },
        Mode {
            name: "mixed",
            read: &mixed,
        },
    ];
    let absent = Absent {
        object: absent,
        mode: Some("random"),
    };
    section.modes(
        key,
        "Which corpus records to draw text from.",
        absent,
        &modes,
    )
}

/// The list under `values`, else under `name`; one of them must hold something.
fn one_list<R: Rule + Copy>(
    section: &mut Section<'_>,
    name: &'static str,
    about: &str,
    rule: R,
) -> Option<Vec<R::Output>> {
    let values = section.optional("values", about, &Perhaps(rule));
    let about = format!("{about} Counts when `values` is absent or empty.");
    let named = section.optional(name, &about, &Perhaps(rule));
    let chosen = values.filter(|list| !list.is_empty()).or(named);
    let chosen = chosen.filter(|list| !list.is_empty());
    if chosen.is_none() && section.sound("values") && section.sound(name) {
        empty(
            section,
            "values",
            format!("at least one item in `values` or `{name}`"),
        );
    }
    chosen
}

fn mixed(section: &mut Section<'_>) -> Option<Selection> {
    let indices = section.optional("indices", INDICES, &Perhaps(LineIndex));
    let digests = section.optional("question_sha256", DIGESTS, &Perhaps(Digest));
    let (indices, digests) = (indices.unwrap_or_default(), digests.unwrap_or_default());
    let sound = section.sound("indices") && section.sound("question_sha256");
    if sound && indices.is_empty() && digests.is_empty() {
        empty(
            section,
            "indices",
            "at least one item in `indices` or `question_sha256`".to_owned(),
        );
        return None;
    }
    sound.then_some(Selection::Mixed {
        indices,
        question_sha256: digests,
    })
}

fn empty(section: &mut Section<'_>, key: &str, expected: String) {
    let problem = Problem::new(
        Code::Missing,
        section.path_of(key),
        "the selection is empty",
    );
    section.refuse(key, problem.expected(expected));
}
