//! What a scenario and the command line say about a run, as the rooms that do
//! the work want to hear it.

#![allow(clippy::disallowed_methods, reason = "edge: reads load profiles")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, json};

use super::network::Network;
use crate::artifacts::{FullRow, PreparedSet};
use crate::cli::analyze::engine_choice;
use crate::cli::args::{Definitions, Driver, RunArgs};
use crate::cli::exit::Failure;
use crate::cli::inputs;
use crate::drive::NativeConfig;
use crate::drive::phases::{Patience, PhaseOptions, fresh_nonce};
use crate::plan::LoadPlan;
use crate::scenario::{CacheSalt, LoadProfile, PromptFormat, Scenario, SpecialTokens};
use crate::service::ControlSettings;
use crate::service::client::Timeouts;
use crate::stats::Percent;
use crate::tokenizer::Tokenizer as _;

/// What the command line says about the load.
#[derive(Clone, Debug)]
pub(crate) struct LoadChoice {
    /// The profile the command line asks for; `None` for the scenario's own.
    pub profile: Option<LoadProfile>,
    /// Threads that read streams.
    pub threads: usize,
    /// Limits of time.
    pub timeouts: Timeouts,
    /// How long a server may take to start; `None`: it must be up.
    pub wait_ready: Option<Duration>,
    /// Objectives, `ttft` / `tpot` / `e2el` to milliseconds; empty for those of
    /// the scenario.
    pub slo: BTreeMap<String, f64>,
    /// Percentiles besides the standard ones.
    pub percentiles: Vec<Percent>,
    /// Who sends, and by whose definitions it is reported.
    pub driver: DriverChoice,
    /// Whether the client's own error is measured after the run.
    pub calibrate: bool,
    /// How the service is reached.
    pub network: Network,
}

/// What the command line says about AISBench.
#[derive(Clone, Debug, Default)]
pub(crate) struct DriverChoice {
    /// Who sends.
    pub driver: Driver,
    /// Python to run it with.
    pub python: Option<PathBuf>,
    /// Configuration template.
    pub template: Option<PathBuf>,
    /// Whether its tables are computed from the records.
    pub definitions: Definitions,
}

impl DriverChoice {
    fn from_args(args: &RunArgs) -> Self {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        Self {
            driver: args.driver,
            python: args.python.clone(),
            template: args.config.as_ref().map(absolute),
            definitions: args.definitions,
        }
    }
}

impl Default for LoadChoice {
    fn default() -> Self {
        Self {
            profile: None,
            threads: 1,
            timeouts: Timeouts::default(),
            wait_ready: None,
            slo: BTreeMap::new(),
            percentiles: Vec::new(),
            driver: DriverChoice::default(),
            calibrate: false,
            network: Network::default(),
        }
    }
}

impl LoadChoice {
    /// As typed.
    pub(crate) fn from_args(args: &RunArgs) -> Result<Self, Failure> {
        let percentiles = args.percentiles.iter().map(|&percent| {
            Percent::new(percent).ok_or_else(|| {
                let message = format!("--percentiles: `{percent}` is not within 0 and 100");
                Failure::input("USAGE", message)
            })
        });
        Ok(Self {
            profile: profile_of(args)?,
            threads: args.threads.unwrap_or(1) as usize,
            timeouts: Timeouts {
                idle: args.idle_timeout,
                request: args.request_timeout,
                ..Timeouts::default()
            },
            wait_ready: args.wait_ready,
            slo: args
                .slo
                .as_deref()
                .map_or(Ok(BTreeMap::new()), objectives)?,
            percentiles: percentiles.collect::<Result<_, _>>()?,
            driver: DriverChoice::from_args(args),
            calibrate: args.calibrate,
            network: Network::from_args(args)?,
        })
    }
}

