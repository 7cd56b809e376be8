//! AISBench as the driver of a run: what it is told, and its outcome as the
//! native driver's, so that one judgment serves both.

#![allow(clippy::disallowed_methods, reason = "edge: writes the records")]

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use serde_json::{Map, Value, json};
use tokio::runtime::Builder;

use super::interrupt::Interrupts;
use super::settings::{LoadChoice, Settings};
use crate::artifacts::{FullRow, PreparedSet, RunDirectory};
use crate::cli::args::Definitions;
use crate::cli::exit::{Exit, Failure};
use crate::cli::runtime;
use crate::drive::aisbench::{
    self, AisbenchError, AisbenchOutcome, AisbenchRow, Options, Ready, SetPaths,
};
use crate::drive::health::ClientHealth;
use crate::drive::native::{NativeOutcome, StageOutcome};
use crate::measure::RequestRecord;
use crate::measure::aisbench::{Results, SentRow, StageRule, Timed, recompute};
use crate::plan::{LoadPlan, Pace, PlannedEnd};
use crate::scenario::{PromptFormat, Scenario};
use crate::service::clock::RunClock;
use crate::tokenizer;

/// Folder of AISBench's files in that of the run.
const FOLDER: &str = "aisbench";

impl From<AisbenchError> for Failure {
    fn from(error: AisbenchError) -> Self {
        let exit = if error.is_input() {
            Exit::Input
        } else {
            Exit::World
        };
        let failure = Self::new(exit, error.code(), error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// What AISBench is told of a run.
pub(super) fn options(
    set: &PreparedSet,
    scenario: &Scenario,
    settings: &Settings,
    choice: &LoadChoice,
    quiet: bool,
) -> Result<Options, Failure> {
    if scenario.pcload.prompt_format == PromptFormat::TokenIds {
        let message = "it sends text, not token ids";
        return Err(AisbenchError::Unsupported(message.to_owned()).into());
    }
    let config = &scenario.tokenizer;
    Ok(Options {
        python: choice.driver.python.clone(),
        template: choice.driver.template.clone(),
        slots: slots(&settings.load)?,
        extra_body: extra_body(settings),
        run_id: set.run_id().to_owned(),
        set: paths(set),
        tokenizer: tokenizer::locate(&config.path, &config.base_dir, config.revision.as_deref())?,
        silence: choice.timeouts.request,
        quiet,
    })
}

/// Body fields that are no generation arguments.
fn extra_body(settings: &Settings) -> Map<String, Value> {
    let add = settings.add_special_tokens;
    let salt = settings.cache_salt.as_deref();
    let fields = [
        ("add_special_tokens", add.map(Value::from)),
        ("cache_salt", salt.map(Value::from)),
    ];
    fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Where the set lies, seen from anywhere.
fn paths(set: &PreparedSet) -> SetPaths {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    SetPaths {
        full: absolute(set.full_path()),
        requests: absolute(set.requests_path()),
        manifest: absolute(set.path()),
    }
}

/// The rows of the set as AISBench gets them.
pub(super) fn rows(rows: &[FullRow], settings: &Settings) -> Vec<AisbenchRow> {
    let added = settings.prefix_tokens + settings.suffix_tokens;
    rows.iter()
        .map(|row| AisbenchRow {
            sent: SentRow {
                sequence_index: row.sequence_index,
                request_id: row.request_id.clone(),
                group: row.group_id,
                dp_rank: row.dp_rank,
                lane_sequence: row.lane_sequence,
                planned_prompt_tokens: row.actual_input_tokens + added,
                max_tokens: row.max_tokens,
            },
            prompt: row.question.clone(),
            answer: row.answer.clone(),
        })
        .collect()
}

/// Whether AISBench can run the set, known without sending anything.
pub(super) fn check(
    set: &PreparedSet,
    scenario: &Scenario,
    settings: &Settings,
    choice: &LoadChoice,
    full: &[FullRow],
) -> Result<(), Failure> {
    let options = options(set, scenario, settings, choice, true)?;
    let runtime = runtime::build(&mut Builder::new_current_thread())?;
    let ready = aisbench::prepare(scenario, options, rows(full, settings));
    runtime.block_on(ready)?;
    Ok(())
}

/// Writes the set for AISBench alone.
pub(in crate::cli) fn export(
    set: &PreparedSet,
    scenario: &Scenario,
    folder: &Path,
) -> Result<aisbench::Exported, Failure> {
    let full = set.load_rows()?;
    let settings = Settings::new(set, scenario, &full, &LoadChoice::default())?;
    let config = &scenario.tokenizer;
    let tokenizer = tokenizer::locate(&config.path, &config.base_dir, config.revision.as_deref())?;
    Ok(aisbench::export(
        scenario,
        set.run_id(),
        (&tokenizer, paths(set)),
        extra_body(&settings),
        &rows(&full, &settings),
        folder,
    )?)
}

/// AISBench knows one kind of load that can be repeated: a closed loop of fixed
/// concurrency over the whole set. Its arrival times are drawn without a seed.
fn slots(load: &LoadPlan) -> Result<u32, AisbenchError> {
    let [stage] = load.stages.as_slice() else {
        let message = "its load has one stage".to_owned();
        return Err(AisbenchError::Unsupported(message));
    };
    let whole = match stage.end {
        PlannedEnd::Rest => true,
        PlannedEnd::Requests(count) => count == load.request_count,
        PlannedEnd::Duration(_) => false,
    };
    match &stage.pace {
        Pace::Closed {
            from, concurrency, ..
        } if from == concurrency && whole => Ok(*concurrency),
        _ => Err(AisbenchError::Unsupported(
            "it can only repeat a closed loop of fixed concurrency over the whole set".to_owned(),
        )),
    }
}

/// The formal phase by AISBench.
pub(super) async fn drive(
    ready: &Ready<'_>,
    interrupts: &Interrupts,
    directory: &RunDirectory,
    clock: &RunClock,
) -> Result<(NativeOutcome, Option<AisbenchOutcome>), Failure> {
    let folder = directory.path().join(FOLDER);
    let started = clock.now();
    let (first, second) = (&interrupts.first, &interrupts.second);
    let done = aisbench::run(ready, &folder, clock, first, second).await?;
    let path = directory.records();
    let journal_error = write_records(&path, &done.records).err();
    let sent = done.records.len();
    let outcome = NativeOutcome {
        records: done.records.clone(),
        clock_start_unix_ns: clock.wall_start_unix_ns(),
        started,
        ended: clock.now(),
        stages: vec![StageOutcome {
            started,
            offered: sent,
            sent,
            offered_per_second: None,
            concurrency: None,
            ramp_seconds: 0.0,
        }],
        unsent: ready.rows.len() - sent,
        interrupted: done.end.interrupted,
        health: ClientHealth::default(),
        journal_error,
    };
    Ok((outcome, Some(done)))
}

fn write_records(path: &Path, records: &[RequestRecord]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for record in records {
        serde_json::to_writer(&mut file, record)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// What went wrong with AISBench, which does not say so by its exit status
/// alone: it ends with 0 when half of its requests are missing.
pub(super) fn failure(done: &AisbenchOutcome, row_count: usize) -> Option<Failure> {
    let (end, collected) = (&done.end, &done.collected);
    let kept = format!("{} of {row_count} requests are known", done.records.len());
    let failed = |code: &str, what: String| Some(Failure::world(code, format!("{what}; {kept}")));
    match (end.stalled, end.signal, end.status) {
        (true, _, _) => failed(
            "AISBENCH_STALLED",
            "AISBench did nothing any more".to_owned(),
        ),
        (_, Some(signal), _) => failed(
            "AISBENCH_KILLED",
            format!("AISBench was ended by signal {signal}"),
        ),
        (_, _, Some(0)) if !collected.problems.is_empty() => {
            failed("AISBENCH_RESULTS", collected.problems.join("; "))
        }
        (_, _, Some(0)) if done.records.len() != row_count => {
            let what = "AISBench's results do not hold every row of the set";
            failed("AISBENCH_RESULTS", what.to_owned())
        }
        (_, _, Some(0)) => None,
        (_, _, status) => {
            let status = status.map_or_else(|| "?".to_owned(), |status| status.to_string());
            failed(
                "AISBENCH_FAILED",
                format!("AISBench failed with exit code {status}"),
            )
            .map(|failure| failure.hint("its own words stand above, and in its `logs` folder"))
        }
    }
}

/// The tables of AISBench's definitions, computed from the records; `None`
/// where they are not asked for, or nothing succeeded.
pub(super) fn definitions(
    choice: &LoadChoice,
    load: &LoadPlan,
    records: &[RequestRecord],
) -> Option<Results> {
    if choice.driver.definitions == Definitions::Pcload {
        return None;
    }
    let successes: Vec<Timed> = records.iter().filter_map(Timed::of).collect();
    let failed = (records.len() - successes.len()) as u64;
    let slots = load.stages.iter().filter_map(|stage| match stage.pace {
        Pace::Closed { concurrency, .. } => Some(concurrency),
        Pace::Open { max_in_flight, .. } => max_in_flight,
    });
    let slots = slots.max().unwrap_or(0);
    recompute(&successes, failed, slots, StageRule::Total)
}

/// What the analysis says of AISBench.
pub(super) fn section(done: &AisbenchOutcome, ready: &Ready<'_>) -> Value {
    json!({
        "version": ready.python.version,
        "python": ready.python.path.to_string_lossy(),
        "classes": done.classes,
        "command": done.command,
        "end": done.end,
        "results_folder": done.collected.folder.as_ref().map(|path| path.to_string_lossy()),
        "results": done.collected.results,
        "problems": done.collected.problems,
    })
}

/// Warnings of a run by AISBench.
pub(super) fn warnings(ready: &Ready<'_>) -> Vec<Value> {
    let args = &ready.scenario.aisbench.extra_args.0;
    let value = args.iter().enumerate().rev().find_map(|(place, argument)| {
        match argument.strip_prefix("--num-warmups") {
            Some("") => args.get(place + 1).cloned(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        }
    });
    if value.is_none_or(|value| value == "0") {
        return Vec::new();
    }
    vec![json!({
        "code": "AISBENCH_WARMUP",
        "message": "AISBench's own warm-up sends rows of the measured set after the baseline: \
                    its requests are counted, and later hit themselves",
    })]
}
