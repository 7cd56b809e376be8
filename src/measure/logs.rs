//! The records as interval logs, one a latency: what `.hlog` files hold. Each
//! sample stands in the second it was completed, under its phase and whether the
//! cache served anything.

use super::derive::{derive, gaps};
use super::record::{RequestRecord, StatsPhase};
use crate::stats::IntervalLog;
use crate::units::RunOffset;

/// Logs of the successful requests, by name: `ttft`, `tpot`, `itl`, `e2el`.
pub fn interval_logs(records: &[RequestRecord]) -> [(&'static str, IntervalLog); 4] {
    let [mut ttft, mut tpot, mut itl, mut e2el] = std::array::from_fn(|_| IntervalLog::new());
    for record in records.iter().filter(|record| record.succeeded()) {
        let tag = tag(record);
        let derived = derive(record);
        let end = record.ended_at().unwrap_or(record.t_send_ns);
        let note = |log: &mut IntervalLog, at: RunOffset, ms: Option<f64>| {
            if let Some(ms) = ms {
                log.record(at, tag, nanos(ms));
            }
        };
        let first = record.content_ns.first().copied().unwrap_or(end);
        note(&mut ttft, first, derived.ttft_ms);
        note(&mut tpot, end, derived.tpot_ms);
        note(&mut e2el, end, derived.e2el_ms);
        for (gap, at) in gaps(record).zip(record.content_ns.iter().skip(1)) {
            itl.record(*at, tag, gap);
        }
    }
    [("ttft", ttft), ("tpot", tpot), ("itl", itl), ("e2el", e2el)]
}

fn tag(record: &RequestRecord) -> &'static str {
    let cached = record.usage.and_then(|usage| usage.cached_tokens);
    match (record.phase, cached) {
        (StatsPhase::Warmup, Some(0)) => "warmup.miss",
        (StatsPhase::Warmup, Some(_)) => "warmup.hit",
        (StatsPhase::Warmup, None) => "warmup.unknown",
        (StatsPhase::Measure, Some(0)) => "measure.miss",
        (StatsPhase::Measure, Some(_)) => "measure.hit",
        (StatsPhase::Measure, None) => "measure.unknown",
        (StatsPhase::Cooldown, Some(0)) => "cooldown.miss",
        (StatsPhase::Cooldown, Some(_)) => "cooldown.hit",
        (StatsPhase::Cooldown, None) => "cooldown.unknown",
    }
}

/// Latencies are differences of stamps in order, so never negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, far below 2^64"
)]
fn nanos(ms: f64) -> u64 {
    (ms.max(0.0) * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::measure::FailureKind;
    use crate::measure::sample::{failed, stream};

    #[test]
    fn samples_stand_where_they_ended_and_failures_nowhere() {
        let mut hit = stream(&[900.0, 1_100.0, 2_100.0], 3);
        hit.usage.as_mut().unwrap().cached_tokens = Some(32);
        let records = [
            hit,
            stream(&[100.0], 1),
            failed(FailureKind::Connect, None, 0.0, 1.0),
        ];
        let lines = |log: &IntervalLog| {
            let mut text = Vec::new();
            log.write(SystemTime::UNIX_EPOCH, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            text.lines()
                .filter_map(|line| line.strip_prefix("Tag="))
                .map(|line| {
                    let fields: Vec<&str> = line.split(',').collect();
                    format!("{} {}", fields[0], fields[1])
                })
                .collect::<Vec<_>>()
        };
        let [(_, ttft), (_, tpot), (_, itl), (_, e2el)] = &interval_logs(&records);
        assert_eq!(lines(ttft), ["measure.hit 0.000", "measure.miss 0.000"]);
        assert_eq!(lines(tpot), ["measure.hit 2.000"]);
        assert_eq!(lines(itl), ["measure.hit 1.000", "measure.hit 2.000"]);
        assert_eq!(lines(e2el), ["measure.miss 0.000", "measure.hit 2.000"]);
    }
}