/// Reads `ttft=200ms,tpot=50ms,e2el=5s` into milliseconds.
fn objectives(text: &str) -> Result<BTreeMap<String, f64>, Failure> {
    let wrong = |part: &str| {
        let message = format!("--slo: `{part}` is not of the form ttft|tpot|e2el=<number>ms|s");
        Failure::input("USAGE", message)
    };
    let mut objectives = BTreeMap::new();
    for part in text.split(',').map(str::trim) {
        let (name, value) = part.split_once('=').ok_or_else(|| wrong(part))?;
        if !["ttft", "tpot", "e2el"].contains(&name) {
            return Err(wrong(part));
        }
        let (digits, factor) = match value.strip_suffix("ms") {
            Some(digits) => (digits, 1.0),
            None => (value.strip_suffix('s').ok_or_else(|| wrong(part))?, 1e3),
        };
        let number: f64 = digits.trim().parse().map_err(|_| wrong(part))?;
        if !(number > 0.0 && number.is_finite()) {
            return Err(wrong(part));
        }
        objectives.insert(name.to_owned(), number * factor);
    }
    Ok(objectives)
}

/// Everything a run is told.
#[derive(Debug)]
pub(super) struct Settings {
    /// For the control side.
    pub control: ControlSettings,
    /// For the phases.
    pub phases: PhaseOptions,
    /// For the driver.
    pub native: NativeConfig,
    /// When requests are released.
    pub load: LoadPlan,
    /// Tokens the server puts in front of each prompt.
    pub prefix_tokens: u64,
    /// Tokens it puts behind.
    pub suffix_tokens: u64,
    /// `add_special_tokens`, where it is sent.
    pub add_special_tokens: Option<bool>,
    /// The salt of this run.
    pub cache_salt: Option<String>,
    /// Time between two KV samples; zero for none.
    pub poll_interval: Duration,
    /// How long the server may take to start.
    pub wait_ready: Option<Duration>,
}

impl Settings {
    /// What `scenario` and `choice` say of running `rows`.
    pub(super) fn new(
        set: &PreparedSet,
        scenario: &Scenario,
        rows: &[FullRow],
        choice: &LoadChoice,
    ) -> Result<Self, Failure> {
        let control = control_settings(scenario);
        let (prefix_tokens, suffix_tokens) = added_tokens(set, scenario)?;
        let added = prefix_tokens + suffix_tokens;
        let longest = rows.iter().max_by_key(|row| row.actual_input_tokens);
        let longest_tokens = longest.map_or(0, |row| row.actual_input_tokens + added);
        let mut phases = PhaseOptions::new(
            scenario.tokenizer.block_size,
            longest_tokens,
            longest.map_or(0, |row| row.max_tokens),
        );
        phases.patience = patience(Duration::from_secs_f64(scenario.service.timeout_seconds));
        phases.assume_empty_cache = scenario.service.assume_empty_cache;
        phases.isolated_by_salt = scenario.pcload.cache_salt == Some(CacheSalt::PerRun);
        Ok(Self {
            cache_salt: control.cache_salt.clone(),
            control: choice.network.control(control),
            phases,
            native: choice.network.native(native_config(scenario, choice)),
            load: load_plan(scenario, rows.len(), choice)?,
            prefix_tokens,
            suffix_tokens,
            add_special_tokens: special_tokens_flag(scenario),
            poll_interval: Duration::from_secs_f64(scenario.service.poll_interval_seconds),
            wait_ready: choice.wait_ready,
        })
    }
}

/// The usual waits, none longer than `service.timeout_seconds`.
fn patience(timeout: Duration) -> Patience {
    let usual = Patience::default();
    Patience {
        settle: usual.settle.min(timeout),
        reset: usual.reset.min(timeout),
        ..usual
    }
}

/// Tokens that the server puts before and behind each prompt: by the manifest,
/// or, in a set of the reference tool, by the tokenizer.
fn added_tokens(set: &PreparedSet, scenario: &Scenario) -> Result<(u64, u64), Failure> {
    let view = &set.extension()["server_view"];
    let stated = |field: &str| view[field].as_array().map(|ids| ids.len() as u64);
    if let (Some(front), Some(behind)) = (
        stated("special_token_ids_front"),
        stated("special_token_ids_behind"),
    ) {
        return Ok((front, behind));
    }
    let bare = scenario.pcload.prompt_format == PromptFormat::TokenIds
        || scenario.pcload.add_special_tokens == SpecialTokens::Omit;
    if bare {
        return Ok((0, 0));
    }
    let tokenizer = inputs::tokenizer(scenario)?;
    Ok((
        tokenizer.prefix_ids().len() as u64,
        tokenizer.suffix_ids().len() as u64,
    ))
}

