//! The result of a probe on stdout: one line, the rows left to the record.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::probe::{
    BlockSource, DoseCase, Knee, NeedleCase, PoolShare, ProbeEnd, ProbeKind, ProbeRecord,
    ProbeVerdict, Totals,
};

/// What is printed.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Summary<'a> {
    /// Always `pcload.probe`.
    kind: &'a str,
    /// Which probe.
    probe: ProbeKind,
    /// The caller's label of what is under test.
    arm: Option<&'a str>,
    /// Verdict.
    verdict: ProbeVerdict,
    /// How it came to its end.
    end: ProbeEnd,
    /// Checked turns, or needles.
    checked_count: usize,
    /// Of them passed.
    passed_count: usize,
    /// The turns and cases that failed, named.
    failures: Vec<String>,
    /// Block of the verdicts; null without one.
    block_tokens: Option<u64>,
    /// Where it comes from.
    block_source: BlockSource,
    /// Retention interval, tokens; 0 for none.
    retention_tokens: u64,
    /// Knee, where one was searched for.
    knee: Option<&'a Knee>,
    /// The knee as a share of the KV pool.
    knee_share: Option<PoolShare>,
    /// Doses in the order tried.
    doses: &'a [DoseCase],
    /// Needles in the order tried.
    needles: &'a [NeedleCase],
    /// Verdict of the single arm, where one is quoted.
    control: Option<ProbeVerdict>,
    /// Turns and cases left out, and why.
    not_reached: &'a [String],
    /// Sums over all requests.
    totals: Totals,
    /// Path of the record.
    record: String,
    /// Path of the report, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<String>,
}

impl<'a> Summary<'a> {
    /// The summary of `record`, which lies at `path`, and its report at `html`.
    pub(in crate::cli) fn new(record: &'a ProbeRecord, path: &Path, html: Option<&Path>) -> Self {
        Self {
            kind: &record.kind,
            probe: record.probe,
            arm: record.arm.as_deref(),
            verdict: record.verdict,
            end: record.end,
            checked_count: record.checked_count,
            passed_count: record.passed_count,
            failures: record.failures(),
            block_tokens: record.block_tokens,
            block_source: record.block_source,
            retention_tokens: record.retention_tokens,
            knee: record.knee.as_ref(),
            knee_share: record.knee_share,
            doses: &record.doses,
            needles: &record.needles,
            control: record.control.as_ref().map(|control| control.verdict),
            not_reached: &record.not_reached,
            totals: record.totals,
            record: path.to_string_lossy().into_owned(),
            html: html.map(|html| html.to_string_lossy().into_owned()),
        }
    }
}
