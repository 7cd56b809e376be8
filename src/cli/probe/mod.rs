//! `pcload probe`: runs a probe, shows it as it runs, writes its record.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: starts the runtime and listens for signals"
)]

mod args;
mod settings;
mod summary;
mod words;

use std::path::Path;

use serde_json::json;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

pub(super) use args::ProbeArgs;
pub(super) use settings::record;
pub(super) use summary::Summary;

use super::args::Global;
use super::exit::{Exit, Failure};
use super::output::{self, Voice};
use super::{logging, runtime, signals};
use crate::artifacts::{pyjson, write_atomic};
use crate::drive::probe::{self as driver, ProbeEvent, ProbeOutcome, ProbeSettings};
use crate::probe::{ProbeEnd, ProbeRecord, ProbeVerdict, why_nothing};
use crate::report;

/// Runs the command.
pub(super) fn run(args: &ProbeArgs, global: &Global) -> Result<Exit, Failure> {
    let resolved = settings::resolve(&args.probe)?;
    logging::start(global, None);
    let voice = global.voice();
    if resolved.settings.wait_ready.is_some() {
        voice.say("ready: wait for the server");
    }
    let outcome = driven(&resolved.settings, voice)?;
    // Shown first: a disk that refuses the record must not hide the result.
    show(&outcome.record, voice);
    write(&resolved.out, &outcome.record)?;
    voice.say(&format!("record: {}", resolved.out.display()));
    if let Some(path) = &resolved.html {
        write_html(&outcome.record, path)?;
        voice.say(&format!("report: {}", path.display()));
    }
    let summary = Summary::new(&outcome.record, &resolved.out, resolved.html.as_deref());
    output::print(&(pyjson::line(&json!(summary)) + "\n"))?;
    ended(outcome)
}

/// Runs the probe; the first signal stops it in order, the second at once.
fn driven(settings: &ProbeSettings, voice: Voice) -> Result<ProbeOutcome, Failure> {
    let (_elsewhere, mut interrupts) = signals::heard_elsewhere();
    let runtime = runtime::build(&mut Builder::new_current_thread())?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut watch = |event: ProbeEvent<'_>| say(event, voice);
        let probe = driver::run(settings, &stop, &mut watch);
        tokio::pin!(probe);
        tokio::select! {
            outcome = &mut probe => return Ok(outcome?),
            () = interrupts.next() => {}
        }
        stop.cancel();
        tokio::select! {
            outcome = &mut probe => Ok(outcome?),
            () = interrupts.next() => {
                let message = "stopped twice: no record is written";
                Err(Failure::new(Exit::Interrupted, "INTERRUPTED", message))
            }
        }
    })
}

fn say(event: ProbeEvent<'_>, voice: Voice) {
    match event {
        ProbeEvent::Engine(record) => voice.say(&words::engine(record)),
        ProbeEvent::Begin { control: true } => voice.say("the single arm:"),
        ProbeEvent::Begin { control: false } => voice.say("the probe:"),
        ProbeEvent::Row(row) => voice.say(&words::row(row)),
        ProbeEvent::Dose(case) => voice.say(&words::dose(case)),
        ProbeEvent::Needle(case) => voice.say(&words::needle(case)),
    }
}

fn write(path: &Path, record: &ProbeRecord) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(record)
        .map_err(|error| Failure::world("RECORD_UNWRITABLE", error.to_string()))?;
    text.push('\n');
    Ok(write_atomic(path, text.as_bytes())?)
}

/// Writes the report of a record.
pub(super) fn write_html(record: &ProbeRecord, path: &Path) -> Result<(), Failure> {
    let mut page = Vec::new();
    report::probe_html(record, &mut page)?;
    Ok(write_atomic(path, &page)?)
}

/// The whole result, for people.
pub(super) fn show(record: &ProbeRecord, voice: Voice) {
    voice.say("");
    voice.say(&words::headline(record));
    for note in &record.notes {
        voice.say(&words::note(note));
    }
    if !record.not_reached.is_empty() {
        let left = record.not_reached.join(", ");
        voice.say(&words::note(&format!("not reached: {left}")));
    }
    voice.say("");
    voice.say(&words::table(record));
    let cases = record.doses.iter().map(words::dose);
    for case in cases.chain(record.needles.iter().map(words::needle)) {
        voice.say(&case);
    }
    voice.say(&words::block(record));
}

/// The exit status, with an error line where nothing could be judged.
fn ended(outcome: ProbeOutcome) -> Result<Exit, Failure> {
    let record = outcome.record;
    if let Some(failure) = outcome.failure {
        return Err(failure.into());
    }
    if record.end == ProbeEnd::Interrupted {
        return Ok(Exit::Interrupted);
    }
    match record.verdict {
        ProbeVerdict::Passed => Ok(Exit::Done),
        ProbeVerdict::Reproduced => Ok(Exit::No),
        ProbeVerdict::NotCold => Err(Failure::input("NOT_COLD", why_nothing(&record))),
        ProbeVerdict::NothingJudged => Err(Failure::input("NOTHING_JUDGED", why_nothing(&record))),
    }
}
