//! One formal phase by AISBench: files written, child watched, results
//! collected.
#![allow(clippy::disallowed_methods, reason = "edge: files of the run")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::AisbenchError;
use super::child::{ChildEnd, ChildPlan, watch};
use super::collect::{Collected, collect, last_line, names, scrub};
use super::ready::{Ready, is_plain};
use super::render::{Classes, Plan, command, configuration, dataset};
use super::requests::AisbenchRow;
use crate::measure::RequestRecord;
use crate::measure::aisbench::to_record;
use crate::secret::Redactor;
use crate::service::bounded;
use crate::service::clock::RunClock;

/// Module of the adapter's classes.
const ADAPTER: &str = include_str!("pcload_aisbench.py");
/// Runs a template.
const TEMPLATE: &str = include_str!("template.py");
/// Longest time a template may take; its imports alone take some seconds.
const TEMPLATE_TIMEOUT: Duration = Duration::from_secs(300);
/// Name of the configuration file.
pub(super) const CONFIG: &str = "config.py";

/// Name of the data set.
pub(super) const DATASET: &str = "dataset.jsonl";

/// What AISBench has brought.
#[derive(Clone, Debug)]
pub struct AisbenchOutcome {
    /// How its process ended.
    pub end: ChildEnd,
    /// Its arguments.
    pub command: Vec<String>,
    /// Whose classes sent the requests.
    pub classes: Classes,
    /// One record a request it knows of, in send order.
    pub records: Vec<RequestRecord>,
    /// What was found of its results.
    pub collected: Collected,
}

/// Runs `ready` with its files in `folder`, which is made. Offsets in the
/// records are on `clock`.
pub async fn run(
    ready: &Ready<'_>,
    folder: &Path,
    clock: &RunClock,
    stop: &CancellationToken,
    abort: &CancellationToken,
) -> Result<AisbenchOutcome, AisbenchError> {
    // The child has a working folder of its own.
    let folder = &std::path::absolute(folder).map_err(AisbenchError::io("find", folder))?;
    make(folder)?;
    // AISBench hangs in a folder whose path has a blank.
    let elsewhere = if is_plain(&folder.to_string_lossy()) {
        None
    } else {
        let temporary = tempfile::Builder::new()
            .prefix("pcload-aisbench-")
            .tempdir();
        Some(temporary.map_err(AisbenchError::io("make a folder for", folder))?)
    };
    let place = elsewhere
        .as_ref()
        .map_or(folder.as_path(), |temporary| temporary.path());
    let redactor = redactor(ready);
    let outcome = run_in(ready, place, clock, stop, abort).await;
    scrub(place, &redactor)?;
    if let Ok(outcome) = &outcome
        && let Some(results) = &outcome.collected.folder
    {
        scrub(results, &redactor)?;
    }
    if elsewhere.is_some() {
        copy(place, folder)?;
    }
    outcome
}

async fn run_in(
    ready: &Ready<'_>,
    place: &Path,
    clock: &RunClock,
    stop: &CancellationToken,
    abort: &CancellationToken,
) -> Result<AisbenchOutcome, AisbenchError> {
    let tokenizer = tokenizer_folder(&ready.options.tokenizer, place)?;
    let plan = ready.plan(place.join(DATASET), tokenizer);
    write_inputs(&plan, &ready.rows, place)?;
    let work_dir = &ready.scenario.aisbench.work_dir;
    make(work_dir)?;
    let variables = variables(ready, &plan, place);
    let template = ready.template();
    if let Some(template) = &template {
        from_template(ready, template, place, &variables).await?;
    }
    let extra = &ready.scenario.aisbench.extra_args.0;
    let args = command(&place.join(CONFIG), work_dir, extra)?;
    let before = names(work_dir);
    let child = ChildPlan {
        program: ready.python.path.clone(),
        args: args.clone(),
        variables,
        folder: place.to_owned(),
        watched: vec![place.to_owned(), work_dir.clone()],
        silence: ready.options.silence,
        output: ready.options.quiet.then(|| place.join("output.log")),
    };
    let end = watch(&child, stop, abort)
        .await
        .map_err(AisbenchError::io("run", &ready.python.path))?;
    let (model, data) = match template {
        Some(_) => of_template(work_dir, &before),
        None => (plan.model_abbr(), plan.dataset_abbr()),
    };
    let collected = collect(
        work_dir,
        &before,
        (&model, &data),
        &ready.python.path,
        place,
    )
    .await;
    Ok(AisbenchOutcome {
        end,
        command: args,
        classes: ready.classes,
        records: records(ready, &collected, clock),
        collected,
    })
}

/// Configuration, data set and the adapter's classes.
pub(super) fn write_inputs(
    plan: &Plan<'_>,
    rows: &[AisbenchRow],
    place: &Path,
) -> Result<(), AisbenchError> {
    write(&place.join(DATASET), &dataset(rows))?;
    write(&place.join("pcload_aisbench.py"), ADAPTER)?;
    write(&place.join(CONFIG), &configuration(plan))
}

