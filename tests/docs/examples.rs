//! Runs the examples of each page, in order, in a folder of its own.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::pages::{Block, Page, all, blocks, root};
use crate::simulated::Simulated;

/// The address that pages give a server.
const WRITTEN: &str = "127.0.0.1:8000";

/// One page being followed.
struct Reader<'p> {
    page: &'p Page,
    folder: tempfile::TempDir,
    server: Option<Simulated>,
}

impl Reader<'_> {
    fn follow(&mut self, block: &Block) {
        if let Some(name) = block.value("file") {
            let path = self.folder.path().join(name);
            fs::write(path, self.addressed(&block.text)).unwrap();
        } else if block.is("server") {
            // One server a page: the one before ends first.
            self.server = None;
            let command = commands(block).pop().unwrap();
            let mut shell = shell(&format!("exec {command} --port 0"), self.folder.path());
            self.server = Some(Simulated::start(&mut shell));
        } else if block.is("test") {
            self.run(block);
        }
    }

    fn run(&self, block: &Block) {
        let commands = commands(block);
        assert!(!commands.is_empty(), "{}", self.place(block));
        let exit = block.value("exit").map_or(0, |exit| exit.parse().unwrap());
        let mut said = String::new();
        for (index, command) in commands.iter().enumerate() {
            let output = shell(&self.addressed(command), self.folder.path())
                .output()
                .unwrap();
            let last = index + 1 == commands.len();
            let expected = if last { exit } else { 0 };
            let text = told(&output);
            let place = self.place(block);
            assert_eq!(
                output.status.code(),
                Some(expected),
                "{place}: `{command}` said:\n{text}"
            );
            said.push_str(&text);
        }
        if block.is("output") {
            self.compare(block, &said);
        }
    }

    /// Each line that shows output must be one that was said.
    fn compare(&self, block: &Block, said: &str) {
        let shown = block.text.lines().filter(|line| !is_command(line));
        for line in shown.filter(|line| !line.trim().is_empty()) {
            let line = self.addressed(line);
            let found = said.lines().any(|one| is_like(one.trim(), line.trim()));
            assert!(
                found,
                "{}: nobody said `{line}`:\n{said}",
                self.place(block)
            );
        }
    }

    fn addressed(&self, text: &str) -> String {
        match &self.server {
            Some(server) => text.replace(WRITTEN, server.authority()),
            None => text.to_owned(),
        }
    }

    fn place(&self, block: &Block) -> String {
        format!("{}:{}", self.page.name, block.line)
    }
}

fn is_command(line: &str) -> bool {
    line.starts_with("$ ") || line.starts_with("> ")
}

/// The `$ ` lines, each with the `> ` lines that continue it.
fn commands(block: &Block) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push(command.to_owned());
        } else if let (Some(more), Some(last)) = (line.strip_prefix("> "), commands.last_mut()) {
            last.push('\n');
            last.push_str(more);
        }
    }
    commands
}

/// Whether `text` is `pattern`, in which `…` stands for anything.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut open_end = false;
    for part in parts {
        open_end = part.is_empty();
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    open_end || rest.is_empty()
}

fn told(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// `command` as a shell runs it that finds the program, 80 columns wide.
fn shell(command: &str, folder: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_pcload"));
    let mut path = program.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .current_dir(folder)
        .env("PATH", path)
        .env("COLUMNS", "80")
        .env("NO_COLOR", "1")
        .env_remove("PCLOAD_API_KEY");
    shell
}

/// Follows `page` from its first block to its last; how many examples it ran.
fn follow(page: &Page) -> usize {
    let mut reader = Reader {
        page,
        folder: tempfile::tempdir().unwrap(),
        server: None,
    };
    // Pages name the shipped profiles by their folder in the repository.
    let shipped = reader.folder.path().join("profiles");
    std::os::unix::fs::symlink(root().join("profiles"), shipped).unwrap();
    let mut ran = 0;
    for block in blocks(&page.text) {
        reader.follow(&block);
        ran += usize::from(block.is("test"));
    }
    ran
}

#[test]
fn every_example_runs() {
    let pages = all();
    let ran: usize = std::thread::scope(|scope| {
        let readers: Vec<_> = pages
            .iter()
            .map(|page| scope.spawn(move || follow(page)))
            .collect();
        let ran = readers.into_iter().map(|reader| reader.join().unwrap());
        ran.sum()
    });
    assert!(ran >= 10, "only {ran} examples are run");
}

#[test]
fn an_ellipsis_stands_for_anything() {
    for (text, pattern, expected) in [
        ("took 3 s", "took … s", true),
        ("took 3 s", "took …", true),
        ("took 3 s", "took 3", false),
        ("took 3 s", "… s", true),
        ("took 3 s", "took … ms", false),
        ("same", "same", true),
    ] {
        assert_eq!(is_like(text, pattern), expected, "{text} {pattern}");
    }
}
