//! Why a scenario has no plan.

use std::fmt;

use crate::solver::SolverError;
use crate::units::GroupIndex;

use super::REQUEST_COUNT_MAX;

/// Why a scenario has no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A list of lengths, or the counts of ranges, do not fit the requests.
    #[error("`{}` gives {given} lengths, but {} {}", .scope.field(*.kind), .scope, counted(*.requests))]
    LengthCount {
        /// Input or output.
        kind: LengthKind,
        /// Whose rule it is.
        scope: LengthScope,
        /// Lengths the rule gives.
        given: usize,
        /// Requests it should give them for.
        requests: usize,
    },
    /// A prompt has no room for what may not be shared.
    #[error(
        "`{}` gives a prompt of {input_tokens} tokens, shorter than the {minimum_tokens} of \
         `prefix_cache.minimum_non_shared_length`",
        .scope.field(LengthKind::Input)
    )]
    PromptTooShort {
        /// Whose rule it is.
        scope: LengthScope,
        /// The drawn or listed length.
        input_tokens: u64,
        /// `prefix_cache.minimum_non_shared_length`.
        minimum_tokens: u64,
    },
    /// More requests than the tool holds.
    #[error("`requests.count` is {count}, more than {REQUEST_COUNT_MAX}")]
    TooManyRequests {
        /// `requests.count`.
        count: usize,
    },
    /// The solver refuses.
    #[error(transparent)]
    Solver(#[from] SolverError),
}

impl PlanError {
    /// The stable code of the error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::LengthCount { .. } => "LENGTH_COUNT_MISMATCH",
            Self::PromptTooShort { .. } => "PROMPT_TOO_SHORT",
            Self::TooManyRequests { .. } => "TOO_MANY_REQUESTS",
            Self::Solver(error) => error.code(),
        }
    }
}

fn counted(count: usize) -> String {
    match count {
        1 => "1 request".to_owned(),
        _ => format!("{count} requests"),
    }
}

/// Which lengths a rule gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthKind {
    /// Prompt lengths.
    Input,
    /// Output limits.
    Output,
}

/// Whose lengths a rule gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthScope {
    /// All requests'.
    All,
    /// Those of one group.
    Group(GroupIndex),
}

impl LengthScope {
    /// Where the rule stands in the scenario.
    fn field(self, kind: LengthKind) -> String {
        let name = match kind {
            LengthKind::Input => "input_length",
            LengthKind::Output => "output_length",
        };
        match self {
            Self::All => format!("requests.{name}"),
            Self::Group(group) => format!("prefix_cache.groups.overrides.{group}.{name}"),
        }
    }
}

impl fmt::Display for LengthScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("the scenario has"),
            Self::Group(group) => write!(f, "{group} has"),
        }
    }
}
