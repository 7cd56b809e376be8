//! The plain check of a set: files, row counts, agreement of the two row files,
//! digests. It streams both files once, at the speed of the disk, and simulates
//! nothing.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use rayon::prelude::*;
use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use serde_json::{Value, json};

use crate::artifacts::lines::{Batch, LineSource};
use crate::artifacts::reader::parse_line;
use crate::artifacts::rows::request_keys;
use crate::artifacts::{ArtifactError, PreparedSet};
use crate::scenario::OutputKey;

/// Rows checked together, in parallel.
const BATCH_ROWS: usize = 4096;

/// Bytes of `full.jsonl` after which a batch ends.
const BATCH_BYTES: usize = 8 << 20;

/// What a valid set is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidateReport {
    /// Rows of each row file.
    pub rows: u64,
    /// Stamped run id.
    pub run_id: String,
    /// Bytes of `full.jsonl`.
    pub full_bytes: u64,
    /// Bytes of `requests.jsonl`.
    pub requests_bytes: u64,
}

impl ValidateReport {
    /// What `validate` prints.
    pub fn summary(&self) -> Value {
        json!({"ok": true, "rows": self.rows, "run_id": self.run_id})
    }
}

/// Checks the set of `manifest`. Of several problems the first in the order of
/// the reference is reported: unreadable rows, row counts, rows, digests.
pub fn validate(manifest: &Path) -> Result<ValidateReport, ArtifactError> {
    validate_set(&PreparedSet::open(manifest)?)
}

pub(crate) fn validate_set(set: &PreparedSet) -> Result<ValidateReport, ArtifactError> {
    let key = set.output_key()?;
    let mut full = LineSource::open(set.full_path())?;
    let mut requests = LineSource::open(set.requests_path())?;
    let (mut left, mut right) = (Batch::default(), Batch::default());
    let mut problems = Problems::default();
    let (mut full_rows, mut request_rows) = (0, 0);
    loop {
        full.fill(&mut left, BATCH_ROWS, BATCH_BYTES)?;
        // As many rows again, so that the two files stay side by side; behind
        // the end of the first, whatever the second has left.
        let rows_max = if left.bytes().is_empty() {
            BATCH_ROWS
        } else {
            left.len()
        };
        requests.fill(&mut right, rows_max, usize::MAX)?;
        if left.bytes().is_empty() && right.bytes().is_empty() {
            break;
        }
        let check = RowCheck {
            first_row: full_rows,
            key,
            full: (&full.path.clone(), &left),
            requests: (&requests.path.clone(), &right),
        };
        let (found, _) = rayon::join(
            || check.problems(),
            || rayon::join(|| full.digest(&left), || requests.digest(&right)),
        );
        problems.keep_first(found);
        full_rows += left.len();
        request_rows += right.len();
    }
    let (full_sha256, full_bytes) = full.finish();
    let (requests_sha256, requests_bytes) = requests.finish();
    problems.take_unreadable()?;
    let expected = set.request_count();
    if full_rows != request_rows || full_rows as u64 != expected {
        return Err(ArtifactError::RowCounts {
            full: full_rows,
            requests: request_rows,
            expected,
        });
    }
    problems.take_row()?;
    check_digest(set, "full", full_sha256)?;
    check_digest(set, "requests", requests_sha256)?;
    Ok(ValidateReport {
        rows: expected,
        run_id: set.run_id().to_owned(),
        full_bytes,
        requests_bytes,
    })
}

fn check_digest(set: &PreparedSet, file: &'static str, found: String) -> Result<(), ArtifactError> {
    let expected = set.sha256(file)?;
    if found == expected {
        return Ok(());
    }
    Err(ArtifactError::Digest {
        file,
        expected: expected.to_owned(),
        found,
    })
}

/// The first problem of each kind.
#[derive(Default)]
struct Problems {
    full_unreadable: Option<ArtifactError>,
    requests_unreadable: Option<ArtifactError>,
    row: Option<ArtifactError>,
}

impl Problems {
    fn keep_first(&mut self, later: Self) {
        let Self {
            full_unreadable,
            requests_unreadable,
            row,
        } = later;
        self.full_unreadable = self.full_unreadable.take().or(full_unreadable);
        self.requests_unreadable = self.requests_unreadable.take().or(requests_unreadable);
        self.row = self.row.take().or(row);
    }

