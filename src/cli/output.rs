//! The only place that prints: results to stdout, words for people to stderr.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: terminal and environment decide how output looks"
)]

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

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
            complain(&format!("{line}\n"));
        }
    }
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
