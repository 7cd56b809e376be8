//! What was found, as a table, as a document, and as an exit status. It checks
//! nothing.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::output;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::cli) enum State {
    /// As a run needs it.
    Fine,
    /// A run would go on, and say so.
    Doubtful,
    /// A run would stop here.
    Failed,
    /// Something that failed before stood in the way.
    NotChecked,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Doubtful => "doubtful",
            Self::Failed => "FAILED",
            Self::NotChecked => "not checked",
        }
    }
}

/// One line of the chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(in crate::cli) struct Check {
    /// What was looked at; several lines may bear one name.
    #[serde(rename = "check")]
    name: &'static str,
    /// How it ended.
    state: State,
    /// Stable code of what is wrong; absent where nothing is.
    code: Option<String>,
    /// What was found.
    detail: String,
    /// Ways out.
    hints: Vec<String>,
}

/// The checks as they are printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(in crate::cli) struct Document {
    /// Whether nothing has failed.
    ready: bool,
    /// In the order they were made.
    checks: Vec<Check>,
}

/// All checks, in the order they were made.
#[derive(Debug, Default)]
pub(super) struct Chart {
    checks: Vec<Check>,
    /// Exit of each failure; the smallest status wins, since what is wrong with
    /// the input is to be mended first.
    exits: Vec<Exit>,
}

impl Chart {
    /// Notes what is as it should be.
    pub(super) fn fine(&mut self, check: &'static str, detail: impl Into<String>) {
        self.push(check, State::Fine, None, detail.into(), Vec::new());
    }

    /// Notes what a run would warn of.
    pub(super) fn doubtful(
        &mut self,
        check: &'static str,
        code: Option<&str>,
        detail: impl Into<String>,
        hints: Vec<String>,
    ) {
        let code = code.map(str::to_owned);
        self.push(check, State::Doubtful, code, detail.into(), hints);
    }

    /// Notes what could not be looked at, and why.
    pub(super) fn not_checked(&mut self, check: &'static str, why: &str) {
        self.push(check, State::NotChecked, None, why.to_owned(), Vec::new());
    }

    /// Notes a failure, each of its lines.
    pub(super) fn failed(&mut self, check: &'static str, failure: &Failure) {
        self.exits.push(failure.exit);
        for line in &failure.lines {
            let (code, hints) = (Some(line.code.clone()), line.hints.clone());
            self.push(check, State::Failed, code, line.message.clone(), hints);
        }
    }

    /// Notes how `result` ended, and hands its value on.
    pub(super) fn take<T>(
        &mut self,
        check: &'static str,
        result: Result<T, Failure>,
        detail: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        match result {
            Ok(value) => {
                self.fine(check, detail(&value));
                Some(value)
            }
            Err(failure) => {
                self.failed(check, &failure);
                None
            }
        }
    }

    fn push(
        &mut self,
        check: &'static str,
        state: State,
        code: Option<String>,
        detail: String,
        hints: Vec<String>,
    ) {
        self.checks.push(Check {
            name: check,
            state,
            code,
            detail,
            hints,
        });
    }

    /// The exit status.
    pub(super) fn exit(&self) -> Exit {
        let worst = self.exits.iter().min_by_key(|exit| exit.status());
        worst.copied().unwrap_or(Exit::Done)
    }

    /// The checks for programs.
    pub(super) fn document(&self) -> Document {
        Document {
            ready: self.exits.is_empty(),
            checks: self.checks.clone(),
        }
    }

    /// The checks for people, at most `width` columns.
    pub(super) fn table(&self, width: u16) -> String {
        let mut table = output::table(&["check", "state", "found"]);
        table.set_width(width);
        for check in &self.checks {
            let code = check.code.as_ref();
            let mut found = code.map_or_else(String::new, |code| format!("{code}: "));
            found.push_str(&check.detail);
            // Hints of failures stand below their `ERROR:` lines.
            if check.state != State::Failed {
                for hint in &check.hints {
                    let _infallible = write!(found, "\nhint: {hint}");
                }
            }
            table.add_row([check.name, check.state.word(), &found]);
        }
        let mut text = String::new();
        for line in table.lines() {
            let _infallible = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    /// `ERROR:` lines of all failures.
    pub(super) fn errors(&self) -> String {
        let failed = |check: &&Check| check.state == State::Failed;
        let mut text = String::new();
        for check in self.checks.iter().filter(failed) {
            let code = check.code.as_deref().unwrap_or_default();
            let failure = Failure::input(code, check.detail.as_str());
            let hinted = check.hints.iter().cloned();
            text.push_str(&hinted.fold(failure, Failure::hint).render());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let mut chart = Chart::default();
        chart.fine("scenario", "`s.json`");
        chart.failed("service", &Failure::world("GONE", "nobody").hint("start"));
        chart.failed("corpus", &Failure::input("EMPTY", "no line"));
        chart.doubtful("block size", Some("B"), "16 for 32", vec!["set it".into()]);
        chart.not_checked("prompts", "they need a tokenizer");
        chart
    }

    #[test]
    fn input_is_mended_before_the_world() {
        assert_eq!(chart().exit(), Exit::Input);
        assert_eq!(Chart::default().exit(), Exit::Done);
        assert!(!chart().document().ready);
        assert!(Chart::default().document().ready);
    }

    #[test]
    fn each_failure_is_an_error_line_and_nothing_else_is() {
        assert_eq!(
            chart().errors(),
            "ERROR: GONE: nobody\nhint: start\nERROR: EMPTY: no line\n"
        );
    }

    #[test]
    fn the_table_says_every_check_in_words() {
        let table = chart().table(80);
        for words in [
            "fine         `s.json`",
            "FAILED       GONE: nobody",
            "doubtful     B: 16 for 32",
            "hint: set it",
            "not checked  they need",
        ] {
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(squeezed(&table).contains(&squeezed(words)), "{table}");
        }
        assert!(table.lines().all(|line| line.chars().count() <= 80));
    }
}
