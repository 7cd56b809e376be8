//! What can be checked without the server: corpus, tokenizer, plan, prompts,
//! load, and a place to write.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: tries whether files can be written"
)]

use std::path::Path;
use std::sync::Arc;

use super::chart::Chart;
use crate::artifacts::AddedTokens;
use crate::cli::dataset::Planned;
use crate::cli::exit::Failure;
use crate::cli::inputs::{self, Materials};
use crate::cli::run::{LoadChoice, load_plan};
use crate::corpus::Corpus;
use crate::plan::{self, LoadPlan, Pace, Plan};
use crate::scenario::Scenario;
use crate::theory;
use crate::tokenizer::{HfTokenizer, Tokenizer as _};

/// The longest request as the server will see it; zeros where no plan says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Longest {
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Its output limit, in tokens.
    pub output_tokens: u64,
}

/// Checks what needs no server.
pub(super) fn check(scenario: &Scenario, chart: &mut Chart) -> Longest {
    let corpus = inputs::corpus(scenario);
    let corpus = chart.take("corpus", corpus, |corpus| format!("{} texts", corpus.len()));
    let tokenizer = inputs::tokenizer(scenario);
    let tokenizer = chart.take("tokenizer", tokenizer, |tokenizer| {
        format!("{} entries", tokenizer.vocab_size())
    });
    let plan = plan::build(scenario).map_err(Failure::from);
    let longest = match plan {
        Ok(plan) => {
            check_target(scenario, &plan, chart);
            let longest = longest(scenario, tokenizer.as_deref(), &plan);
            check_prompts(scenario, corpus, tokenizer, plan, chart);
            longest
        }
        Err(failure) => {
            chart.failed("plan", &failure);
            chart.not_checked("prompts", "they follow from the plan");
            Longest::default()
        }
    };
    let load = load_plan(scenario, scenario.requests.count, &LoadChoice::default());
    chart.take("load", load, load_words);
    let base = &scenario.run.output_dir;
    chart.take("output", writable(base), |folder: &String| {
        format!("`{folder}` can be written")
    });
    longest
}

fn check_target(scenario: &Scenario, plan: &Plan, chart: &mut Chart) {
    let target = plan.target_outcome(scenario.prefix_cache.target_hit_rate);
    let words = format!(
        "{} requests, {} prompt tokens; theory {:.2} % of them cached, {:.2} % asked for",
        plan.requests.len(),
        plan.total_input_tokens(),
        target.effective_rate * 100.0,
        target.requested_rate * 100.0,
    );
    let off_pp = (target.effective_rate - target.requested_rate).abs() * 100.0;
    if !target.target_reachable {
        let most = format!(
            "{words}; at most {:.2} %",
            target.reachable_max_rate * 100.0
        );
        let hints = vec!["more requests a group, longer prompts or smaller blocks".to_owned()];
        chart.doubtful("plan", Some("TARGET_UNREACHABLE"), most, hints);
    } else if off_pp > scenario.validation.target_warning_pp {
        chart.doubtful("plan", Some("TARGET_DEVIATION"), words, Vec::new());
    } else {
        chart.fine("plan", words);
    }
}

fn longest(scenario: &Scenario, tokenizer: Option<&HfTokenizer>, plan: &Plan) -> Longest {
    let added = tokenizer.map_or_else(AddedTokens::default, |tokenizer| {
        AddedTokens::new(&scenario.pcload, tokenizer)
    });
    let requests = plan.requests.iter();
    let longest = requests.max_by_key(|one| one.input_tokens + one.output_tokens);
    longest.map_or_else(Longest::default, |one| Longest {
        prompt_tokens: added.input_tokens(one.input_tokens),
        output_tokens: one.output_tokens,
    })
}

/// Draws the prefixes and the seeds, which proves that the prompts can be made.
fn check_prompts(
    scenario: &Scenario,
    corpus: Option<Corpus>,
    tokenizer: Option<Arc<HfTokenizer>>,
    plan: Plan,
    chart: &mut Chart,
) {
    let (Some(corpus), Some(tokenizer)) = (corpus, tokenizer) else {
        chart.not_checked("prompts", "they need corpus and tokenizer");
        return;
    };
    let theory = theory::play(&plan);
    let planned = Planned {
        materials: Materials {
            scenario: scenario.clone(),
            corpus,
            tokenizer,
        },
        plan,
        theory,
    };
    let built = planned.builder().map(|builder| {
        let groups = builder.canonical_prefixes().count();
        format!("prefixes of {groups} groups and all seeds are there and unique")
    });
    chart.take("prompts", built, String::clone);
}

fn load_words(load: &LoadPlan) -> String {
    match load.stages.as_slice() {
        [stage] => match stage.pace {
            Pace::Closed { concurrency, .. } => {
                format!("closed loop, {concurrency} requests in flight")
            }
            Pace::Open {
                rate_per_second: Some(rate),
                ..
            } => format!("open loop, {rate} requests a second"),
            Pace::Open { .. } => "open loop, by recorded times".to_owned(),
        },
        stages => format!("{} stages", stages.len()),
    }
}

/// Whether a set's directory could be made beside `base`: a nameless file is
/// written into the nearest folder that is there.
fn writable(base: &Path) -> Result<String, Failure> {
    let parents = base.ancestors().skip(1);
    let folder = parents.into_iter().find(|folder| folder.is_dir());
    let folder = folder.unwrap_or(Path::new("/"));
    tempfile::tempfile_in(folder)
        .map(|_| folder.display().to_string())
        .map_err(|error| {
            let message = format!("cannot write into `{}`: {error}", folder.display());
            Failure::world("FILE_UNWRITABLE", message).hint("set run.output_dir to another place")
        })
}
