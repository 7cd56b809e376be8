//! `analysis.json` after a run or an `analyze`: what the counters said, set
//! against the theory. Everything but the counters is computed afresh from the
//! rows, so that a repeated run starts from a clean list of warnings.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::artifacts::dataset::analysis;
use crate::artifacts::figures::{Figures, status};
use crate::artifacts::{ArtifactError, PreparedSet, RunDirectory, pyjson, write_document};
use crate::engine::{RankDelta, Snapshot};
use crate::units::{DpRank, GroupIndex, ratio};

/// How far the work behind an analysis came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnalysisStatus {
    /// A run from beginning to end.
    Complete,
    /// Recorded metrics pages, without a run.
    Analyzed,
    /// A run whose counters could not be read at its end.
    Incomplete,
    /// A run that the user ended.
    Interrupted,
}

/// What one rank's counters counted between baseline and after.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankActual {
    /// Prompt tokens looked up.
    pub queries: u64,
    /// Prompt tokens found.
    pub hits: u64,
    /// Share of the KV pool in use after the run, 0..=1.
    pub kv_cache_usage: Option<f64>,
}

impl RankActual {
    /// What each rank gained, with the gauges of the page that was read last.
    pub fn by_rank(
        gained: &BTreeMap<DpRank, RankDelta>,
        after: &Snapshot,
    ) -> BTreeMap<DpRank, Self> {
        let of_rank = |(rank, delta): (&DpRank, &RankDelta)| {
            let gauges = after.ranks.get(rank);
            let actual = Self {
                queries: delta.queries,
                hits: delta.hits,
                kv_cache_usage: gauges.and_then(|gauges| gauges.kv_cache_usage),
            };
            (*rank, actual)
        };
        gained.iter().map(of_rank).collect()
    }
}

/// The samples of the KV poller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KvPolling {
    /// Planned time between two samples.
    pub interval_seconds: f64,
    /// All samples, in time.
    pub samples: Vec<KvSample>,
}

/// One sample: the share of the KV pool in use, by rank; `None` where the page
/// did not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KvSample {
    /// Time since polling began.
    pub elapsed_seconds: f64,
    /// Usage, 0..=1.
    pub by_rank: BTreeMap<DpRank, Option<f64>>,
}

/// One request of the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WarmupResult {
    /// Whose prefix it brought.
    pub group_id: GroupIndex,
    /// Where to.
    pub dp_rank: DpRank,
    /// Whether the server answered.
    pub success: bool,
    /// From send to answer.
    pub elapsed_seconds: f64,
}

/// A metrics page: what was read from it, and its text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsPage {
    /// What was read.
    pub snapshot: Snapshot,
    /// The page itself.
    pub text: String,
}

/// What happened in a run, or was handed to `analyze`.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// How far it came.
    pub status: AnalysisStatus,
    /// Phases that were begun, in order; empty for `analyze`.
    pub phases: Vec<&'static str>,
    /// The page read in precheck; `None` for `analyze`.
    pub precheck: Option<Snapshot>,
    /// Warm-up requests; `None` from a cold start.
    pub warmup: Option<Vec<WarmupResult>>,
    /// The page before the formal phase.
    pub baseline: Option<MetricsPage>,
    /// The page after it.
    pub after: Option<MetricsPage>,
    /// After less baseline; `None` where it could not be read.
    pub actual: Option<BTreeMap<DpRank, RankActual>>,
    /// Exit status of the AISBench child; 0 for the native driver.
    pub aisbench_exit_code: Option<i32>,
    /// KV samples; `None` where polling was off.
    pub kv_polling: Option<KvPolling>,
    /// Warnings from the run itself, e.g. `ASSUME_EMPTY_CACHE`; each an object
    /// with a `code`.
    pub warnings: Vec<Value>,
    /// The analysis's own `pcload` section.
    pub extension: Value,
}

/// Writes the analysis of `outcome`: into the run's directory, when there is
/// one, and as the set's newest `analysis.json`. Returns what was written.
pub fn record_run(
    set: &PreparedSet,
    outcome: &RunOutcome,
    run: Option<&RunDirectory>,
) -> Result<Value, ArtifactError> {
    let figures = Figures::new(set.cache_settings()?, &set.facts()?);
    let threshold_pp: f64 = set.config("validation.actual_warning_pp")?;
    let document = outcome.document(&figures, set.run_id(), threshold_pp);
    if let Some(run) = run {
        write_document(&run.analysis(), &document)?;
    }
    write_document(set.analysis_path(), &document)?;
    Ok(document)
}

