//! The truth log: one JSON line a request with the times the server really
//! acted, on the monotonic clock in nanoseconds (the clock of Rust's
//! `Instant` and Python's `time.monotonic_ns()` on Linux).

#![allow(clippy::disallowed_methods, reason = "edge: writes the truth log")]

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nix::time::{ClockId, clock_gettime};
use schemars::{JsonSchema, schema_for};
use serde::Serialize;

use crate::sim::config::SimError;

/// Nanoseconds on the monotonic clock; 0 where there is none.
pub(super) fn monotonic_nanos() -> u64 {
    let Ok(time) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
        return 0;
    };
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
    seconds * 1_000_000_000 + nanos
}

/// What is true of one request.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Row {
    /// The client's `X-Request-Id`.
    pub(super) rid: Option<String>,
    /// The id in the answer.
    pub(super) id: String,
    /// Rank that served it.
    pub(super) rank: usize,
    /// After the read that completed the request.
    pub(super) recv_ns: u64,
    /// When each token event was handed to the socket's writer.
    pub(super) sends_ns: Vec<u64>,
    /// Prompt tokens.
    pub(super) prompt_tokens: u64,
    /// Of them served from the cache.
    pub(super) cached_tokens: u64,
    /// Output tokens.
    pub(super) completion_tokens: u64,
    /// Whether the last event was sent.
    pub(super) complete: bool,
}

/// The JSON Schema of a line.
pub fn truth_schema() -> serde_json::Value {
    let mut schema = serde_json::Value::from(schema_for!(Row));
    schema["title"] = "pcload sim truth row".into();
    schema["description"] = "A line of `pcload sim --truth-log`; times in nanoseconds of the \
                             monotonic clock."
        .into();
    schema
}

/// Where the rows go.
#[derive(Debug)]
pub(super) struct TruthLog {
    file: Mutex<BufWriter<File>>,
}

impl TruthLog {
    pub(super) fn create(path: &Path) -> Result<Self, SimError> {
        let file = File::create(path).map_err(|source| SimError::TruthLog {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            file: Mutex::new(BufWriter::new(file)),
        })
    }

    /// Appends a row, at once readable. A full disk loses rows, never a stream.
    pub(super) fn write(&self, row: &Row) {
        let Ok(mut line) = serde_json::to_vec(row) else {
            return;
        };
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.write_all(&line).and_then(|()| file.flush()).is_err() {
            tracing::warn!("the truth log cannot be written");
        }
    }

    /// Everything written reaches the file.
    pub(super) fn flush(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.flush().is_err() {
            tracing::warn!("the truth log cannot be written");
        }
    }
}
