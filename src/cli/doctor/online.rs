//! What the server says: the precheck of a run, and what a run would do about
//! the cache. It empties nothing.
use tokio::runtime::Builder;

use super::chart::Chart;
use super::offline::Longest;
use crate::cli::exit::Failure;
use crate::cli::run::control_settings;
use crate::cli::runtime;
use crate::drive::phases::{PhaseOptions, Precheck, Session};
use crate::scenario::{CacheSalt, Scenario};

/// Checks the server.
pub(super) fn check(
    scenario: &Scenario,
    longest: Longest,
    chart: &mut Chart,
) -> Result<(), Failure> {
    let runtime = runtime::build(Builder::new_multi_thread().worker_threads(1))?;
    let options = PhaseOptions::new(
        scenario.tokenizer.block_size,
        longest.prompt_tokens,
        longest.output_tokens,
    );
    let precheck = runtime.block_on(async {
        let mut session = Session::new(control_settings(scenario), options)?;
        session.precheck().await
    });
    // A scrape that hangs must not keep the program from ending.
    runtime.shutdown_background();
    match precheck {
        Ok(precheck) => tell(scenario, longest, &precheck, chart),
        Err(error) => {
            chart.failed("service", &error.into());
            chart.not_checked("ranks, blocks, usage", "the precheck ended before them");
        }
    }
    check_reset(scenario, chart);
    Ok(())
}

fn tell(scenario: &Scenario, longest: Longest, precheck: &Precheck, chart: &mut Chart) {
    let engine = precheck.facts.engine.as_deref().unwrap_or("an engine");
    let version = precheck.version.as_deref().unwrap_or("of unknown version");
    let model = &scenario.service.model;
    chart.fine("service", format!("{engine} {version} serves `{model}`"));
    let context = precheck.max_model_len.map_or_else(
        || "the server does not tell its context length".to_owned(),
        |tokens| {
            let Longest {
                prompt_tokens,
                output_tokens,
            } = longest;
            format!("{tokens} tokens; the longest request needs {prompt_tokens} + {output_tokens}")
        },
    );
    chart.fine("context", context);
    let pool = precheck.facts.kv_cache_tokens;
    let pool = pool.map_or_else(
        || "pool size unknown".to_owned(),
        |tokens| format!("a pool of {tokens} tokens a rank"),
    );
    chart.fine("metrics", format!("cache counters are there; {pool}"));
    chart.fine("ranks", rank_words(precheck));
    let known = |tokens: Option<u64>| tokens.map_or("unknown".to_owned(), |one| one.to_string());
    let block = &precheck.block;
    let blocks = format!(
        "{} tokens by the scenario, {} by the engine, {} by measurement",
        block.configured_tokens,
        known(block.metric_tokens),
        known(block.measured_tokens),
    );
    chart.fine("block size", blocks);
    for warning in &precheck.warnings {
        let message = warning.message.clone();
        chart.doubtful("service", Some(warning.code), message, Vec::new());
    }
}

fn rank_words(precheck: &Precheck) -> String {
    match precheck.ranks.len() {
        1 => "one".to_owned(),
        ranks => format!("{ranks}; a request for a rank moves that rank's counters"),
    }
}

fn check_reset(scenario: &Scenario, chart: &mut Chart) {
    let service = &scenario.service;
    if let Some(url) = &service.reset_url {
        let url = crate::secret::shown_url(url);
        chart.fine("reset", format!("a run asks {url}; not tried here"));
    } else if scenario.pcload.cache_salt == Some(CacheSalt::PerRun) {
        chart.fine("reset", "none; a salt of its own keeps each run apart");
    } else if service.assume_empty_cache {
        let words = "none; the scenario says that the cache is empty";
        chart.doubtful("reset", Some("ASSUME_EMPTY_CACHE"), words, Vec::new());
    } else {
        let failure = Failure::world("RESET_UNAVAILABLE", "reset_url is not configured").hint(
            "set service.reset_url, or pcload.cache_salt to per_run, or \
             service.assume_empty_cache to true",
        );
        chart.failed("reset", &failure);
    }
}
