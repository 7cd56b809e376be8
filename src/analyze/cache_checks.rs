//! Findings about the cache: was it empty, who else used it, did the counters
//! count these requests, and does the outcome agree with the theory.

use super::account::HitAccounts;
use super::attribution::{Attribution, Cause};
use super::counters::Counters;
use super::findings::{Code, Finding};
use super::inputs::{ColdProof, ControlFacts, Inputs, Limits, Routing};
use super::pressure::Pressure;
use super::rows::Row;
use super::traffic::Traffic;
use crate::measure::Outcome;
use crate::theory::ServerView;
use crate::units::BlockSize;

/// What the cache checks look at.
pub(super) struct CacheScene<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) view: ServerView,
    pub(super) rows: &'a [Row<'a>],
    pub(super) hits: &'a HitAccounts,
    pub(super) traffic: &'a Traffic,
    pub(super) attribution: &'a Attribution,
    pub(super) pressure: &'a Pressure,
}

pub(super) fn cache_findings(scene: &CacheScene<'_>) -> Vec<Finding> {
    let mut findings = control(scene.inputs.control);
    findings.extend(counters(scene.inputs.counters));
    findings.extend(traffic(scene.traffic, scene.hits));
    findings.extend(deviation(scene.hits, &scene.inputs.limits));
    findings.extend(external(scene.hits));
    findings.extend(preemptions(scene.hits));
    findings.extend(pressure(scene.pressure, scene.hits));
    findings.extend(block_size(scene));
    findings.extend(prompt_tokens(scene));
    findings.extend(cached_tokens(scene.rows));
    findings
}

fn control(control: &ControlFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &control.cold {
        ColdProof::Unknown | ColdProof::Proven => {}
        ColdProof::Unproven(reason) => findings.push(Finding::new(
            Code::ResetUnproven,
            format!("the reset could not be proven: {reason}"),
        )),
        ColdProof::NotCold { cached_tokens } => findings.push(
            Finding::new(
                Code::NotCold,
                format!("{cached_tokens} tokens were still served after the reset"),
            )
            .with("cached_tokens", *cached_tokens),
        ),
    }
    findings.extend(control.assumed_empty.as_ref().map(|reason| {
        Finding::new(
            Code::AssumeEmptyCache,
            format!("the run went on without a reset: {reason}"),
        )
    }));
    if let Routing::Ignored { asked, moved } = control.routing {
        findings.push(
            Finding::new(
                Code::RankHeaderIgnored,
                format!("a probe for rank {asked} moved the counters of rank {moved}"),
            )
            .with("asked", asked.0)
            .with("moved", moved.0),
        );
    }
    if let Some((group, rank)) = control.warmup_missing.first() {
        let count = control.warmup_missing.len();
        findings.push(
            Finding::new(
                Code::WarmupIncomplete,
                format!("{count} warm-ups could not be verified, the first {group} on rank {rank}"),
            )
            .with("count", count),
        );
    }
    findings
}

fn counters(counters: &Counters) -> Option<Finding> {
    match counters {
        Counters::Unavailable(reason) => Some(Finding::new(
            Code::CountersUnavailable,
            format!("no counters for the formal phase: {reason}"),
        )),
        Counters::Delta { regressions, .. } => {
            let number = |value: Option<u64>| value.map_or("nothing".to_owned(), |n| n.to_string());
            let named: Vec<String> = regressions
                .iter()
                .map(|found| {
                    let (before, after) = (number(found.before), number(found.after));
                    format!("rank {} {} {before} -> {after}", found.rank, found.counter)
                })
                .collect();
            let first = regressions.first()?;
            Some(
                Finding::new(
                    Code::CounterRegressed,
                    format!("counters went backwards: {}", named.join(", ")),
                )
                .with("rank", first.rank)
                .with("counter", first.counter.clone())
                .with("before", first.before)
                .with("after", first.after),
            )
        }
    }
}

