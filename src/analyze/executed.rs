//! Theory in the server's view: planned, over all requests in their planned
//! order, and executed, over those that were really served, in real send order.
//! The rule is [`theory`](crate::theory)'s; here is who was sent, and when.

use std::collections::BTreeMap;

use super::inputs::{Inputs, PlannedRow};
use super::rows::Row;
use crate::scenario::CacheMode;
use crate::theory::{SentRequest, ServerView, Theory, Watermarks, replay};
use crate::units::{GroupIndex, RunOffset};

/// The cache before the first formal request.
pub(super) struct Executed {
    mode: CacheMode,
    view: ServerView,
    /// The longest prefix of each group: what the warm-up brought in.
    warm: BTreeMap<GroupIndex, u64>,
}

impl Executed {
    pub(super) fn new(inputs: &Inputs<'_>, view: ServerView) -> Self {
        let mut warm: BTreeMap<GroupIndex, u64> = BTreeMap::new();
        for planned in inputs.planned {
            let longest = warm.entry(planned.group).or_default();
            *longest = (*longest).max(planned.shared_prefix_tokens);
        }
        Self {
            mode: inputs.mode,
            view,
            warm,
        }
    }

    /// Hits of all requests in planned order, aligned with `planned`.
    pub(super) fn planned_hits(&self, planned: &[PlannedRow]) -> Vec<u64> {
        let sent: Vec<SentRequest> = planned.iter().map(PlannedRow::as_sent).collect();
        self.replay(&sent).hit_tokens().collect()
    }

    /// Hits of the requests that were served, in real send order, aligned with
    /// `rows`; `None` for those that were not.
    pub(super) fn hits(&self, rows: &[Row<'_>]) -> Vec<Option<u64>> {
        let order = send_order(rows);
        let sent = order.iter().map(|&index| rows[index].planned.as_sent());
        let theory = self.replay(&sent.collect::<Vec<_>>());
        let mut hits = vec![None; rows.len()];
        for (&index, hit_tokens) in order.iter().zip(theory.hit_tokens()) {
            hits[index] = Some(hit_tokens);
        }
        hits
    }

    /// The sum of [`hits`](Self::hits) where a request gains only from those
    /// whose first token had arrived when it was sent: the least that a server
    /// gives which shares no block before it is computed.
    pub(super) fn hits_without_overlap(&self, rows: &[Row<'_>]) -> u64 {
        let order = send_order(rows);
        let mut finished: Vec<(RunOffset, usize)> = order
            .iter()
            .filter_map(|&index| Some((first_token(&rows[index])?, index)))
            .collect();
        finished.sort_unstable();
        let mut finished = finished.into_iter().peekable();
        let mut watermarks = Watermarks::new(self.mode, &self.warm);
        let mut total = 0;
        for index in order {
            let sent = rows[index].sent_at();
            while let Some((_, done)) = finished.next_if(|&(at, _)| Some(at) <= sent) {
                watermarks.bring_in(&rows[done].planned.as_sent());
            }
            total += watermarks.hit_tokens(&rows[index].planned.as_sent(), &self.view);
        }
        total
    }

    fn replay(&self, sent: &[SentRequest]) -> Theory {
        replay(self.mode, &self.warm, sent, &self.view)
    }
}

/// When its prompt had surely been computed: its first content, or its end.
pub(super) fn first_token(row: &Row<'_>) -> Option<RunOffset> {
    let record = row.record?;
    record.content_ns.first().copied().or(record.ended_at())
}

/// Indexes of the served rows by their send stamps.
pub(super) fn send_order(rows: &[Row<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].was_served()).collect();
    order.sort_by_key(|&index| (rows[index].sent_at(), index));
    order
}
