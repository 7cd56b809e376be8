//! A prepared set, whoever made it, as typed values.
#![allow(clippy::disallowed_methods, reason = "edge: reads documents")]

use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::artifacts::dataset::config_sha256;
use crate::artifacts::error::at;
use crate::artifacts::figures::{CacheSettings, RequestFacts};
use crate::artifacts::lines::{Batch, LineSource};
use crate::artifacts::location::log_path;
use crate::artifacts::rows::{FullRow, WarmupItem, output_key};
use crate::artifacts::{AddedTokens, ArtifactError, FORMAT_VERSION, SCHEMA_VERSION, pyjson};
use crate::scenario::OutputKey;
use crate::units::sha256_hex;
use crate::units::{DpRank, GroupIndex};

/// Rows read together by [`RowReader`].
const BATCH_ROWS: usize = 256;

/// Bytes after which a batch of [`RowReader`] ends.
const BATCH_BYTES: usize = 4 << 20;

/// Largest document that is read. A manifest holds the warm-up prompts: ten
/// thousand of 4,096 tokens are 200 MB.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// Most tokens of one request; sums over all rows stay far from overflow.
const TOKENS_MAX: u64 = 1 << 40;

/// The manifest of a prepared set and where its files are.
#[derive(Clone, Debug)]
pub struct PreparedSet {
    path: PathBuf,
    text: String,
    manifest: Value,
    run_id: String,
    request_count: u64,
    full: PathBuf,
    requests: PathBuf,
    analysis: PathBuf,
}

impl PreparedSet {
    /// Reads a manifest. Its files are looked for beside it, by name; they are
    /// not opened yet.
    pub fn open(path: &Path) -> Result<Self, ArtifactError> {
        let (text, manifest) = read_document(path)?;
        check_status(path, &manifest)?;
        check_versions(path, &manifest)?;
        let set = Self {
            run_id: string(path, &manifest, "/run_id")?.to_owned(),
            request_count: count(path, &manifest, "/requests/count")?,
            full: beside(path, &manifest, "full")?,
            requests: beside(path, &manifest, "requests")?,
            analysis: analysis_path(path, &manifest)?,
            path: path.to_owned(),
            text,
            manifest,
        };
        set.sha256("full")?;
        set.sha256("requests")?;
        Ok(set)
    }

    /// The manifest's own path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole manifest.
    pub fn manifest(&self) -> &Value {
        &self.manifest
    }

