//! What a single value may be: each rule reads it, says in words what it
//! expects, and says the same in JSON Schema.

use serde_json::{Number, Value, json};

use crate::rng::Seed;
use crate::scenario::json::{self, Kind, Node};
use crate::scenario::length_file::python_integer;
use crate::scenario::problem::{Code, Problem, Problems, nearest, one_of};

/// What a single value may be.
pub(super) trait Rule {
    /// What it is read into.
    type Output;

    /// What is expected, as it follows the word "expected".
    fn expected(&self) -> String;

    /// The same as a JSON Schema.
    fn schema(&self) -> Value;

    /// Reads a value, or says which kind of problem it is.
    fn read(&self, node: &Node<'_>) -> Result<Self::Output, Code>;

    /// A way out for a value that is refused.
    fn hint(&self, node: &Node<'_>) -> Option<String> {
        let _ = node;
        None
    }

    /// Reads the value at `path`; what is wrong goes into `problems`.
    fn check(&self, node: &Node<'_>, path: &str, problems: &mut Problems) -> Option<Self::Output> {
        self.read(node)
            .map_err(|code| problems.push(refusal(self, node, path, code)))
            .ok()
    }
}

/// The problem of a value that its rule refuses.
fn refusal<R: Rule + ?Sized>(rule: &R, node: &Node<'_>, path: &str, code: Code) -> Problem {
    let what = match code {
        Code::WrongType => "wrong type",
        Code::OutOfRange => "out of range",
        Code::NotFinite => "not a finite number",
        _ => "not allowed here",
    };
    let mut problem = Problem::new(code, path, what);
    problem.hint = rule.hint(node);
    problem
        .found(node.found())
        .expected(rule.expected())
        .at(Some(node.offset))
}

/// An integer in `min..=max`, written as one.
#[derive(Clone, Copy)]
pub(super) struct Integer {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Rule for Integer {
    type Output = u64;

    fn expected(&self) -> String {
        format!("an integer from {} to {}", self.min, self.max)
    }

    fn schema(&self) -> Value {
        json!({"type": "integer", "minimum": self.min, "maximum": self.max})
    }

    fn read(&self, node: &Node<'_>) -> Result<u64, Code> {
        let value = integer_text(node)?.parse().map_err(|_| Code::OutOfRange)?;
        let inside = (self.min..=self.max).contains(&value);
        inside.then_some(value).ok_or(Code::OutOfRange)
    }

    fn hint(&self, node: &Node<'_>) -> Option<String> {
        let text = match &node.kind {
            Kind::Number(text) => text,
            Kind::Text(text) => text.as_str(),
            _ => return None,
        };
        let value = text.parse::<f64>().ok()?;
        let whole = value.fract() == 0.0 && (self.min as f64..=self.max as f64).contains(&value);
        whole.then(|| format!("write `{value}`"))
    }
}

/// The text of a number that is written as an integer; `-0` reads `0`.
fn integer_text<'t>(node: &Node<'t>) -> Result<&'t str, Code> {
    match node.kind {
        Kind::Number("-0") => Ok("0"),
        Kind::Number(text) if json::is_integer(text) => Ok(text),
        _ => Err(Code::WrongType),
    }
}

/// An integer, or text that Python's `int()` takes for one: the reference casts
/// some values that way.
pub(super) fn cast_integer(node: &Node<'_>) -> Result<u64, Code> {
    let value = match &node.kind {
        Kind::Text(text) => python_integer(text).ok_or(Code::BadValue)?,
        _ => integer_text(node)?.parse().map_err(|_| Code::OutOfRange)?,
    };
    u64::try_from(value).map_err(|_| Code::OutOfRange)
}

/// The schema of [`cast_integer`].
pub(super) fn cast_integer_schema() -> Value {
    json!({"anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": "^\\s*\\+?[0-9]+(_[0-9]+)*\\s*$"},
    ]})
}

/// Whether `text` is an integer as JSON writes it.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// An integer of any size and sign, together with how it is written again: as
/// text where it does not fit 64 bits, because JSON values here hold no more.
pub(super) struct AnyInteger {
    /// Whether that text is accepted, too.
    pub(super) as_text: bool,
}

