//! What is wrong with a scenario, said so that it can be mended: where, what
//! stands there, what would be right. It refuses to know what the fields mean.

use std::fmt;

/// Stable name of a kind of problem. The text of a problem may change, its code
/// may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Code {
    /// The file is no JSON, or no UTF-8.
    BadJson,
    /// A key stands twice in one object.
    DuplicateKey,
    /// A key nobody knows.
    UnknownKey,
    /// A key that belongs to another mode of its object.
    ForeignKey,
    /// A value of the wrong JSON type.
    WrongType,
    /// A value of the right type that is not allowed.
    BadValue,
    /// A number outside its range.
    OutOfRange,
    /// NaN, an infinity, or a number too large for one.
    NotFinite,
    /// A key that must be there is not.
    Missing,
    /// A list whose length does not fit.
    CountMismatch,
    /// Two settings that exclude each other.
    Conflict,
    /// A request too short for what it must hold.
    TooShort,
    /// A file that cannot be read.
    FileUnreadable,
    /// A file that can be read and holds the wrong thing.
    BadFile,
}

impl Code {
    /// The code in capitals.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadJson => "BAD_JSON",
            Self::DuplicateKey => "DUPLICATE_KEY",
            Self::UnknownKey => "UNKNOWN_KEY",
            Self::ForeignKey => "FOREIGN_KEY",
            Self::WrongType => "WRONG_TYPE",
            Self::BadValue => "BAD_VALUE",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::NotFinite => "NOT_FINITE",
            Self::Missing => "MISSING",
            Self::CountMismatch => "COUNT_MISMATCH",
            Self::Conflict => "CONFLICT",
            Self::TooShort => "TOO_SHORT",
            Self::FileUnreadable => "FILE_UNREADABLE",
            Self::BadFile => "BAD_FILE",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Line and column in the scenario file, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

impl Position {
    /// The position of byte `offset` of `text`.
    fn of(text: &str, offset: usize) -> Self {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let is_letter = |byte: &&u8| **byte & 0xC0 != 0x80;
        Self {
            line: memchr::memchr_iter(b'\n', before).count() + 1,
            column: before[start..].iter().filter(is_letter).count() + 1,
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its kind.
    pub code: Code,
    /// Where, as a path of keys: `requests.input_length.ranges[1].max`; empty
    /// for the document as a whole.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// What stands there, shortened; `None` where there is nothing to show or
    /// it may be a secret.
    pub found: Option<String>,
    /// What would be right; empty when `what` says it all.
    pub expected: String,
    /// A way out.
    pub hint: Option<String>,
    /// Place in the file, when the problem has one.
    pub position: Option<Position>,
    /// Byte offset in the file, from which the position is derived.
    pub(super) offset: Option<usize>,
}

impl Problem {
    /// A problem at `path`.
    pub(super) fn new(code: Code, path: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            code,
            path: path.into(),
            what: what.into(),
            found: None,
            expected: String::new(),
            hint: None,
            position: None,
            offset: None,
        }
    }

    /// Says what would be right.
    pub(super) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = expected.into();
        self
    }

    /// Says what stands there.
    pub(super) fn found(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    /// Says a way out.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says where in the file.
    pub(super) fn at(mut self, offset: Option<usize>) -> Self {
        self.offset = offset;
        self
    }
}

/// One line: path, what is wrong, what stands there and where, what would be
/// right. The hint is not part of it.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)?;
        let found = self.found.as_ref().map(|found| format!("found {found}"));
        let place = self
            .position
            .map(|at| format!("line {}:{}", at.line, at.column));
        let aside: Vec<String> = found.into_iter().chain(place).collect();
        if !aside.is_empty() {
            write!(f, " ({})", aside.join(", "))?;
        }
        if !self.expected.is_empty() {
            write!(f, "; expected {}", self.expected)?;
        }
        Ok(())
    }
}

