//! What one request contributes to a comparison, whichever program measured it.

use std::cmp::Ordering;

use crate::measure::{RequestRecord, StatsPhase, derive, gaps};

/// One request that was sent and counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// What it is paired by; absent where the source names no requests.
    pub key: Option<String>,
    /// Which of the side's runs it belongs to, from 0.
    pub run: u32,
    /// Send, seconds since the start of its run.
    pub sent_s: f64,
    /// Its end, seconds since the start of its run.
    pub ended_s: f64,
    /// Whether it succeeded. Of a failure nothing below counts.
    pub ok: bool,
    /// Send to first token, ms.
    pub ttft_ms: Option<f64>,
    /// Time per output token after the first, ms.
    pub tpot_ms: Option<f64>,
    /// Send to last token, ms.
    pub e2el_ms: Option<f64>,
    /// Number of gaps between content chunks.
    pub gaps: u64,
    /// Sum of the gaps, ms.
    pub gaps_ms: f64,
    /// Generated tokens; absent where nobody counted them.
    pub output_tokens: Option<u64>,
    /// Prompt tokens, and of them those from the cache; absent where the server
    /// does not say.
    pub cached: Option<[u64; 2]>,
}

impl Sample {
    /// The requests of the measure phase that were sent, in send order, as part
    /// of run `run` of their side. They are paired by request id, run by run.
    pub fn of_records(records: &[RequestRecord], run: u32) -> Vec<Self> {
        let counted = records
            .iter()
            .filter(|record| record.phase == StatsPhase::Measure && record.was_sent());
        let mut samples: Vec<Self> = counted.map(|record| Self::of_record(record, run)).collect();
        samples.sort_by(by_send);
        samples
    }

    fn of_record(record: &RequestRecord, run: u32) -> Self {
        let derived = derive(record);
        let sent = record.first_sent_at();
        let gaps = gaps(record);
        Self {
            key: Some(record.request_id.clone()),
            run,
            sent_s: sent.seconds(),
            ended_s: record.ended_at().unwrap_or(sent).seconds(),
            ok: record.succeeded(),
            ttft_ms: derived.ttft_ms,
            tpot_ms: derived.tpot_ms,
            e2el_ms: derived.e2el_ms,
            gaps: gaps.len() as u64,
            gaps_ms: gaps.map(|nanos| nanos as f64 / 1e6).sum(),
            output_tokens: derived.output_tokens,
            cached: derived
                .prompt_tokens
                .zip(derived.cached_tokens)
                .map(Into::into),
        }
    }
}

/// Run by run, in send order.
pub(super) fn by_send(one: &Sample, other: &Sample) -> Ordering {
    let runs = one.run.cmp(&other.run);
    runs.then(one.sent_s.total_cmp(&other.sent_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::FailureKind;
    use crate::measure::sample::{at, failed, stream};

    #[test]
    fn a_record_keeps_its_latencies_and_its_place() {
        let mut late = stream(&[100.0, 130.0], 2);
        late.t_send_ns = at(50.0);
        let first = failed(FailureKind::Connect, None, 10.0, 20.0);
        let mut warmup = stream(&[1.0], 1);
        warmup.phase = StatsPhase::Warmup;
        let samples = Sample::of_records(&[late, first, warmup], 3);
        assert_eq!(samples.len(), 2);
        assert_eq!((samples[0].ok, samples[0].run), (false, 3));
        let late = &samples[1];
        assert_eq!((late.ttft_ms, late.tpot_ms), (Some(50.0), Some(30.0)));
        assert_eq!(
            (late.gaps, late.gaps_ms, late.cached),
            (1, 30.0, Some([64, 0]))
        );
    }
}