impl Rule for AnyInteger {
    type Output = (Seed, Value);

    fn expected(&self) -> String {
        "an integer".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"type": "integer"})
    }

    fn read(&self, node: &Node<'_>) -> Result<Self::Output, Code> {
        let text = match &node.kind {
            Kind::Text(text) if self.as_text && is_decimal(text) => text,
            _ => integer_text(node)?,
        };
        let held = text.parse::<i64>().map(Value::from);
        let held = held.or_else(|_| text.parse::<u64>().map(Value::from));
        let written = held.unwrap_or_else(|_| Value::String(text.to_owned()));
        Ok((Seed::from_decimal(text), written))
    }
}

/// A finite number; `above` is exclusive, the others are inclusive.
#[derive(Clone, Copy, Default)]
pub(super) struct Real {
    pub(super) above: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
}

impl Real {
    pub(super) const POSITIVE: Self = Self {
        above: Some(0.0),
        min: None,
        max: None,
    };

    fn holds(&self, value: f64) -> bool {
        self.above.is_none_or(|bound| value > bound)
            && self.min.is_none_or(|bound| value >= bound)
            && self.max.is_none_or(|bound| value <= bound)
    }
}

impl Rule for Real {
    type Output = f64;

    fn expected(&self) -> String {
        let bounds = [
            self.above.map(|bound| format!("above {bound}")),
            self.min.map(|bound| format!("at least {bound}")),
            self.max.map(|bound| format!("at most {bound}")),
        ];
        let bounds: Vec<String> = bounds.into_iter().flatten().collect();
        match bounds.join(" and ") {
            none if none.is_empty() => "a finite number".to_owned(),
            bounds => format!("a finite number, {bounds}"),
        }
    }

    fn schema(&self) -> Value {
        let mut schema = json!({"type": "number"});
        let bounds = [
            ("exclusiveMinimum", self.above),
            ("minimum", self.min),
            ("maximum", self.max),
        ];
        for (name, bound) in bounds {
            if let Some(bound) = bound {
                schema[name] = plain_number(bound);
            }
        }
        schema
    }

    fn read(&self, node: &Node<'_>) -> Result<f64, Code> {
        let Kind::Number(text) = node.kind else {
            return Err(Code::WrongType);
        };
        let number = json::number(text).ok_or(Code::NotFinite)?;
        let value = number.as_f64().ok_or(Code::NotFinite)?;
        self.holds(value).then_some(value).ok_or(Code::OutOfRange)
    }
}

/// A bound as JSON, whole numbers without a point.
fn plain_number(bound: f64) -> Value {
    json::number(&bound.to_string()).map_or(Value::Null, Value::Number)
}

/// A [`Real`] together with the number as it was written.
pub(super) struct Written(pub(super) Real);

impl Rule for Written {
    type Output = (f64, Number);

    fn expected(&self) -> String {
        self.0.expected()
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }

    fn read(&self, node: &Node<'_>) -> Result<Self::Output, Code> {
        let value = self.0.read(node)?;
        let Kind::Number(text) = node.kind else {
            return Err(Code::WrongType);
        };
        Ok((value, json::number(text).ok_or(Code::NotFinite)?))
    }
}

/// `true` or `false`.
pub(super) struct Flag;

impl Rule for Flag {
    type Output = bool;

    fn expected(&self) -> String {
        "true or false".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"type": "boolean"})
    }

    fn read(&self, node: &Node<'_>) -> Result<bool, Code> {
        match node.kind {
            Kind::Flag(flag) => Ok(flag),
            _ => Err(Code::WrongType),
        }
    }
}

/// A string.
#[derive(Clone, Copy)]
pub(super) enum Text {
    /// Any text.
    Any,
    /// With a character that is no white space.
    NonBlank,
    /// A file name or path: no NUL.
    Path,
    /// A path that names something.
    NonEmptyPath,
}

impl Rule for Text {
    type Output = String;

    fn expected(&self) -> String {
        match self {
            Self::Any => "a string",
            Self::NonBlank => "a string that is not blank",
            Self::Path => "a path",
            Self::NonEmptyPath => "a path that is not empty",
        }
        .to_owned()
    }

