//! Joins plan, records and counters into a judgment: what the numbers are, how
//! far they can be believed, and why theory and outcome differ. A pure function
//! of its inputs; it formats nothing and reads nothing.

mod account;
mod attribution;
mod cache_checks;
mod capacity;
mod coarse;
pub mod compare;
mod counters;
mod executed;
mod findings;
mod gaps;
mod inputs;
mod lanes;
mod latency;
pub mod parity;
mod pool;
mod pressure;
mod races;
mod rows;
mod run_checks;
mod series;
mod stages;
mod throughput;
mod traffic;
pub mod vllm_bench;
mod worth;

#[cfg(test)]
mod account_tests;
#[cfg(test)]
mod attribution_tests;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod run_tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use account::{AccountRow, ActualRate, HitAccounts, HitLine, Overlap, RateSource};
pub use attribution::{AttributedRequest, Attribution, Cause, CauseTotal};
pub use capacity::CapacityTheory;
pub use counters::{CounterRates, Counters, Regression};
pub use findings::{Code, Finding, Severity, Verdict};
pub use inputs::{
    BlockFacts, ClientHealth, ColdProof, ControlFacts, Inputs, KvFacts, KvGauges, KvSample, Limits,
    PlannedRow, ProfileFacts, Routing, StageFacts, StageLoad,
};
pub use latency::{
    ItlMethod, ItlSummary, LatencyReport, Metric, MetricIntervals, TimestampSourceName,
};
pub use pressure::{KvReport, KvUse};
pub use series::{ChartSeries, CumulativePoint, KvSeries, LaneSeries, PercentileCurve, TimeSlice};
pub use stages::{StageReport, Steady};
pub use throughput::{Goodput, Throughput};
pub use traffic::Traffic;
pub use worth::{HitWorth, WorthFit};

use crate::theory::ServerView;
use crate::units::RunOffset;
use account::{RowTheory, account};
use cache_checks::{CacheScene, cache_findings};
use gaps::PooledGaps;
use run_checks::{RunScene, run_findings};

/// Version of the document [`Analysis`] is.
pub const ANALYSIS_VERSION: &str = "1";

/// Records and plan that do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnalyzeError {
    /// A record of no planned request.
    #[error("PLAN_MISMATCH: record `{request_id}` (sequence {sequence_index}) is not in the plan")]
    UnknownRequest {
        /// Its id.
        request_id: String,
        /// Its place.
        sequence_index: u32,
    },
    /// Two records of one request.
    #[error("PLAN_MISMATCH: two records for `{request_id}`")]
    DuplicateRecord {
        /// Its id.
        request_id: String,
    },
    /// Plan rows out of order.
    #[error("PLAN_MISMATCH: row {place} of the plan has sequence {sequence_index}")]
    PlanOrder {
        /// Its line.
        place: usize,
        /// What it says.
        sequence_index: u32,
    },
}

/// Whether everything that belongs to a run is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Yes.
    Complete,
    /// Something is missing, such as the counters.
    Incomplete,
    /// The user ended it.
    Interrupted,
}

/// The judgment of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Analysis {
    /// [`ANALYSIS_VERSION`].
    pub version: String,
    /// Whether everything is there.
    pub status: RunStatus,
    /// Whether the numbers can be believed.
    pub verdict: Verdict,
    /// Why not, the gravest first.
    pub findings: Vec<Finding>,
    /// Cold or warm-up.
    #[schemars(with = "String")]
    pub mode: crate::scenario::CacheMode,
    /// The hit-rate account.
    pub hits: HitAccounts,
    /// What the counters should have counted.
    pub traffic: Traffic,
    /// Why tokens were lost.
    pub attribution: Attribution,
    /// What a hit is worth.
    pub worth: HitWorth,
    /// Latencies of the successes of the measure phase.
    pub latency: LatencyReport,
    /// Rates of the measure phase.
    pub throughput: Throughput,
    /// Requests that met every objective; absent without objectives.
    pub goodput: Option<Goodput>,
    /// Failures of all phases by kind.
    pub failures: BTreeMap<String, u64>,
    /// Stages of the profile.
    pub stages: Vec<StageReport>,
    /// KV pool use.
    pub kv: KvReport,
    /// How well the client kept time.
    pub client: ClientHealth,
    /// Series for charts.
    pub series: ChartSeries,
}

/// Judges one run.
pub fn analyze(inputs: &Inputs<'_>) -> Result<Analysis, AnalyzeError> {
    let rows = rows::join(inputs)?;
    let order = rows::counted_in_send_order(&rows);
    let view = ServerView {
        block_size: inputs.block.effective(),
        special_prefix_tokens: inputs.server_prefix_tokens,
        special_suffix_tokens: inputs.server_suffix_tokens,
    };
    let theory = RowTheory::of(view, inputs, &rows);
    let traffic = Traffic::of(inputs.counters, view, &rows);
    let hits = account(inputs, view, &rows, &theory, &traffic);
    let kv = pressure::kv_report(inputs.kv, end_of_run(&rows));
    let pressure = pressure::Pressure::of(inputs, view, &rows, &kv);
    let attribution = attribution::attribute(inputs, view, &rows, &theory, &traffic, &pressure);
    let worth = worth::worth(
        &rows,
        &theory.executed,
        &order,
        inputs.percentiles,
        inputs.seed,
    );
    let pooled = PooledGaps::of(&rows, &order);
    let (latency, (throughput, series)) = rayon::join(
        || latency::latency(inputs, &rows, &order, &pooled),
        || {
            let throughput = throughput::throughput(throughput::measured(&rows, None));
            let series = series::series(inputs, view, &rows, &theory, &order, &pooled);
            (throughput, series)
        },
    );
    let failures = failures(&rows);
    let mut findings = cache_findings(&CacheScene {
        inputs,
        view,
        rows: &rows,
        hits: &hits,
        traffic: &traffic,
        attribution: &attribution,
        pressure: &pressure,
    });
    findings.extend(run_findings(&RunScene {
        inputs,
        rows: &rows,
        latency: &latency,
        failures: &failures,
        overtakings: &lanes::overtakings(&rows),
        worth: &worth,
    }));
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.code));
    Ok(Analysis {
        version: ANALYSIS_VERSION.to_owned(),
        status: status(inputs),
        verdict: findings::verdict(&findings),
        findings,
        mode: inputs.mode,
        goodput: throughput::goodput(inputs.slo, &rows, &throughput),
        stages: stages::stages(inputs, &rows, &order),
        client: *inputs.client,
        hits,
        traffic,
        attribution,
        worth,
        latency,
        throughput,
        failures,
        kv,
        series,
    })
}

fn status(inputs: &Inputs<'_>) -> RunStatus {
    if inputs.control.interrupted {
        RunStatus::Interrupted
    } else if inputs.counters.total().is_none() {
        RunStatus::Incomplete
    } else {
        RunStatus::Complete
    }
}

fn end_of_run(rows: &[rows::Row<'_>]) -> RunOffset {
    rows.iter()
        .filter_map(|row| row.record?.ended_at())
        .max()
        .unwrap_or_default()
}

fn failures(rows: &[rows::Row<'_>]) -> BTreeMap<String, u64> {
    let mut by_kind = BTreeMap::new();
    for record in rows.iter().filter_map(|row| row.record) {
        if let crate::measure::Outcome::Failure(failure) = &record.outcome {
            *by_kind.entry(failure.kind.as_str().to_owned()).or_default() += 1;
        }
    }
    by_kind
}
