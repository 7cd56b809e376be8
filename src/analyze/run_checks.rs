//! Findings about the run itself: failures, order, samples, and whether the
//! client kept time.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::{Code, Finding, Severity};
use super::inputs::{Inputs, StageLoad};
use super::lanes::Overtaking;
use super::latency::LatencyReport;
use super::rows::Row;
use super::throughput::in_flight;
use super::worth::HitWorth;
use crate::measure::{Derived, RequestRecord};
use crate::stats::{INDICATIVE_BELOW, Percent, percentile};

/// Below this many successes even a median is doubtful.
const SAMPLES_HARDLY: u64 = 30;

/// What the run checks look at.
pub(super) struct RunScene<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) rows: &'a [Row<'a>],
    pub(super) latency: &'a LatencyReport,
    pub(super) failures: &'a BTreeMap<String, u64>,
    pub(super) overtakings: &'a [Overtaking],
    pub(super) worth: &'a HitWorth,
}

pub(super) fn run_findings(scene: &RunScene<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(lane_order(scene.overtakings));
    findings.extend(interrupted(scene.inputs));
    if scene.inputs.records.is_empty() {
        let message = "there are no records of single requests";
        findings.push(Finding::new(Code::RecordsUnavailable, message));
    } else {
        findings.extend(failures(scene));
        findings.extend(not_sent(scene.rows));
    }
    findings.extend(retried(scene.rows));
    findings.extend(output_length(scene.rows));
    findings.extend(client_late(scene));
    findings.extend(saturated(scene));
    findings.extend(few_samples(scene));
    findings.extend(coalesced(scene));
    findings.extend(not_streamed(scene.rows));
    findings.extend(no_benefit(scene.worth));
    findings.extend(poll_failures(scene.inputs));
    findings
}

fn sent<'a>(rows: &'a [Row<'a>]) -> impl Iterator<Item = (&'a RequestRecord, &'a Derived)> {
    rows.iter()
        .filter_map(|row| row.record.zip(row.derived.as_ref()))
        .filter(|(record, _)| record.was_sent())
}

fn lane_order(overtakings: &[Overtaking]) -> Option<Finding> {
    let first = overtakings.first()?;
    Some(
        Finding::new(
            Code::LaneOrderBroken,
            format!(
                "`{}` was sent {:.3} ms before `{}` of its lane had ended ({} such pairs)",
                first.request,
                first.early_ms,
                first.predecessor,
                overtakings.len()
            ),
        )
        .with("pairs", overtakings.len()),
    )
}

fn interrupted(inputs: &Inputs<'_>) -> Option<Finding> {
    let interrupted = inputs.control.interrupted;
    interrupted.then(|| Finding::new(Code::Interrupted, "the run was interrupted"))
}

fn failures(scene: &RunScene<'_>) -> Vec<Finding> {
    let failed: u64 = scene.failures.values().sum();
    let all = sent(scene.rows).count();
    let succeeded = sent(scene.rows).any(|(record, _)| record.succeeded());
    let mut findings = Vec::new();
    if !succeeded {
        findings.push(Finding::new(
            Code::NoSuccess,
            format!("none of {all} requests succeeded"),
        ));
    }
    if failed > 0 {
        let kinds: Vec<String> = scene
            .failures
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        let message = format!("{failed} of {all} requests failed: {}", kinds.join(", "));
        findings.push(Finding::new(Code::RequestsFailed, message).with("failed", failed));
    }
    findings
}

