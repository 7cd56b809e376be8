//! Lengths out of CSV files, with the reference plugin's column names, column
//! priority and number syntax.

use std::path::Path;

use crate::scenario::paths::ReadFile;
use crate::scenario::problem::{Code, Problem, one_line, one_of, shown};

/// Columns of an input length, the first that is there counts.
pub(super) const INPUT_COLUMNS: &[&str] =
    &["input_prompt_tokens", "content_tokens", "input_tokens"];

/// Column of an output length.
pub(super) const OUTPUT_COLUMNS: &[&str] = &["output_tokens"];

/// Columns that a message names when the right one is not there.
const HEADERS_SHOWN_MAX: usize = 8;

/// Reads the lengths in the first of `columns` that `file` has; each in
/// `1..=max`. The problem's path is left empty.
pub(super) fn lengths(
    file: &Path,
    read: &ReadFile<'_>,
    columns: &[&str],
    max: u64,
) -> Result<Vec<u64>, Box<Problem>> {
    let name = format!("`{}`", one_line(&file.to_string_lossy()));
    let bytes = read(file).map_err(|error| {
        Problem::new(
            Code::FileUnreadable,
            "",
            format!("cannot read {name}: {error}"),
        )
        .expected("a CSV file")
    })?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let at = error.valid_up_to();
        bad(
            format!("{name} is not UTF-8 (byte {at})"),
            "a CSV file in UTF-8",
        )
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let values = column(text, columns).map_err(|mut problem| {
        problem.what = format!("{name}: {}", problem.what);
        problem
    })?;
    let mut lengths = Vec::with_capacity(values.len());
    for (line, value) in values {
        match python_integer(&value).and_then(|value| u64::try_from(value).ok()) {
            Some(length) if (1..=max).contains(&length) => lengths.push(length),
            _ => {
                let what = format!("{name}, line {line}: `{}` is no length", shown(&value));
                return Err(bad(what, format!("an integer from 1 to {max}")));
            }
        }
    }
    Ok(lengths)
}

fn bad(what: impl Into<String>, expected: impl Into<String>) -> Box<Problem> {
    Box::new(Problem::new(Code::BadFile, "", what).expected(expected))
}

fn expected_columns(columns: &[&str]) -> String {
    format!("a column {}", one_of(columns.iter().copied()))
}

/// The values of the first of `columns` with their lines; blank lines do not
/// count.
fn column(text: &str, columns: &[&str]) -> Result<Vec<(u64, String)>, Box<Problem>> {
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(text.as_bytes());
    let failed = |error: csv::Error| bad(format!("not CSV: {error}"), "a CSV file with a header");
    let headers = reader.headers().map_err(failed)?.clone();
    let wanted = columns
        .iter()
        .find_map(|column| headers.iter().position(|header| header == *column));
    if headers.is_empty() {
        return Err(bad("no header", expected_columns(columns)));
    }
    let Some(wanted) = wanted else {
        let found: Vec<String> = headers.iter().take(HEADERS_SHOWN_MAX).map(shown).collect();
        let what = format!("no length column among {}", found.join(", "));
        return Err(bad(what, expected_columns(columns)));
    };
    let mut values = Vec::new();
    for record in reader.records() {
        let record = record.map_err(failed)?;
        let line = record.position().map_or(0, csv::Position::line);
        values.push((line, record.get(wanted).unwrap_or_default().to_owned()));
    }
    if values.is_empty() {
        return Err(bad("no row below the header", "at least one row"));
    }
    Ok(values)
}

/// What Python's `int()` makes of decimal text: surrounding white space, a
/// sign, and single underscores between digits are allowed.
pub(super) fn python_integer(text: &str) -> Option<i128> {
    let text = text.trim();
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let grouped = digits
        .split('_')
        .all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit()));
    if !grouped {
        return None;
    }
    let value: i128 = digits.replace('_', "").parse().ok()?;
    Some(sign * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str, columns: &[&str]) -> Result<Vec<u64>, String> {
        let bytes = content.as_bytes().to_vec();
        lengths(
            Path::new("/l.csv"),
            &move |_: &Path| Ok(bytes.clone()),
            columns,
            1_000,
        )
        .map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_byte_order_mark_crlf_and_a_trailing_blank_line_are_fine() {
        let rows = format!("\u{feff}input_tokens\r\n{}\r\n", "64\r\n".repeat(100));
        assert_eq!(read(&rows, INPUT_COLUMNS), Ok(vec![64; 100]));
    }

    #[test]
    fn the_columns_have_a_priority_whatever_their_order() {
        let text = "input_tokens,input_prompt_tokens\n64,72\n";
        assert_eq!(read(text, INPUT_COLUMNS), Ok(vec![72]));
        assert_eq!(
            read("a,content_tokens,input_tokens\n1,2,3", INPUT_COLUMNS),
            Ok(vec![2])
        );
    }

    #[test]
    fn numbers_are_written_as_python_reads_them() {
        let check = |text: &str, expected| assert_eq!(python_integer(text), expected, "{text:?}");
        check(" 1_000 ", Some(1000));
        check("+7", Some(7));
        check("-7", Some(-7));
        check("007", Some(7));
        for wrong in [
            "", " ", "1__0", "_1", "1_", "1.0", "x", "+", "1 2", "- 1", "--1",
        ] {
            check(wrong, None);
        }
        check(&"9".repeat(60), None);
    }

    #[test]
    fn a_file_that_holds_no_lengths_is_refused_by_its_line() {
        let check = |text: &str, expected: &str| {
            assert_eq!(
                read(text, OUTPUT_COLUMNS),
                Err(expected.to_owned()),
                "{text:?}"
            );
        };
        check(
            "output_tokens\n0\n1\n",
            "`/l.csv`, line 2: `\"0\"` is no length; expected an integer from 1 to 1000",
        );
        check(
            "a,output_tokens\n1,2\n1\n",
            "`/l.csv`, line 3: `\"\"` is no length; expected an integer from 1 to 1000",
        );
        check(
            "input,b\n1,2\n",
            "`/l.csv`: no length column among \"input\", \"b\"; expected a column `output_tokens`",
        );
        check(
            "output_tokens\n",
            "`/l.csv`: no row below the header; expected at least one row",
        );
        check("", "`/l.csv`: no header; expected a column `output_tokens`");
    }

    #[test]
    fn a_file_that_cannot_be_read_says_why() {
        let missing = |_: &Path| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        let problem = lengths(Path::new("/l.csv"), &missing, INPUT_COLUMNS, 9).unwrap_err();
        assert_eq!(problem.code, Code::FileUnreadable);
        let latin1 = |_: &Path| Ok(b"output_tokens\n\xff\n".to_vec());
        let problem = lengths(Path::new("/l.csv"), &latin1, OUTPUT_COLUMNS, 9).unwrap_err();
        assert_eq!(problem.what, "`/l.csv` is not UTF-8 (byte 14)");
    }
}