/// Everything that is wrong with a scenario, in the order of the file. As an
/// error it holds at least one problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    pub(super) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether nothing is wrong at `path` or below it.
    pub(super) fn sound(&self, path: &str) -> bool {
        !self.0.iter().any(|problem| is_within(&problem.path, path))
    }

    /// Only those that `counts` holds for.
    pub(super) fn filtered(mut self, counts: &dyn Fn(&Problem) -> bool) -> Self {
        self.0.retain(counts);
        self
    }

    /// Takes the places away, for a document that no user has before them.
    pub(super) fn without_positions(mut self) -> Self {
        for problem in &mut self.0 {
            problem.position = None;
        }
        self
    }

    /// Derives the positions from `text` and puts all into the file's order.
    pub(super) fn located(mut self, text: &str) -> Self {
        for problem in &mut self.0 {
            problem.position = problem.offset.map(|offset| Position::of(text, offset));
        }
        self.0
            .sort_by_key(|problem| (problem.offset.is_none(), problem.offset));
        self
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Problems that are shown; a list of lengths can hold any number.
const SHOWN_MAX: usize = 100;

/// One line a problem, `CODE: path: …`, each followed by its `hint: …` line; the
/// first hundred of them.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(SHOWN_MAX).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}: {problem}", problem.code)?;
            if let Some(hint) = &problem.hint {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        match self.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Problems {}

/// Whether `path` is `above`, or lies below it.
pub(super) fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// `parent.key`, or `parent["key"]` for a key that would blur the path.
pub(super) fn join(parent: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter));
    match (parent.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{parent}.{key}"),
        (_, false) => format!("{parent}[{}]", shown(key)),
    }
}

/// `text` as a JSON string of at most 60 characters on one line.
pub(super) fn shown(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    let mut short: String = text.chars().take(CHARACTERS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    serde_json::Value::String(short).to_string()
}

/// `text` on one line: control characters are escaped.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

/// The known key that `key` was most likely meant to be, if one is near.
pub(super) fn nearest<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const SIMILARITY_MIN: f64 = 0.8;
    let key = key.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&key, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate)
}

/// `a`, `b` or `c`, each in backticks.
pub(super) fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_with_its_place() {
        let problem = Problem::new(Code::OutOfRange, "requests.count", "out of range")
            .found("`0`")
            .expected("an integer of at least 1")
            .at(Some(9));
        let problems = Problems::from(problem).located("{\n  \"ü\": 0}");
        assert_eq!(
            problems.to_string(),
            "OUT_OF_RANGE: requests.count: out of range (found `0`, line 2:7); \
             expected an integer of at least 1"
        );
    }

    #[test]
    fn a_flood_of_problems_is_cut() {
        let mut problems = Problems::default();
        for index in 0..103 {
            problems.push(Problem::new(
                Code::OutOfRange,
                format!("a[{index}]"),
                "wrong",
            ));
        }
        let shown = problems.to_string();
        assert_eq!(shown.lines().count(), 101);
        assert!(
            shown.ends_with("OUT_OF_RANGE: a[99]: wrong\nand 3 more"),
            "{shown}"
        );
    }

    #[test]
    fn a_path_is_sound_unless_it_or_something_below_is_wrong() {
        let problems = Problems::from(Problem::new(Code::Missing, "a.b[1].c", "missing"));
        for wrong in ["a", "a.b", "a.b[1]", "a.b[1].c"] {
            assert!(!problems.sound(wrong), "{wrong}");
        }
        for sound in ["a.bc", "b", "a.b[1].c.d", "a.b[1].cd"] {
            assert!(problems.sound(sound), "{sound}");
        }
    }

    #[test]
    fn odd_keys_cannot_forge_a_path_or_a_line() {
        assert_eq!(join("a", "b-1"), "a.b-1");
        assert_eq!(join("a", "b.c\nd"), "a[\"b.c\\nd\"]");
        assert_eq!(join("", ""), "[\"\"]");
    }

    #[test]
    fn the_nearest_key_is_near() {
        let known = ["seed_blocks", "mode", "order"];
        assert_eq!(nearest("seed_block", known), Some("seed_blocks"));
        assert_eq!(nearest("SeedBlocks", known), Some("seed_blocks"));
        assert_eq!(nearest("zz", known), None);
    }
}
