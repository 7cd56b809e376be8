//! Records of probes to report on.

use serde_json::json;

use crate::probe::{
    Control, DoseCase, DoseVerdict, EngineRecord, Fact, FactSource, Knee, NeedleCase,
    NeedleVerdict, ProbeKind, ProbeRecord, ProbeVerdict, RequestKind, RequestRow, ReuseSource,
    TurnVerdict, describe, record_of,
};

/// Prompt tokens of a first turn.
const TOKENS: u64 = 20_000;
/// What a turn after it must reuse at block 480.
const DUE: u64 = 19_200;

fn turn(side: &str, round: u32, cached: u64) -> RequestRow {
    let verdict = match (round, cached) {
        (1, _) => TurnVerdict::Cold,
        (_, 0) => TurnVerdict::Lost,
        (_, DUE..) => TurnVerdict::Ok,
        _ => TurnVerdict::Partial,
    };
    RequestRow {
        kind: RequestKind::Turn,
        side: side.to_owned(),
        round,
        prompt_tokens: TOKENS + u64::from(round - 1) * 60,
        cached_tokens: Some(cached),
        completion_tokens: 12,
        source: ReuseSource::Usage,
        ttft_ms: Some(20.0 + (TOKENS - cached.min(TOKENS)) as f64 / 50.0),
        e2el_ms: Some(140.0 + (TOKENS - cached.min(TOKENS)) as f64 / 50.0),
        previous_tokens: if round == 1 { 0 } else { TOKENS },
        floor_tokens: (round > 1).then_some(DUE),
        block_tokens: Some(480),
        verdict: Some(verdict),
    }
}

fn record(probe: ProbeKind, requests: Vec<RequestRow>) -> ProbeRecord {
    let mut engine = EngineRecord::default();
    engine.offer("version", Fact::new("0.32.0", FactSource::Metric));
    engine.offer("block_size", Fact::new(480, FactSource::Flag));
    engine.offer("retention_interval", Fact::UNKNOWN);
    let mut record = record_of(probe, requests);
    record.engine = engine;
    record.options = json!({"url": "127.0.0.1:8000"});
    record.notes = describe(&record);
    record
}

/// Two conversations of four turns; unless `fixed`, each loses its third and
/// fourth. The single arm is clean.
pub(crate) fn alternation(fixed: bool) -> ProbeRecord {
    let rows = (1..=4).flat_map(|round| {
        ["A", "B"].map(|side| {
            let cached = match round {
                1 => 0,
                2 => DUE,
                _ if fixed => DUE + 480,
                _ => 0,
            };
            turn(side, round, cached)
        })
    });
    let mut record = record(ProbeKind::Alternation, rows.collect());
    let name = if fixed { "B <two>" } else { "A <one>" };
    record.arm = Some(name.to_owned());
    let alone = self::record(
        ProbeKind::Single,
        vec![turn("A", 1, 0), turn("A", 2, DUE), turn("A", 3, DUE)],
    );
    record.control = Some(Control::of(&alone, "single.json"));
    record
}

/// A knee between 12,000 and 13,000 tokens, times `scale`, where the pool is
/// full.
pub(crate) fn dose(scale: u64) -> ProbeRecord {
    let doses = [0, 4_000, 8_000, 16_000, 12_000, 14_000, 13_000].map(|dose| dose * scale);
    let knee = Knee {
        harmless_tokens: Some(12_000 * scale),
        harmful_tokens: Some(13_000 * scale),
        harmless_observations: [3, 3],
        harmful_observations: [3, 3],
        resolved: true,
    };
    let mut rows = Vec::new();
    let mut cases = Vec::new();
    for (number, dose) in (1..).zip(doses) {
        let side = DoseCase::side(dose, number);
        let harmless = dose <= 12_000 * scale;
        rows.push(turn(&side, 1, 0));
        rows.push(turn(&side, 2, if harmless { DUE } else { 0 }));
        cases.push(DoseCase {
            dose_tokens: dose,
            measured_tokens: dose,
            verdict: if harmless {
                DoseVerdict::Ok
            } else {
                DoseVerdict::Wiped
            },
        });
    }
    let mut record = record(ProbeKind::Dose, rows);
    record.knee_share = knee.share(TOKENS + 12_500 * scale, TOKENS);
    record.knee = Some(knee);
    record.doses = cases;
    record
}

/// Three needles: answered wrongly from what was reused, beyond the model, and
/// behind what was reused.
pub(crate) fn needle() -> ProbeRecord {
    let cases = [
        (0.05, false, true, true, NeedleVerdict::WrongAnswer),
        (0.5, false, false, true, NeedleVerdict::ModelCannot),
        (0.99, true, true, false, NeedleVerdict::Ok),
    ];
    let mut rows = Vec::new();
    let mut needles = Vec::new();
    for (number, (depth_ratio, answered, cold_answered, within, verdict)) in (1..).zip(cases) {
        let side = NeedleCase::side(depth_ratio, number);
        rows.push(turn(&side, 1, 0));
        let mut question = turn(&side, 2, DUE);
        question.kind = RequestKind::Question;
        rows.push(question);
        let mut cold = turn(&side, 1, 0);
        cold.kind = RequestKind::ColdControl;
        rows.push(cold);
        needles.push(NeedleCase {
            depth_ratio,
            answered,
            cold_answered,
            within_reuse: Some(within),
            answer: "the phrase is <unknown>".to_owned(),
            verdict,
        });
    }
    let mut record = record(ProbeKind::Needle, rows);
    record.needles = needles;
    (record.checked_count, record.passed_count) = (2, 1);
    record.verdict = ProbeVerdict::Reproduced;
    record
}
