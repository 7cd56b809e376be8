//! The deep check: derives everything anew that a set says of itself. Rows are
//! replayed, figures recomputed, documents compared, and with the tokenizer at
//! hand every prompt is tokenized again and its layout proved.
//!
//! It shares the arithmetic of the figures with the writer (the recorded sets
//! of the reference prove that one) and nothing of solver, plan and prompts.

mod documents;
mod prompts;
mod replay;

use std::path::Path;

use rayon::prelude::*;
use serde_json::{Value, json};

use crate::artifacts::figures::Figures;
use crate::artifacts::lines::{Batch, LineSource};
use crate::artifacts::reader::parse_line;
use crate::artifacts::validate::validate_set;
use crate::artifacts::{
    ArtifactError, FINDINGS_MAX, Finding, FullRow, PreparedSet, ValidateReport,
};
use crate::tokenizer::Tokenizer;

use prompts::PromptCheck;
use replay::Replay;

/// Rows that are in memory at once.
const BATCH_ROWS: usize = 512;

/// Bytes of rows after which a batch ends.
const BATCH_BYTES: usize = 8 << 20;

/// What a set is that survived the deep check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeepReport {
    /// What the plain check says.
    pub plain: ValidateReport,
    /// Prompts that were tokenized again; 0 without a tokenizer.
    pub retokenized: u64,
}

impl DeepReport {
    /// What `validate --deep` prints.
    pub fn summary(&self) -> Value {
        let mut summary = self.plain.summary();
        summary["deep"] = json!({"retokenized": self.retokenized});
        summary
    }
}

/// Contradictions found so far; the list is bounded, the count is not.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    total: usize,
}

impl Findings {
    pub(crate) fn add(&mut self, code: &'static str, message: impl Into<String>) {
        self.total += 1;
        if self.list.len() < FINDINGS_MAX {
            let message = message.into();
            self.list.push(Finding { code, message });
        }
    }

    /// Adds a finding unless `holds`.
    pub(crate) fn check(
        &mut self,
        holds: bool,
        code: &'static str,
        message: impl FnOnce() -> String,
    ) {
        if !holds {
            self.add(code, message());
        }
    }

    fn into_result(self) -> Result<(), ArtifactError> {
        if self.total == 0 {
            return Ok(());
        }
        Err(ArtifactError::Inconsistent {
            findings: self.list,
            total: self.total,
        })
    }
}

/// Checks the set of `manifest` as [`validate`](super::validate()) does, then
/// everything that can be derived anew; with `tokenizer` the prompts too. All
/// contradictions are reported together.
pub fn validate_deep(
    manifest: &Path,
    tokenizer: Option<&dyn Tokenizer>,
) -> Result<DeepReport, ArtifactError> {
    let set = PreparedSet::open(manifest)?;
    let plain = validate_set(&set)?;
    let figures = Figures::new(set.cache_settings()?, &set.facts()?);
    let mut findings = Findings::default();
    let mut replay = Replay::new(&set, &figures)?;
    let mut prompts = tokenizer
        .map(|tokenizer| PromptCheck::new(&set, tokenizer, &mut findings))
        .transpose()?
        .flatten();
    let mut source = LineSource::open(set.full_path())?;
    let mut batch = Batch::default();
    loop {
        source.fill(&mut batch, BATCH_ROWS, BATCH_BYTES)?;
        if batch.bytes().is_empty() {
            break;
        }
        let rows = parse_rows(&source.path, &batch)?;
        for row in &rows {
            replay.row(row, &mut findings);
        }
        if let Some(prompts) = &mut prompts {
            prompts.rows(&rows, &mut findings);
        }
    }
    if let Some(prompts) = &mut prompts {
        prompts.finish(&mut findings)?;
    }
    documents::check(&set, &plain, &figures, &mut findings)?;
    let retokenized = prompts.map_or(0, |prompts| prompts.prompt_count());
    findings.into_result()?;
    Ok(DeepReport { plain, retokenized })
}

fn parse_rows(path: &Path, batch: &Batch) -> Result<Vec<FullRow>, ArtifactError> {
    (0..batch.len())
        .into_par_iter()
        .map(|place| {
            let (line, bytes) = batch.line(place);
            parse_line(path, line, bytes)
        })
        .collect()
}
