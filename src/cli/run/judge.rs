//! From what happened to what it means: gathers the inputs of the judgment,
//! writes every file of the run, the analysis last.

#![allow(clippy::disallowed_methods, reason = "edge: files of the run")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::requests::planned_rows;
use super::sequence::{INTERRUPTED, Sequence, Told, cannot_write};
use super::settings::LoadChoice;
use super::{Finished, aisbench};
use crate::analyze::{
    self, Analysis, BlockFacts, ClientHealth, ColdProof, ControlFacts, Counters, Inputs, KvFacts,
    KvGauges, KvSample, Limits, ProfileFacts, Routing, StageFacts, StageLoad,
};
use crate::artifacts::{self, AnalysisStatus, KvPolling, MetricsPage, RankActual, RunOutcome};
use crate::cli::exit::{Exit, Failure};
use crate::drive::native::NativeOutcome;
use crate::drive::phases::{Proof, Reading, ResetOutcome};
use crate::measure::{Calibration, Outcome, interval_logs};
use crate::plan::{LoadPlan, Pace};
use crate::service::KvSamples;
use crate::units::{BlockSize, DpRank, RunOffset};

/// Judges the run that was told, and writes it down.
pub(super) fn judge(
    sequence: &Sequence<'_>,
    told: Told,
    choice: &LoadChoice,
    calibration: Option<Calibration>,
) -> Result<Finished, Failure> {
    let counters = counters(&told);
    let analysis = analysis(sequence, &told, &counters, choice, calibration)?;
    write_kv(&told.directory.kv(), &told.kv)?;
    write_histograms(&told)?;
    let failure = failure(sequence, &told, &counters);
    let by_aisbench = aisbench::definitions(choice, &sequence.settings.load, &told.outcome.records);
    let mut outcome = outcome(sequence, &told, &counters, &analysis)?;
    if let Some(tables) = &by_aisbench {
        outcome.extension["aisbench_definitions"] = to_value(tables)?;
    }
    let document = artifacts::record_run(sequence.set, &outcome, Some(&told.directory))?;
    tracing::info!(run = told.directory.number(), verdict = ?analysis.verdict, "written");
    Ok(Finished {
        document,
        analysis,
        directory: told.directory,
        by_aisbench,
        failure,
    })
}

fn counters(told: &Told) -> Counters {
    match &told.after {
        Ok(after) => Counters::between(&told.baseline.snapshot, &after.snapshot),
        Err(error) => Counters::Unavailable(format!("{}: {}", error.code, error.message)),
    }
}

fn analysis(
    sequence: &Sequence<'_>,
    told: &Told,
    counters: &Counters,
    choice: &LoadChoice,
    calibration: Option<Calibration>,
) -> Result<Analysis, Failure> {
    let scenario = sequence.scenario;
    let block = |tokens: Option<u64>| tokens.and_then(BlockSize::new);
    let limits = Limits {
        actual_warning_pp: scenario.validation.actual_warning_pp,
        ..Limits::default()
    };
    let slo = if choice.slo.is_empty() {
        &scenario.pcload.slo
    } else {
        &choice.slo
    };
    let inputs = Inputs {
        mode: scenario.prefix_cache.mode,
        block: BlockFacts {
            configured: scenario.tokenizer.block_size,
            engine: block(told.precheck.block.metric_tokens),
            measured: block(told.precheck.block.measured_tokens),
        },
        server_prefix_tokens: sequence.settings.prefix_tokens,
        server_suffix_tokens: sequence.settings.suffix_tokens,
        planned: &planned_rows(sequence.rows),
        records: &told.outcome.records,
        counters,
        engine: &told.precheck.facts,
        control: &control_facts(told),
        kv: &kv_facts(&told.kv, told.kv_origin),
        profile: &profile_facts(&sequence.settings.load, &told.outcome),
        client: &client_health(told, calibration),
        limits,
        slo,
        percentiles: &choice.percentiles,
        seed: &scenario.run.random_seed,
    };
    analyze::analyze(&inputs).map_err(|error| Failure::input("PLAN_MISMATCH", error.to_string()))
}

fn control_facts(told: &Told) -> ControlFacts {
    let reset = &told.reset;
    let found = reset
        .canaries
        .iter()
        .filter_map(|one| one.cached_tokens_after);
    // What failed where a fresh salt isolates the run was not needed.
    let assumed = reset.outcome == ResetOutcome::Assumed;
    let failure = reset.failure.as_ref().filter(|_| assumed);
    let cold = match (reset.outcome, reset.proof) {
        (ResetOutcome::IsolatedBySalt, _) | (_, Proof::Cold) => ColdProof::Proven,
        // That nothing was tried is all there is to say.
        (ResetOutcome::Assumed, Proof::Skipped) => ColdProof::Unknown,
        (_, Proof::NotCold) => ColdProof::NotCold {
            cached_tokens: found.sum(),
        },
        (_, Proof::Unproven | Proof::Skipped) => {
            let why = failure.map_or_else(
                || "the canaries do not tell".to_owned(),
                |failure| failure.message.clone(),
            );
            ColdProof::Unproven(why)
        }
    };
    let unverified = told.warmup.iter().flat_map(|report| &report.results);
    ControlFacts {
        cold,
        assumed_empty: failure.map(|failure| failure.message.clone()),
        routing: if told.precheck.routing_proven() {
            Routing::Proven
        } else {
            Routing::Unknown
        },
        warmup_missing: unverified
            .filter(|item| item.verified == Some(false))
            .map(|item| (item.group_id, item.dp_rank))
            .collect(),
        interrupted: told.interrupted,
    }
}

