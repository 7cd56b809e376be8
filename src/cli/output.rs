//! The only place that prints: results to stdout, words for people to stderr.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: terminal and environment decide how output looks"
)]

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};
use indicatif::ProgressBar;

use super::exit::Failure;
use super::secrets;

/// What the global options say about talking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Voice {
    /// Say nothing on stderr but errors.
    pub quiet: bool,
}

impl Voice {
    /// A line for people.
    pub fn say(self, line: &str) {
        if !self.quiet {
            let text = if stderr_is_terminal() {
                // A credential that is cut in two would not be known again.
                wrapped(&secrets::without(line), usize::from(columns()))
            } else {
                line.to_owned()
            };
            complain(&format!("{text}\n"));
        }
    }
}

/// `text` with its lines broken between words at `width`, what follows indented
/// as its line is. A word that is longer stays whole, as do lines that fit.
pub(super) fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        if line.chars().count() <= width {
            lines.push(line.to_owned());
            continue;
        }
        let indent: String = line.chars().take_while(|letter| *letter == ' ').collect();
        let mut open = indent.clone();
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            let is_first = open.trim().is_empty();
            let length = open.chars().count() + usize::from(!is_first) + word.chars().count();
            if !is_first && length > width {
                lines.push(std::mem::replace(&mut open, indent.clone()));
            } else if !is_first {
                open.push(' ');
            }
            open.push_str(word);
        }
        lines.push(open);
    }
    lines.join("\n")
}

/// A table as all of them look: one line under the header, no wider than the
/// terminal.
pub(super) fn table(header: &[&str]) -> Table {
    let lines = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
    let mut table = Table::new();
    table
        .load_style(lines)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(columns());
    if !header.is_empty() {
        table.set_header(header);
    }
    table
}

/// `word` in a color, where stderr has colors.
pub(super) fn colored(word: &str, color: &str) -> String {
    if stderr_color() {
        format!("\u{1b}[{color}m{word}\u{1b}[0m")
    } else {
        word.to_owned()
    }
}

/// A line cut to the terminal's width, for what is drawn over again.
pub(super) fn cut(line: &str) -> String {
    let width = console::Term::stderr().size_checked();
    let width = width.map_or(usize::MAX, |(_, width)| usize::from(width));
    line.chars().take(width).collect()
}

/// The bar that is being drawn, if any: other words must not run into it.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Says which bar is being drawn; `None` when it has ended.
pub(super) fn draw_under(bar: Option<ProgressBar>) {
    *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}

/// Writes to stderr, above the bar that is being drawn and without credentials.
/// There is no one left to tell when that fails.
pub(super) fn complain(text: &str) {
    let text = secrets::without(text);
    let write = || drop(io::stderr().lock().write_all(text.as_bytes()));
    let drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match drawn {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Stderr for log lines: each write is a whole line, and goes above the bar.
pub(super) struct Stderr;

impl io::Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        complain(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a result to stdout.
///
/// # Errors
/// When stdout cannot be written. A reader that has left (`| head`) is none.
pub(super) fn result(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// [`result`], with a failure in the program's own form.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    result(text).map_err(|error| {
        Failure::world("STDOUT_FAILED", format!("cannot write to stdout: {error}"))
    })
}

/// Whether stderr may carry colors: a terminal, and `NO_COLOR` unset or empty.
pub(super) fn stderr_color() -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !forbidden && io::stderr().is_terminal()
}

/// Whether stderr is a terminal.
pub(super) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Columns to format for: `COLUMNS`, else the terminal's width, else 100.
/// Bounded to 80..=120, the widths that reports are made for.
pub(super) fn columns() -> u16 {
    let stated = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.trim().parse::<u16>().ok());
    let measured = || {
        console::Term::stderr()
            .size_checked()
            .map(|(_, width)| width)
    };
    stated.or_else(measured).unwrap_or(100).clamp(80, 120)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words_and_keep_their_indent() {
        for (text, expected) in [
            ("short", "short"),
            ("one two three", "one two\nthree"),
            ("  one two three", "  one\n  two\n  three"),
            ("a\n\none two three", "a\n\none two\nthree"),
            ("a/path/longer/than/that is", "a/path/longer/than/that\nis"),
        ] {
            assert_eq!(wrapped(text, 8), expected, "{text}");
        }
    }
}
