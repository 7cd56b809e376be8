//! The JSON record of a probe: everything a later reader needs to trust or to
//! doubt its verdict.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::block::BlockSource;
use super::calibration::Calibration;
use super::knee::{Knee, PoolShare};
use super::verdict::{DoseVerdict, NeedleVerdict, ProbeVerdict, TurnVerdict};

/// `schema_version` of probe records.
pub const PROBE_SCHEMA_VERSION: u32 = 1;

/// Which probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// One conversation alone.
    Single,
    /// Two conversations in strict alternation.
    Alternation,
    /// One request of a given size between two turns.
    Dose,
    /// A pass phrase in the reused prefix.
    Needle,
}

/// Where a fact about the engine comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactSource {
    /// The engine's command line.
    Flag,
    /// The engine's environment.
    Environment,
    /// Its metrics page or another endpoint.
    Metric,
    /// An option of the probe.
    Option,
    /// Nowhere.
    Unknown,
}

/// One fact and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// The value as text or number; null when unknown.
    pub value: serde_json::Value,
    /// Where it comes from.
    pub source: FactSource,
}

impl Fact {
    /// A fact that nothing tells.
    pub const UNKNOWN: Self = Self {
        value: serde_json::Value::Null,
        source: FactSource::Unknown,
    };

    /// A known value.
    pub fn new(value: impl Into<serde_json::Value>, source: FactSource) -> Self {
        Self {
            value: value.into(),
            source,
        }
    }

    /// The value as a whole number.
    pub fn as_u64(&self) -> Option<u64> {
        self.value.as_u64()
    }
}

/// The engine as far as it could be read, name to fact: `version`, `model`,
/// `max_model_len`, `block_size` (flag first), `block_size_metric` (what the
/// metrics page says), `num_gpu_blocks`, `kv_cache_tokens`, `prefix_caching`,
/// `retention_interval`, `data_parallel_size`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EngineRecord(pub BTreeMap<String, Fact>);

impl EngineRecord {
    /// The fact of that name; unknown when it was never set.
    pub fn get(&self, name: &str) -> &Fact {
        static UNKNOWN: Fact = Fact::UNKNOWN;
        self.0.get(name).unwrap_or(&UNKNOWN)
    }

    /// Sets a fact unless a better source has set it.
    pub fn offer(&mut self, name: &str, fact: Fact) {
        let known = self.get(name).source != FactSource::Unknown;
        if !known && fact.source != FactSource::Unknown {
            self.0.insert(name.to_owned(), fact);
        } else {
            self.0.entry(name.to_owned()).or_insert(Fact::UNKNOWN);
        }
    }
}

/// What a request was sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// To learn tokens per character: the sample, and a first turn whose size
    /// was off.
    Calibration,
    /// A turn of a conversation.
    Turn,
    /// Unrelated traffic between turns.
    Noise,
    /// The dose.
    Dose,
    /// The question for a pass phrase, with reuse.
    Question,
    /// The same on a cold copy.
    ColdControl,
}

/// Where a count of cached tokens comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReuseSource {
    /// `usage.prompt_tokens_details.cached_tokens`.
    Usage,
    /// The delta of the hit counter, with no other traffic seen.
    Counters,
    /// Nowhere: not reported, which is not 0.
    Unavailable,
}

/// One request of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestRow {
    /// What it was sent for.
    pub kind: RequestKind,
    /// Conversation or case, e.g. `A`, `dose 5000 #1`, `needle 0.95`.
    pub side: String,
    /// Round of the conversation, from 1; 0 outside of one.
    pub round: u32,
    /// Prompt tokens as the server counted them.
    pub prompt_tokens: u64,
    /// Of them served from the cache.
    pub cached_tokens: Option<u64>,
    /// Output tokens.
    pub completion_tokens: u64,
    /// Where `cached_tokens` comes from.
    pub source: ReuseSource,
    /// Time to the first content, ms.
    pub ttft_ms: Option<f64>,
    /// Time to the last chunk, ms.
    pub e2el_ms: Option<f64>,
    /// Prompt tokens of the conversation's previous request; 0 in round 1.
    pub previous_tokens: u64,
    /// What had to be reused; null where nothing is asked for.
    pub floor_tokens: Option<u64>,
    /// Block of the verdict; null without one.
    #[serde(default)]
    pub block_tokens: Option<u64>,
    /// Verdict of a conversation turn.
    pub verdict: Option<TurnVerdict>,
}

