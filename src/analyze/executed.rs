//! Theory in the server's view: planned, over all requests in their planned
//! order, and executed, over those that were really served, in real send order.
//!
//! `hit = ⌊(n + min(shared, watermark)) / B⌋ · B`, at most `⌊(L − 1) / B⌋ · B`,
//! with `n` tokens that the server puts in front, `L` tokens in all and blocks
//! of `B`: the last token is always computed, and hits are whole blocks. The
//! watermark is the longest shared prefix that the lane has brought in; in
//! warm-up mode it starts at the group's longest.

use std::collections::BTreeMap;

use super::inputs::{Lane, PlannedRow};
use super::rows::Row;
use crate::scenario::CacheMode;
use crate::units::{BlockSize, RunOffset};

/// How the server sees a prompt.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerView {
    /// Cold or warm start.
    pub(super) mode: CacheMode,
    /// Tokens of one block.
    pub(super) block: BlockSize,
    /// Tokens in front of each prompt.
    pub(super) prefix_tokens: u64,
    /// Tokens behind each prompt; they are in its length and never shared.
    pub(super) suffix_tokens: u64,
}

impl ServerView {
    /// Prompt tokens as the server counts them.
    pub(super) fn prompt_tokens(self, planned: &PlannedRow) -> u64 {
        planned.input_tokens + self.prefix_tokens + self.suffix_tokens
    }

    /// Hit tokens with `watermark` tokens of the group's prefix in the cache.
    pub(super) fn hit(self, planned: &PlannedRow, watermark: u64) -> u64 {
        if watermark == 0 {
            return 0;
        }
        let shared = planned.shared_prefix_tokens.min(watermark);
        let most = self
            .block
            .floor(self.prompt_tokens(planned).saturating_sub(1));
        self.block.floor(self.prefix_tokens + shared).min(most)
    }

    /// The most that any cache could serve.
    pub(super) fn potential(self, planned: &PlannedRow) -> u64 {
        self.hit(planned, planned.shared_prefix_tokens)
    }

    /// Hits of all requests in planned order, aligned with `planned`.
    pub(super) fn planned(self, planned: &[PlannedRow]) -> Vec<u64> {
        let mut lanes = Lanes::new(self, planned.iter());
        planned.iter().map(|row| lanes.play(row)).collect()
    }

    /// Hits of the requests that were served, in real send order, aligned with
    /// `rows`; `None` for those that were not.
    pub(super) fn executed(self, rows: &[Row<'_>]) -> Vec<Option<u64>> {
        let mut lanes = Lanes::new(self, rows.iter().map(|row| row.planned));
        let mut hits = vec![None; rows.len()];
        for index in send_order(rows) {
            hits[index] = Some(lanes.play(rows[index].planned));
        }
        hits
    }

    /// As [`executed`](Self::executed), but a request gains only from those
    /// whose first token had arrived when it was sent: the least that a server
    /// gives which shares no block before it is computed.
    pub(super) fn without_overlap(self, rows: &[Row<'_>]) -> u64 {
        let order = send_order(rows);
        let mut finished: Vec<(RunOffset, usize)> = order
            .iter()
            .filter_map(|&index| Some((first_token(&rows[index])?, index)))
            .collect();
        finished.sort_unstable();
        let mut finished = finished.into_iter().peekable();
        let mut lanes = Lanes::new(self, rows.iter().map(|row| row.planned));
        let mut total = 0;
        for index in order {
            let sent = rows[index].sent_at();
            while let Some((_, done)) = finished.next_if(|&(at, _)| Some(at) <= sent) {
                lanes.bring_in(rows[done].planned);
            }
            total += self.hit(rows[index].planned, lanes.watermark(rows[index].planned));
        }
        total
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

/// Watermarks by lane.
struct Lanes {
    view: ServerView,
    marks: BTreeMap<Lane, u64>,
}

impl Lanes {
    fn new<'a>(view: ServerView, planned: impl Iterator<Item = &'a PlannedRow>) -> Self {
        let mut lanes = Self {
            view,
            marks: BTreeMap::new(),
        };
        if view.mode == CacheMode::Warmup {
            planned.for_each(|row| lanes.bring_in(row));
        }
        lanes
    }

    /// In warm-up mode every rank has been warmed alike.
    fn lane(&self, planned: &PlannedRow) -> Lane {
        match self.view.mode {
            CacheMode::Cold => planned.lane(),
            CacheMode::Warmup => (planned.group, None),
        }
    }

    fn watermark(&self, planned: &PlannedRow) -> u64 {
        self.marks.get(&self.lane(planned)).copied().unwrap_or(0)
    }

    fn bring_in(&mut self, planned: &PlannedRow) {
        let mark = self.marks.entry(self.lane(planned)).or_default();
        *mark = (*mark).max(planned.shared_prefix_tokens);
    }

    fn play(&mut self, planned: &PlannedRow) -> u64 {
        let hit = self.view.hit(planned, self.watermark(planned));
        self.bring_in(planned);
        hit
    }
}
