//! Each room's errors as error lines with codes, hints and exit statuses.

use std::io::ErrorKind;

use super::exit::{ErrorLine, Exit, Failure};
use crate::artifacts::ArtifactError;
use crate::engine::DifferenceError;
use crate::plan::LoadPlanError;
use crate::plan::PlanError;
use crate::prompts::PromptError;
use crate::scenario::{PROFILE_INVALID, Problems, ProfileError};
use crate::sim::SimError;
use crate::tokenizer::TokenizerError;

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        let lines = problems.iter().map(|problem| ErrorLine {
            code: problem.code.to_string(),
            message: problem.to_string(),
            hints: problem.hint.iter().cloned().collect(),
        });
        Self {
            exit: Exit::Input,
            lines: lines.collect(),
        }
    }
}

impl From<TokenizerError> for Failure {
    fn from(error: TokenizerError) -> Self {
        let failure = Self::input(error.code(), error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        let exit = if error.is_world() {
            Exit::World
        } else {
            Exit::Input
        };
        Self::new(exit, error.code(), error.to_string())
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::input(error.code(), error.to_string())
    }
}

impl From<PromptError> for Failure {
    fn from(error: PromptError) -> Self {
        let failure = Self::input(error.code(), error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Whether a file could not be read because the name leads to none.
fn is_wrong_name(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory
    )
}

impl From<ArtifactError> for Failure {
    /// Files that are not there or hold the wrong thing are wrong input; a disk
    /// that refuses is the world's failure.
    fn from(error: ArtifactError) -> Self {
        let exit = match &error {
            ArtifactError::Io {
                action: "read",
                source,
                ..
            } if is_wrong_name(source.kind()) => Exit::Input,
            error if error.is_world() => Exit::World,
            _ => Exit::Input,
        };
        let failure = Self::new(exit, error.code(), error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Self {
        match error {
            ProfileError::Syntax(message) => Self::input(
                PROFILE_INVALID,
                format!("the profile is not valid TOML: {message}"),
            ),
            ProfileError::Problems(problems) => Self {
                exit: Exit::Input,
                lines: problems
                    .into_iter()
                    .map(|problem| ErrorLine {
                        code: PROFILE_INVALID.to_owned(),
                        message: format!("{}: {}", problem.path, problem.message),
                        hints: problem.hint.into_iter().collect(),
                    })
                    .collect(),
            },
        }
    }
}

impl From<LoadPlanError> for Failure {
    fn from(error: LoadPlanError) -> Self {
        Self::input(error.code(), error.to_string())
    }
}

impl From<DifferenceError> for Failure {
    fn from(error: DifferenceError) -> Self {
        let failure = Self::input(error.code(), error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}
