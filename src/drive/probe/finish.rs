//! The record of a probe, however it ended: every row judged once more by all
//! that is known then, knee and totals, and what was not reached.

use super::engine::Engine;
use super::prober::{Arm, Prober};
use super::sender::Stop;
use super::{ProbeError, ProbeOutcome, ProbeSettings};
use crate::probe::{
    BlockSource, Calibration, Control, Design, EngineRecord, PROBE_SCHEMA_VERSION, ProbeEnd,
    ProbeRecord, ProbeVerdict, Totals, describe, judge_doses, judge_needles, knee_of, pool_tokens,
    sum_up,
};
use crate::units::BlockSize;

/// The record of a probe that has ended with `ended`.
pub(super) async fn finish(
    settings: &ProbeSettings,
    engine: Engine,
    prober: Prober<'_>,
    arm: Arm,
    quoted: Option<Control>,
    ended: Result<(), Stop>,
) -> Result<ProbeOutcome, ProbeError> {
    let (end, failure) = match ended {
        Ok(()) => (ProbeEnd::Complete, None),
        Err(Stop::Interrupted) => (ProbeEnd::Interrupted, None),
        Err(Stop::Budget) => (ProbeEnd::Budget, None),
        Err(Stop::NotCold) => (ProbeEnd::NotCold, None),
        Err(Stop::Failed(error)) if !arm.rows.is_empty() => (ProbeEnd::Failed, Some(error)),
        Err(Stop::Refused(error) | Stop::Failed(error)) => return Err(error),
    };
    let mut notes = prober.notes.clone();
    if end == ProbeEnd::Complete
        && let Some(tokens) = prober.sender.foreign_tokens().await
    {
        notes.push(format!(
            "other clients sent {tokens} prompt tokens while the probe ran: they evict too, and a \
             loss may be theirs"
        ));
    }
    let mut record = judged(settings, &engine, &prober, arm, &settings.design);
    if end == ProbeEnd::Complete {
        record.not_reached.clear();
    }
    record.end = end;
    record.control = quoted;
    record.notes = describe(&record);
    record.notes.extend(notes);
    Ok(ProbeOutcome { record, failure })
}

/// What is quoted of a single arm that was run along.
pub(super) fn control(
    settings: &ProbeSettings,
    engine: &Engine,
    prober: &Prober<'_>,
    arm: Arm,
    design: &Design,
) -> Control {
    let record = judged(settings, engine, prober, arm, design);
    Control::of(&record, "with-control")
}

/// The record of a probe that was stopped before it had sent anything.
pub(super) fn interrupted_before(settings: &ProbeSettings) -> ProbeOutcome {
    let mut record = empty(settings, &settings.design, EngineRecord::default(), None);
    record.end = ProbeEnd::Interrupted;
    ProbeOutcome {
        record,
        failure: None,
    }
}

fn judged(
    settings: &ProbeSettings,
    engine: &Engine,
    prober: &Prober<'_>,
    mut arm: Arm,
    design: &Design,
) -> ProbeRecord {
    let block = prober.basis.judge_rows(&mut arm.rows);
    judge_doses(&mut arm.doses, &arm.rows);
    judge_needles(&mut arm.needles, &arm.rows);
    let (verdict, checked_count, passed_count) = sum_up(&arm.rows, &arm.needles);
    let knee = arm
        .search
        .as_ref()
        .map(|search| knee_of(search, &arm.doses));
    let pool = pool_tokens(
        block,
        engine.metric_block,
        engine.num_gpu_blocks,
        engine.kv_cache_tokens,
    );
    let share = knee
        .as_ref()
        .and_then(|knee| knee.share(pool?, design.tokens()));
    let mut record = empty(settings, design, engine.record.clone(), prober.calibration);
    record.block_tokens = block.block.map(BlockSize::tokens);
    record.block_source = block.source;
    record.retention_tokens = prober.basis.retention_tokens;
    record.totals = Totals::of(&arm.rows);
    record.requests = arm.rows;
    record.doses = arm.doses.into_iter().map(|run| run.case).collect();
    record.needles = arm.needles.into_iter().map(|run| run.case).collect();
    record.knee = knee;
    record.knee_share = share;
    record.not_reached = arm.pending;
    record.checked_count = checked_count;
    record.passed_count = passed_count;
    record.verdict = verdict;
    record
}

fn empty(
    settings: &ProbeSettings,
    design: &Design,
    engine: EngineRecord,
    calibration: Option<Calibration>,
) -> ProbeRecord {
    ProbeRecord {
        kind: ProbeRecord::KIND.to_owned(),
        schema_version: PROBE_SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        probe: design.kind(),
        arm: settings.arm.clone(),
        started: settings.started.clone(),
        engine,
        options: settings.options.clone(),
        calibration,
        block_tokens: None,
        block_source: BlockSource::Fallback,
        retention_tokens: 0,
        requests: Vec::new(),
        doses: Vec::new(),
        knee: None,
        knee_share: None,
        needles: Vec::new(),
        not_reached: Vec::new(),
        notes: Vec::new(),
        control: None,
        end: ProbeEnd::Complete,
        totals: Totals::default(),
        checked_count: 0,
        passed_count: 0,
        verdict: ProbeVerdict::NothingJudged,
    }
}
