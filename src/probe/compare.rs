//! Two records of one probe side by side: what was under test, and what came of
//! it, line by line.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::record::{ProbeKind, ProbeRecord, RequestRow};

/// Records that have nothing to be compared by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the first record is of `{left}`, the second of `{right}`; records of one probe are needed"
)]
pub struct NotComparable {
    /// Probe of the first.
    pub left: &'static str,
    /// Probe of the second.
    pub right: &'static str,
}

/// One thing that both records say something of.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// What.
    pub name: String,
    /// In the first record; null where it says nothing.
    pub left: Value,
    /// In the second.
    pub right: Value,
    /// Whether both say the same.
    pub same: bool,
}

/// Two records side by side.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// Always `pcload.probe_comparison`.
    pub kind: &'static str,
    /// Which probe.
    pub probe: ProbeKind,
    /// What was under test: arm, engine, options. A difference here is the arm,
    /// or an accident.
    pub setting: Vec<Line>,
    /// What came of it.
    pub result: Vec<Line>,
}

/// Sets `left` and `right` side by side.
pub fn compare(left: &ProbeRecord, right: &ProbeRecord) -> Result<Comparison, NotComparable> {
    if left.probe != right.probe {
        return Err(NotComparable {
            left: left.probe.name(),
            right: right.probe.name(),
        });
    }
    Ok(Comparison {
        kind: "pcload.probe_comparison",
        probe: left.probe,
        setting: joined(&settings(left), &settings(right)),
        result: joined(&results(left), &results(right)),
    })
}

type Said = Vec<(String, Value)>;

/// Lines in the order of the first record, then what only the second says.
fn joined(left: &Said, right: &Said) -> Vec<Line> {
    let names: BTreeSet<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
    let only_right = right
        .iter()
        .filter(|(name, _)| !names.contains(name.as_str()));
    let order: Vec<String> = left
        .iter()
        .chain(only_right)
        .map(|(name, _)| name.clone())
        .collect();
    let of = |said: &Said, wanted: &str| {
        let found = said.iter().find(|(name, _)| name == wanted);
        found.map_or(Value::Null, |(_, value)| value.clone())
    };
    let line = |name: String| {
        let (left, right) = (of(left, &name), of(right, &name));
        Line {
            same: left == right,
            name,
            left,
            right,
        }
    };
    order.into_iter().map(line).collect()
}

fn settings(record: &ProbeRecord) -> Said {
    let mut said: Said = vec![
        ("arm".into(), json!(record.arm)),
        ("started".into(), json!(record.started)),
        ("pcload".into(), json!(record.tool_version)),
    ];
    for (name, fact) in &record.engine.0 {
        said.push((format!("engine {name}"), fact.value.clone()));
    }
    if let Some(options) = record.options.get("design").and_then(Value::as_object) {
        for fields in options.values().filter_map(Value::as_object) {
            let named = fields.iter();
            said.extend(named.map(|(name, value)| (name.clone(), value.clone())));
        }
    }
    said.push(("block".into(), json!(record.block_tokens)));
    said.push(("block source".into(), json!(record.block_source)));
    said.push(("retention".into(), json!(record.retention_tokens)));
    said
}

fn results(record: &ProbeRecord) -> Said {
    let mut said: Said = vec![
        ("verdict".into(), json!(record.verdict)),
        (
            "passed".into(),
            json!(format!(
                "{} of {}",
                record.passed_count, record.checked_count
            )),
        ),
        ("end".into(), json!(record.end)),
        (
            "single arm".into(),
            json!(record.control.as_ref().map(|control| control.verdict)),
        ),
    ];
    if let Some(knee) = &record.knee {
        said.push(("knee above".into(), json!(knee.harmless_tokens)));
        said.push(("knee up to".into(), json!(knee.harmful_tokens)));
        let share = record.knee_share;
        let percent = |ratio: Option<f64>| ratio.map(|ratio| format!("{:.1} %", ratio * 100.0));
        let of_pool = share.and_then(|share| percent(share.harmful_ratio));
        said.push(("knee of pool".into(), json!(of_pool)));
    }
    for (index, case) in record.doses.iter().enumerate() {
        let name = format!("dose {} (case {})", case.dose_tokens, index + 1);
        said.push((name, json!(case.verdict)));
    }
    for (index, case) in record.needles.iter().enumerate() {
        let name = format!("needle {} (case {})", case.depth_ratio, index + 1);
        said.push((name, json!(case.verdict)));
    }
    let judged = record.requests.iter().filter(|row| row.kind.is_judged());
    said.extend(judged.map(|row| (turn_name(row), json!(turn_text(row)))));
    said
}

fn turn_name(row: &RequestRow) -> String {
    match row.kind {
        super::RequestKind::ColdControl => format!("{} cold copy", row.side),
        _ => format!("{} round {}", row.side, row.round),
    }
}

fn turn_text(row: &RequestRow) -> String {
    let verdict = row
        .verdict
        .and_then(|verdict| json!(verdict).as_str().map(str::to_owned))
        .unwrap_or_default();
    match row.cached_tokens {
        Some(cached) => format!("{cached}/{} {verdict}", row.prompt_tokens),
        None => format!("?/{} {verdict}", row.prompt_tokens),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::record::tests::record;
    use crate::probe::{Fact, FactSource, TurnVerdict};

    fn line<'a>(lines: &'a [Line], name: &str) -> &'a Line {
        lines.iter().find(|line| line.name == name).unwrap()
    }

    #[test]
    fn an_arm_that_lost_a_turn_stands_beside_one_that_did_not() {
        let mut broken = record(
            ProbeKind::Alternation,
            &[TurnVerdict::Cold, TurnVerdict::Lost],
        );
        broken.arm = Some("0.29".into());
        broken
            .engine
            .offer("retention_interval", Fact::new(13_056, FactSource::Flag));
        let mut fixed = record(
            ProbeKind::Alternation,
            &[TurnVerdict::Cold, TurnVerdict::Ok, TurnVerdict::Ok],
        );
        fixed.arm = Some("0.30".into());
        let both = compare(&broken, &fixed).unwrap();
        assert_eq!(line(&both.setting, "arm").left, "0.29");
        let interval = line(&both.setting, "engine retention_interval");
        assert_eq!(
            (&interval.left, &interval.right),
            (&json!(13_056), &Value::Null)
        );
        let turn = line(&both.result, "A round 2");
        assert_eq!(
            (&turn.left, &turn.right),
            (&json!("0/3100 LOST"), &json!("2400/3100 OK"))
        );
        assert!(!turn.same);
        assert!(line(&both.result, "A round 1").same);
        assert_eq!(line(&both.result, "A round 3").left, Value::Null);
    }

    #[test]
    fn records_of_two_probes_are_not_compared() {
        let single = record(ProbeKind::Single, &[]);
        let dose = record(ProbeKind::Dose, &[]);
        let error = compare(&single, &dose).unwrap_err();
        assert_eq!((error.left, error.right), ("single", "dose"));
    }
}