/// Records of the requests that belong to a row of the set, in send order.
fn records(ready: &Ready<'_>, collected: &Collected, clock: &RunClock) -> Vec<RequestRecord> {
    let origin = clock.monotonic_start_ns();
    let streamed = ready.scenario.aisbench.model.stream;
    let redactor = redactor(ready);
    let record = |(detail, times)| {
        let (detail, times): &(_, _) = &(detail, times);
        let detail: &crate::measure::aisbench::Detail = detail;
        let row = ready.rows.get(usize::try_from(detail.id).ok()?)?;
        let mut detail = detail.clone();
        detail.error_info = detail
            .error_info
            .map(|info| bounded(&redactor.clean(&info)));
        Some(to_record(&row.sent, &detail, times, origin, streamed))
    };
    let mut records: Vec<RequestRecord> = collected
        .requests
        .iter()
        .cloned()
        .filter_map(record)
        .collect();
    records.sort_by_key(|record| record.sequence_index);
    records.dedup_by_key(|record| record.sequence_index);
    records
}

/// What the child learns through the environment.
fn variables(ready: &Ready<'_>, plan: &Plan<'_>, place: &Path) -> Vec<(&'static str, String)> {
    let inherited = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let joined = |first: String, name: &str, separator: &str| match inherited(name) {
        Some(rest) => format!("{first}{separator}{rest}"),
        None => first,
    };
    let host = url::Url::parse(&ready.scenario.service.inference_url);
    let host = host.ok().and_then(|url| url.host_str().map(str::to_owned));
    let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
    let mut variables = vec![
        // Its monitor draws on any other terminal.
        ("TERM", "dumb".to_owned()),
        ("HF_HUB_OFFLINE", "1".to_owned()),
        ("PYTHONPATH", joined(text(place), "PYTHONPATH", ":")),
        ("NO_PROXY", joined(host.clone(), "NO_PROXY", ",")),
        ("no_proxy", joined(host, "no_proxy", ",")),
        ("AISBENCH_PREFIX_CACHE_SCENARIO", text(&ready.scenario.path)),
        (
            "AISBENCH_PREFIX_CACHE_MANIFEST",
            text(&ready.options.set.manifest),
        ),
        (
            "AISBENCH_PREFIX_CACHE_WORK_DIR",
            text(&ready.scenario.aisbench.work_dir),
        ),
    ];
    if let Some(key) = ready.scenario.service.api_key.expose() {
        variables.push(("PCLOAD_AISBENCH_KEY", key.to_owned()));
    }
    if let Some(url) = plan.hidden_url() {
        variables.push(("PCLOAD_AISBENCH_URL", url));
    }
    variables
}

/// Runs a template in AISBench's own Python and writes what it defines.
async fn from_template(
    ready: &Ready<'_>,
    template: &Path,
    place: &Path,
    variables: &[(&'static str, String)],
) -> Result<(), AisbenchError> {
    let refused = |message: String| AisbenchError::Template {
        path: template.to_owned(),
        message,
    };
    let run = Command::new(&ready.python.path)
        .args(["-c", TEMPLATE])
        .arg(template)
        .arg(place.join(CONFIG))
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(place)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(TEMPLATE_TIMEOUT, run)
        .await
        .map_err(|_| refused("it takes too long".to_owned()))?
        .map_err(AisbenchError::io("run", template))?;
    if output.status.success() {
        Ok(())
    } else {
        let said = last_line(&output.stderr);
        Err(refused(bounded(&redactor(ready).clean(&said))))
    }
}

/// Names that a template chose, by what AISBench made of them: the only model
/// folder, and the only table in it.
fn of_template(work_dir: &Path, before: &std::collections::BTreeSet<PathBuf>) -> (String, String) {
    let after = names(work_dir);
    let model = after
        .difference(before)
        .max()
        .and_then(|folder| names(&folder.join("performances")).pop_first());
    let stem = |path: &Path| {
        path.file_stem()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    let data = model.as_ref().and_then(|folder| {
        let entries = fs::read_dir(folder).ok()?.flatten();
        let paths = entries.map(|entry| entry.path());
        paths
            .filter(|path| path.to_string_lossy().ends_with("_details.jsonl"))
            .map(|path| stem(&path).trim_end_matches("_details").to_owned())
            .min()
    });
    let name = model.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    (name.unwrap_or_default(), data.unwrap_or_default())
}

/// AISBench loads the tokenizer even where it counts nothing, and its loader
/// wants a second file beside `tokenizer.json`.
pub(super) fn tokenizer_folder(file: &Path, place: &Path) -> Result<PathBuf, AisbenchError> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let is_usual = file
        .file_name()
        .is_some_and(|name| name == "tokenizer.json");
    if is_usual && folder.join("tokenizer_config.json").is_file() {
        return Ok(folder.to_owned());
    }
    let made = place.join("tokenizer");
    make(&made)?;
    fs::copy(file, made.join("tokenizer.json")).map_err(AisbenchError::io("copy", file))?;
    let config = json!({"tokenizer_class": "PreTrainedTokenizerFast"});
    write(&made.join("tokenizer_config.json"), &config.to_string())?;
    Ok(made)
}

fn redactor(ready: &Ready<'_>) -> Redactor {
    let service = &ready.scenario.service;
    Redactor::new(&service.api_key, [service.inference_url.as_str()])
}

pub(super) fn make(folder: &Path) -> Result<(), AisbenchError> {
    fs::create_dir_all(folder).map_err(AisbenchError::io("make", folder))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), AisbenchError> {
    fs::write(path, text).map_err(AisbenchError::io("write", path))
}

/// Copies the files of a folder and of those in it.
fn copy(from: &Path, to: &Path) -> Result<(), AisbenchError> {
    make(to)?;
    let entries = fs::read_dir(from).map_err(AisbenchError::io("list", from))?;
    for entry in entries.flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(AisbenchError::io("copy", &path))?;
        }
    }
    Ok(())
}
