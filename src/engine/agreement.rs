//! The counters' word against what was sent: other traffic, lookups that were
//! counted more than once, preemptions, a second cache tier. It reports and
//! never corrects: no counter is rescaled.

use serde::Serialize;

use crate::engine::RankDelta;

/// Something in a window that a reader of its rates must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterFinding {
    /// Stable code.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

/// What `delta` says beside the prompt tokens that the requests of the window
/// report (Σ `usage.prompt_tokens` of every attempt that reached the server);
/// `None` where they did not report any.
pub fn agreement(delta: &RankDelta, sent_prompt_tokens: Option<u64>) -> Vec<CounterFinding> {
    let mut findings = Vec::new();
    let mut add = |code, message| findings.push(CounterFinding { code, message });
    match (delta.prompt_tokens, sent_prompt_tokens) {
        (Some(counted), Some(sent)) if counted > sent => {
            add("FOREIGN_TRAFFIC", compared("prompt tokens", sent, counted));
        }
        (Some(counted), Some(sent)) if counted < sent => {
            add(
                "COUNTERS_INCOMPLETE",
                compared("prompt tokens", sent, counted),
            );
        }
        (None, Some(sent)) if delta.queries < sent => {
            add(
                "COUNTERS_INCOMPLETE",
                compared("cache queries", sent, delta.queries),
            );
        }
        _ => {}
    }
    let expected = delta.prompt_tokens.or(sent_prompt_tokens);
    if let Some(expected) = expected
        && (delta.queries > expected || (delta.prompt_tokens.is_some() && delta.queries < expected))
    {
        add(
            "QUERIES_MISMATCH",
            compared("cache queries", expected, delta.queries),
        );
    }
    if let Some(count @ 1..) = delta.preemptions {
        add("PREEMPTIONS", format!("{count} preemptions in the window"));
    }
    if let Some(hits @ 1..) = delta.external_hits {
        add(
            "EXTERNAL_CACHE_ACTIVE",
            format!("{hits} tokens came from an external cache tier"),
        );
    }
    findings
}

fn compared(what: &str, expected: u64, counted: u64) -> String {
    if expected == 0 {
        return format!("{what}: expected 0, counted {counted}");
    }
    let percent = (counted as f64 / expected as f64 - 1.0) * 100.0;
    format!("{what}: expected {expected}, counted {counted}, {percent:+.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(delta: &RankDelta, sent: Option<u64>) -> Vec<&'static str> {
        let findings = agreement(delta, sent);
        findings.iter().map(|finding| finding.code).collect()
    }

    /// vllm-project/vllm#25780 and #43736: recomputed tokens are counted again.
    #[test]
    fn queries_counted_more_than_once_are_reported_and_not_rescaled() {
        let delta = RankDelta {
            queries: 14_336,
            hits: 9_216,
            preemptions: Some(3),
            ..RankDelta::default()
        };
        let findings = agreement(&delta, Some(10_240));
        assert_eq!(
            findings[0],
            CounterFinding {
                code: "QUERIES_MISMATCH",
                message: "cache queries: expected 10240, counted 14336, +40.0 %".to_owned(),
            }
        );
        assert_eq!(findings[1].message, "3 preemptions in the window");
        assert_eq!(findings.len(), 2);
        assert!((delta.hit_rate().unwrap() - 0.642_857).abs() < 5e-7);
    }

    #[test]
    fn prompt_tokens_tell_other_traffic_from_recounting() {
        let delta = |queries, prompt_tokens| RankDelta {
            queries,
            prompt_tokens: Some(prompt_tokens),
            ..RankDelta::default()
        };
        assert!(codes(&delta(100, 100), Some(100)).is_empty());
        assert_eq!(codes(&delta(150, 150), Some(100)), ["FOREIGN_TRAFFIC"]);
        assert_eq!(codes(&delta(150, 100), Some(100)), ["QUERIES_MISMATCH"]);
        assert_eq!(codes(&delta(60, 60), Some(100)), ["COUNTERS_INCOMPLETE"]);
        assert_eq!(codes(&delta(150, 100), None), ["QUERIES_MISMATCH"]);
        assert!(codes(&delta(100, 100), None).is_empty());
    }

    #[test]
    fn a_second_tier_is_named_only_when_it_gave_something() {
        let delta = |external_hits| RankDelta {
            external_queries: Some(500),
            external_hits: Some(external_hits),
            ..RankDelta::default()
        };
        assert!(codes(&delta(0), None).is_empty());
        assert_eq!(codes(&delta(200), None), ["EXTERNAL_CACHE_ACTIVE"]);
    }
}
