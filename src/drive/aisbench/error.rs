//! What keeps AISBench from being run, and what can be done about it.

use std::path::{Path, PathBuf};

/// Why AISBench could not be run.
#[derive(Debug, thiserror::Error)]
pub enum AisbenchError {
    /// No interpreter.
    #[error("no Python with AISBench: {0}")]
    NoPython(String),
    /// An interpreter without the package.
    #[error("`{}` has no AISBench", .0.display())]
    NotInstalled(PathBuf),
    /// Something AISBench cannot do.
    #[error("AISBench cannot do this: {0}")]
    Unsupported(String),
    /// An argument that belongs to pcload.
    #[error("`aisbench.extra_args`: `{argument}` {why}")]
    Argument {
        /// The argument.
        argument: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A prompt that AISBench would change.
    #[error("{request_id}: the prompt holds `{placeholder}`, which AISBench would replace")]
    Prompt {
        /// Which request.
        request_id: String,
        /// The text.
        placeholder: String,
    },
    /// A configuration template that cannot be used.
    #[error("the template `{}`: {message}", .path.display())]
    Template {
        /// The template.
        path: PathBuf,
        /// Its last word.
        message: String,
    },
    /// Results that cannot be read.
    #[error("`{}` is no result of AISBench: {what}", .path.display())]
    Results {
        /// File or folder.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file or a process.
    #[error("cannot {action} `{}`: {source}", .path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl AisbenchError {
    /// Stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoPython(_) | Self::NotInstalled(_) => "AISBENCH_NOT_FOUND",
            Self::Unsupported(_) => "AISBENCH_UNSUPPORTED",
            Self::Argument { .. } => "AISBENCH_ARGUMENT",
            Self::Prompt { .. } => "AISBENCH_PROMPT",
            Self::Template { .. } => "AISBENCH_TEMPLATE",
            Self::Results { .. } => "AISBENCH_RESULT_UNREADABLE",
            Self::Io { .. } => "AISBENCH_FILES",
        }
    }

    /// Whether the scenario or the command line is at fault, not the machine.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Unsupported(_)
                | Self::Argument { .. }
                | Self::Prompt { .. }
                | Self::Template { .. }
                | Self::Results { .. }
        )
    }

    /// A way out.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoPython(_) | Self::NotInstalled(_) => {
                "install it into a virtual environment of Python 3.10 to 3.12 (`python3 -m venv V; \
                 V/bin/pip install ais-bench-benchmark \"pyarrow<21\"`) and name it with \
                 `--python V/bin/python` or PCLOAD_PYTHON"
            }
            Self::Unsupported(_) => "use `--driver native`",
            Self::Argument { .. } => "remove it",
            Self::Prompt { .. } => "take this record out of the corpus, or use `--driver native`",
            Self::Template { .. } => "leave `--config` out: pcload writes a configuration itself",
            Self::Results { .. } => {
                "name the run's folder (`<work_dir>/<time>`), `performances/<model>` in it, or the \
                 `*_details.jsonl`; its database is read by `--python`"
            }
            Self::Io { .. } => return None,
        };
        Some(hint.to_owned())
    }

    /// An error of `action` on `path`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