fn not_sent(rows: &[Row<'_>]) -> Option<Finding> {
    let missing = rows.len() - sent(rows).count();
    (missing > 0).then(|| {
        Finding::new(
            Code::RequestsNotSent,
            format!("{missing} of {} planned requests were not sent", rows.len()),
        )
        .with("not_sent", missing)
    })
}

fn retried(rows: &[Row<'_>]) -> Option<Finding> {
    let retried: Vec<f64> = sent(rows)
        .filter(|(_, derived)| derived.attempts > 1)
        .map(|(_, derived)| derived.retry_wasted_ms)
        .collect();
    let wasted: f64 = retried.iter().sum();
    (!retried.is_empty()).then(|| {
        Finding::new(
            Code::RetriedRequests,
            format!(
                "{} requests were sent again, {wasted:.0} ms wasted",
                retried.len()
            ),
        )
        .with("requests", retried.len())
        .with("retry_wasted_ms", wasted)
    })
}

fn output_length(rows: &[Row<'_>]) -> Option<Finding> {
    let lengths: Vec<(u64, u64)> = rows
        .iter()
        .filter_map(|row| Some((row.counts()?.1.output_tokens?, row.planned.max_tokens)))
        .collect();
    let different = lengths
        .iter()
        .filter(|(seen, planned)| seen != planned)
        .count();
    (different > 0).then(|| {
        let (seen, planned) = lengths
            .iter()
            .fold((0, 0), |sums, pair| (sums.0 + pair.0, sums.1 + pair.1));
        Finding::new(
            Code::OutputLengthDiffers,
            format!(
                "{different} of {} outputs are not as long as planned ({seen} tokens, planned {planned})",
                lengths.len()
            ),
        )
        .with("requests", different)
        .with("output_tokens", seen)
        .with("planned_tokens", planned)
    })
}

/// Requests that waited for the cap of their open stage are not the client's
/// fault; they are left out here and told by `saturated`.
fn client_late(scene: &RunScene<'_>) -> Option<Finding> {
    let limits = &scene.inputs.limits;
    let held = held_by_cap(scene);
    let lags: Vec<f64> = sent(scene.rows)
        .filter(|(record, _)| !held.contains(&record.sequence_index))
        .map(|(_, derived)| derived.send_lag_ms)
        .collect();
    let lag = percentile(&lags, Percent::new(99.0)?);
    let client = scene.inputs.client;
    let over = |value: Option<f64>, limit: f64| value.is_some_and(|value| value > limit);
    let mut reasons = Vec::new();
    if over(lag, limits.send_lag_p99_ms) {
        reasons.push(format!("send lag p99 {:.1} ms", lag.unwrap_or_default()));
    }
    if over(client.runtime_lag_p99_ms, limits.runtime_lag_p99_ms) {
        let lag = client.runtime_lag_p99_ms.unwrap_or_default();
        reasons.push(format!("timer lag p99 {lag:.1} ms"));
    }
    if over(client.cpu_share, limits.cpu_share) {
        let percent = client.cpu_share.unwrap_or_default() * 100.0;
        reasons.push(format!("{percent:.0} % of the client's CPU in use"));
    }
    (!reasons.is_empty()).then(|| {
        Finding::new(
            Code::ClientLate,
            format!("the client did not keep time: {}", reasons.join(", ")),
        )
        .with("send_lag_p99_ms", lag)
        .with("runtime_lag_p99_ms", client.runtime_lag_p99_ms)
        .with("cpu_share", client.cpu_share)
    })
}

/// Requests that found their open stage's cap reached when they were due.
fn held_by_cap(scene: &RunScene<'_>) -> BTreeSet<u32> {
    let mut held = BTreeSet::new();
    for (stage, facts) in (0_u32..).zip(&scene.inputs.profile.stages) {
        let (StageLoad::Open { .. }, Some(cap)) = (facts.load, facts.load.cap()) else {
            continue;
        };
        let steps = in_flight(sent(scene.rows));
        for (record, _) in sent(scene.rows).filter(|(record, _)| record.stage == stage) {
            let due = record.t_ready_ns.max(record.t_sched_ns);
            let before = steps.partition_point(|(at, _)| *at <= due);
            let running = before.checked_sub(1).map_or(0, |step| steps[step].1);
            if running >= u64::from(cap) {
                held.insert(record.sequence_index);
            }
        }
    }
    held
}

fn saturated(scene: &RunScene<'_>) -> Option<Finding> {
    let held = held_by_cap(scene);
    let delays: Vec<f64> = sent(scene.rows)
        .filter(|(record, _)| {
            let facts = scene.inputs.profile.stages.get(record.stage as usize);
            facts.is_some_and(|facts| matches!(facts.load, StageLoad::Open { .. }))
        })
        .map(|(_, derived)| derived.queue_delay_ms - derived.lane_wait_ms)
        .collect();
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    let seen = !held.is_empty() && mean > scene.inputs.limits.queue_delay_mean_ms;
    seen.then(|| {
        Finding::new(
            Code::SaturatedByCap,
            format!(
                "{} of {} requests waited for `max_in_flight`; mean queue delay {mean:.0} ms",
                held.len(),
                delays.len()
            ),
        )
        .with("requests", held.len())
        .with("queue_delay_mean_ms", mean)
    })
}

fn few_samples(scene: &RunScene<'_>) -> Option<Finding> {
    let (count, least) = (scene.latency.requests, scene.inputs.limits.samples_min);
    let severity = if count < SAMPLES_HARDLY {
        Severity::Degraded
    } else {
        Severity::Note
    };
    (count > 0 && count < least).then(|| {
        Finding::new(
            Code::FewSamples,
            format!("statistics rest on {count} requests, fewer than {least}"),
        )
        .with("requests", count)
        .severity(severity)
    })
}

fn coalesced(scene: &RunScene<'_>) -> Option<Finding> {
    let share = scene.latency.coalesced_ratio?;
    (share > scene.inputs.limits.coalesced_share).then(|| {
        Finding::new(
            Code::CoalescedEvents,
            format!(
                "{:.1} % of chunks shared a read with another",
                share * 100.0
            ),
        )
        .with("coalesced_ratio", share)
    })
}

fn not_streamed(rows: &[Row<'_>]) -> Option<Finding> {
    let plain = sent(rows).filter(|(record, _)| !record.streamed).count();
    (plain > 0).then(|| {
        Finding::new(
            Code::NotStreamed,
            "responses were not streamed: only E2EL, tokens and hits exist",
        )
    })
}

fn no_benefit(worth: &HitWorth) -> Option<Finding> {
    let fit = worth.fit?;
    let share = fit.prompt_share?;
    // Intervals of few points are too narrow to show that there is nothing.
    let enough = worth.points >= INDICATIVE_BELOW as u64;
    (enough && worth.ttft_hit_ms.count > 0 && fit.shows_no_benefit()).then(|| {
        Finding::new(
            Code::HitWithoutBenefit,
            format!(
                "hits cannot shorten TTFT: computing a whole prompt is at most {:.1} % of it",
                share.high.max(0.0) * 100.0
            ),
        )
        .with("prompt_share_high", share.high)
        .with(
            "ms_per_1000_uncached_tokens",
            fit.ms_per_1000_uncached_tokens,
        )
        .with("low", fit.interval.map(|interval| interval.low))
        .with("high", fit.interval.map(|interval| interval.high))
        .with("r_squared", fit.r_squared)
    })
}

fn poll_failures(inputs: &Inputs<'_>) -> Option<Finding> {
    let failures = inputs.kv.failures;
    (failures > 0).then(|| {
        Finding::new(Code::PollFailures, format!("{failures} KV samples failed"))
            .with("poll_failures", failures)
    })
}
