//! A run as it lies on the disk: its analysis, its records, the set it belongs
//! to. Found by manifest, by the run's directory, or by its `analysis.json`.

#![allow(clippy::disallowed_methods, reason = "edge: reads the files of a run")]

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

use super::exit::Failure;
use super::inputs;
use crate::analyze::compare::Aspect;
use crate::analyze::{Analysis, StageReport};
use crate::artifacts::{PreparedSet, RunDirectory};
use crate::measure::RequestRecord;
use crate::report::HtmlFacts;

/// The records of a run, beside its analysis.
const RECORDS: &str = "records.jsonl";

/// Longest line of `records.jsonl` that is read, bytes.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// One run on the disk.
pub(super) struct StoredRun {
    /// The set, where its manifest is beside it.
    pub set: Option<PreparedSet>,
    /// The run's directory; `None` for an analysis that lies alone.
    pub directory: Option<PathBuf>,
    /// Its `analysis.json`.
    pub path: PathBuf,
    /// What stands in it.
    pub document: Value,
    /// The judgment in it; `None` for an analysis of another program, or of
    /// `pcload analyze`, which has no records to judge.
    pub analysis: Option<Analysis>,
}

impl StoredRun {
    /// Run `number` of a set, else its newest. A set without run directories may
    /// have an analysis all the same.
    pub(super) fn of_set(set: PreparedSet, number: Option<u32>) -> Result<Self, Failure> {
        let runs = RunDirectory::all(&set)?;
        let wanted = |run: &&RunDirectory| {
            number.map_or_else(|| run.analysis().is_file(), |number| run.number() == number)
        };
        let found = runs.iter().rev().find(wanted);
        match (found, number) {
            (Some(run), _) => {
                let (path, directory) = (run.analysis(), run.path().to_owned());
                Self::open(Some(set), path, Some(directory))
            }
            (None, Some(number)) => Err(no_such_run(number, &runs)),
            (None, None) => {
                let path = set.analysis_path().to_owned();
                Self::open(Some(set), path, None)
            }
        }
    }

    /// The run in `directory`, or the newest run of the set in it.
    pub(super) fn of_directory(directory: &Path) -> Result<Self, Failure> {
        let analysis = directory.join("analysis.json");
        if analysis.is_file() {
            let result = directory.parent().and_then(Path::parent);
            let set = result
                .and_then(manifest_in)
                .map(|path| PreparedSet::open(&path));
            return Self::open(set.transpose()?, analysis, Some(directory.to_owned()));
        }
        let inside = directory.join("result");
        if let Some(manifest) = manifest_in(directory).or_else(|| manifest_in(&inside)) {
            return Self::of_set(PreparedSet::open(&manifest)?, None);
        }
        if directory.join(RECORDS).is_file() {
            return Err(not_judged(directory));
        }
        let message = format!(
            "`{}` holds neither `analysis.json` nor a manifest",
            directory.display()
        );
        Err(Failure::input("NO_RUN", message)
            .hint("name a manifest, a directory `result/runs/<n>`, or an `analysis.json`"))
    }

    /// The run behind an `analysis.json`, a run's own or the newest of a set.
    pub(super) fn of_analysis(path: &Path) -> Result<Self, Failure> {
        let folder = path.parent().unwrap_or(Path::new("."));
        if path.file_name().is_some_and(|name| name == "analysis.json") {
            return Self::of_directory(folder);
        }
        let alone = Self::open(None, path.to_owned(), None)?;
        let number = alone.document["pcload"]["run"]["number"].as_u64();
        let number = number.and_then(|number| u32::try_from(number).ok());
        match (manifest_in(folder), number) {
            (Some(manifest), Some(number)) => {
                Self::of_set(PreparedSet::open(&manifest)?, Some(number))
            }
            _ => Ok(alone),
        }
    }