/// `add_special_tokens` as it is sent; `None` where it is not.
fn special_tokens_flag(scenario: &Scenario) -> Option<bool> {
    match scenario.pcload.add_special_tokens {
        SpecialTokens::Auto => None,
        SpecialTokens::Add => Some(true),
        SpecialTokens::Omit => Some(false),
    }
}

/// What the control side is told, with the salt of one run.
pub(crate) fn control_settings(scenario: &Scenario) -> ControlSettings {
    let service = &scenario.service;
    let cache_salt = match &scenario.pcload.cache_salt {
        None => None,
        Some(CacheSalt::Fixed(salt)) => Some(salt.clone()),
        Some(CacheSalt::PerRun) => Some(format!("pcload-{}", fresh_nonce())),
    };
    let mut extra_body = Map::new();
    if let Some(add) = special_tokens_flag(scenario) {
        extra_body.insert("add_special_tokens".to_owned(), json!(add));
    }
    ControlSettings {
        reset_url: service.reset_url.clone(),
        dp_size: service.dp_size,
        engine_label_map: service.engine_label_map.clone(),
        engine: engine_choice(scenario),
        timeout: Duration::from_secs_f64(service.timeout_seconds),
        api_key: service.api_key.clone(),
        cache_salt,
        extra_body,
        ..ControlSettings::new(&service.inference_url, &service.metrics_url, &service.model)
    }
}

fn native_config(scenario: &Scenario, choice: &LoadChoice) -> NativeConfig {
    let model = &scenario.aisbench.model;
    NativeConfig {
        api_key: scenario.service.api_key.clone(),
        stream: model.stream,
        retry: model.retry,
        timeouts: choice.timeouts,
        threads: choice.threads,
        ..NativeConfig::new(&scenario.service.inference_url)
    }
}

/// The profile of `--profile`, `--concurrency` or `--rate`.
fn profile_of(args: &RunArgs) -> Result<Option<LoadProfile>, Failure> {
    if let Some(path) = &args.profile {
        return read_profile(path).map(Some);
    }
    if let Some(rate) = args.rate {
        if !(rate > 0.0 && rate.is_finite()) {
            let message = format!("--rate must be a number above 0, not `{rate}`");
            return Err(Failure::input("USAGE", message));
        }
        return Ok(Some(LoadProfile::constant_rate(rate)));
    }
    Ok(args.concurrency.map(LoadProfile::closed))
}

fn read_profile(path: &Path) -> Result<LoadProfile, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| inputs::unreadable("load profile", path, &error))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let read = |file: &Path| fs::read(folder.join(file));
    LoadProfile::parse(&text, &read).map_err(|error| {
        Failure::from(error).hint(format!("in the load profile `{}`", path.display()))
    })
}

/// When requests are released: by the command line's profile, else the
/// scenario's, else a closed loop of `aisbench.model.batch_size`.
pub(crate) fn load_plan(
    scenario: &Scenario,
    request_count: usize,
    choice: &LoadChoice,
) -> Result<LoadPlan, Failure> {
    let profile = match (&choice.profile, &scenario.pcload.profile) {
        (Some(profile), _) => profile.clone(),
        (None, Some(path)) => read_profile(path)?,
        (None, None) => LoadProfile::closed(scenario.aisbench.model.batch_size),
    };
    Ok(LoadPlan::new(
        &profile,
        request_count,
        &scenario.run.random_seed,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_in_milliseconds_and_seconds() {
        let read = objectives("ttft=200ms, tpot=50.5ms,e2el=5s").unwrap();
        let expected = [("e2el", 5_000.0), ("tpot", 50.5), ("ttft", 200.0)];
        assert_eq!(
            read.iter()
                .map(|(name, ms)| (name.as_str(), *ms))
                .collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn objectives_that_say_nothing_are_refused() {
        for wrong in ["", "ttft", "ttft=200", "ttft=-1ms", "itl=5ms", "ttft=NaNms"] {
            assert!(objectives(wrong).is_err(), "{wrong}");
        }
    }
}