fn traffic(traffic: &Traffic, hits: &HitAccounts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(tokens) = traffic.foreign_tokens() {
        findings.push(with_traffic(
            Finding::new(
                Code::ForeignTraffic,
                format!("the server admitted {tokens} prompt tokens more than this run sent"),
            ),
            traffic,
        ));
    }
    if let Some(tokens) = traffic.missing_tokens() {
        findings.push(with_traffic(
            Finding::new(
                Code::CountersIncomplete,
                format!("{tokens} prompt tokens that were served were not counted"),
            ),
            traffic,
        ));
    } else if let Some((counted, expected)) = mismatch(traffic) {
        let percent = (counted as f64 - expected as f64) / expected.max(1) as f64 * 100.0;
        let message =
            format!("cache queries: expected {expected}, counted {counted} ({percent:+.1} %)");
        let preemptions = hits.counters.as_ref().and_then(|rates| rates.preemptions);
        findings.push(
            with_traffic(Finding::new(Code::QueriesMismatch, message), traffic)
                .with("expected", expected)
                .with("counted", counted)
                .with("preemptions", preemptions),
        );
    }
    findings
}

/// Queries that differ from the admitted tokens, or, where those are not
/// counted, from what the requests can explain.
fn mismatch(traffic: &Traffic) -> Option<(u64, u64)> {
    let counted = traffic.counted_queries?;
    let expected = match traffic.counted_prompt_tokens {
        Some(tokens) => tokens,
        None if counted > traffic.expected_most => traffic.expected_most,
        None => return None,
    };
    (counted != expected).then_some((counted, expected))
}

fn with_traffic(finding: Finding, traffic: &Traffic) -> Finding {
    finding
        .with("expected_least_tokens", traffic.expected_least)
        .with("expected_most_tokens", traffic.expected_most)
        .with("counted_prompt_tokens", traffic.counted_prompt_tokens)
        .with("counted_query_tokens", traffic.counted_queries)
}

fn deviation(hits: &HitAccounts, limits: &Limits) -> Option<Finding> {
    // Without records nothing is known of the execution but the plan.
    let planned = hits.overall.executed.is_none();
    let (difference, theory) = if planned {
        (hits.actual_minus_planned_pp?, "planned")
    } else {
        (hits.actual_minus_executed_pp?, "executed")
    };
    let actual = hits.actual?;
    (difference.abs() > limits.actual_warning_pp).then(|| {
        Finding::new(
            Code::ActualDeviation,
            format!(
                "the actual hit rate is {difference:+.2} pp off the {theory} theory (limit {})",
                limits.actual_warning_pp
            ),
        )
        .with("difference_pp", difference)
        .with("actual_hit_rate", actual.line.hit_rate)
        .with(
            "executed_hit_rate",
            hits.overall.executed.and_then(|line| line.hit_rate),
        )
    })
}

fn external(hits: &HitAccounts) -> Option<Finding> {
    let rates = hits.counters.as_ref()?;
    let tokens = rates.external_hit_tokens.filter(|&tokens| tokens > 0)?;
    Some(
        Finding::new(
            Code::ExternalCacheActive,
            format!("an external tier served {tokens} tokens"),
        )
        .with("external_hit_tokens", tokens)
        .with("local_hit_rate", rates.local.hit_rate)
        .with("combined_hit_rate", rates.combined_hit_rate),
    )
}

fn preemptions(hits: &HitAccounts) -> Option<Finding> {
    let by_rank: Vec<(u32, u64)> = hits
        .counters_by_rank
        .iter()
        .filter_map(|(rank, rates)| Some((*rank, rates.preemptions.filter(|&n| n > 0)?)))
        .collect();
    let total: u64 = by_rank.iter().map(|(_, count)| count).sum();
    let ranks: Vec<u32> = by_rank.iter().map(|(rank, _)| *rank).collect();
    (total > 0).then(|| {
        Finding::new(
            Code::Preemptions,
            format!("{total} requests were preempted"),
        )
        .with("preemptions", total)
        .with("ranks", ranks)
    })
}

