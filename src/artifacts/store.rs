//! Writes sets so that a crash at any moment leaves nothing, or a set that says
//! it is incomplete: temporary name, fsync, rename, and the manifest last.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: artifacts are files; every write of the room is here"
)]

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use crate::artifacts::analysis::prepared_text;
use crate::artifacts::digest::DigestingWriter;
use crate::artifacts::error::at;
use crate::artifacts::rows::FullRow;
use crate::artifacts::{ArtifactError, SetLocation, Stamp, pyjson};
use crate::scenario::OutputKey;
use crate::units::sha256_hex;

/// Bytes gathered before a row file is written to.
const ROW_BUFFER_BYTES: usize = 1 << 20;

/// How many later seconds are tried when a directory is already there.
const STAMP_TRIES_MAX: usize = 600;

/// A directory that this process alone may write a set into. Dropped before a
/// set was written, it takes back what it made.
#[derive(Debug)]
pub struct Claim {
    location: SetLocation,
    /// Held until the set is written; an advisory lock on the directory, where
    /// the file system has such locks.
    _lock: Option<Flock<File>>,
    /// Whether the directory was made for this claim.
    is_fresh: bool,
    /// Directories above it that were made too, the lowest first.
    made_above: Vec<PathBuf>,
    is_written: bool,
}

impl Claim {
    /// Makes a new directory for a set, at `stamp` or the next free second.
    pub fn fresh(output_dir: &Path, run_id: &str, stamp: Stamp) -> Result<Self, ArtifactError> {
        let above = output_dir.ancestors().skip(1);
        let made_above = above.take_while(|one| !one.exists()).map(Path::to_owned);
        let made_above: Vec<_> = made_above.collect();
        if let Some(parent) = output_dir.parent() {
            fs::create_dir_all(parent).map_err(at("create", parent))?;
        }
        let mut location = SetLocation::new(output_dir, run_id, stamp);
        for _ in 0..STAMP_TRIES_MAX {
            match fs::create_dir(location.directory()) {
                Ok(()) => return Self::take(location, true, made_above),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    location = SetLocation::new(output_dir, run_id, location.stamp().next());
                }
                Err(error) => return Err(at("create", location.directory())(error)),
            }
        }
        let taken = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(at("create", location.directory())(taken))
    }

    /// Takes an existing directory, whose set is to be replaced.
    pub fn replacing(location: SetLocation) -> Result<Self, ArtifactError> {
        let claim = Self::take(location, false, Vec::new())?;
        remove_temporary_files(&claim.location.result_dir())?;
        Ok(claim)
    }

    fn take(
        location: SetLocation,
        is_fresh: bool,
        made_above: Vec<PathBuf>,
    ) -> Result<Self, ArtifactError> {
        let directory = location.directory();
        let handle = File::open(directory).map_err(at("open", directory))?;
        let lock = match Flock::lock(handle, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Some(lock),
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(ArtifactError::Busy {
                    path: directory.to_owned(),
                });
            }
            Err((_, _)) => None,
        };
        let result_dir = location.result_dir();
        fs::create_dir_all(&result_dir).map_err(at("create", &result_dir))?;
        Ok(Self {
            location,
            _lock: lock,
            is_fresh,
            made_above,
            is_written: false,
        })
    }

    /// Where the set will be.
    pub fn location(&self) -> &SetLocation {
        &self.location
    }

    /// Writes the manifest of `inspect`, which has no other artifacts.
    pub fn write_inspected(mut self, manifest: &Value) -> Result<PathBuf, ArtifactError> {
        let path = self.location.manifest();
        write_document(&path, manifest)?;
        self.is_written = true;
        Ok(path)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Where rows have got their name already, the manifest stays and says
        // that the set is incomplete.
        if self.is_fresh && !self.is_written && !self.location.full().exists() {
            fs::remove_file(self.location.manifest()).ok();
            fs::remove_dir(self.location.result_dir()).ok();
            fs::remove_dir(self.location.directory()).ok();
            for directory in &self.made_above {
                fs::remove_dir(directory).ok();
            }
        }
    }
}

/// Writes one set, row by row. Memory does not grow with the rows.
pub struct SetWriter {
    full: RowFile,
    requests: RowFile,
    key: Option<OutputKey>,
    row_count: u64,
    incomplete: Value,
    claim: Claim,
}

impl SetWriter {
    /// Begins a set. From here on a new directory says that it is incomplete
    /// (`incomplete` is its manifest until then); an older set in the directory
    /// stays whole until [`finish`](Self::finish).
    pub fn begin(
        claim: Claim,
        incomplete: Value,
        key: Option<OutputKey>,
    ) -> Result<Self, ArtifactError> {
        let location = claim.location();
        if claim.is_fresh {
            write_document(&location.manifest(), &incomplete)?;
        }
        Ok(Self {
            full: RowFile::create(location.full())?,
            requests: RowFile::create(location.requests())?,
            key,
            row_count: 0,
            incomplete,
            claim,
        })
    }

    /// Adds the next row to both files.
    pub fn push(&mut self, row: &FullRow) -> Result<(), ArtifactError> {
        assert_eq!(
            u64::from(row.sequence_index),
            self.row_count,
            "rows come in send order"
        );
        self.full.push(row)?;
        self.requests.push(&row.request(self.key))?;
        self.row_count += 1;
        Ok(())
    }

