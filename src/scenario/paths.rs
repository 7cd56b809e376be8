//! Paths of a scenario: relative ones are meant from its directory. All of it
//! is lexical; nothing here looks at a file system.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Reads a whole file; the caller's, so that this room touches none.
pub(super) type ReadFile<'a> = dyn Fn(&Path) -> io::Result<Vec<u8>> + 'a;

/// What a scenario is read in.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    /// The scenario's directory, absolute.
    pub(super) base_dir: &'a Path,
    /// Reads files the scenario names; `None` when their content is settled
    /// elsewhere (in a manifest's artifacts).
    pub(super) read: Option<&'a ReadFile<'a>>,
}

impl World<'_> {
    /// `text` as an absolute path without `.` and `..`.
    pub(super) fn resolve(&self, text: &str) -> PathBuf {
        normalized(&self.base_dir.join(text))
    }
}

/// `path` with `.` and `..` worked out by their text; `..` above the root stays
/// at the root.
fn normalized(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if result.file_name().is_some() => {
                result.pop();
            }
            Component::ParentDir if result.has_root() => {}
            other => result.push(other),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_meant_from_the_scenarios_directory() {
        let world = World {
            base_dir: Path::new("/a/b"),
            read: None,
        };
        let check = |text: &str, expected: &str| {
            assert_eq!(world.resolve(text), Path::new(expected), "{text}");
        };
        check("./c/../d.csv", "/a/b/d.csv");
        check("../../x", "/x");
        check("../../../../x", "/x");
        check("/abs/./y", "/abs/y");
        check("", "/a/b");
    }
}