    /// Whether `effective_config_sha256` is the digest of the configuration
    /// beside it. It is taken of the text, which may hold numbers that no
    /// `f64` can, and failing that of the value.
    pub fn is_config_intact(&self) -> bool {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            effective_config: &'a RawValue,
        }
        let expected = &self.manifest["effective_config_sha256"];
        let by_text = serde_json::from_str::<Raw<'_>>(&self.text).is_ok_and(|raw| {
            let text = pyjson::squeezed(raw.effective_config.get());
            *expected == sha256_hex(text.as_bytes())
        });
        by_text || *expected == config_sha256(self.effective_config())
    }

    /// Stamped run id.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Number of formal requests.
    pub fn request_count(&self) -> u64 {
        self.request_count
    }

    /// `full.jsonl`.
    pub fn full_path(&self) -> &Path {
        &self.full
    }

    /// `requests.jsonl`.
    pub fn requests_path(&self) -> &Path {
        &self.requests
    }

    /// `analysis.json`.
    pub fn analysis_path(&self) -> &Path {
        &self.analysis
    }

    /// Directory of the files.
    pub fn result_dir(&self) -> &Path {
        self.path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
    }

    /// Log file of `command`, beside the set's `result` directory; absent for a
    /// manifest that lies elsewhere, and for a run id that leads elsewhere.
    pub fn log_path(&self, command: &str) -> Option<PathBuf> {
        let result_dir = self.result_dir();
        let is_result = result_dir.file_name().is_some_and(|name| name == "result");
        let is_name = Path::new(&self.run_id).file_name() == Some(self.run_id.as_ref());
        let directory = result_dir.parent().filter(|_| is_result && is_name)?;
        Some(log_path(&directory.join("log"), &self.run_id, command))
    }

    /// The effective configuration; null where the manifest has none.
    pub fn effective_config(&self) -> &Value {
        &self.manifest["effective_config"]
    }

    /// `pcload` of the manifest; null in sets of the reference plugin.
    pub fn extension(&self) -> &Value {
        &self.manifest["pcload"]
    }

    /// Whether this program made the set, and not the reference plugin.
    pub fn is_native(&self) -> bool {
        self.extension().is_object()
    }

    /// Key of the output length in `requests.jsonl`.
    pub fn output_key(&self) -> Result<Option<OutputKey>, ArtifactError> {
        output_key(self.effective_config())
            .map_err(|problem| self.field("effective_config.output.output_key", problem))
    }

    /// What the scenario said about the cache.
    pub fn cache_settings(&self) -> Result<CacheSettings, ArtifactError> {
        Ok(CacheSettings {
            mode: self.config("prefix_cache.mode")?,
            block_size: self.config("tokenizer.block_size")?,
            minimum_non_shared_tokens: self.config("prefix_cache.minimum_non_shared_length")?,
            requested: self.config("prefix_cache.target_hit_rate")?,
            target_warning_pp: self.config("validation.target_warning_pp")?,
        })
    }

    /// What the server puts around each prompt, as the set was made for; nothing
    /// in sets of the reference plugin, which does not say.
    pub fn added_tokens(&self) -> Result<AddedTokens, ArtifactError> {
        if !self.is_native() {
            return Ok(AddedTokens::default());
        }
        let view = &self.extension()["server_view"];
        let ids = |field: &str| {
            Vec::<u32>::deserialize(&view[field]).map_err(|error| {
                self.field(format!("pcload.server_view.{field}"), error.to_string())
            })
        };
        Ok(AddedTokens {
            front: ids("special_token_ids_front")?,
            behind: ids("special_token_ids_behind")?,
        })
    }

    /// One field of the effective configuration, by its dotted path.
    pub fn config<T: DeserializeOwned>(&self, field: &str) -> Result<T, ArtifactError> {
        let pointer = format!("/{}", field.replace('.', "/"));
        let value = self.effective_config().pointer(&pointer);
        let name = || format!("effective_config.{field}");
        let value = value.ok_or_else(|| self.field(name(), "is missing"))?;
        T::deserialize(value).map_err(|error| self.field(name(), error.to_string()))
    }

    /// The warm-up plan; empty from a cold start.
    pub fn warmup_plan(&self) -> Result<Vec<WarmupItem>, ArtifactError> {
        let plan = &self.manifest["warmup"]["plan"];
        let mut items: Vec<WarmupItem> = Deserialize::deserialize(plan)
            .map_err(|error: serde_json::Error| self.field("warmup.plan", error.to_string()))?;
        for item in &mut items {
            let ids = &self.extension()["warmup_token_ids"][&item.request_id];
            item.token_ids = Deserialize::deserialize(ids)
                .map_err(|error: serde_json::Error| self.field("pcload", error.to_string()))?;
        }
        Ok(items)
    }

    /// The rows of `full.jsonl`, one by one.
    pub fn rows(&self) -> Result<RowReader, ArtifactError> {
        Ok(RowReader {
            source: LineSource::open(&self.full)?,
            batch: Batch::default(),
            next: 0,
        })
    }

    /// All rows at once.
    pub fn load_rows(&self) -> Result<Vec<FullRow>, ArtifactError> {
        self.rows()?.collect()
    }

    /// The numbers of all rows, without their texts.
    pub fn facts(&self) -> Result<Vec<RequestFacts>, ArtifactError> {
        let mut source = LineSource::open(&self.full)?;
        let mut batch = Batch::default();
        let mut facts = Vec::new();
        loop {
            source.fill(&mut batch, usize::MAX, BATCH_BYTES)?;
            if batch.bytes().is_empty() {
                return Ok(facts);
            }
            let rows: Result<Vec<RequestFacts>, ArtifactError> = (0..batch.len())
                .into_par_iter()
                .map(|place| {
                    let (line, bytes) = batch.line(place);
                    let row: FactsView = parse_line(&source.path, line, bytes)?;
                    row.facts().ok_or_else(|| ArtifactError::Unreadable {
                        path: source.path.clone(),
                        line: Some(line),
                        problem: format!("a token count is above {TOKENS_MAX}"),
                    })
                })
                .collect();
            facts.extend(rows?);
        }
    }

    /// `analysis.json` as it stands.
    pub fn analysis(&self) -> Result<Value, ArtifactError> {
        let (_, analysis) = read_document(&self.analysis)?;
        Ok(analysis)
    }

    /// Digest of `file` (`full` or `requests`) in the manifest.
    pub(crate) fn sha256(&self, file: &str) -> Result<&str, ArtifactError> {
        let pointer = format!("/artifacts/{file}/sha256");
        string(&self.path, &self.manifest, &pointer)
    }

    fn field(&self, field: impl Into<String>, problem: impl Into<String>) -> ArtifactError {
        ArtifactError::field(&self.path, field, problem)
    }
}

/// What the figures want to know of a row.
#[derive(Deserialize)]
struct FactsView {
    group_id: GroupIndex,
    dp_rank: Option<DpRank>,
    actual_input_tokens: u64,
    max_tokens: u64,
    shared_prefix_tokens: u64,
    theoretical_hit_tokens: u64,
}

