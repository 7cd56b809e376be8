//! How a command ends: the one enum of exit statuses, and the error lines that
//! go with them.

use std::fmt::Write as _;
use std::process::ExitCode;

/// The exit statuses of the program; nothing else is ever returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, warnings included.
    Done,
    /// Done, and the answer is no.
    No,
    /// Wrong usage, scenario, generation or artifacts.
    Input,
    /// The world failed: service, capability, child process, files.
    World,
    /// Interrupted, after what was measured is written.
    Interrupted,
}

impl Exit {
    /// The number the shell sees.
    pub const fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Input => 2,
            Self::World => 3,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}

/// One `ERROR:` line with its hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorLine {
    /// Stable code in capitals.
    pub code: String,
    /// What is wrong, on one line.
    pub message: String,
    /// Ways out.
    pub hints: Vec<String>,
}

/// Why a command did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit status.
    pub exit: Exit,
    /// At least one line; several for a scenario with several problems.
    pub lines: Vec<ErrorLine>,
}

impl Failure {
    /// A failure with one error line.
    pub fn new(exit: Exit, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            exit,
            lines: vec![ErrorLine {
                code: code.into(),
                message: message.into(),
                hints: Vec::new(),
            }],
        }
    }

    /// Wrong usage, scenario, generation or artifacts.
    pub fn input(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Exit::Input, code, message)
    }

    /// The world failed.
    pub fn world(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Exit::World, code, message)
    }

    /// Adds a hint to the last line.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(line) = self.lines.last_mut() {
            line.hints.push(hint.into());
        }
        self
    }

    /// The lines as stderr shows them. Line breaks inside a message would make
    /// two lines of one error, so they are replaced by `; ` (by a space after a
    /// colon).
    pub fn render(&self) -> String {
        let flat = |text: &str| {
            let parts = text.lines().map(str::trim).filter(|part| !part.is_empty());
            parts.collect::<Vec<_>>().join("; ").replace(":; ", ": ")
        };
        let mut out = String::new();
        for line in &self.lines {
            let _infallible = writeln!(out, "ERROR: {}: {}", line.code, flat(&line.message));
            for hint in &line.hints {
                let _infallible = writeln!(out, "hint: {}", flat(hint));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exit_has_its_status() {
        let all = [
            (Exit::Done, 0),
            (Exit::No, 1),
            (Exit::Input, 2),
            (Exit::World, 3),
            (Exit::Interrupted, 130),
        ];
        for (exit, status) in all {
            assert_eq!(exit.status(), status);
        }
    }

    #[test]
    fn an_error_is_one_line_whatever_its_message_holds() {
        let failure = Failure::input("BAD", "first\n  second:\n third").hint("try\nagain");
        assert_eq!(
            failure.render(),
            "ERROR: BAD: first; second: third\nhint: try; again\n"
        );
    }
}
