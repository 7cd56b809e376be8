//! `pcload run`: the whole online sequence on one prepared set. This file tells
//! the story; the rest of the folder knows the details.
//!
//! precheck → reset → warm-up → baseline → formal → after → analysis. Whatever
//! stops the story after the formal phase has begun, what was measured is
//! written first.

mod ab;
mod aisbench;
mod both;
mod interrupt;
mod judge;
mod live;
mod network;
mod requests;
mod sequence;
mod settings;
mod show;

use std::path::Path;
use std::time::Duration;

use tokio::runtime::Builder;

use super::args::{Driver, Global, RunArgs};
use super::dataset::Planned;
use super::exit::{Exit, Failure};
use super::inputs::{self, Materials};
use super::output::Voice;
use super::{calibrate, logging, output, report, runtime, secrets, signals};
use crate::analyze::{Analysis, Verdict};
use crate::artifacts::{self, Decision, PreparedSet, Purpose, RunDirectory, pyjson};
use crate::drive;
use crate::measure::aisbench::Results;
use crate::measure::{Calibration, seen_load};
use crate::scenario::{self, ManifestPurpose, ManifestScenario, Scenario};

pub(super) use aisbench::export;
pub(super) use settings::{LoadChoice, control_settings, load_plan};

/// About how long the client is calibrated after a run.
const CALIBRATION: Duration = Duration::from_secs(5);
/// Most streams that are calibrated at; each needs two descriptors.
const CALIBRATED_STREAMS_MAX: u32 = 10_000;
/// Shortest gap that is calibrated at: chunks of a run that come in bursts
/// have gaps near 0, which no server could send alone.
const CALIBRATED_ITL_MIN: Duration = Duration::from_millis(1);
/// Longest gap that is calibrated at.
const CALIBRATED_ITL_MAX: Duration = Duration::from_millis(500);

/// Runs the command.
pub(super) fn run(args: &RunArgs, global: &Global) -> Result<Exit, Failure> {
    let choice = LoadChoice::from_args(args)?;
    let (set, scenario) = match (&args.scenario, &args.manifest) {
        (Some(scenario), _) => from_scenario(scenario, global)?,
        (None, Some(manifest)) => from_manifest(manifest, global)?,
        (None, None) => unreachable!("clap asks for one of the two"),
    };
    artifacts::validate(set.path())?;
    if let Some(base) = &args.ab {
        return ab::run(&set, &scenario, &choice, args, base, global);
    }
    if args.driver == Driver::Both {
        return both::run(&set, &scenario, &choice, args, global);
    }
    let finished = execute(&set, &scenario, &choice, global)?;
    if let Some(html) = &args.html {
        report::write_html(finished.directory.path(), html)?;
        global.voice().say(&format!("report: {}", html.display()));
    }
    output::print(&(pyjson::indented(&finished.document) + "\n"))?;
    Ok(finished.exit(args.strict))
}

/// A run that came to its end, well or not.
pub(super) struct Finished {
    /// What was written as `analysis.json`.
    pub document: serde_json::Value,
    /// The judgment in it.
    pub analysis: Analysis,
    /// Where the run's files are.
    pub directory: RunDirectory,
    /// The latencies by AISBench's definitions, where they were asked for.
    pub by_aisbench: Option<Results>,
    /// What went wrong after the formal phase had begun.
    pub failure: Option<Failure>,
}

impl Finished {
    /// The exit status of the command: what went wrong first, then whether the
    /// answer is no.
    pub(super) fn exit(&self, strict: bool) -> Exit {
        if let Some(failure) = &self.failure {
            logging::failed(failure);
            output::complain(&failure.render());
            return failure.exit;
        }
        let missed = self
            .analysis
            .goodput
            .as_ref()
            .is_some_and(|goodput| goodput.met_ratio.is_some_and(|ratio| ratio < 1.0));
        if missed || (strict && self.analysis.verdict == Verdict::Invalid) {
            Exit::No
        } else {
            Exit::Done
        }
    }
}

