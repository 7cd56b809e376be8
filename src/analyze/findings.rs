//! Findings: what a reader must know before believing a number. Each has a
//! stable code, what was seen, and what to do; together they make the verdict.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whether the numbers can be believed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against them.
    Valid,
    /// They hold with the reservations the findings name.
    Degraded,
    /// They do not say what they seem to say.
    Invalid,
}

impl Verdict {
    /// The word of the artifact.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Degraded => "degraded",
            Self::Invalid => "invalid",
        }
    }
}

/// How much a finding takes away.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; the numbers stand.
    Note,
    /// They stand with a reservation.
    Degraded,
    /// They do not stand.
    Invalid,
}

impl Severity {
    /// The word of the artifact.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Degraded => "degraded",
            Self::Invalid => "invalid",
        }
    }
}

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What it is.
    pub code: Code,
    /// How much it takes away.
    pub severity: Severity,
    /// What was seen.
    pub message: String,
    /// The numbers behind it.
    pub evidence: BTreeMap<String, Value>,
    /// What to do about it.
    pub hint: String,
}

impl Finding {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        let (severity, hint) = code.meaning();
        Self {
            code,
            severity,
            message: message.into(),
            evidence: BTreeMap::new(),
            hint: hint.to_owned(),
        }
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.evidence.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

/// The verdict its findings add up to.
pub(super) fn verdict(findings: &[Finding]) -> Verdict {
    match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Invalid) => Verdict::Invalid,
        Some(Severity::Degraded) => Verdict::Degraded,
        Some(Severity::Note) | None => Verdict::Valid,
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $severity:ident, $hint:literal;)*) => {
        /// What a finding is about. The spelling is stable.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        pub enum Code {
            $($(#[doc = $doc])* #[serde(rename = $text)] $name,)*
        }

        impl Code {
            /// All codes, in the order findings are listed.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable spelling.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Its usual severity, and what to do.
            pub fn meaning(self) -> (Severity, &'static str) {
                match self { $(Self::$name => (Severity::$severity, $hint),)* }
            }
        }
    };
}

