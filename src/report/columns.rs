//! The columns that records are exported by, whatever the format: one row a
//! request, everything derived from its stamps beside what the plan said.

use std::borrow::Cow;

use crate::measure::{Derived, Outcome, RequestRecord};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A count, from 0.
    Integer,
    /// A time in the unit that the name ends with.
    Number,
    /// A name.
    Text,
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell<'r> {
    /// Not measured, or not so.
    Absent,
    Integer(u64),
    Number(f64),
    Text(Cow<'r, str>),
}

/// One column. What it is called, what it holds, and whether cells may be
/// absent.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) nullable: bool,
    pub(super) of: for<'r> fn(&'r RequestRecord, &Derived) -> Cell<'r>,
}

type Pick = for<'r> fn(&'r RequestRecord, &Derived) -> Cell<'r>;

const fn always(name: &'static str, kind: Kind, of: Pick) -> Column {
    Column {
        name,
        kind,
        nullable: false,
        of,
    }
}

const fn maybe(name: &'static str, kind: Kind, of: Pick) -> Column {
    Column {
        name,
        kind,
        nullable: true,
        of,
    }
}

/// Every column, in order.
pub(super) const COLUMNS: [Column; 29] = [
    always("sequence_index", Kind::Integer, |record, _| {
        Cell::Integer(record.sequence_index.into())
    }),
    always("request_id", Kind::Text, |record, _| {
        Cell::Text(Cow::Borrowed(&record.request_id))
    }),
    always("group_id", Kind::Text, |record, _| {
        Cell::Text(record.group_id.to_string().into())
    }),
    maybe("dp_rank", Kind::Integer, |record, _| {
        integer(record.dp_rank.map(|rank| rank.0.into()))
    }),
    maybe("lane_sequence", Kind::Integer, |record, _| {
        integer(record.lane_sequence.map(u64::from))
    }),
    always("stage", Kind::Integer, |record, _| {
        Cell::Integer(record.stage.into())
    }),
    always("phase", Kind::Text, |record, _| {
        Cell::Text(format!("{:?}", record.phase).to_lowercase().into())
    }),
    always("status", Kind::Text, |record, _| {
        let status = match record.outcome {
            Outcome::Success => "success",
            Outcome::Failure(_) => "failure",
        };
        Cell::Text(status.into())
    }),
    maybe("failure_kind", Kind::Text, |record, _| {
        match &record.outcome {
            Outcome::Success => Cell::Absent,
            Outcome::Failure(failure) => Cell::Text(failure.kind.as_str().into()),
        }
    }),
    maybe("failure_code", Kind::Integer, |record, _| {
        match &record.outcome {
            Outcome::Success => Cell::Absent,
            Outcome::Failure(failure) => integer(failure.code.map(u64::from)),
        }
    }),
    always("attempts", Kind::Integer, |_, derived| {
        Cell::Integer(derived.attempts)
    }),
    always("t_sched_s", Kind::Number, |record, _| {
        Cell::Number(record.t_sched_ns.seconds())
    }),
    always("t_send_s", Kind::Number, |record, _| {
        Cell::Number(record.t_send_ns.seconds())
    }),
    always("planned_prompt_tokens", Kind::Integer, |record, _| {
        Cell::Integer(record.planned_prompt_tokens)
    }),
    maybe("prompt_tokens", Kind::Integer, |_, derived| {
        integer(derived.prompt_tokens)
    }),
    maybe("cached_tokens", Kind::Integer, |_, derived| {
        integer(derived.cached_tokens)
    }),
    always("max_tokens", Kind::Integer, |record, _| {
        Cell::Integer(record.max_tokens)
    }),
    maybe("output_tokens", Kind::Integer, |_, derived| {
        integer(derived.output_tokens)
    }),
    always("chunks", Kind::Integer, |_, derived| {
        Cell::Integer(derived.chunks)
    }),
    maybe("ttft_ms", Kind::Number, |_, derived| {
        number(derived.ttft_ms)
    }),
    maybe("first_choice_ms", Kind::Number, |_, derived| {
        number(derived.first_choice_ms)
    }),
    maybe("second_token_ms", Kind::Number, |_, derived| {
        number(derived.second_token_ms)
    }),
    maybe("tpot_ms", Kind::Number, |_, derived| {
        number(derived.tpot_ms)
    }),
    maybe("e2el_ms", Kind::Number, |_, derived| {
        number(derived.e2el_ms)
    }),
    maybe("stream_close_ms", Kind::Number, |_, derived| {
        number(derived.stream_close_ms)
    }),
    always("lane_wait_ms", Kind::Number, |_, derived| {
        Cell::Number(derived.lane_wait_ms)
    }),
    always("queue_delay_ms", Kind::Number, |_, derived| {
        Cell::Number(derived.queue_delay_ms)
    }),
    maybe("e2el_from_schedule_ms", Kind::Number, |_, derived| {
        number(derived.e2el_from_schedule_ms)
    }),
    always("retry_wasted_ms", Kind::Number, |_, derived| {
        Cell::Number(derived.retry_wasted_ms)
    }),
];

fn integer<'r>(value: Option<u64>) -> Cell<'r> {
    value.map_or(Cell::Absent, Cell::Integer)
}

fn number<'r>(value: Option<f64>) -> Cell<'r> {
    value.map_or(Cell::Absent, Cell::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample::{failed, stream};
    use crate::measure::{FailureKind, derive};

    #[test]
    fn each_cell_is_of_its_column_s_kind_and_names_differ() {
        let records = [
            stream(&[100.0, 130.0], 2),
            failed(FailureKind::HttpStatus, Some(503), 10.0, 20.0),
            failed(FailureKind::Connect, None, 10.0, 20.0),
        ];
        let mut absent = 0;
        for record in &records {
            let derived = derive(record);
            for column in &COLUMNS {
                let cell = (column.of)(record, &derived);
                let fits = match (&cell, column.kind) {
                    (Cell::Absent, _) => column.nullable,
                    (Cell::Integer(_), kind) => kind == Kind::Integer,
                    (Cell::Number(_), kind) => kind == Kind::Number,
                    (Cell::Text(_), kind) => kind == Kind::Text,
                };
                assert!(fits, "{}: {cell:?}", column.name);
                absent += usize::from(cell == Cell::Absent);
            }
        }
        assert!(absent > 0);
        let mut names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
