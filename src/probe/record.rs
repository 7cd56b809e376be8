//! The JSON record of a probe: everything a later reader needs to trust or to
//! doubt its verdict.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::block::BlockSource;
use super::knee::Knee;
use super::verdict::{DoseVerdict, NeedleVerdict, ProbeVerdict, TurnVerdict};

/// `schema_version` of probe records.
pub const PROBE_SCHEMA_VERSION: u32 = 1;

/// Which probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
/// `max_model_len`, `block_size`, `num_gpu_blocks`, `prefix_caching`,
/// `retention_interval`, `data_parallel_size`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// How characters were turned into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Characters sent.
    pub characters: u64,
    /// Prompt tokens the server counted for them.
    pub prompt_tokens: u64,
    /// How often the ratio had to be corrected by a real turn.
    pub corrections: u32,
}

impl Calibration {
    /// Characters for `tokens`, rounded up.
    pub fn characters_for(&self, tokens: u64) -> u64 {
        let product = u128::from(tokens) * u128::from(self.characters);
        let characters = product.div_ceil(u128::from(self.prompt_tokens.max(1)));
        u64::try_from(characters).unwrap_or(u64::MAX)
    }
}

/// What a request was sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// To learn tokens per character.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Verdict of a conversation turn.
    pub verdict: Option<TurnVerdict>,
}

/// One needle case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeedleCase {
    /// Depth in the document, 0..=1.
    pub depth_ratio: f64,
    /// Whether the answer held the pass phrase.
    pub answered: bool,
    /// Whether the cold copy's answer did.
    pub cold_answered: bool,
    /// The answer, shortened.
    pub answer: String,
    /// Verdict.
    pub verdict: NeedleVerdict,
}

/// One dose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DoseCase {
    /// Tokens asked for.
    pub dose_tokens: u64,
    /// Tokens the server counted; 0 without traffic.
    pub measured_tokens: u64,
    /// Verdict.
    pub verdict: DoseVerdict,
}

/// The whole record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Needles in the order tried.
    pub needles: Vec<NeedleCase>,
    /// Turns and cases left out, and why (budget, interruption).
    pub not_reached: Vec<String>,
    /// What the reader should know besides.
    pub notes: Vec<String>,
    /// Verdict of the `single` arm on the same engine, where one is quoted.
    pub control: Option<ProbeVerdict>,
    /// Checked turns.
    pub checked_count: usize,
    /// Of them passed.
    pub passed_count: usize,
    /// Verdict.
    pub verdict: ProbeVerdict,
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn characters_are_rounded_up() {
        let calibration = Calibration {
            characters: 20_000,
            prompt_tokens: 4_700,
            corrections: 0,
        };
        assert_eq!(calibration.characters_for(4_700), 20_000);
        assert_eq!(calibration.characters_for(60_000), 255_320);
    }
}