codes! {
    /// No request succeeded.
    NoSuccess = "NO_SUCCESS", Invalid,
        "look at the failures by kind; nothing was measured";
    /// A counter went backwards: an engine restarted inside the window.
    CounterRegressed = "COUNTER_REGRESSED", Invalid,
        "an engine restarted during the run; repeat it, latencies are kept";
    /// Somebody else used the server.
    ForeignTraffic = "FOREIGN_TRAFFIC", Invalid,
        "make sure nothing else uses the server and repeat the run";
    /// The cache was not empty when it should have been.
    NotCold = "NOT_COLD", Invalid,
        "reset every tier, or set `pcload.cache_salt` to `per_run`";
    /// The server does not honor the rank header.
    RankHeaderIgnored = "RANK_HEADER_IGNORED", Invalid,
        "use a server that honors `X-data-parallel-rank`, or `dp_size: 1`";
    /// A lane's requests overlapped or changed places: a bug of the driver.
    LaneOrderBroken = "LANE_ORDER_BROKEN", Invalid,
        "please report it, with `records.jsonl`";
    /// The run was interrupted.
    Interrupted = "INTERRUPTED", Degraded,
        "what was measured before the interrupt is complete";
    /// A metrics snapshot is missing.
    CountersUnavailable = "COUNTERS_UNAVAILABLE", Degraded,
        "hit rates come from usage alone; check the metrics endpoint";
    /// The counters moved by less than what was served.
    CountersIncomplete = "COUNTERS_INCOMPLETE", Degraded,
        "counters lag or an engine's series are missing; check `metrics_url` and `dp_size`";
    /// Cache queries differ from the prompt tokens served.
    QueriesMismatch = "QUERIES_MISMATCH", Degraded,
        "the engine counts lookups again while requests wait or after preemption; trust the rate whose source is named";
    /// The reset could not be proven.
    ResetUnproven = "RESET_UNPROVEN", Degraded,
        "the server may have been warm; set `pcload.cache_salt` to `per_run`";
    /// The run went on without a reset, as configured.
    AssumeEmptyCache = "ASSUME_EMPTY_CACHE", Degraded,
        "the scenario promises an empty cache; nothing has proven it";
    /// A group's warm-up could not be verified.
    WarmupIncomplete = "WARMUP_INCOMPLETE", Degraded,
        "the first request of such a group and rank may miss";
    /// The actual hit rate is not what the executed theory says.
    ActualDeviation = "ACTUAL_DEVIATION", Degraded,
        "see the lost tokens by cause";
    /// The server cuts blocks differently from the scenario.
    BlockSizeMismatch = "BLOCK_SIZE_MISMATCH", Degraded,
        "set `tokenizer.block_size` to the server's and prepare again";
    /// The server counts prompt tokens differently from the plan.
    PromptTokensDiffer = "PROMPT_TOKENS_DIFFER", Degraded,
        "check the tokenizer and `pcload.add_special_tokens`";
    /// An external cache tier served tokens.
    ExternalCacheActive = "EXTERNAL_CACHE_ACTIVE", Degraded,
        "theory is compared with the local rate; the combined one stands beside it";
    /// Requests were preempted.
    Preemptions = "PREEMPTIONS", Degraded,
        "lower the concurrency or enlarge the KV pool";
    /// The KV pool was full or is too small for the working set.
    EvictionPressure = "EVICTION_PRESSURE", Degraded,
        "fewer groups, shorter prefixes or a larger KV pool";
    /// Some requests failed.
    RequestsFailed = "REQUESTS_FAILED", Degraded,
        "see the failures by kind; failed requests are in no latency";
    /// Some planned requests were never sent.
    RequestsNotSent = "REQUESTS_NOT_SENT", Degraded,
        "the executed theory leaves them out";
    /// Some requests were sent again.
    RetriedRequests = "RETRIED_REQUESTS", Degraded,
        "their latency is the last attempt's; the wasted time stands apart";
    /// Outputs are not as long as planned.
    OutputLengthDiffers = "OUTPUT_LENGTH_DIFFERS", Degraded,
        "add `ignore_eos: true` to `generation_kwargs` to fix output lengths";
    /// The client sent late, or was short of CPU.
    ClientLate = "CLIENT_LATE", Degraded,
        "the client was the bottleneck; use a faster machine or a lower rate";
    /// Requests waited for a slot of the client's own cap.
    SaturatedByCap = "SATURATED_BY_CAP", Degraded,
        "raise `max_in_flight`, or read the latencies from schedule";
    /// Fewer successes than percentiles need.
    FewSamples = "FEW_SAMPLES", Degraded,
        "send more requests; high percentiles and intervals are indicative only";
    /// Many events shared a read.
    CoalescedEvents = "COALESCED_EVENTS", Note,
        "inter-token latencies are blurred by that share of chunks";
    /// There are no records of single requests (another driver, or offline).
    RecordsUnavailable = "RECORDS_UNAVAILABLE", Note,
        "only plan and counters are compared; run with the native driver for more";
    /// Responses were not streamed.
    NotStreamed = "NOT_STREAMED", Note,
        "TTFT, TPOT and ITL exist only with `aisbench.model.stream: true`";
    /// The server does not report cached tokens.
    CachedTokensUnavailable = "CACHED_TOKENS_UNAVAILABLE", Note,
        "start vLLM with `--enable-prompt-tokens-details` to account for each request";
    /// Hits cannot shorten the time to the first token.
    HitWithoutBenefit = "HIT_WITHOUT_BENEFIT", Note,
        "queueing or other costs dominate the first token; lower the load to see the saving";
    /// Some KV samples are missing.
    PollFailures = "POLL_FAILURES", Note,
        "KV figures rest on the samples that arrived";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_finding_decides() {
        let note = Finding::new(Code::NotStreamed, "n");
        let degraded = Finding::new(Code::FewSamples, "d");
        let invalid = Finding::new(Code::NotCold, "i");
        assert_eq!(verdict(&[]), Verdict::Valid);
        assert_eq!(verdict(std::slice::from_ref(&note)), Verdict::Valid);
        assert_eq!(verdict(&[degraded.clone(), note]), Verdict::Degraded);
        assert_eq!(verdict(&[invalid, degraded]), Verdict::Invalid);
    }

    #[test]
    fn codes_are_written_as_they_are_spelled() {
        for &code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!(!code.meaning().1.is_empty());
        }
    }
}
