//! `pcload run --ab`: one set against two endpoints, in turns that cancel out a
//! drift of the machine (A B, B A, …), each turn a whole run with its own reset.

use serde_json::Value;
use url::Url;

use super::{LoadChoice, execute};
use crate::analyze::Verdict;
use crate::artifacts::PreparedSet;
use crate::cli::args::{Global, RunArgs};
use crate::cli::compare_runs::{finish, runs_side};
use crate::cli::exit::{Exit, Failure};
use crate::cli::stored_run::StoredRun;
use crate::scenario::Scenario;
use crate::secret::shown_url;

/// Runs the set `rounds` times against each endpoint and compares them.
pub(super) fn run(
    set: &PreparedSet,
    scenario: &Scenario,
    choice: &LoadChoice,
    args: &RunArgs,
    base: &str,
    global: &Global,
) -> Result<Exit, Failure> {
    let other = at_base(scenario, base)?;
    let voice = global.voice();
    let mut runs = [Vec::new(), Vec::new()];
    let turns = turns(args.rounds);
    let count = turns.len();
    for (turn, side) in (1..).zip(turns) {
        let (letter, scenario) = [("A", scenario), ("B", &other)][side];
        let url = shown_url(&scenario.service.inference_url);
        voice.say(&format!("turn {turn} of {count}: {letter}, {url}"));
        let finished = execute(set, scenario, choice, global)?;
        let run = StoredRun::of_directory(finished.directory.path())?;
        if let Some(failure) = finished.failure {
            return Err(failure);
        }
        runs[side].push(run);
    }
    let name = |scenario: &Scenario, runs: &[StoredRun]| {
        let numbers = runs
            .iter()
            .map(|run| match &run.document["pcload"]["run"]["number"] {
                Value::Null => "?".to_owned(),
                number => number.to_string(),
            });
        let numbers: Vec<_> = numbers.collect();
        let url = shown_url(&scenario.service.inference_url);
        format!("{url}, runs {} of {}", numbers.join(", "), set.run_id())
    };
    let left = runs_side(name(scenario, &runs[0]), &runs[0])?;
    let right = runs_side(name(&other, &runs[1]), &runs[1])?;
    let exit = finish(&left, &right, args.html.as_deref(), false, global)?;
    let verdicts = left.verdicts.iter().chain(&right.verdicts);
    let is_invalid = verdicts
        .into_iter()
        .any(|verdict| *verdict == Verdict::Invalid);
    Ok(if args.strict && is_invalid {
        Exit::No
    } else {
        exit
    })
}

/// Which side each turn goes to: AB, BA, AB, …
fn turns(rounds: u32) -> Vec<usize> {
    (0..rounds)
        .flat_map(|round| if round % 2 == 0 { [0, 1] } else { [1, 0] })
        .collect()
}

/// The scenario against another server: its addresses with scheme, host, port
/// and leading path of `base`.
fn at_base(scenario: &Scenario, base: &str) -> Result<Scenario, Failure> {
    let wrong = |why: String| {
        Failure::input("USAGE", format!("--ab: `{}` {why}", shown_url(base)))
            .hint("it is the other server's base, such as http://127.0.0.1:8001")
    };
    let base = Url::parse(base).map_err(|error| wrong(format!("is no URL: {error}")))?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
        return Err(wrong("is no http address".to_owned()));
    }
    let moved = |address: &str| {
        let from = Url::parse(address).map_err(|error| wrong(error.to_string()))?;
        let mut to = base.clone();
        let path = format!("{}{}", base.path().trim_end_matches('/'), from.path());
        to.set_path(&path);
        to.set_query(from.query());
        Ok::<_, Failure>(to.to_string())
    };
    let mut other = scenario.clone();
    let service = &mut other.service;
    service.inference_url = moved(&service.inference_url)?;
    service.metrics_url = moved(&service.metrics_url)?;
    service.reset_url = service.reset_url.as_deref().map(moved).transpose()?;
    Ok(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_mirrored_so_that_a_drift_cancels_out() {
        assert_eq!(turns(1), [0, 1]);
        assert_eq!(turns(2), [0, 1, 1, 0]);
        assert_eq!(turns(3), [0, 1, 1, 0, 0, 1]);
    }
}
