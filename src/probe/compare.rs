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
    /// Whether both say the same. Of a turn: the same verdict and as many tokens
    /// missing of what was due, whatever its size; the time of the start never
    /// differs.
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

/// What a record says of one thing.
struct Word {
    name: String,
    shown: Value,
    /// What is compared.
    key: Value,
}

impl Word {
    /// Compared by what is shown.
    fn new(name: impl Into<String>, shown: Value) -> Self {
        Self {
            name: name.into(),
            key: shown.clone(),
            shown,
        }
    }
}

type Said = Vec<Word>;

/// Lines in the order of the first record, then what only the second says.
fn joined(left: &Said, right: &Said) -> Vec<Line> {
    let names: BTreeSet<&str> = left.iter().map(|word| word.name.as_str()).collect();
    let only_right = right
        .iter()
        .filter(|word| !names.contains(word.name.as_str()));
    let order = left.iter().chain(only_right).map(|word| &word.name);
    let line = |name: &String| {
        let [left, right] = [left, right].map(|said| said.iter().find(|word| word.name == *name));
        let shown = |word: Option<&Word>| word.map_or(Value::Null, |word| word.shown.clone());
        let key = |word: Option<&Word>| word.map_or(Value::Null, |word| word.key.clone());
        Line {
            name: name.clone(),
            same: key(left) == key(right),
            left: shown(left),
            right: shown(right),
        }
    };
    order.map(line).collect()
}

fn settings(record: &ProbeRecord) -> Said {
    let mut said: Said = vec![
        Word::new("arm", json!(record.arm)),
        Word {
            name: "started".to_owned(),
            shown: json!(whole_seconds(&record.started)),
            key: Value::Null,
        },
        Word::new("pcload", json!(record.tool_version)),
    ];
    for (name, fact) in &record.engine.0 {
        said.push(Word::new(format!("engine {name}"), fact.value.clone()));
    }
    if let Some(options) = record.options.get("design").and_then(Value::as_object) {
        for fields in options.values().filter_map(Value::as_object) {
            let named = fields.iter();
            said.extend(named.map(|(name, value)| Word::new(name, value.clone())));
        }
    }
    said.push(Word::new("block", json!(record.block_tokens)));
    said.push(Word::new("block source", json!(record.block_source)));
    said.push(Word::new("retention", json!(record.retention_tokens)));
    said
}

fn results(record: &ProbeRecord) -> Said {
    let mut said: Said = vec![
        Word::new("verdict", json!(record.verdict)),
        Word::new(
            "passed",
            json!(format!(
                "{} of {}",
                record.passed_count, record.checked_count
            )),
        ),
        Word::new("end", json!(record.end)),
        Word::new(
            "single arm",
            json!(record.control.as_ref().map(|control| control.verdict)),
        ),
    ];
    if let Some(knee) = &record.knee {
        said.push(Word::new("knee above", json!(knee.harmless_tokens)));
        said.push(Word::new("knee up to", json!(knee.harmful_tokens)));
        let share = record.knee_share;
        let percent = |ratio: Option<f64>| ratio.map(|ratio| format!("{:.1} %", ratio * 100.0));
        let of_pool = share.and_then(|share| percent(share.harmful_ratio));
        said.push(Word::new("knee of pool", json!(of_pool)));
    }
    for (index, case) in record.doses.iter().enumerate() {
        let name = format!("dose {} (case {})", case.dose_tokens, index + 1);
        said.push(Word::new(name, json!(case.verdict)));
    }
    for (index, case) in record.needles.iter().enumerate() {
        let name = format!("needle {} (case {})", case.depth_ratio, index + 1);
        said.push(Word::new(name, json!(case.verdict)));
    }
    let judged = record.requests.iter().filter(|row| row.kind.is_judged());
    said.extend(judged.map(|row| Word {
        name: turn_name(row),
        shown: json!(turn_text(row)),
        key: json!([row.verdict, missing(row)]),
    }));
    said
}

fn turn_name(row: &RequestRow) -> String {
    match row.kind {
        super::RequestKind::ColdControl => format!("{} cold copy", row.side),
        _ => format!("{} round {}", row.side, row.round),
    }
}

/// Tokens of what was due that were not reused; null where that is not known.
fn missing(row: &RequestRow) -> Option<u64> {
    Some(row.floor_tokens?.saturating_sub(row.cached_tokens?))
}

/// A time without its fraction of a second.
fn whole_seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.to_owned(),
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

    /// A prompt of some tokens more, reused as it should be, is no difference.
    #[test]
    fn turns_differ_in_verdict_or_in_what_is_missing() {
        let of = |cached: u64, prompt: u64, floor: u64| {
            let mut one = record(ProbeKind::Single, &[TurnVerdict::Cold, TurnVerdict::Ok]);
            let turn = &mut one.requests[1];
            turn.cached_tokens = Some(cached);
            turn.prompt_tokens = prompt;
            turn.floor_tokens = Some(floor);
            one.started = format!("2026-01-02T03:04:{:02}.5Z", prompt % 60);
            one
        };
        let compared = |other: &ProbeRecord| compare(&of(2_400, 3_100, 2_400), other).unwrap();
        let same = compared(&of(2_880, 3_141, 2_880));
        assert!(line(&same.result, "A round 2").same);
        assert!(line(&same.setting, "started").same);
        assert_eq!(line(&same.setting, "started").left, "2026-01-02T03:04:40Z");
        let short = compared(&of(1_920, 3_100, 2_400));
        assert!(!line(&short.result, "A round 2").same);
    }

    #[test]
    fn records_of_two_probes_are_not_compared() {
        let single = record(ProbeKind::Single, &[]);
        let dose = record(ProbeKind::Dose, &[]);
        let error = compare(&single, &dose).unwrap_err();
        assert_eq!((error.left, error.right), ("single", "dose"));
    }
}
