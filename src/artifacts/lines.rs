//! JSONL files in batches of whole lines, digested on the way. Memory is
//! bounded by the batch and one line.
#![allow(clippy::disallowed_methods, reason = "edge: reads row files")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::artifacts::ArtifactError;
use crate::artifacts::error::at;
use crate::units::hex;

/// Bytes of the read buffer.
const READ_BUFFER_BYTES: usize = 1 << 20;

/// Longest line that is read: a prompt of some 50 million tokens.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Lines of a file that were read together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Lines that are not blank: their number in the file, from 1, and their
    /// place in `bytes`.
    lines: Vec<(usize, Range<usize>)>,
}

impl Batch {
    /// Number of lines that are not blank.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Line `place` and its number in the file.
    pub(crate) fn line(&self, place: usize) -> (usize, &[u8]) {
        let (number, range) = &self.lines[place];
        (*number, &self.bytes[range.clone()])
    }

    /// All bytes read, blank lines included.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// An open JSONL file.
pub(crate) struct LineSource {
    pub(crate) path: PathBuf,
    reader: BufReader<File>,
    digest: Sha256,
    lines_read: usize,
    bytes_read: u64,
}

impl LineSource {
    pub(crate) fn open(path: &Path) -> Result<Self, ArtifactError> {
        let file = File::open(path).map_err(at("read", path))?;
        Ok(Self {
            path: path.to_owned(),
            reader: BufReader::with_capacity(READ_BUFFER_BYTES, file),
            digest: Sha256::new(),
            lines_read: 0,
            bytes_read: 0,
        })
    }

    /// Refills `batch` with at most `rows_max` lines and a little more than
    /// `bytes_max` bytes; an empty batch is the end of the file.
    pub(crate) fn fill(
        &mut self,
        batch: &mut Batch,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<(), ArtifactError> {
        batch.bytes.clear();
        batch.lines.clear();
        while batch.lines.len() < rows_max && batch.bytes.len() < bytes_max {
            let start = batch.bytes.len();
            let read = (&mut self.reader)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut batch.bytes)
                .map_err(at("read", &self.path))?;
            if read == 0 {
                break;
            }
            self.lines_read += 1;
            if read as u64 == LINE_BYTES_MAX {
                return Err(ArtifactError::Unreadable {
                    path: self.path.clone(),
                    line: Some(self.lines_read),
                    problem: format!("the line is longer than {LINE_BYTES_MAX} bytes"),
                });
            }
            self.bytes_read += read as u64;
            let line = start..batch.bytes.len();
            if !batch.bytes[line.clone()]
                .iter()
                .all(u8::is_ascii_whitespace)
            {
                batch.lines.push((self.lines_read, line));
            }
        }
        Ok(())
    }

    /// Adds the bytes of `batch` to the digest.
    pub(crate) fn digest(&mut self, batch: &Batch) {
        self.digest.update(batch.bytes());
    }

    /// Digest in hex of all batches passed to [`digest`](Self::digest), and the
    /// number of bytes read.
    pub(crate) fn finish(self) -> (String, u64) {
        (hex(&self.digest.finalize()), self.bytes_read)
    }
}
