//! Objects that are told by their `mode` key. Each mode has keys of its own;
//! those of another mode are refused, because they would be ignored without a
//! word. Filled configurations keep such objects as they were written.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::scenario::problem::Code;
use crate::scenario::rule::{Choice, Rule as _};
use crate::scenario::section::{Finished, Manner, Section, parsed};

/// One mode of an object.
pub(super) struct Mode<'m, T> {
    /// Its name.
    pub(super) name: &'static str,
    /// Reads the other keys; nothing when they are wrong.
    pub(super) read: &'m dyn Fn(&mut Section<'_>) -> Option<T>,
}

/// What stands in for what is absent.
#[derive(Clone, Copy, Default)]
pub(super) struct Absent {
    /// For the whole object, as JSON.
    pub(super) object: Option<&'static str>,
    /// For its `mode` alone.
    pub(super) mode: Option<&'static str>,
}

impl Section<'_> {
    /// An object told by its `mode` key; `None` when it is absent without a
    /// default, or wrong.
    pub(super) fn modes<T>(
        &mut self,
        key: &'static str,
        about: &str,
        absent: Absent,
        modes: &[Mode<'_, T>],
    ) -> Option<T> {
        let plain = absent.object.map(parsed);
        let path = self.path_of(key);
        let branches: Vec<Finished> = modes.iter().map(|mode| dry_run(mode, &path)).collect();
        let schema = schema(modes, &branches, absent.mode);
        self.describe(key, about, schema, absent.object);
        let written = self.node(key);
        let node = written.or(plain.as_ref())?;
        let manner = Manner {
            fill: false,
            ..self.manner()
        };
        let mut section = Section::new(Some(node), path, manner);
        let at = section.mode_index(absent.mode, modes);
        let value = at.and_then(|at| (modes[at].read)(&mut section));
        section.in_mode(at.map(|at| modes[at].name), owners(modes, &branches));
        if at.is_none() {
            section.forgive_keys(&branches);
        }
        let finished = section.finish();
        if written.is_some() || self.manner().fill {
            self.set(key, Value::Object(finished.filled));
        }
        let usable = finished
            .problems
            .iter()
            .all(|problem| matches!(problem.code, Code::UnknownKey | Code::ForeignKey));
        self.problems().append(finished.problems);
        value.filter(|_| usable)
    }

    /// Index of the mode that this object is in.
    fn mode_index<T>(&mut self, default: Option<&str>, modes: &[Mode<'_, T>]) -> Option<usize> {
        let names: Vec<(&'static str, usize)> = modes
            .iter()
            .enumerate()
            .map(|(index, mode)| (mode.name, index))
            .collect();
        let rule = Choice(&names);
        self.describe("mode", "", Value::Object(Map::new()), None);
        match (self.node("mode"), default) {
            (Some(_), _) => self.read("mode", &rule),
            (None, Some(default)) => modes.iter().position(|mode| mode.name == default),
            (None, None) => {
                self.missing_mode(&names);
                None
            }
        }
    }

    fn missing_mode(&mut self, names: &[(&'static str, usize)]) {
        self.missing("mode", &Choice(names).expected());
    }

    /// Where the mode is unknown nothing can be said about the keys of any.
    fn forgive_keys(&mut self, branches: &[Finished]) {
        let keys: BTreeSet<&'static str> = branches
            .iter()
            .flat_map(|branch| branch.known.iter().copied())
            .collect();
        for key in keys {
            self.describe(key, "", Value::Object(Map::new()), None);
        }
    }
}

/// Reads a mode from nothing, to learn its keys and schema.
fn dry_run<T>(mode: &Mode<'_, T>, path: &str) -> Finished {
    let manner = Manner {
        strict: false,
        fill: false,
    };
    let mut section = Section::new(None, path, manner);
    let _nothing: Option<T> = (mode.read)(&mut section);
    section.finish()
}

/// Each key of any mode with the modes it belongs to.
fn owners<T>(
    modes: &[Mode<'_, T>],
    branches: &[Finished],
) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut owners: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    for (mode, branch) in modes.iter().zip(branches) {
        for key in &branch.known {
            match owners.iter_mut().find(|(name, _)| name == key) {
                Some((_, names)) => names.push(mode.name),
                None => owners.push((key, vec![mode.name])),
            }
        }
    }
    owners
}

/// One schema a mode; only the default mode may go without its `mode`.
fn schema<T>(modes: &[Mode<'_, T>], branches: &[Finished], default: Option<&str>) -> Value {
    let branch = |(mode, branch): (&Mode<'_, T>, &Finished)| {
        let mut schema = branch.schema.clone();
        let mut required: Vec<Value> = Vec::new();
        if default != Some(mode.name) {
            required.push(json!("mode"));
        }
        if let Some(further) = schema["required"].as_array() {
            required.extend(further.iter().cloned());
        }
        schema["properties"]["mode"] = json!({"const": mode.name});
        if !required.is_empty() {
            schema["required"] = Value::Array(required);
        }
        schema
    };
    let branches: Vec<Value> = modes.iter().zip(branches).map(branch).collect();
    json!({"oneOf": branches})
}