    fn open(
        set: Option<PreparedSet>,
        path: PathBuf,
        directory: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let document = document(&path)?;
        let section = &document["pcload"];
        let analysis = if section.is_object() {
            let read = Analysis::deserialize(section).map_err(|error| {
                let message = format!("`{}`: {error}", path.display());
                Failure::input("ANALYSIS_UNREADABLE", message)
                    .hint("it may come from another version; run `pcload run` again")
            });
            Some(read?)
        } else {
            None
        };
        Ok(Self {
            set,
            directory,
            path,
            document,
            analysis,
        })
    }

    /// The judgment, or what is missing.
    pub(super) fn judgment(&self) -> Result<&Analysis, Failure> {
        self.analysis.as_ref().ok_or_else(|| {
            let message = format!(
                "`{}` holds no `pcload` section: hit rates, but no findings, latencies or \
                 accounts",
                self.path.display()
            );
            Failure::input("NO_JUDGMENT", message)
                .hint("measure the set with `pcload run --manifest`")
        })
    }

    /// The records, in the order in which they ended.
    pub(super) fn records(&self) -> Result<Vec<RequestRecord>, Failure> {
        let Some(directory) = &self.directory else {
            let message = format!("`{}` has no records beside it", self.path.display());
            return Err(Failure::input("NO_RECORDS", message)
                .hint("name the run's own directory, `result/runs/<n>`"));
        };
        let path = directory.join(RECORDS);
        let file =
            File::open(&path).map_err(|error| inputs::unreadable("records", &path, &error))?;
        let mut reader = BufReader::new(file);
        let mut records = Vec::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = std::io::Read::take(&mut reader, RECORD_BYTES_MAX);
            let read = limited
                .read_until(b'\n', &mut line)
                .map_err(|error| inputs::unreadable("records", &path, &error))?;
            if read == 0 {
                return Ok(records);
            }
            let record = serde_json::from_slice(&line).map_err(|error| {
                let place = records.len() + 1;
                let message = format!("`{}`, line {place}: {error}", path.display());
                Failure::input("RECORDS_UNREADABLE", message)
            })?;
            records.push(record);
        }
    }

    /// What to call it: run id and number, or the path.
    pub(super) fn name(&self) -> String {
        let id = self.document["run_id"].as_str();
        let number = self.document["pcload"]["run"]["number"].as_u64();
        match (id, number) {
            (Some(id), Some(number)) => format!("{id}, run {number}"),
            (Some(id), None) => id.to_owned(),
            _ => self.path.display().to_string(),
        }
    }

    /// What two runs are told apart by.
    pub(super) fn aspects(&self) -> Vec<(Aspect, String)> {
        let section = &self.document["pcload"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let manifest = self.set.as_ref().map(PreparedSet::manifest);
        let of_set = |pointer: &str| text(manifest?.pointer(pointer)?);
        let analysis = self.analysis.as_ref();
        let all = [
            (Aspect::DataSet, of_set("/artifacts/full/sha256")),
            (
                Aspect::Engine,
                text(&section["precheck"]["facts"]["engine"]),
            ),
            (Aspect::Model, of_set("/effective_config/service/model")),
            (
                Aspect::BlockSize,
                analysis.map(|analysis| analysis.hits.block_size_tokens.to_string()),
            ),
            (
                Aspect::Profile,
                analysis.map(|analysis| profile(&analysis.stages)),
            ),
            (Aspect::Mode, of_set("/effective_config/prefix_cache/mode")),
            (Aspect::Driver, text(&section["run"]["driver"])),
        ];
        let known = |(aspect, value): (Aspect, Option<String>)| Some((aspect, value?));
        all.into_iter().filter_map(known).collect()
    }

    /// What a report says of the run besides its analysis.
    pub(super) fn facts(&self) -> HtmlFacts {
        facts(
            &self.name(),
            self.set.as_ref(),
            &self.document,
            self.aspects(),
        )
    }
}