    /// Puts everything in its place, the manifest last. `manifest` lacks its
    /// `artifacts` section, which is filled in here.
    pub fn finish(
        mut self,
        mut manifest: Value,
        analysis: &Value,
    ) -> Result<SetFiles, ArtifactError> {
        assert_eq!(
            manifest["requests"]["count"], self.row_count,
            "one row a request"
        );
        let location = self.claim.location.clone();
        if !self.claim.is_fresh {
            write_document(&location.manifest(), &self.incomplete)?;
        }
        let files = SetFiles::from(&location);
        let full = self.full.commit(self.row_count)?;
        let requests = self.requests.commit(self.row_count)?;
        let text = prepared_text(analysis);
        write_atomic(&files.analysis, text.as_bytes())?;
        manifest["artifacts"] = json!({
            "full": full,
            "requests": requests,
            "analysis": {
                "name": file_name(&files.analysis),
                "path": files.analysis.to_string_lossy(),
                "bytes": text.len(),
                "sha256_at_prepare": sha256_hex(text.as_bytes()),
            },
        });
        write_document(&files.manifest, &manifest)?;
        self.claim.is_written = true;
        Ok(files)
    }
}

/// The four files of a written set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFiles {
    /// `full.jsonl`.
    pub full: PathBuf,
    /// `requests.jsonl`.
    pub requests: PathBuf,
    /// `manifest.json`.
    pub manifest: PathBuf,
    /// `analysis.json`.
    pub analysis: PathBuf,
}

impl From<&SetLocation> for SetFiles {
    fn from(location: &SetLocation) -> Self {
        Self {
            full: location.full(),
            requests: location.requests(),
            manifest: location.manifest(),
            analysis: location.analysis(),
        }
    }
}

impl SetFiles {
    /// What `prepare` prints: the paths, `log` when there is one.
    pub fn summary(&self, log: Option<&Path>) -> Value {
        let mut summary = json!({
            "full": self.full.to_string_lossy(),
            "requests": self.requests.to_string_lossy(),
            "manifest": self.manifest.to_string_lossy(),
            "analysis": self.analysis.to_string_lossy(),
        });
        if let Some(log) = log {
            summary["log"] = log.to_string_lossy().into();
        }
        summary
    }
}

/// A JSONL file under its temporary name.
struct RowFile {
    file: AtomicFile,
    writer: DigestingWriter<BufWriter<File>>,
    line: Vec<u8>,
}

impl RowFile {
    fn create(path: PathBuf) -> Result<Self, ArtifactError> {
        let (file, handle) = AtomicFile::create(path)?;
        Ok(Self {
            file,
            writer: DigestingWriter::new(BufWriter::with_capacity(ROW_BUFFER_BYTES, handle)),
            line: Vec::new(),
        })
    }

    fn push(&mut self, row: &impl serde::Serialize) -> Result<(), ArtifactError> {
        self.line.clear();
        pyjson::write_line(&mut self.line, row).map_err(at("write", &self.file.path))?;
        self.line.push(b'\n');
        self.writer
            .write_all(&self.line)
            .map_err(at("write", &self.file.path))
    }

    /// Gives the file its name; returns its section of the manifest.
    fn commit(self, row_count: u64) -> Result<Value, ArtifactError> {
        let (writer, sha256, bytes) = self.writer.finish();
        let handle = writer
            .into_inner()
            .map_err(|error| at("write", &self.file.path)(error.into_error()))?;
        let section = json!({
            "name": file_name(&self.file.path),
            "path": self.file.path.to_string_lossy(),
            "rows": row_count,
            "bytes": bytes,
            "sha256": sha256,
        });
        self.file.commit(&handle)?;
        Ok(section)
    }
}

/// A file that gets its name only when all of it is on the disk; dropped
/// before, it vanishes.
struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    is_committed: bool,
}

impl AtomicFile {
    fn create(path: PathBuf) -> Result<(Self, File), ArtifactError> {
        let name = format!(".{}.tmp-{}", file_name(&path), std::process::id());
        let temporary = path.with_file_name(name);
        let handle = File::create(&temporary).map_err(at("write", &path))?;
        let file = Self {
            path,
            temporary,
            is_committed: false,
        };
        Ok((file, handle))
    }

    fn commit(mut self, handle: &File) -> Result<(), ArtifactError> {
        handle.sync_all().map_err(at("write", &self.path))?;
        fs::rename(&self.temporary, &self.path).map_err(at("write", &self.path))?;
        self.is_committed = true;
        sync_directory(&self.path)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.is_committed {
            fs::remove_file(&self.temporary).ok();
        }
    }
}

/// Writes a whole file under its name, or leaves what was there.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), ArtifactError> {
    let (file, mut handle) = AtomicFile::create(path.to_owned())?;
    handle.write_all(bytes).map_err(at("write", path))?;
    file.commit(&handle)
}

/// [`write_atomic`] of a JSON document.
pub fn write_document(path: &Path, document: &Value) -> Result<(), ArtifactError> {
    write_atomic(path, pyjson::document(document).as_bytes())
}

/// Makes the rename durable.
fn sync_directory(path: &Path) -> Result<(), ArtifactError> {
    let Some(directory) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    else {
        return Ok(());
    };
    File::open(directory)
        .and_then(|handle| handle.sync_all())
        .map_err(at("sync", directory))
}

/// Removes what a killed process left behind.
fn remove_temporary_files(directory: &Path) -> Result<(), ArtifactError> {
    for entry in fs::read_dir(directory).map_err(at("list", directory))? {
        let path = entry.map_err(at("list", directory))?.path();
        let name = file_name(&path);
        if name.starts_with('.') && name.contains(".tmp-") {
            fs::remove_file(&path).map_err(at("remove", &path))?;
        }
    }
    Ok(())
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