fn kv_facts(kv: &KvSamples, origin: RunOffset) -> KvFacts {
    let sample = |one: &crate::service::KvSample| KvSample {
        at: RunOffset(origin.nanos() + nanos(one.elapsed_seconds)),
        ranks: one
            .by_dp
            .iter()
            .map(|(rank, gauges)| {
                let gauges = KvGauges {
                    usage: gauges.kv_cache_usage,
                    running: gauges.requests_running,
                    waiting: gauges.requests_waiting,
                };
                (*rank, gauges)
            })
            .collect(),
    };
    KvFacts {
        samples: kv.samples.iter().map(sample).collect(),
        failures: kv.poll_failures,
    }
}

fn nanos(seconds: f64) -> u64 {
    RunOffset::from_duration(Duration::from_secs_f64(seconds.max(0.0))).nanos()
}

fn profile_facts(load: &LoadPlan, outcome: &NativeOutcome) -> ProfileFacts {
    let stages = load.stages.iter().zip(&outcome.stages);
    ProfileFacts {
        stages: stages
            .map(|(planned, went)| StageFacts {
                load: match &planned.pace {
                    Pace::Closed { concurrency, .. } => StageLoad::Closed {
                        concurrency: *concurrency,
                    },
                    Pace::Open {
                        rate_per_second,
                        max_in_flight,
                        ..
                    } => StageLoad::Open {
                        rate: *rate_per_second,
                        max_in_flight: *max_in_flight,
                    },
                },
                dropped: went.dropped() as u64,
            })
            .collect(),
    }
}

/// Of AISBench nothing is known.
fn client_health(told: &Told, calibration: Option<Calibration>) -> ClientHealth {
    if told.aisbench.is_some() {
        return ClientHealth::default();
    }
    let outcome = &told.outcome;
    ClientHealth {
        runtime_lag_p99_ms: outcome.health.runtime_lag.p99_us.map(|us| us / 1e3),
        cpu_share: Some(outcome.health.cpu_share),
        calibration,
    }
}

/// What went wrong since the formal phase began, the gravest first.
fn failure(sequence: &Sequence<'_>, told: &Told, counters: &Counters) -> Option<Failure> {
    let outcome = &told.outcome;
    if let Some(error) = &outcome.journal_error {
        let message = format!("records could not be written: {error}");
        return Some(Failure::world("FILE_UNWRITABLE", message));
    }
    if told.interrupted {
        let message = format!(
            "interrupted; {} records are written, {} requests were not sent",
            outcome.records.len(),
            outcome.unsent
        );
        return Some(Failure::new(Exit::Interrupted, INTERRUPTED, message));
    }
    let by_child = told.aisbench.as_ref();
    if let Some(failure) = by_child.and_then(|done| aisbench::failure(done, sequence.rows.len())) {
        return Some(failure);
    }
    if let Err(error) = &told.after {
        return Some(error.clone().into());
    }
    if let Counters::Delta { regressions, .. } = counters
        && let Some(first) = regressions.first()
    {
        let message = format!(
            "the counters of DP rank {} began anew during the run ({}); hit rates rest on usage, \
             latencies are kept",
            first.rank, first.counter
        );
        return Some(
            Failure::world("COUNTER_REGRESSED", message)
                .hint("an engine was restarted: repeat the run"),
        );
    }
    if let Counters::Unavailable(reason) = counters {
        return Some(Failure::world("COUNTERS_UNAVAILABLE", reason.clone()));
    }
    let succeeded = outcome
        .records
        .iter()
        .any(|record| record.outcome == Outcome::Success);
    if !succeeded {
        let first = outcome
            .records
            .iter()
            .find_map(|record| match &record.outcome {
                Outcome::Failure(failure) => Some(failure.message.clone()),
                Outcome::Success => None,
            });
        let message = format!(
            "no request succeeded; the first one said: {}",
            first.unwrap_or_else(|| "nothing".to_owned())
        );
        return Some(Failure::world("NO_REQUEST_SUCCEEDED", message));
    }
    None
}

