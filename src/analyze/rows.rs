//! Plan and records side by side, one row a planned request. Records that fit no
//! plan are refused here, so that nothing behind it has to ask.

use super::AnalyzeError;
use super::executed::send_order;
use super::inputs::{Inputs, PlannedRow};
use crate::measure::{Derived, RequestRecord, StatsPhase, derive};
use crate::theory::ServerView;
use crate::units::RunOffset;

/// One planned request and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    pub(super) planned: &'a PlannedRow,
    /// `None` when it was never sent.
    pub(super) record: Option<&'a RequestRecord>,
    pub(super) derived: Option<Derived>,
}

impl Row<'_> {
    /// Whether the server is known to have computed its prompt.
    pub(super) fn was_served(&self) -> bool {
        self.record.is_some_and(RequestRecord::was_served)
    }

    pub(super) fn sent_at(&self) -> Option<RunOffset> {
        self.record.map(|record| record.t_send_ns)
    }

    pub(super) fn cached_tokens(&self) -> Option<u64> {
        self.derived.as_ref()?.cached_tokens
    }

    /// Prompt tokens by the server's count, else by the plan's.
    pub(super) fn prompt_tokens(&self, view: ServerView) -> u64 {
        self.derived
            .as_ref()
            .and_then(|derived| derived.prompt_tokens)
            .unwrap_or_else(|| self.planned.prompt_tokens(view))
    }

    /// Success in the measure phase: what latencies and throughput are over.
    pub(super) fn counts(&self) -> Option<(&RequestRecord, &Derived)> {
        let record = self.record?;
        let counts = record.succeeded() && record.phase == StatsPhase::Measure;
        counts.then_some(record).zip(self.derived.as_ref())
    }
}

/// Rows in planned order.
pub(super) fn join<'a>(inputs: &Inputs<'a>) -> Result<Vec<Row<'a>>, AnalyzeError> {
    let mut rows: Vec<Row<'a>> = inputs
        .planned
        .iter()
        .map(|planned| Row {
            planned,
            record: None,
            derived: None,
        })
        .collect();
    for (place, row) in rows.iter().enumerate() {
        if usize::try_from(row.planned.sequence_index) != Ok(place) {
            return Err(AnalyzeError::PlanOrder {
                place,
                sequence_index: row.planned.sequence_index,
            });
        }
    }
    for record in inputs.records {
        let row = usize::try_from(record.sequence_index)
            .ok()
            .and_then(|index| rows.get_mut(index))
            .filter(|row| row.planned.request_id == record.request_id)
            .ok_or_else(|| AnalyzeError::UnknownRequest {
                request_id: record.request_id.clone(),
                sequence_index: record.sequence_index,
            })?;
        if row.record.is_some() {
            return Err(AnalyzeError::DuplicateRecord {
                request_id: record.request_id.clone(),
            });
        }
        row.record = Some(record);
        row.derived = Some(derive(record));
    }
    Ok(rows)
}

/// Indexes of the rows that count, in send order: what resampling needs.
pub(super) fn counted_in_send_order(rows: &[Row<'_>]) -> Vec<usize> {
    let mut order = send_order(rows);
    order.retain(|&index| rows[index].counts().is_some());
    order
}
