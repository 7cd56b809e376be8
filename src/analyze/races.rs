//! Requests that were sent before their prefix had been computed: what
//! concurrency can cost on a server that shares no block in the making.

use std::collections::BTreeMap;

use super::executed::{first_token, send_order};
use super::inputs::Lane;
use super::rows::Row;
use crate::scenario::CacheMode;
use crate::units::RunOffset;

/// Rows sent before any request that brings their prefix in had a first token,
/// with the moment of the first that had. In warm-up mode prefixes are there
/// from the start.
pub(super) fn races(mode: CacheMode, rows: &[Row<'_>]) -> BTreeMap<usize, RunOffset> {
    let mut races = BTreeMap::new();
    if mode == CacheMode::Warmup {
        return races;
    }
    let mut sources: BTreeMap<Lane, Sources> = BTreeMap::new();
    for index in send_order(rows) {
        let row = &rows[index];
        let shared = row.planned.shared_prefix_tokens;
        let lane = sources.entry(row.planned.lane()).or_default();
        let ready = lane.ready_at(shared);
        if ready.is_some() && row.sent_at() < ready {
            races.extend(ready.map(|ready| (index, ready)));
        }
        if let Some(ready) = first_token(row) {
            lane.add(shared, ready);
        }
    }
    races
}

/// When how much of a prefix was there: pairs ascending in both, so that each
/// is the earliest of its length.
#[derive(Default)]
struct Sources(Vec<(u64, RunOffset)>);

impl Sources {
    /// When the first `shared` tokens, or all there ever were, were there.
    fn ready_at(&self, shared: u64) -> Option<RunOffset> {
        let enough = self.0.partition_point(|&(length, _)| length < shared);
        self.0
            .get(enough)
            .or(self.0.last())
            .map(|&(_, ready)| ready)
    }

    fn add(&mut self, shared: u64, ready: RunOffset) {
        let better = |&(length, at): &(u64, RunOffset)| length >= shared && at <= ready;
        if !self.0.iter().any(better) {
            self.0.retain(|&(length, at)| length > shared || at < ready);
            let place = self.0.partition_point(|&(length, _)| length < shared);
            self.0.insert(place, (shared, ready));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::fixture::{planned, rows_of, served};

    #[test]
    fn only_a_prefix_nobody_had_finished_races() {
        // First tokens come 50 ms after the send.
        let plan: Vec<_> = [64, 64, 128, 64]
            .into_iter()
            .zip(0..)
            .map(|(shared, index)| planned(index, 256, shared))
            .collect();
        let sends = [0.0, 30.0, 100.0, 110.0];
        let records: Vec<_> = plan
            .iter()
            .zip(sends)
            .map(|(row, sent)| served(row, sent, Some(0)))
            .collect();
        let found = races(CacheMode::Cold, &rows_of(&plan, &records));
        // Request 1 raced with 0. Request 3 has its 64 tokens from 0, though the
        // longer 2 is still in flight.
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1]);
        assert_eq!(found[&1].nanos(), 50_000_000);
    }
}