fn pressure(pressure: &Pressure, hits: &HitAccounts) -> Option<Finding> {
    let executed = hits.overall.executed.map_or(0, |line| line.hit_tokens);
    let lost = hits
        .capacity
        .filter(|capacity| capacity.line.hit_tokens < executed)
        .map(|capacity| {
            let lost = executed - capacity.line.hit_tokens;
            let blocks = capacity.pool_blocks;
            format!("a pool of {blocks} blocks loses {lost} of {executed} hit tokens to eviction")
        });
    let message = lost.or_else(|| pressure.on(None))?;
    let mut finding = Finding::new(Code::EvictionPressure, message).with(
        "capacity_hit_rate",
        hits.capacity.and_then(|c| c.line.hit_rate),
    );
    for (rank, peak) in &pressure.full {
        finding = finding.with(&format!("peak_rank_{rank}"), *peak);
    }
    if let Some((needed, pool)) = pressure.working_set {
        finding = finding
            .with("needed_blocks", needed)
            .with("pool_blocks", pool);
    }
    Some(finding)
}

/// Believed, stated and measured blocks, and the grid that reuse falls on.
fn block_size(scene: &CacheScene<'_>) -> Option<Finding> {
    let block = scene.inputs.block;
    let configured = block.configured.tokens();
    let floored = scene
        .attribution
        .causes
        .iter()
        .any(|total| total.cause == Cause::BlockFloor);
    let effective = block.effective().tokens();
    let stated = block.engine.map(BlockSize::tokens);
    let measured = block.measured.map(BlockSize::tokens);
    let message = if effective != configured {
        format!("the server's block is {effective} tokens, the scenario says {configured}")
    } else if stated.is_some_and(|stated| stated != configured) {
        format!(
            "the engine states a block of {} tokens, {configured} was measured",
            stated.unwrap_or_default()
        )
    } else if floored {
        let evidence = scene.attribution.requests.iter();
        let evidence = evidence.filter(|request| request.cause == Cause::BlockFloor);
        let evidence = evidence.map(|request| request.evidence.clone()).next()?;
        format!("{evidence}, the scenario says {configured}")
    } else {
        return None;
    };
    let theory = scene.hits.overall.planned_server;
    Some(
        Finding::new(Code::BlockSizeMismatch, message)
            .with("configured_tokens", configured)
            .with("engine_tokens", stated)
            .with("measured_tokens", measured)
            .with(
                "theory_for_effective_block",
                theory.and_then(|line| line.hit_rate),
            ),
    )
}

fn prompt_tokens(scene: &CacheScene<'_>) -> Option<Finding> {
    let differences: Vec<i128> = scene
        .rows
        .iter()
        .filter_map(|row| Some((row, row.derived.as_ref()?.prompt_tokens?)))
        .map(|(row, seen)| i128::from(seen) - i128::from(row.planned.prompt_tokens(scene.view)))
        .collect();
    let wrong: Vec<i128> = differences.iter().copied().filter(|&d| d != 0).collect();
    let (least, most) = (wrong.iter().min()?, wrong.iter().max()?);
    let bos = wrong.len() == differences.len() && *least == 1 && *most == 1;
    let mut message = format!(
        "the server counts other prompt tokens than planned in {} of {} requests ({least:+} to {most:+})",
        wrong.len(),
        differences.len()
    );
    if bos {
        message.push_str("; one more in each: most likely a BOS token");
    }
    Some(
        Finding::new(Code::PromptTokensDiffer, message)
            .with("requests", wrong.len())
            .with("least", i64::try_from(*least).ok())
            .with("most", i64::try_from(*most).ok())
            .with("likely_cause", bos.then_some("bos")),
    )
}

fn cached_tokens(rows: &[Row<'_>]) -> Option<Finding> {
    // A stream that broke never came to its usage, whatever the server can.
    let whole = |row: &&Row<'_>| {
        let record = row.record.filter(|_| row.was_served());
        record.is_some_and(|record| record.outcome == Outcome::Success)
    };
    let served = rows.iter().filter(whole).count();
    let reported = rows.iter().filter(whole);
    let silent = served - reported.filter(|row| row.cached_tokens().is_some()).count();
    (silent > 0).then(|| {
        let whom = if silent == served { "any" } else { "every" };
        Finding::new(
            Code::CachedTokensUnavailable,
            format!(
                "the server does not report cached tokens for {whom} request ({silent} without)"
            ),
        )
        .with("requests", silent)
    })
}
