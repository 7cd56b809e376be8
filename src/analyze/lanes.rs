//! Proof from the records that each lane was sent in order, every request after
//! its predecessor had ended.

use std::collections::BTreeMap;

use super::inputs::Lane;
use super::rows::Row;

/// Kernel stamps are converted between clocks; beyond this an overlap is real.
const TOLERANCE_NANOS: u64 = 100_000;

/// A request that was sent before its predecessor had ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overtaking {
    pub(super) predecessor: String,
    pub(super) request: String,
    /// How much too early it was sent.
    pub(super) early_ms: f64,
}

/// Every break of lane order; empty is the proof.
pub(super) fn overtakings(rows: &[Row<'_>]) -> Vec<Overtaking> {
    let mut lanes: BTreeMap<Lane, Vec<(u32, &Row<'_>)>> = BTreeMap::new();
    for row in rows {
        let sent = row
            .record
            .is_some_and(crate::measure::RequestRecord::was_sent);
        if let Some(sequence) = row.planned.lane_sequence.filter(|_| sent) {
            lanes
                .entry(row.planned.lane())
                .or_default()
                .push((sequence, row));
        }
    }
    let mut found = Vec::new();
    for lane in lanes.values_mut() {
        lane.sort_by_key(|(sequence, _)| *sequence);
        for pair in lane.windows(2) {
            found.extend(overtaking(pair[0].1, pair[1].1));
        }
    }
    found
}

fn overtaking(before: &Row<'_>, after: &Row<'_>) -> Option<Overtaking> {
    let ended = before
        .record?
        .ended_at()
        .unwrap_or(before.record?.t_send_ns);
    let sent = after.record?.first_sent_at();
    (sent.nanos() + TOLERANCE_NANOS < ended.nanos()).then(|| Overtaking {
        predecessor: before.planned.request_id.clone(),
        request: after.planned.request_id.clone(),
        early_ms: ended.millis_since(sent),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::fixture::{planned, rows_of};
    use crate::measure::sample::{at, stream};

    #[test]
    fn a_request_that_did_not_wait_is_named() {
        let plan: Vec<_> = (0..3)
            .map(|index| {
                let mut row = planned(index, 64, 32);
                row.lane_sequence = Some(index);
                row
            })
            .collect();
        let sent = |index: u32, from: f64, to: f64| {
            let mut record = stream(&[to], 1);
            record.sequence_index = index;
            record.t_send_ns = at(from);
            record
        };
        let good = [sent(0, 0.0, 10.0), sent(1, 10.0, 20.0), sent(2, 25.0, 30.0)];
        assert_eq!(overtakings(&rows_of(&plan, &good)), []);
        let bad = [sent(0, 0.0, 10.0), sent(1, 7.0, 20.0), sent(2, 25.0, 30.0)];
        let found = overtakings(&rows_of(&plan, &bad));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].request, "request-00000001");
        assert!((found[0].early_ms - 3.0).abs() < 1e-9);
    }
}