    fn take_unreadable(&mut self) -> Result<(), ArtifactError> {
        let unreadable = self.full_unreadable.take();
        unreadable
            .or_else(|| self.requests_unreadable.take())
            .map_or(Ok(()), Err)
    }

    fn take_row(&mut self) -> Result<(), ArtifactError> {
        self.row.take().map_or(Ok(()), Err)
    }
}

/// A batch of rows of both files, side by side.
struct RowCheck<'a> {
    /// Number of the first row, from 0.
    first_row: usize,
    key: Option<OutputKey>,
    full: (&'a Path, &'a Batch),
    requests: (&'a Path, &'a Batch),
}

impl RowCheck<'_> {
    fn problems(&self) -> Problems {
        let rows = self.full.1.len().max(self.requests.1.len());
        (0..rows)
            .into_par_iter()
            .map(|place| self.row(place))
            .reduce(Problems::default, |mut first, later| {
                first.keep_first(later);
                first
            })
    }

    fn row(&self, place: usize) -> Problems {
        let mut problems = Problems::default();
        let full = parsed::<FullView<'_>>(self.full, place, &mut problems.full_unreadable);
        let request =
            parsed::<RequestView<'_>>(self.requests, place, &mut problems.requests_unreadable);
        if let (Some(full), Some(request)) = (full, request) {
            problems.row = self.compare(self.first_row + place, &full, &request).err();
        }
        problems
    }

    fn compare(
        &self,
        row: usize,
        full: &FullView<'_>,
        request: &RequestView<'_>,
    ) -> Result<(), ArtifactError> {
        if full.sequence_index != row as u64 {
            return Err(ArtifactError::SequenceIndex {
                row,
                found: full.sequence_index.to_string(),
            });
        }
        let expected = request_keys(self.key);
        if request.keys != expected {
            return Err(ArtifactError::RequestFields {
                row,
                found: request.keys.join(", "),
                expected: expected.join(", "),
            });
        }
        let differs = |field| Err(ArtifactError::RowsDiffer { row, field });
        if full.question != request.question {
            return differs("question");
        }
        if full.answer != request.answer {
            return differs("answer");
        }
        if self.key.is_some() && full.max_tokens != request.output_tokens {
            return differs("max_tokens");
        }
        Ok(())
    }
}

fn parsed<'a, T: Deserialize<'a>>(
    (path, batch): (&Path, &'a Batch),
    place: usize,
    problem: &mut Option<ArtifactError>,
) -> Option<T> {
    if place >= batch.len() {
        return None;
    }
    let (line, bytes) = batch.line(place);
    parse_line(path, line, bytes)
        .map_err(|error| *problem = Some(error))
        .ok()
}

/// What the check reads of a full row.
#[derive(Deserialize)]
struct FullView<'a> {
    sequence_index: u64,
    #[serde(borrow)]
    question: Cow<'a, str>,
    #[serde(borrow)]
    answer: Cow<'a, str>,
    #[serde(default)]
    max_tokens: Option<u64>,
}

/// A request row with its keys in their order.
#[derive(Default)]
struct RequestView<'a> {
    keys: Vec<Cow<'a, str>>,
    question: Cow<'a, str>,
    answer: Cow<'a, str>,
    output_tokens: Option<u64>,
}

/// A text that borrows from the line where it holds no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for RequestView<'a> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RequestVisitor)
    }
}

struct RequestVisitor;

impl<'de> Visitor<'de> for RequestVisitor {
    type Value = RequestView<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut row = RequestView::default();
        while let Some(Text(key)) = map.next_key()? {
            match &*key {
                "question" => row.question = map.next_value::<Text<'de>>()?.0,
                "answer" => row.answer = map.next_value::<Text<'de>>()?.0,
                "max_tokens" | "output_tokens" => row.output_tokens = Some(map.next_value()?),
                _ => {
                    map.next_value::<de::IgnoredAny>()?;
                }
            }
            row.keys.push(key);
        }
        Ok(row)
    }
}
