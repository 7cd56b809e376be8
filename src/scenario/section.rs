//! One object of a scenario while it is read. Each key is asked for once, with
//! its rule, its default and its description; from the same calls come the
//! value, the list of known keys, the filled configuration and the JSON Schema,
//! so that they cannot differ.

use serde_json::{Map, Value, json};

use crate::scenario::json::{self, Kind, Node};
use crate::scenario::problem::{Code, Problem, Problems, join, nearest, one_of};
use crate::scenario::rule::Rule;

/// An object that is being read.
pub(super) struct Section<'n> {
    node: Option<&'n Node<'n>>,
    path: String,
    manner: Manner,
    /// Keys asked for, in order.
    known: Vec<&'static str>,
    /// Those of them that must be there.
    required: Vec<&'static str>,
    properties: Map<String, Value>,
    filled: Map<String, Value>,
    problems: Problems,
    /// When the object is in one of several modes: that mode.
    mode: Option<&'static str>,
    /// Keys of other modes, each with the modes it belongs to.
    foreign: Vec<(&'static str, Vec<&'static str>)>,
}

/// How an object is read.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// Whether unknown keys are problems.
    pub(super) strict: bool,
    /// Whether absent keys are filled with their defaults.
    pub(super) fill: bool,
}

/// What is left of an object once it is read.
pub(super) struct Finished {
    pub(super) filled: Map<String, Value>,
    pub(super) schema: Value,
    pub(super) problems: Problems,
    pub(super) known: Vec<&'static str>,
}

impl<'n> Section<'n> {
    /// Begins to read `node` (an object, or nothing) at `path`.
    pub(super) fn new(node: Option<&'n Node<'n>>, path: impl Into<String>, manner: Manner) -> Self {
        let mut section = Self {
            node,
            path: path.into(),
            manner,
            known: Vec::new(),
            required: Vec::new(),
            properties: Map::new(),
            filled: Map::new(),
            problems: Problems::default(),
            mode: None,
            foreign: Vec::new(),
        };
        if let Some(node) = node
            && !matches!(node.kind, Kind::Object(_))
        {
            let problem = Problem::new(Code::WrongType, section.path.clone(), "wrong type");
            let problem = problem.found(node.found()).expected("an object");
            section.problems.push(problem.at(Some(node.offset)));
            section.node = None;
        }
        section
    }

    /// How this object is read.
    pub(super) fn manner(&self) -> Manner {
        self.manner
    }

    /// The path of `key`.
    pub(super) fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// What stands under `key`.
    pub(super) fn node(&self, key: &str) -> Option<&'n Node<'n>> {
        self.node?.get(key)
    }

    /// A value that has a default (given as JSON).
    pub(super) fn value<R: Rule>(
        &mut self,
        key: &'static str,
        about: &str,
        rule: &R,
        default: &'static str,
    ) -> R::Output {
        self.describe(key, about, rule.schema(), Some(default));
        let read = self.read(key, rule);
        let plain = parsed(default);
        if self.node(key).is_none() && self.manner.fill {
            self.filled.insert(key.to_owned(), plain.to_value());
        }
        read.or_else(|| rule.read(&plain).ok())
            .expect("a default keeps its own rule")
    }

    /// A value that may be absent.
    pub(super) fn optional<R: Rule>(
        &mut self,
        key: &'static str,
        about: &str,
        rule: &R,
    ) -> Option<R::Output> {
        self.describe(key, about, rule.schema(), None);
        self.read(key, rule)
    }

    /// A value that must be there.
    pub(super) fn required<R: Rule>(
        &mut self,
        key: &'static str,
        about: &str,
        rule: &R,
    ) -> Option<R::Output> {
        self.required.push(key);
        if self.node(key).is_none() {
            self.missing(key, &rule.expected());
        }
        self.optional(key, about, rule)
    }

    /// Says that `key` must be there; not for what is no object at all.
    pub(super) fn missing(&mut self, key: &str, expected: &str) {
        if let Some(node) = self.node {
            let problem = Problem::new(Code::Missing, self.path_of(key), "missing");
            let problem = problem.expected(expected);
            self.problems.push(problem.at(Some(node.offset)));
        }
    }

    /// An object of its own, which may be absent.
    pub(super) fn object<T>(
        &mut self,
        key: &'static str,
        about: &str,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let mut section = Section::new(self.node(key), self.path_of(key), self.manner);
        let value = read(&mut section);
        let finished = section.finish();
        self.describe(key, about, finished.schema, None);
        self.set(key, Value::Object(finished.filled));
        self.problems.append(finished.problems);
        value
    }

    /// A list of objects that must be there and hold at least one.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        about: &str,
        read: impl Fn(&mut Section<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        const EXPECTED: &str = "a list of objects that is not empty";
        self.required.push(key);
        let mut template = Section::new(None, "", self.manner);
        let _nothing = read(&mut template);
        let items = json!({"type": "array", "minItems": 1, "items": template.finish().schema});
        self.describe(key, about, items, None);
        let Some(node) = self.node(key) else {
            self.missing(key, EXPECTED);
            return None;
        };
        self.set(key, node.to_value());
        let (code, what) = match &node.kind {
            Kind::List(items) if items.is_empty() => (Code::BadValue, "an empty list"),
            Kind::List(items) => return self.items(key, items, read),
            _ => (Code::WrongType, "wrong type"),
        };
        let problem = Problem::new(code, self.path_of(key), what);
        self.refuse(key, problem.found(node.found()).expected(EXPECTED));
        None
    }

