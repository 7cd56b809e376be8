//! Records as rows for a spreadsheet: one row a request, everything derived from
//! its stamps beside what the plan said. An absent number is an empty cell.

use std::io;

use crate::measure::{Derived, Outcome, RequestRecord, derive};

const HEADER: [&str; 29] = [
    "sequence_index",
    "request_id",
    "group_id",
    "dp_rank",
    "lane_sequence",
    "stage",
    "phase",
    "status",
    "failure_kind",
    "failure_code",
    "attempts",
    "t_sched_s",
    "t_send_s",
    "planned_prompt_tokens",
    "prompt_tokens",
    "cached_tokens",
    "max_tokens",
    "output_tokens",
    "chunks",
    "ttft_ms",
    "first_choice_ms",
    "second_token_ms",
    "tpot_ms",
    "e2el_ms",
    "stream_close_ms",
    "lane_wait_ms",
    "queue_delay_ms",
    "e2el_from_schedule_ms",
    "retry_wasted_ms",
];

/// Writes `records` as CSV with a header line.
pub fn records_csv(records: &[RequestRecord], out: &mut impl io::Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(HEADER)?;
    for record in records {
        writer.write_record(row(record, &derive(record)))?;
    }
    writer.flush()
}

fn row(record: &RequestRecord, derived: &Derived) -> [String; HEADER.len()] {
    let (status, kind, code) = match &record.outcome {
        Outcome::Success => ("success", "", None),
        Outcome::Failure(failure) => ("failure", failure.kind.as_str(), failure.code),
    };
    [
        record.sequence_index.to_string(),
        record.request_id.clone(),
        record.group_id.to_string(),
        cell(record.dp_rank),
        cell(record.lane_sequence),
        record.stage.to_string(),
        format!("{:?}", record.phase).to_lowercase(),
        status.to_owned(),
        kind.to_owned(),
        cell(code),
        derived.attempts.to_string(),
        record.t_sched_ns.seconds().to_string(),
        record.t_send_ns.seconds().to_string(),
        record.planned_prompt_tokens.to_string(),
        cell(derived.prompt_tokens),
        cell(derived.cached_tokens),
        record.max_tokens.to_string(),
        cell(derived.output_tokens),
        derived.chunks.to_string(),
        cell(derived.ttft_ms),
        cell(derived.first_choice_ms),
        cell(derived.second_token_ms),
        cell(derived.tpot_ms),
        cell(derived.e2el_ms),
        cell(derived.stream_close_ms),
        derived.lane_wait_ms.to_string(),
        derived.queue_delay_ms.to_string(),
        cell(derived.e2el_from_schedule_ms),
        derived.retry_wasted_ms.to_string(),
    ]
}

fn cell(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::FailureKind;
    use crate::measure::sample::{failed, stream};

    #[test]
    fn a_row_holds_what_was_measured_and_leaves_the_rest_empty() {
        let records = [
            stream(&[100.0, 130.0], 2),
            failed(FailureKind::HttpStatus, Some(503), 10.0, 20.0),
        ];
        let mut text = Vec::new();
        records_csv(&records, &mut text).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_slice());
        let header = reader.headers().unwrap().clone();
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        let field = |row: usize, name: &str| {
            let place = header.iter().position(|field| field == name).unwrap();
            rows[row][place].to_owned()
        };
        assert_eq!(rows.len(), 2);
        assert_eq!(field(0, "ttft_ms"), "100");
        assert_eq!(field(0, "tpot_ms"), "30");
        assert_eq!(field(0, "phase"), "measure");
        assert_eq!(
            (field(1, "ttft_ms"), field(1, "cached_tokens")),
            (String::new(), String::new())
        );
        assert_eq!(field(1, "failure_kind"), "http_status");
        assert_eq!(field(1, "failure_code"), "503");
    }
}
