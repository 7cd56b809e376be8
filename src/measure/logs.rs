//! HDR interval logs of a run's latencies, one a metric, tagged by phase and by
//! whether the request was served from cache, so that windows can be cut and
//! runs merged later. Successes only, as everywhere.

use super::{Derived, RequestRecord, StatsPhase, derive, gaps};
use crate::stats::IntervalLog;
use crate::units::RunOffset;

/// Nanoseconds of a millisecond.
const MS_NANOS: f64 = 1e6;

/// The logs of `ttft`, `tpot`, `itl` and `e2el`, by name. A value stands in the
/// interval in which its request ended.
pub fn interval_logs(records: &[RequestRecord]) -> [(&'static str, IntervalLog); 4] {
    let [mut ttft, mut tpot, mut itl, mut e2el] = std::array::from_fn(|_| IntervalLog::new());
    let mut ended: Vec<(RunOffset, &RequestRecord)> = records
        .iter()
        .filter(|record| record.succeeded())
        .filter_map(|record| Some((record.ended_at()?, record)))
        .collect();
    ended.sort_by_key(|(at, record)| (*at, record.sequence_index));
    for (at, record) in ended {
        let derived = derive(record);
        let tag = tag(record.phase, &derived);
        let add = |log: &mut IntervalLog, ms: Option<f64>| {
            if let Some(ms) = ms {
                log.record(at, &tag, nanos(ms));
            }
        };
        add(&mut ttft, derived.ttft_ms);
        add(&mut tpot, derived.tpot_ms);
        add(&mut e2el, derived.e2el_ms);
        for gap in gaps(record) {
            itl.record(at, &tag, gap);
        }
    }
    [("ttft", ttft), ("tpot", tpot), ("itl", itl), ("e2el", e2el)]
}

fn tag(phase: StatsPhase, derived: &Derived) -> String {
    let phase = match phase {
        StatsPhase::Warmup => "warmup",
        StatsPhase::Measure => "measure",
        StatsPhase::Cooldown => "cooldown",
    };
    let class = match derived.cached_tokens {
        None => "unknown",
        Some(0) => "miss",
        Some(_) => "hit",
    };
    format!("{phase}-{class}")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "latencies are positive and far below 2^63 ns"
)]
fn nanos(ms: f64) -> u64 {
    (ms * MS_NANOS).round() as u64
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::measure::FailureKind;
    use crate::measure::sample::{failed, stream};

    #[test]
    fn each_metric_has_its_log_and_failures_are_in_none() {
        let records = [
            stream(&[100.0, 110.0, 120.0], 3),
            failed(FailureKind::HttpStatus, Some(500), 0.0, 5.0),
        ];
        for (name, log) in interval_logs(&records) {
            let mut text = Vec::new();
            log.write(SystemTime::UNIX_EPOCH, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("Tag=")).count();
            assert_eq!(lines, 1, "{name}: {text}");
            assert!(text.contains("Tag=measure-miss"), "{name}: {text}");
        }
    }
}