/// The text of a prepared analysis. Its ranks stand in numeric order: the
/// reference writes them from integers, and from text in every later version
/// of the file.
pub(crate) fn prepared_text(analysis: &Value) -> String {
    let mut sorted = pyjson::sorted(analysis);
    if let Some(Value::Object(ranks)) = sorted.pointer_mut("/theory/dp") {
        let mut by_number: Vec<(String, Value)> = std::mem::take(ranks).into_iter().collect();
        by_number.sort_by_key(|(rank, _)| rank.parse::<u32>().unwrap_or(u32::MAX));
        *ranks = by_number.into_iter().collect();
    }
    let mut text = pyjson::indented(&sorted);
    text.push('\n');
    text
}

impl RunOutcome {
    pub(crate) fn document(&self, figures: &Figures, run_id: &str, threshold_pp: f64) -> Value {
        let mut document = analysis(figures, run_id);
        let actual_rate = self.global_hit_rate();
        let signed_pp = actual_rate.map(|rate| (rate - figures.theoretical_hit_rate()) * 100.0);
        let absolute_pp = signed_pp.map(f64::abs);
        let deviates = absolute_pp.is_some_and(|pp| pp > threshold_pp);
        let mut warnings = figures.target_warnings();
        warnings.extend(self.warnings.iter().cloned());
        if deviates {
            warnings.push(json!({"code": "ACTUAL_DEVIATION", "difference_pp": absolute_pp}));
        }
        document["status"] = json!(self.status);
        document["runtime"] = self.runtime();
        document["actual"] = self.actual();
        document["theory_actual_difference_pp"] = json!(absolute_pp);
        document["theory_actual_signed_difference_pp"] = json!(signed_pp);
        document["theory_actual_absolute_difference_pp"] = json!(absolute_pp);
        document["validation"]["status"] = status(&warnings).into();
        let actual_status = if deviates {
            "PASS_WITH_WARNING"
        } else {
            "PASS"
        };
        document["validation"]["actual_status"] = actual_status.into();
        document["warnings"] = Value::Array(warnings);
        if !self.extension.is_null() {
            document["pcload"] = self.extension.clone();
        }
        document
    }

    fn global_hit_rate(&self) -> Option<f64> {
        let ranks = self.actual.as_ref()?;
        let queries = ranks.values().map(|one| one.queries).sum();
        ratio(ranks.values().map(|one| one.hits).sum(), queries)
    }

    fn actual(&self) -> Value {
        let Some(ranks) = &self.actual else {
            return Value::Null;
        };
        let polled = self.kv_polling.as_ref();
        let by_dp: Map<String, Value> = ranks
            .iter()
            .map(|(rank, one)| {
                let mut section = json!({
                    "queries": one.queries,
                    "hits": one.hits,
                    "hit_rate": ratio(one.hits, one.queries),
                    "kv_cache_usage": one.kv_cache_usage,
                });
                if let Some(polling) = polled {
                    let usage = polling.usage_of(*rank);
                    section["kv_cache_usage_peak"] = json!(usage.peak);
                    section["kv_cache_usage_avg"] = json!(usage.mean);
                }
                (rank.to_string(), section)
            })
            .collect();
        let all = polled.map(KvPolling::usage).unwrap_or_default();
        json!({
            "by_dp": by_dp,
            "global_queries": ranks.values().map(|one| one.queries).sum::<u64>(),
            "global_hits": ranks.values().map(|one| one.hits).sum::<u64>(),
            "global_hit_rate": self.global_hit_rate(),
            "global_kv_cache_usage_peak": all.peak,
            "global_kv_cache_usage_avg": all.mean,
        })
    }

    fn runtime(&self) -> Value {
        let mut runtime = Map::new();
        if !self.phases.is_empty() {
            runtime.insert("phases".to_owned(), json!(self.phases));
        }
        if let Some(snapshot) = &self.precheck {
            let ranks: Vec<DpRank> = snapshot.ranks.keys().copied().collect();
            let section = json!({
                "ok": true,
                "ranks": ranks,
                "metric_names": metric_names(snapshot),
            });
            runtime.insert("precheck".to_owned(), section);
        }
        if let Some(warmup) = &self.warmup {
            runtime.insert("warmup".to_owned(), json!(warmup));
        }
        for (name, page) in [
            ("metrics_baseline", &self.baseline),
            ("metrics_after", &self.after),
        ] {
            if let Some(page) = page {
                runtime.insert(name.to_owned(), page.section());
            }
        }
        if let Some(code) = self.aisbench_exit_code {
            runtime.insert("aisbench_exit_code".to_owned(), code.into());
        }
        if let Some(polling) = &self.kv_polling {
            runtime.insert("kv_cache_polling".to_owned(), polling.section());
        }
        Value::Object(runtime)
    }
}

