//! `pcload run --driver both`: the native driver, then AISBench, each with its
//! own reset, warm-up and counters, and the table of both.

use std::path::Path;

use serde_json::json;

use super::settings::{LoadChoice, Settings};
use super::{Finished, aisbench, execute};
use crate::artifacts::{PreparedSet, pyjson, write_document};
use crate::cli::args::{Driver, Global, RunArgs};
use crate::cli::exit::{Exit, Failure};
use crate::cli::{output, parity};
use crate::scenario::Scenario;

/// Runs both drivers and compares them. What the first has brought is on disk
/// when the second begins.
pub(super) fn run(
    set: &PreparedSet,
    scenario: &Scenario,
    choice: &LoadChoice,
    args: &RunArgs,
    global: &Global,
) -> Result<Exit, Failure> {
    let by = |driver: Driver| {
        let mut choice = choice.clone();
        choice.driver.driver = driver;
        choice
    };
    // What AISBench refuses is known before the first request is sent.
    let rows = set.load_rows()?;
    let settings = Settings::new(set, scenario, &rows, choice)?;
    aisbench::check(set, scenario, &settings, choice, &rows)?;
    let native = execute(set, scenario, &by(Driver::Native), global)?;
    if native.failure.is_some() {
        output::print(&(pyjson::indented(&native.document) + "\n"))?;
        return Ok(native.exit(args.strict));
    }
    let aisbench = execute(set, scenario, &by(Driver::Aisbench), global)?;
    let document = compared(&native, &aisbench, args.truth_log.as_deref(), global)?;
    output::print(&(pyjson::indented(&document) + "\n"))?;
    let exits = [native.exit(args.strict), aisbench.exit(args.strict)];
    let worst = exits.into_iter().max_by_key(|exit| exit.status());
    Ok(worst.unwrap_or(Exit::Done))
}

/// The table, into the second run's directory too.
fn compared(
    native: &Finished,
    aisbench: &Finished,
    truth_log: Option<&Path>,
    global: &Global,
) -> Result<serde_json::Value, Failure> {
    let directories = [native.directory.path(), aisbench.directory.path()];
    let [first, second] = directories;
    let table = parity::compare(first, second, truth_log, global.voice())?;
    let value = serde_json::to_value(&table)
        .map_err(|error| Failure::world("REPORT_FAILED", error.to_string()))?;
    let path = second.join("parity.json");
    write_document(&path, &value)?;
    global.voice().say(&format!(
        "parity: {} figures differ without a reason; {}",
        table.unexplained(),
        path.display()
    ));
    Ok(json!({
        "native": native.document,
        "aisbench": aisbench.document,
        "parity": value,
    }))
}