/// One needle case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NeedleCase {
    /// Depth in the document, 0..=1.
    pub depth_ratio: f64,
    /// Whether the answer held the pass phrase.
    pub answered: bool,
    /// Whether the cold copy's answer did.
    pub cold_answered: bool,
    /// Whether the phrase stood in the part that was reused; only then does
    /// its answer say something of the restored state. Null when unknown.
    #[serde(default)]
    pub within_reuse: Option<bool>,
    /// The answer, shortened.
    pub answer: String,
    /// Verdict.
    pub verdict: NeedleVerdict,
}

/// One dose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoseCase {
    /// Tokens asked for.
    pub dose_tokens: u64,
    /// Tokens the server counted; 0 without traffic.
    pub measured_tokens: u64,
    /// Verdict.
    pub verdict: DoseVerdict,
}

/// How a probe came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeEnd {
    /// All of it was sent.
    #[default]
    Complete,
    /// The budget was used up.
    Budget,
    /// The user stopped it.
    Interrupted,
    /// A first turn was not cold; what follows would prove nothing.
    NotCold,
    /// The server failed.
    Failed,
}

/// Sums over all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Requests answered.
    pub request_count: usize,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// Of them served from the cache, where that is known.
    pub cached_tokens: u64,
    /// Output tokens.
    pub completion_tokens: u64,
}

impl Totals {
    /// The sums of `rows`.
    pub fn of(rows: &[RequestRow]) -> Self {
        let sum = |pick: fn(&RequestRow) -> u64| rows.iter().map(pick).sum();
        Self {
            request_count: rows.len(),
            prompt_tokens: sum(|row| row.prompt_tokens),
            cached_tokens: sum(|row| row.cached_tokens.unwrap_or(0)),
            completion_tokens: sum(|row| row.completion_tokens),
        }
    }
}

/// The single arm that makes another probe readable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Control {
    /// The record's file name, or `with-control` when it was run along.
    pub origin: String,
    /// Its own arm label.
    pub arm: Option<String>,
    /// Wall-clock start, RFC 3339.
    pub started: String,
    /// The engine's version then; null when unknown.
    pub engine_version: serde_json::Value,
    /// Prompt tokens of its first turn.
    pub tokens: u64,
    /// Checked turns.
    pub checked_count: usize,
    /// Of them passed.
    pub passed_count: usize,
    /// Verdict.
    pub verdict: ProbeVerdict,
    /// Its requests.
    pub requests: Vec<RequestRow>,
}

impl Control {
    /// What is quoted of `record`.
    pub fn of(record: &ProbeRecord, origin: impl Into<String>) -> Self {
        let first = record.turns().next();
        Self {
            origin: origin.into(),
            arm: record.arm.clone(),
            started: record.started.clone(),
            engine_version: record.engine.get("version").value.clone(),
            tokens: first.map_or(0, |row| row.prompt_tokens),
            checked_count: record.checked_count,
            passed_count: record.passed_count,
            verdict: record.verdict,
            requests: record.requests.clone(),
        }
    }
}

/// The whole record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeRecord {
    /// Always `pcload.probe`.
    pub kind: String,
    /// Version of this format.
    pub schema_version: u32,
    /// Version of pcload.
    pub tool_version: String,
    /// Which probe.
    pub probe: ProbeKind,
    /// The caller's label of what is under test.
    pub arm: Option<String>,
    /// Wall-clock start, RFC 3339.
    pub started: String,
    /// The engine.
    pub engine: EngineRecord,
    /// Options as given, credentials left out.
    pub options: serde_json::Value,
    /// Characters to tokens.
    pub calibration: Option<Calibration>,
    /// Block of the verdicts; null without one.
    pub block_tokens: Option<u64>,
    /// Where it comes from.
    pub block_source: BlockSource,
    /// Retention interval, tokens; 0 for none.
    pub retention_tokens: u64,
    /// One row a request.
    pub requests: Vec<RequestRow>,
    /// Doses in the order tried.
    pub doses: Vec<DoseCase>,
    /// Knee, where one was searched for.
    pub knee: Option<Knee>,
    /// The knee as a share of the KV pool, where both are known.
    #[serde(default)]
    pub knee_share: Option<PoolShare>,
    /// Needles in the order tried.
    pub needles: Vec<NeedleCase>,
    /// Turns and cases left out, and why (budget, interruption).
    pub not_reached: Vec<String>,
    /// What the reader should know besides.
    pub notes: Vec<String>,
    /// The `single` arm, where one is quoted.
    pub control: Option<Control>,
    /// How it came to its end.
    #[serde(default)]
    pub end: ProbeEnd,
    /// Sums over all requests.
    #[serde(default)]
    pub totals: Totals,
    /// Checked turns.
    pub checked_count: usize,
    /// Of them passed.
    pub passed_count: usize,
    /// Verdict.
    pub verdict: ProbeVerdict,
}