impl FactsView {
    /// The row's facts; `None` where a count is beyond all sense.
    fn facts(self) -> Option<RequestFacts> {
        let counts = [
            self.actual_input_tokens,
            self.max_tokens,
            self.shared_prefix_tokens,
            self.theoretical_hit_tokens,
        ];
        counts
            .iter()
            .all(|count| *count <= TOKENS_MAX)
            .then_some(RequestFacts {
                group: self.group_id,
                dp_rank: self.dp_rank,
                input_tokens: self.actual_input_tokens,
                output_tokens: self.max_tokens,
                shared_prefix_tokens: self.shared_prefix_tokens,
                hit_tokens: self.theoretical_hit_tokens,
            })
    }
}

/// The rows of `full.jsonl`, one by one.
pub struct RowReader {
    source: LineSource,
    batch: Batch,
    next: usize,
}

impl Iterator for RowReader {
    type Item = Result<FullRow, ArtifactError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.batch.len() {
            self.next = 0;
            if let Err(error) = self.source.fill(&mut self.batch, BATCH_ROWS, BATCH_BYTES) {
                return Some(Err(error));
            }
            if self.batch.len() == 0 {
                return None;
            }
        }
        let (line, bytes) = self.batch.line(self.next);
        self.next += 1;
        Some(parse_line(&self.source.path, line, bytes))
    }
}

/// Reads one row of a JSONL file.
pub(crate) fn parse_line<'a, T: Deserialize<'a>>(
    path: &Path,
    line: usize,
    bytes: &'a [u8],
) -> Result<T, ArtifactError> {
    serde_json::from_slice(bytes).map_err(|error| ArtifactError::Unreadable {
        path: path.to_owned(),
        line: Some(line),
        problem: error.to_string(),
    })
}

/// Text and value of a JSON document whose top is an object.
pub(crate) fn read_document(path: &Path) -> Result<(String, Value), ArtifactError> {
    let unreadable = |problem: String| ArtifactError::Unreadable {
        path: path.to_owned(),
        line: None,
        problem,
    };
    let size = fs::metadata(path).map_err(at("read", path))?.len();
    if size > DOCUMENT_BYTES_MAX {
        return Err(unreadable(format!(
            "{size} bytes are more than {DOCUMENT_BYTES_MAX}"
        )));
    }
    let bytes = fs::read(path).map_err(at("read", path))?;
    let text = String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    if !value.is_object() {
        return Err(unreadable("the top level is no object".to_owned()));
    }
    Ok((text, value))
}

fn check_status(path: &Path, manifest: &Value) -> Result<(), ArtifactError> {
    let path = path.to_owned();
    match manifest["status"].as_str() {
        Some("inspected") => Err(ArtifactError::InspectOnly { path }),
        Some("incomplete") => Err(ArtifactError::Incomplete { path }),
        _ => Ok(()),
    }
}

fn check_versions(path: &Path, manifest: &Value) -> Result<(), ArtifactError> {
    let version = |what, found: &Value, expected: String| ArtifactError::Version {
        path: path.to_owned(),
        what,
        found: found
            .as_str()
            .map_or_else(|| found.to_string(), str::to_owned),
        expected,
    };
    let schema = &manifest["schema_version"];
    if !schema.is_null() && schema != SCHEMA_VERSION {
        return Err(version("schema_version", schema, SCHEMA_VERSION.to_owned()));
    }
    let format = &manifest["pcload"]["format_version"];
    let is_known = format.is_null() || format.as_u64().is_some_and(|met| met <= FORMAT_VERSION);
    if !is_known {
        let expected = format!("1 to {FORMAT_VERSION}");
        return Err(version("format_version", format, expected));
    }
    Ok(())
}

fn string<'a>(path: &Path, manifest: &'a Value, pointer: &str) -> Result<&'a str, ArtifactError> {
    manifest
        .pointer(pointer)
        .and_then(Value::as_str)
        .ok_or_else(|| ArtifactError::field(path, dotted(pointer), "is no text"))
}

fn count(path: &Path, manifest: &Value, pointer: &str) -> Result<u64, ArtifactError> {
    manifest
        .pointer(pointer)
        .and_then(Value::as_u64)
        .ok_or_else(|| ArtifactError::field(path, dotted(pointer), "is no count"))
}

fn dotted(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

/// The path of an artifact: the manifest's directory and its `name`, which must
/// be a single name.
fn beside(path: &Path, manifest: &Value, file: &str) -> Result<PathBuf, ArtifactError> {
    let pointer = format!("/artifacts/{file}/name");
    let name = string(path, manifest, &pointer)?;
    if Path::new(name).file_name().is_none_or(|last| last != name) {
        let problem = format!("`{name}` is no file name");
        return Err(ArtifactError::field(path, dotted(&pointer), problem));
    }
    Ok(path.with_file_name(name))
}

/// Older manifests do not name the analysis.
fn analysis_path(path: &Path, manifest: &Value) -> Result<PathBuf, ArtifactError> {
    if manifest.pointer("/artifacts/analysis").is_some() {
        return beside(path, manifest, "analysis");
    }
    let run_id = string(path, manifest, "/run_id")?;
    Ok(path.with_file_name(format!("{run_id}.analysis.json")))
}