    fn items<T>(
        &mut self,
        key: &str,
        items: &[Node<'_>],
        read: impl Fn(&mut Section<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = format!("{}[{index}]", self.path_of(key));
            let mut section = Section::new(Some(item), path, self.manner);
            values.push(read(&mut section));
            self.problems.append(section.finish().problems);
        }
        values.into_iter().collect()
    }

    /// Reads what stands under `key`, if anything does.
    pub(super) fn read<R: Rule>(&mut self, key: &str, rule: &R) -> Option<R::Output> {
        let node = self.node(key)?;
        self.filled.insert(key.to_owned(), node.to_value());
        let path = self.path_of(key);
        rule.check(node, &path, &mut self.problems)
    }

    /// Makes `key` known, with its schema.
    pub(super) fn describe(
        &mut self,
        key: &'static str,
        about: &str,
        mut schema: Value,
        default: Option<&'static str>,
    ) {
        self.known.push(key);
        schema["description"] = json!(about);
        if let Some(default) = default {
            schema["default"] = parsed(default).to_value();
        }
        self.properties.insert(key.to_owned(), schema);
    }

    /// Where the value at `path` (below this object) stands, or the nearest one
    /// above it that is there.
    pub(super) fn offset_of(&self, path: &str) -> Option<usize> {
        let mut node = self.node?;
        for key in path.split('.') {
            match node.get(key) {
                Some(below) => node = below,
                None => break,
            }
        }
        Some(node.offset)
    }

    /// Puts `value` into the filled configuration in place of what was written.
    pub(super) fn set(&mut self, key: &str, value: Value) {
        self.filled.insert(key.to_owned(), value);
    }

    /// Takes `key` out of the filled configuration.
    pub(super) fn unset(&mut self, key: &str) {
        self.filled.retain(|name, _| name != key);
    }

    /// Whether nothing was wrong under `key` so far.
    pub(super) fn sound(&self, key: &str) -> bool {
        self.problems.sound(&self.path_of(key))
    }

    /// Whether nothing was wrong at a whole path or below it so far.
    pub(super) fn sound_at(&self, path: &str) -> bool {
        self.problems.sound(path)
    }

    /// Adds a problem; without a place of its own it gets that of `key`.
    pub(super) fn refuse(&mut self, key: &str, problem: Problem) {
        let node = self.node(key).or(self.node);
        let offset = problem.offset.or(node.map(|node| node.offset));
        self.problems.push(problem.at(offset));
    }

    /// Problems found so far, to be added to.
    pub(super) fn problems(&mut self) -> &mut Problems {
        &mut self.problems
    }

    /// Names the mode this object is in, and the keys of other modes.
    pub(super) fn in_mode(
        &mut self,
        mode: Option<&'static str>,
        foreign: Vec<(&'static str, Vec<&'static str>)>,
    ) {
        self.mode = mode;
        self.foreign = foreign;
    }

    /// Refuses the keys that nobody asked for, and gives up what was gathered.
    pub(super) fn finish(mut self) -> Finished {
        if self.manner.strict
            && let Some(Kind::Object(entries)) = self.node.map(|node| &node.kind)
        {
            for (key, node) in entries {
                if !self.known.contains(&key.as_str()) {
                    let problem = self.unasked(key).at(Some(node.offset));
                    self.problems.push(problem);
                }
            }
        }
        let mut schema = json!({
            "type": "object",
            "properties": self.properties,
            "additionalProperties": false,
        });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        Finished {
            filled: self.filled,
            schema,
            problems: self.problems,
            known: self.known,
        }
    }

    /// The problem of a key that nobody asked for. Its value is not shown: it
    /// may be a secret under a misspelt name.
    fn unasked(&self, key: &str) -> Problem {
        let path = self.path_of(key);
        if let (Some(mode), Some(owners)) = (self.mode, self.owners(key)) {
            let what = format!("this key does not belong to mode `{mode}`");
            let problem = Problem::new(Code::ForeignKey, path, what).expected(self.own_keys());
            return problem.hint(format!("remove it, or use mode {}", one_of(owners)));
        }
        let problem = Problem::new(Code::UnknownKey, path, "unknown key").expected(self.own_keys());
        let known = self.known.iter().copied();
        match nearest(key, known.chain(self.foreign.iter().map(|(key, _)| *key))) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem,
        }
    }

    fn owners(&self, key: &str) -> Option<Vec<&'static str>> {
        let (_, owners) = self.foreign.iter().find(|(name, _)| *name == key)?;
        Some(owners.clone())
    }

    fn own_keys(&self) -> String {
        one_of(self.known.iter().copied())
    }
}

/// A default, given as JSON in the code.
pub(super) fn parsed(default: &'static str) -> Node<'static> {
    json::parse(default, &mut Problems::default()).expect("a default is JSON")
}