/// Runs `set` against the service of `scenario`, and judges what came back.
pub(super) fn execute(
    set: &PreparedSet,
    scenario: &Scenario,
    choice: &LoadChoice,
    global: &Global,
) -> Result<Finished, Failure> {
    let voice = global.voice();
    // Of several runs, one that comes after an interrupt does not begin.
    signals::check()?;
    let rows = set.load_rows()?;
    let settings = settings::Settings::new(set, scenario, &rows, choice)?;
    let runtime = runtime::build(Builder::new_multi_thread().worker_threads(1))?;
    let aisbench = match choice.driver.driver {
        Driver::Native | Driver::Both => None,
        Driver::Aisbench => {
            let options = aisbench::options(set, scenario, &settings, choice, global.quiet)?;
            let rows = aisbench::rows(&rows, &settings);
            Some(runtime.block_on(drive::aisbench::prepare(scenario, options, rows))?)
        }
    };
    let story = sequence::Sequence {
        set,
        scenario,
        settings: &settings,
        rows: &rows,
        voice,
        aisbench,
    };
    let told = runtime.block_on(story.tell());
    // What was measured is written, whatever comes now.
    let _writing = signals::writing();
    // A scrape that hangs must not keep the program from ending.
    runtime.shutdown_background();
    let told = told?;
    let calibration = choice
        .calibrate
        .then(|| own_error(&told, choice, voice))
        .flatten();
    let finished = judge::judge(&story, told, choice, calibration)?;
    show::show(&finished, voice)?;
    Ok(finished)
}

/// The client's own error at the load that the run really had: the chunk rate
/// is the server's, so it is known only now. A failure costs the run nothing
/// but this figure.
fn own_error(told: &sequence::Told, choice: &LoadChoice, voice: Voice) -> Option<Calibration> {
    if told.interrupted {
        return None;
    }
    let Some(seen) = seen_load(&told.outcome.records) else {
        voice.say("warning: not calibrated, no answer had two chunks");
        return None;
    };
    voice.say("calibration: the client's own error at the run's load");
    let load = calibrate::Load {
        streams: seen.streams.clamp(1, CALIBRATED_STREAMS_MAX),
        itl: seen
            .gap
            .duration()
            .clamp(CALIBRATED_ITL_MIN, CALIBRATED_ITL_MAX),
        length: CALIBRATION,
        threads: choice.threads,
    };
    match calibrate::calibrate(load) {
        Ok(found) => {
            for line in calibrate::table(load, &found) {
                voice.say(&line);
            }
            Some(found)
        }
        Err(failure) => {
            voice.say(&format!(
                "warning: not calibrated; {}",
                failure.render().trim_end()
            ));
            None
        }
    }
}

/// The set of a scenario: an equal one that is there, else a new one.
fn from_scenario(path: &Path, global: &Global) -> Result<(PreparedSet, Scenario), Failure> {
    let scenario = inputs::scenario(path)?;
    super::note_all(&scenario, global.voice());
    prepared(scenario, global)
}

/// The prepared set of `scenario`, made where it is not there.
pub(super) fn prepared(
    scenario: Scenario,
    global: &Global,
) -> Result<(PreparedSet, Scenario), Failure> {
    let overwrite = scenario.run.overwrite;
    let planned = Planned::new(Materials::load(scenario)?)?;
    let _writing = signals::writing();
    let manifest = match planned.decide(Purpose::Run { overwrite })? {
        Decision::Reuse(manifest) => {
            let set = PreparedSet::open(&manifest)?;
            logging::start(global, set.log_path("run").as_deref());
            global
                .voice()
                .say(&format!("using the prepared set {}", manifest.display()));
            manifest
        }
        Decision::Prepare { claim, changed } => {
            let builder = planned.builder()?;
            logging::start(global, Some(&claim.location().log("run")));
            for change in changed {
                global.voice().say(&format!("not used again: {change}"));
            }
            planned.write(&builder, claim, global.voice())?.manifest
        }
    };
    let set = PreparedSet::open(&manifest)?;
    signals::check()?;
    Ok((set, planned.materials.scenario))
}

/// A prepared set by its manifest, whoever made it.
fn from_manifest(path: &Path, global: &Global) -> Result<(PreparedSet, Scenario), Failure> {
    let set = PreparedSet::open(path)?;
    let scenario = scenario_of(&set, ManifestPurpose::Run)?;
    logging::start(global, set.log_path("run").as_deref());
    Ok((set, scenario))
}

/// The scenario as a manifest has it.
pub(super) fn scenario_of(
    set: &PreparedSet,
    purpose: ManifestPurpose,
) -> Result<Scenario, Failure> {
    let manifest = set.manifest();
    let text = |field: &str| manifest[field].as_str().unwrap_or_default();
    let extension = set.extension();
    let pcload = extension.get("config").filter(|config| config.is_object());
    let source = ManifestScenario {
        effective_config: set.effective_config(),
        pcload,
        scenario_path: Path::new(text("scenario_path")),
        scenario_sha256: text("scenario_sha256"),
        purpose,
    };
    let key = inputs::environment_api_key();
    let scenario = scenario::from_manifest(source, key.as_deref()).map_err(|problems| {
        let mut failure = Failure::from(problems);
        for line in &mut failure.lines {
            let path = set.path().display();
            line.message = format!("`{path}`: effective_config: {}", line.message);
        }
        failure
    })?;
    secrets::keep_out(&scenario.service.redactor());
    Ok(scenario)
}
