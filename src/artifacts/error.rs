//! What can be wrong with artifacts, each kind with a stable code.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why artifacts could not be written, read or trusted.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The file system refused.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// What was tried, e.g. `read`.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file of the set is not there.
    #[error("`{path}` is missing")]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A file holds something that is no JSON, or not the JSON expected.
    #[error("cannot read `{path}`{place}: {problem}", place = Line(*line))]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Line, from 1, in JSONL files.
        line: Option<usize>,
        /// What is wrong.
        problem: String,
    },
    /// A field of the manifest or the analysis is absent or senseless.
    #[error("`{path}`: {field}: {problem}")]
    Field {
        /// Which file.
        path: PathBuf,
        /// Dotted path of the field.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// The manifest is of a format this program does not read.
    #[error("`{path}` has {what} `{found}`; this program reads `{expected}`")]
    Version {
        /// Which file.
        path: PathBuf,
        /// Which version.
        what: &'static str,
        /// The version met.
        found: String,
        /// The version that can be read.
        expected: String,
    },
    /// The manifest was written by `inspect`.
    #[error("`{path}` comes from inspect and holds no prepared artifacts")]
    InspectOnly {
        /// Which manifest.
        path: PathBuf,
    },
    /// The set was never finished.
    #[error("`{path}` says that its set is incomplete: prepare was interrupted")]
    Incomplete {
        /// Which manifest.
        path: PathBuf,
    },
    /// Rows are missing, or there are too many.
    #[error(
        "row counts do not match: {full} in full, {requests} in requests, {expected} in the manifest"
    )]
    RowCounts {
        /// Rows of `full.jsonl`.
        full: usize,
        /// Rows of `requests.jsonl`.
        requests: usize,
        /// `requests.count` of the manifest.
        expected: u64,
    },
    /// A row of `full.jsonl` is not where it says it is.
    #[error("full row {row} has sequence_index `{found}`")]
    SequenceIndex {
        /// Row, from 0.
        row: usize,
        /// What stands there.
        found: String,
    },
    /// A row of `requests.jsonl` has other keys than it should, or in another
    /// order.
    #[error("requests row {row} has the keys [{found}], expected [{expected}]")]
    RequestFields {
        /// Row, from 0.
        row: usize,
        /// Its keys.
        found: String,
        /// What they should be.
        expected: String,
    },
    /// The two rows of one request contradict each other.
    #[error("requests row {row} differs from its full row in `{field}`")]
    RowsDiffer {
        /// Row, from 0.
        row: usize,
        /// Which field.
        field: &'static str,
    },
    /// A file's bytes are not those the manifest speaks of.
    #[error("SHA-256 of {file} is {found}, the manifest says {expected}")]
    Digest {
        /// `full` or `requests`.
        file: &'static str,
        /// Digest of the file.
        found: String,
        /// Digest in the manifest.
        expected: String,
    },
    /// The deep check found contradictions.
    #[error("{total} inconsistenc{}: {}", if *total == 1 { "y" } else { "ies" }, FindingList(findings, *total))]
    Inconsistent {
        /// The first of them, at most [`FINDINGS_MAX`](super::FINDINGS_MAX).
        findings: Vec<Finding>,
        /// How many there are.
        total: usize,
    },
    /// Another process is writing the same set.
    #[error("another process is writing the set in `{path}`")]
    Busy {
        /// Its directory.
        path: PathBuf,
    },
}

/// One contradiction found by the deep check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable code.
    pub code: &'static str,
    /// Where and what.
    pub message: String,
}

impl ArtifactError {
    /// The stable code of this kind of error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "FILE_ACCESS",
            Self::Missing { .. } => "ARTIFACT_MISSING",
            Self::Unreadable { .. } => "ARTIFACT_UNREADABLE",
            Self::Field { .. } => "ARTIFACT_FIELD",
            Self::Version { .. } => "ARTIFACT_VERSION",
            Self::InspectOnly { .. } => "MANIFEST_INSPECT_ONLY",
            Self::Incomplete { .. } => "ARTIFACTS_INCOMPLETE",
            Self::RowCounts { .. } => "ROW_COUNTS_DIFFER",
            Self::SequenceIndex { .. } => "SEQUENCE_INDEX",
            Self::RequestFields { .. } => "REQUEST_FIELDS",
            Self::RowsDiffer { .. } => "ROWS_DIFFER",
            Self::Digest { .. } => "SHA256_MISMATCH",
            Self::Inconsistent { .. } => "ARTIFACTS_INCONSISTENT",
            Self::Busy { .. } => "ARTIFACTS_BUSY",
        }
    }

    /// Whether the world failed (exit status 3) and not the artifacts (2).
    pub fn is_world(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Busy { .. })
    }

    /// A way out, where there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InspectOnly { .. } => Some("run `pcload prepare` with the same scenario"),
            Self::Incomplete { .. } => {
                Some("run `pcload prepare` with the same scenario: it replaces the set")
            }
            Self::RowCounts { .. }
            | Self::SequenceIndex { .. }
            | Self::RequestFields { .. }
            | Self::RowsDiffer { .. }
            | Self::Digest { .. }
            | Self::Inconsistent { .. } => {
                Some("the files were changed after they were prepared; prepare them again")
            }
            _ => None,
        }
    }

    pub(crate) fn field(path: &Path, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            path: path.to_owned(),
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// Turns an IO error into an [`ArtifactError`]; a missing file is its own kind.
pub(crate) fn at<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> ArtifactError + use<'a> {
    move |source| match source.kind() {
        io::ErrorKind::NotFound if action == "read" => ArtifactError::Missing {
            path: path.to_owned(),
        },
        _ => ArtifactError::Io {
            action,
            path: path.to_owned(),
            source,
        },
    }
}

struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, " line {line}"))
    }
}

struct FindingList<'a>(&'a [Finding], usize);

impl fmt::Display for FindingList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, finding) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", finding.code, finding.message)?;
        }
        if self.1 > self.0.len() {
            f.write_str("; …")?;
        }
        Ok(())
    }
}