    fn schema(&self) -> Value {
        match self {
            Self::Any | Self::Path => json!({"type": "string"}),
            Self::NonBlank => json!({"type": "string", "pattern": "\\S"}),
            Self::NonEmptyPath => json!({"type": "string", "minLength": 1}),
        }
    }

    fn read(&self, node: &Node<'_>) -> Result<String, Code> {
        let Kind::Text(text) = &node.kind else {
            return Err(Code::WrongType);
        };
        let allowed = match self {
            Self::Any => true,
            Self::NonBlank => !text.trim().is_empty(),
            Self::Path => !text.contains('\0'),
            Self::NonEmptyPath => !text.is_empty() && !text.contains('\0'),
        };
        allowed.then(|| text.clone()).ok_or(Code::BadValue)
    }
}

/// One of a few names.
pub(super) struct Choice<'c, T>(pub(super) &'c [(&'static str, T)]);

impl<T: Clone> Choice<'_, T> {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }
}

impl<T: Clone> Rule for Choice<'_, T> {
    type Output = T;

    fn expected(&self) -> String {
        one_of(self.names())
    }

    fn schema(&self) -> Value {
        json!({"enum": self.names().collect::<Vec<_>>()})
    }

    fn read(&self, node: &Node<'_>) -> Result<T, Code> {
        let Kind::Text(text) = &node.kind else {
            return Err(Code::WrongType);
        };
        let chosen = self.0.iter().find(|(name, _)| name == text);
        chosen.map(|(_, value)| value.clone()).ok_or(Code::BadValue)
    }

    fn hint(&self, node: &Node<'_>) -> Option<String> {
        let Kind::Text(text) = &node.kind else {
            return None;
        };
        nearest(text, self.names()).map(|name| format!("did you mean `{name}`?"))
    }
}

/// Exactly this value.
pub(super) struct Fixed(pub(super) Value);

impl Rule for Fixed {
    type Output = ();

    fn expected(&self) -> String {
        format!("`{}`", self.0)
    }

    fn schema(&self) -> Value {
        json!({"const": self.0})
    }

    fn read(&self, node: &Node<'_>) -> Result<(), Code> {
        (node.to_value() == self.0)
            .then_some(())
            .ok_or(Code::BadValue)
    }
}

/// `null`, or what the rule says.
pub(super) struct OrNull<R>(pub(super) R);

impl<R: Rule> Rule for OrNull<R> {
    type Output = Option<R::Output>;

    fn expected(&self) -> String {
        format!("null or {}", self.0.expected())
    }

    fn schema(&self) -> Value {
        json!({"anyOf": [{"type": "null"}, self.0.schema()]})
    }

    fn read(&self, node: &Node<'_>) -> Result<Self::Output, Code> {
        match node.kind {
            Kind::Null => Ok(None),
            _ => self.0.read(node).map(Some),
        }
    }

    fn hint(&self, node: &Node<'_>) -> Option<String> {
        self.0.hint(node)
    }
}

/// A list with at least one item, each as the rule says.
pub(super) struct ListOf<R>(pub(super) R);

impl<R: Rule> Rule for ListOf<R> {
    type Output = Vec<R::Output>;

    fn expected(&self) -> String {
        "a list that is not empty".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"type": "array", "minItems": 1, "items": self.0.schema()})
    }

    fn read(&self, node: &Node<'_>) -> Result<Self::Output, Code> {
        match &node.kind {
            Kind::List(items) if items.is_empty() => Err(Code::BadValue),
            Kind::List(items) => items.iter().map(|item| self.0.read(item)).collect(),
            _ => Err(Code::WrongType),
        }
    }

    fn check(&self, node: &Node<'_>, path: &str, problems: &mut Problems) -> Option<Self::Output> {
        let items = match &node.kind {
            Kind::List(items) if items.is_empty() => Err(Code::BadValue),
            Kind::List(items) => Ok(items),
            _ => Err(Code::WrongType),
        };
        let items = items
            .map_err(|code| problems.push(refusal(self, node, path, code)))
            .ok()?;
        let read: Vec<Option<R::Output>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| self.0.check(item, &format!("{path}[{index}]"), problems))
            .collect();
        read.into_iter().collect()
    }
}