impl MetricsPage {
    fn section(&self) -> Value {
        let by_dp: Map<String, Value> = self
            .snapshot
            .ranks
            .iter()
            .map(|(rank, one)| {
                let section = json!({
                    "queries": one.queries,
                    "hits": one.hits,
                    "kv_cache_usage": one.kv_cache_usage,
                });
                (rank.to_string(), section)
            })
            .collect();
        json!({
            "by_dp": by_dp,
            "metric_names": metric_names(&self.snapshot),
            "raw_prometheus": self.text,
        })
    }
}

/// The three names of the reference's format.
fn metric_names(snapshot: &Snapshot) -> Value {
    let names: Map<String, Value> = ["queries", "hits", "kv"]
        .into_iter()
        .filter_map(|key| {
            let name = snapshot.metric_names.get(key)?;
            Some((key.to_owned(), name.as_str().into()))
        })
        .collect();
    Value::Object(names)
}

/// Peak and plain mean of some samples; nothing for none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Usage {
    count: usize,
    peak: Option<f64>,
    mean: Option<f64>,
}

impl Usage {
    fn new(samples: impl Iterator<Item = f64>) -> Self {
        let (mut count, mut sum, mut peak) = (0, 0.0, f64::NEG_INFINITY);
        for sample in samples {
            count += 1;
            sum += sample;
            peak = peak.max(sample);
        }
        Self {
            count,
            peak: (count > 0).then_some(peak),
            mean: (count > 0).then(|| sum / count as f64),
        }
    }
}

impl KvPolling {
    fn usage_of(&self, rank: DpRank) -> Usage {
        Usage::new(self.samples_of(rank))
    }

    fn samples_of(&self, rank: DpRank) -> impl Iterator<Item = f64> {
        self.samples
            .iter()
            .filter_map(move |sample| sample.by_rank.get(&rank).copied().flatten())
    }

    fn ranks(&self) -> impl Iterator<Item = DpRank> {
        let ranks = self.samples.iter().flat_map(|sample| sample.by_rank.keys());
        ranks
            .copied()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
    }

    /// Over all samples of all ranks.
    fn usage(&self) -> Usage {
        Usage::new(self.ranks().flat_map(|rank| self.samples_of(rank)))
    }

    fn section(&self) -> Value {
        let by_dp: Map<String, Value> = self
            .ranks()
            .map(|rank| {
                let usage = self.usage_of(rank);
                let section = json!({
                    "peak": usage.peak,
                    "avg": usage.mean,
                    "sample_count": usage.count,
                });
                (rank.to_string(), section)
            })
            .collect();
        let all = self.usage();
        json!({
            "interval_seconds": self.interval_seconds,
            "count": self.samples.len(),
            "summary": {
                "count": self.samples.len(),
                "by_dp": by_dp,
                "global_peak": all.peak,
                "global_avg": all.mean,
            },
            "samples": self.samples.iter().map(KvSample::section).collect::<Vec<_>>(),
        })
    }
}

impl KvSample {
    fn section(&self) -> Value {
        let by_dp: Map<String, Value> = self
            .by_rank
            .iter()
            .map(|(rank, usage)| (rank.to_string(), json!(usage)))
            .collect();
        json!({
            "elapsed_seconds": (self.elapsed_seconds * 1000.0).round() / 1000.0,
            "by_dp": by_dp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one place where keys are in the order of numbers.
    #[test]
    fn ranks_of_a_prepared_analysis_are_in_numeric_order() {
        let ranks: Map<String, Value> = [10, 2, 0]
            .map(|rank| (rank.to_string(), json!({})))
            .into_iter()
            .collect();
        let text = prepared_text(
            &json!({"theory": {"groups": {"group-2": 1, "group-10": 2}, "dp": ranks}}),
        );
        let keys: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split('"').nth(1))
            .collect();
        assert_eq!(
            keys,
            [
                "theory", "dp", "0", "2", "10", "groups", "group-10", "group-2"
            ]
        );
    }
}
