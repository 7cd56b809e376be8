//! Records as rows for a spreadsheet. An absent number is an empty cell.

use std::io;

use super::columns::{COLUMNS, Cell};
use crate::measure::{RequestRecord, derive};

/// Writes `records` as CSV with a header line.
pub fn records_csv(records: &[RequestRecord], out: &mut impl io::Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS.iter().map(|column| column.name))?;
    for record in records {
        let derived = derive(record);
        let cells = COLUMNS.iter().map(|column| (column.of)(record, &derived));
        writer.write_record(cells.map(text))?;
    }
    writer.flush()
}

fn text(cell: Cell<'_>) -> String {
    match cell {
        Cell::Absent => String::new(),
        Cell::Integer(value) => value.to_string(),
        Cell::Number(value) => value.to_string(),
        Cell::Text(value) => value.into_owned(),
    }
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