impl ProbeRecord {
    /// `kind` of every record.
    pub const KIND: &'static str = "pcload.probe";

    /// The turns of its conversations, questions for a needle among them.
    pub fn turns(&self) -> impl Iterator<Item = &RequestRow> {
        self.requests.iter().filter(|row| row.kind.is_turn())
    }
}

impl RequestKind {
    /// Whether it is a turn of a conversation that others have a part in.
    pub const fn is_turn(self) -> bool {
        matches!(self, Self::Turn | Self::Question)
    }

    /// Whether its reuse is judged: turns, and copies that must be cold.
    pub const fn is_judged(self) -> bool {
        self.is_turn() || matches!(self, Self::ColdControl)
    }
}

impl ProbeKind {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Alternation => "alternation",
            Self::Dose => "dose",
            Self::Needle => "needle",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record of conversation A whose turns got `verdicts`, at block 480.
    pub(crate) fn record(probe: ProbeKind, verdicts: &[TurnVerdict]) -> ProbeRecord {
        let row = |(index, verdict): (usize, &TurnVerdict)| RequestRow {
            kind: RequestKind::Turn,
            side: "A".to_owned(),
            round: u32::try_from(index).unwrap() + 1,
            prompt_tokens: 3_100,
            cached_tokens: Some(match verdict {
                TurnVerdict::Ok | TurnVerdict::NotCold => 2_400,
                _ => 0,
            }),
            completion_tokens: 8,
            source: ReuseSource::Usage,
            ttft_ms: Some(12.0),
            e2el_ms: Some(20.0),
            previous_tokens: if index == 0 { 0 } else { 3_040 },
            floor_tokens: (index > 0).then_some(2_400),
            block_tokens: Some(480),
            verdict: Some(*verdict),
        };
        record_of(probe, verdicts.iter().enumerate().map(row).collect())
    }

    /// A complete record of `requests` at block 480, of an engine of which
    /// nothing is known.
    pub(crate) fn record_of(probe: ProbeKind, requests: Vec<RequestRow>) -> ProbeRecord {
        let (verdict, checked_count, passed_count) = crate::probe::sum_up(&requests, &[]);
        ProbeRecord {
            kind: ProbeRecord::KIND.to_owned(),
            schema_version: PROBE_SCHEMA_VERSION,
            tool_version: "0.1.0".to_owned(),
            probe,
            arm: None,
            started: "2026-01-01T00:00:00Z".to_owned(),
            engine: EngineRecord::default(),
            options: serde_json::json!({}),
            calibration: None,
            block_tokens: Some(480),
            block_source: BlockSource::Metric,
            retention_tokens: 0,
            totals: Totals::of(&requests),
            requests,
            doses: Vec::new(),
            knee: None,
            knee_share: None,
            needles: Vec::new(),
            not_reached: Vec::new(),
            notes: Vec::new(),
            control: None,
            end: ProbeEnd::Complete,
            checked_count,
            passed_count,
            verdict,
        }
    }

    #[test]
    fn a_better_source_is_never_overwritten() {
        let mut engine = EngineRecord::default();
        engine.offer("block_size", Fact::new(480, FactSource::Flag));
        engine.offer("block_size", Fact::new(16, FactSource::Metric));
        engine.offer("version", Fact::UNKNOWN);
        assert_eq!(engine.get("block_size"), &Fact::new(480, FactSource::Flag));
        assert_eq!(engine.get("version"), &Fact::UNKNOWN);
        assert_eq!(engine.get("never"), &Fact::UNKNOWN);
    }
}
