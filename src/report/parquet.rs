//! Records as Parquet: the columns of the CSV with their types, and the stamps of
//! each chunk as a list, which a spreadsheet has no room for. Plain columns by
//! the format's own writer, uncompressed; stamps are stored as differences.

use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::columns::{COLUMNS, Cell, Column, Kind};
use crate::measure::{Derived, RequestRecord, derive};

/// The list of stamps: nanoseconds since the start of the run.
const STAMPS: &str = "content_ns";
/// Rows that are laid out together.
const GROUP_ROWS: usize = 1 << 16;

/// The file of `records`.
pub fn records_parquet(records: &[RequestRecord]) -> Result<Vec<u8>, ParquetError> {
    let schema = Arc::new(parse_message_type(&message())?);
    let stamps = ["list", "element"].map(str::to_owned);
    let stamps = ColumnPath::new(std::iter::once(STAMPS.to_owned()).chain(stamps).collect());
    let properties = WriterProperties::builder()
        .set_created_by(concat!("pcload ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_column_dictionary_enabled(stamps.clone(), false)
        .set_column_statistics_enabled(stamps.clone(), EnabledStatistics::None)
        .set_column_encoding(stamps, Encoding::DELTA_BINARY_PACKED)
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    for rows in records.chunks(GROUP_ROWS) {
        let derived: Vec<Derived> = rows.iter().map(derive).collect();
        let mut group = writer.next_row_group()?;
        for column in &COLUMNS {
            let cells = rows.iter().zip(&derived);
            let cells = cells.map(|(record, derived)| (column.of)(record, derived));
            fill(&mut group, column, cells)?;
        }
        fill_stamps(&mut group, rows)?;
        group.close()?;
    }
    writer.into_inner()
}

/// The schema in the format's own words.
fn message() -> String {
    let field = |column: &Column| {
        let kept = if column.nullable {
            "optional"
        } else {
            "required"
        };
        let (kind, note) = match column.kind {
            Kind::Integer => ("int64", ""),
            Kind::Number => ("double", ""),
            Kind::Text => ("binary", " (STRING)"),
        };
        format!("{kept} {kind} {}{note};", column.name)
    };
    let fields: String = COLUMNS.iter().map(field).collect();
    format!(
        "message record {{ {fields} required group {STAMPS} (LIST) {{ repeated group list {{ \
         required int64 element; }} }} }}"
    )
}

fn fill<'r>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    column: &Column,
    cells: impl Iterator<Item = Cell<'r>>,
) -> Result<(), ParquetError> {
    let (mut integers, mut numbers, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    let mut levels = Vec::new();
    for cell in cells {
        levels.push(i16::from(cell != Cell::Absent));
        match cell {
            Cell::Absent => {}
            Cell::Integer(value) => integers.push(signed(value)),
            Cell::Number(value) => numbers.push(value),
            Cell::Text(text) => texts.push(ByteArray::from(text.as_bytes().to_vec())),
        }
    }
    let levels = column.nullable.then_some(levels);
    let levels = levels.as_deref();
    let writer = next(group)?;
    match column.kind {
        Kind::Integer => write::<Int64Type>(writer, &integers, levels, None),
        Kind::Number => write::<DoubleType>(writer, &numbers, levels, None),
        Kind::Text => write::<ByteArrayType>(writer, &texts, levels, None),
    }
}

fn fill_stamps(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    rows: &[RequestRecord],
) -> Result<(), ParquetError> {
    let (mut stamps, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for record in rows {
        if record.content_ns.is_empty() {
            defined.push(0);
            repeated.push(0);
        }
        for (place, at) in record.content_ns.iter().enumerate() {
            stamps.push(signed(at.nanos()));
            defined.push(1);
            repeated.push(i16::from(place > 0));
        }
    }
    let writer = next(group)?;
    write::<Int64Type>(writer, &stamps, Some(&defined), Some(&repeated))
}

fn next<'g>(
    group: &'g mut SerializedRowGroupWriter<'_, Vec<u8>>,
) -> Result<SerializedColumnWriter<'g>, ParquetError> {
    let column = group.next_column()?;
    column.ok_or_else(|| ParquetError::General("the schema has no further column".to_owned()))
}

fn write<T: DataType>(
    mut writer: SerializedColumnWriter<'_>,
    values: &[T::T],
    defined: Option<&[i16]>,
    repeated: Option<&[i16]>,
) -> Result<(), ParquetError> {
    writer.typed::<T>().write_batch(values, defined, repeated)?;
    writer.close()
}

/// The format's usual integer; nothing that is counted gets near its end.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::{Field, Row};

    use super::*;
    use crate::measure::FailureKind;
    use crate::measure::sample::{failed, stream};
    use crate::report::records_csv;

    fn read(records: &[RequestRecord]) -> Vec<Row> {
        let bytes = Bytes::from(records_parquet(records).unwrap());
        let reader = SerializedFileReader::new(bytes).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        rows.map(Result::unwrap).collect()
    }

    fn field<'a>(row: &'a Row, name: &str) -> &'a Field {
        let mut columns = row.get_column_iter();
        columns.find(|(column, _)| *column == name).unwrap().1
    }

    #[test]
    fn what_was_written_is_read_back_with_its_types() {
        let rows = read(&[
            stream(&[100.0, 130.0], 2),
            failed(FailureKind::HttpStatus, Some(503), 10.0, 20.0),
        ]);
        assert_eq!(rows.len(), 2);
        assert_eq!(field(&rows[0], "ttft_ms"), &Field::Double(100.0));
        assert_eq!(field(&rows[0], "output_tokens"), &Field::Long(2));
        assert_eq!(field(&rows[0], "status"), &Field::Str("success".to_owned()));
        assert_eq!(field(&rows[0], "failure_kind"), &Field::Null);
        assert_eq!(field(&rows[1], "ttft_ms"), &Field::Null);
        assert_eq!(field(&rows[1], "failure_code"), &Field::Long(503));
        let Field::ListInternal(stamps) = field(&rows[0], STAMPS) else {
            panic!("a list of stamps");
        };
        let expected = [100_000_000, 130_000_000].map(Field::Long);
        assert_eq!(stamps.elements(), expected);
        let Field::ListInternal(none) = field(&rows[1], STAMPS) else {
            panic!("a list of stamps");
        };
        assert!(none.elements().is_empty());
    }

    #[test]
    fn its_columns_and_cells_are_those_of_the_csv() {
        let records = [
            stream(&[100.0, 130.5], 2),
            failed(FailureKind::Connect, None, 10.0, 20.25),
        ];
        let mut text = Vec::new();
        records_csv(&records, &mut text).unwrap();
        let mut csv = csv::Reader::from_reader(text.as_slice());
        let header = csv.headers().unwrap().clone();
        let rows = read(&records);
        for (row, cells) in rows.iter().zip(csv.records().map(Result::unwrap)) {
            for ((name, field), (title, cell)) in
                row.get_column_iter().zip(header.iter().zip(cells.iter()))
            {
                assert_eq!(name, title);
                let same = match field {
                    Field::Null => cell.is_empty(),
                    Field::Long(value) => cell.parse() == Ok(*value),
                    Field::Double(value) => cell.parse() == Ok(*value),
                    Field::Str(text) => cell == text,
                    other => panic!("{name}: {other}"),
                };
                assert!(same, "{name}: {field} {cell}");
            }
            assert_eq!(row.len(), header.len() + 1);
        }
    }

    #[test]
    fn no_record_is_a_file_without_rows() {
        assert!(read(&[]).is_empty());
    }

    #[test]
    fn many_stamps_take_few_bytes() {
        let times: Vec<f64> = (1..=1_000).map(|place| f64::from(place) * 10.1).collect();
        let records = vec![stream(&times, 1_000); 50];
        let bytes = records_parquet(&records).unwrap().len();
        assert!(bytes < 50 * 1_000 * 4, "{bytes} for 50,000 stamps");
    }
}