fn outcome(
    sequence: &Sequence<'_>,
    told: &Told,
    counters: &Counters,
    analysis: &Analysis,
) -> Result<RunOutcome, Failure> {
    let child_failed = told
        .aisbench
        .as_ref()
        .is_some_and(|done| aisbench::failure(done, sequence.rows.len()).is_some());
    let status = match (told.interrupted, counters.total()) {
        (true, _) => AnalysisStatus::Interrupted,
        (false, None) => AnalysisStatus::Incomplete,
        (false, Some(_)) if child_failed => AnalysisStatus::Incomplete,
        (false, Some(_)) => AnalysisStatus::Complete,
    };
    let page = |reading: &Reading| MetricsPage {
        snapshot: reading.snapshot.clone(),
        text: reading.raw_prometheus.clone(),
    };
    let mut precheck = told.baseline.snapshot.clone();
    precheck
        .metric_names
        .clone_from(&told.precheck.metric_names);
    Ok(RunOutcome {
        status,
        phases: told.phases.clone(),
        precheck: Some(precheck),
        warmup: told.warmup.as_ref().map(|report| {
            let results = report.results.iter();
            results
                .map(|one| artifacts::WarmupResult {
                    group_id: one.group_id,
                    dp_rank: one.dp_rank,
                    success: one.success,
                    elapsed_seconds: one.elapsed_seconds,
                })
                .collect()
        }),
        baseline: Some(page(&told.baseline)),
        after: told.after.as_ref().ok().map(page),
        actual: actual(told, counters),
        aisbench_exit_code: told.aisbench.as_ref().and_then(|done| done.end.status),
        kv_polling: (told.kv.interval_seconds > 0.0).then(|| kv_polling(&told.kv)),
        warnings: warnings(sequence, told),
        extension: extension(sequence, told, analysis)?,
    })
}

/// Deltas by rank; nothing when a counter went backwards.
fn actual(told: &Told, counters: &Counters) -> Option<BTreeMap<DpRank, RankActual>> {
    counters.total()?;
    let after = told.after.as_ref().ok()?;
    Some(RankActual::by_rank(counters.ranks()?, &after.snapshot))
}

fn kv_polling(kv: &KvSamples) -> KvPolling {
    KvPolling {
        interval_seconds: kv.interval_seconds,
        samples: kv
            .samples
            .iter()
            .map(|sample| artifacts::KvSample {
                elapsed_seconds: sample.elapsed_seconds,
                by_rank: sample
                    .by_dp
                    .iter()
                    .map(|(rank, gauges)| (*rank, gauges.kv_cache_usage))
                    .collect(),
            })
            .collect(),
    }
}

/// Warnings of the phases, in the reference's list.
fn warnings(sequence: &Sequence<'_>, told: &Told) -> Vec<Value> {
    let warmup = told.warmup.iter().flat_map(|report| &report.warnings);
    told.precheck
        .warnings
        .iter()
        .chain(&told.reset.warnings)
        .chain(warmup)
        .map(|warning| json!(warning))
        .chain(sequence.aisbench.iter().flat_map(aisbench::warnings))
        .collect()
}

/// The analysis's own section: the judgment and what it rests on.
fn extension(sequence: &Sequence<'_>, told: &Told, analysis: &Analysis) -> Result<Value, Failure> {
    let mut section = to_value(analysis)?;
    section["run"] = json!({
        "number": told.directory.number(),
        "started_unix_ns": told.outcome.clock_start_unix_ns,
        "started_monotonic_ns": told.monotonic_start_ns,
        "driver": if told.aisbench.is_some() { "aisbench" } else { "native" },
    });
    if let (Some(done), Some(ready)) = (&told.aisbench, &sequence.aisbench) {
        section["aisbench"] = aisbench::section(done, ready);
    }
    section["precheck"] = to_value(&told.precheck)?;
    section["reset"] = to_value(&told.reset)?;
    section["warmup"] = to_value(&told.warmup)?;
    section["settle"] = json!({
        "baseline": told.baseline.settle,
        "after": told.after.as_ref().ok().map(|reading| &reading.settle),
    });
    let health = told.aisbench.is_none().then_some(&told.outcome.health);
    section["client_health"] = to_value(&health)?;
    Ok(section)
}

fn to_value(value: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value)
        .map_err(|error| Failure::world("ANALYSIS_UNWRITABLE", error.to_string()))
}

fn write_kv(path: &Path, kv: &KvSamples) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for sample in &kv.samples {
            serde_json::to_writer(&mut file, sample)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    };
    write().map_err(|error| cannot_write(path, &error))
}

/// One HDR log a metric, for windows, merging and plotting.
fn write_histograms(told: &Told) -> Result<(), Failure> {
    let outcome = &told.outcome;
    let start = UNIX_EPOCH + Duration::from_nanos(outcome.clock_start_unix_ns);
    for (name, log) in interval_logs(&outcome.records) {
        let path = told.directory.histogram(name);
        let mut text = Vec::new();
        log.write(start, &mut text)
            .map_err(|error| cannot_write(&path, &error))?;
        artifacts::write_atomic(&path, &text)?;
    }
    Ok(())
}
