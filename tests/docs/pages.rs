//! The pages, and the code blocks in them. It runs nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// One Markdown file.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// From the package's folder.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

/// One fenced code block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Words of the info string, which commas separate.
    pub info: Vec<String>,
    /// What stands in it.
    pub text: String,
    /// Line of the fence, from 1.
    pub line: usize,
}

impl Block {
    /// Whether the info string has `word`.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.info.iter().any(|one| one == word)
    }

    /// What the info string says for `key`.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        let mut words = self.info.iter();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}

/// The package's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README and every page of the book, the summary too.
pub(crate) fn all() -> Vec<Page> {
    let mut names = vec!["README.md".to_owned()];
    let mut book: Vec<String> = fs::read_dir(root().join("docs/src"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .map(|path| format!("docs/src/{}", path.file_name().unwrap().display()))
        .collect();
    book.sort();
    names.append(&mut book);
    names.into_iter().map(|name| page(&name)).collect()
}

/// One page by its name.
pub(crate) fn page(name: &str) -> Page {
    let path = root().join(name);
    let text = fs::read_to_string(&path).unwrap();
    Page {
        name: name.to_owned(),
        path,
        text,
    }
}

/// The page's fenced blocks, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(info), None) => {
                let words = info.split(',').map(|word| word.trim().to_owned());
                open = Some(Block {
                    info: words.collect(),
                    text: String::new(),
                    line: index + 1,
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    blocks
}

/// The page without its fenced blocks.
pub(crate) fn prose(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        let kept = !inside && !fence;
        inside ^= fence;
        kept
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn blocks_are_found_with_their_words() {
    let text = "a\n```json,file=x.json\n{}\n```\nb\n```\nc\n```\n";
    let found = blocks(text);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].value("file"), Some("x.json"));
    assert!(found[0].is("json") && !found[1].is("json"));
    assert_eq!((found[0].text.as_str(), found[0].line), ("{}\n", 2));
    assert_eq!(prose(text), "a\nb");
}