fn facts(
    title: &str,
    set: Option<&PreparedSet>,
    document: &Value,
    aspects: Vec<(Aspect, String)>,
) -> HtmlFacts {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: &Value| match value {
        Value::Null => {}
        Value::String(text) => facts.push((name.to_owned(), text.clone())),
        other => facts.push((name.to_owned(), other.to_string())),
    };
    for (aspect, value) in aspects {
        add(aspect.name(), &value.into());
    }
    let section = &document["pcload"];
    add("started", &started(section).into());
    let engine = &section["precheck"]["facts"];
    add("KV blocks of a rank", &engine["num_gpu_blocks"]);
    add("prefix caching", &engine["prefix_caching"]);
    add(
        "longest context, tokens",
        &section["precheck"]["max_model_len"],
    );
    add("cache emptied by", &section["reset"]["outcome"]);
    if let Some(set) = set {
        let manifest = set.manifest();
        add("requests", &manifest["requests"]["count"]);
        add("scenario", &manifest["scenario_path"]);
        add("scenario, SHA-256", &manifest["scenario_sha256"]);
        add(
            "configuration, SHA-256",
            &manifest["effective_config_sha256"],
        );
        add("corpus, SHA-256", &manifest["corpus_sha256"]);
        add(
            "tokenizer, SHA-256",
            &manifest["tokenizer"]["fingerprint_sha256"],
        );
        add("set made by", &manifest["plugin_version"]);
        add("configuration", set.effective_config());
    }
    HtmlFacts {
        title: title.to_owned(),
        facts,
    }
}

/// Wall clock of the first moment of the run, UTC.
fn started(section: &Value) -> Option<String> {
    let nanos = section["run"]["started_unix_ns"].as_u64()?;
    let moment = jiff::Timestamp::from_nanosecond(i128::from(nanos)).ok()?;
    Some(moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// A load profile in words, stage by stage.
fn profile(stages: &[StageReport]) -> String {
    let words =
        stages.iter().map(
            |stage| match (stage.target_concurrency, stage.offered_per_second) {
                (Some(concurrency), _) => format!("closed, {concurrency} in flight"),
                (None, Some(rate)) => format!("open, {rate} a second"),
                (None, None) => "open, all at once".to_owned(),
            },
        );
    words.collect::<Vec<_>>().join("; then ")
}

/// Reads a JSON document.
pub(super) fn document(path: &Path) -> Result<Value, Failure> {
    let bytes = fs::read(path).map_err(|error| {
        let killed =
            error.kind() == io::ErrorKind::NotFound && path.with_file_name(RECORDS).is_file();
        match path.parent().filter(|_| killed) {
            Some(directory) => not_judged(directory),
            None => inputs::unreadable("analysis", path, &error),
        }
    })?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("`{}` is not JSON: {error}", path.display());
        Failure::input("ANALYSIS_UNREADABLE", message)
    })
}

/// A run that was killed: what was measured is there, and no more.
fn not_judged(directory: &Path) -> Failure {
    let message = format!(
        "`{}` has records and no analysis: the run was ended before it was judged",
        directory.display()
    );
    Failure::input("NO_JUDGMENT", message).hint("run the set again: `pcload run --manifest`")
}

/// The one manifest in a folder.
fn manifest_in(folder: &Path) -> Option<PathBuf> {
    let mut found = fs::read_dir(folder).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_manifest = path.to_str()?.ends_with(".manifest.json");
        is_manifest.then_some(path)
    });
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Run `number` of a set, else the newest that was judged.
pub(super) fn run_of(set: &PreparedSet, number: Option<u32>) -> Result<RunDirectory, Failure> {
    let runs = RunDirectory::all(set)?;
    if let Some(number) = number {
        let found = runs.iter().find(|run| run.number() == number).cloned();
        return found.ok_or_else(|| no_such_run(number, &runs));
    }
    let judged = runs.into_iter().rev().find(|run| run.analysis().is_file());
    judged.ok_or_else(|| {
        let failure = Failure::input("NO_RUN", "no run of the set was judged");
        failure.hint("`pcload run --manifest` runs it")
    })
}

fn no_such_run(number: u32, runs: &[RunDirectory]) -> Failure {
    let failure = Failure::input("NO_RUN", format!("the set has no run {number}"));
    match (runs.first(), runs.last()) {
        (Some(first), Some(last)) => failure.hint(format!(
            "its runs are {} to {}",
            first.number(),
            last.number()
        )),
        _ => failure.hint("it has not been run: `pcload run --manifest`"),
    }
}
