//! Arrival times out of a recorded trace, CSV or JSON lines. Bytes in, offsets
//! out.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

/// Why a trace cannot be used; lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TraceError {
    /// Neither of the two formats.
    #[error("a trace ends in `.csv` or `.jsonl`")]
    Kind,
    /// No column that is known.
    #[error("the first line has no column `seconds`, `milliseconds` or `timestamp` (milliseconds)")]
    NoColumn,
    /// A line that has no time.
    #[error("line {line} has no time of at least 0 and at most 30 days")]
    Line {
        /// Which.
        line: usize,
    },
    /// A time before the one above it.
    #[error("line {line} is earlier than the line before it")]
    Order {
        /// Which.
        line: usize,
    },
    /// No line at all.
    #[error("it holds no time")]
    Empty,
}

/// Longest offset, in seconds: thirty days.
const SECONDS_MAX: f64 = 30.0 * 86_400.0;

#[derive(Deserialize)]
struct Row {
    seconds: Option<f64>,
    milliseconds: Option<f64>,
    timestamp: Option<f64>,
}

/// Reads the offsets from the start of the stage. A CSV file has a header with
/// a column `seconds`, `milliseconds` or `timestamp`; a JSON line is an object
/// with one of these keys, or a number of seconds. `timestamp` is milliseconds,
/// as published traces have it. Blank lines are skipped.
pub(super) fn parse_trace(path: &Path, bytes: &[u8]) -> Result<Vec<Duration>, TraceError> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let kind = path.extension().and_then(|kind| kind.to_str());
    let seconds = match kind {
        Some("csv") => csv_seconds(text)?,
        Some("jsonl") => jsonl_seconds(text),
        _ => return Err(TraceError::Kind),
    };
    let mut times = Vec::with_capacity(seconds.len());
    for (line, seconds) in seconds {
        let seconds = seconds
            .filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds))
            .ok_or(TraceError::Line { line })?;
        let time = Duration::from_secs_f64(seconds);
        if times.last().is_some_and(|before| *before > time) {
            return Err(TraceError::Order { line });
        }
        times.push(time);
    }
    if times.is_empty() {
        return Err(TraceError::Empty);
    }
    Ok(times)
}

type Lines = Vec<(usize, Option<f64>)>;

fn csv_seconds(text: &str) -> Result<Lines, TraceError> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let header = reader.headers().map_err(|_| TraceError::NoColumn)?;
    let known = [("seconds", 1.0), ("milliseconds", 1e3), ("timestamp", 1e3)];
    let (column, per_second) = known
        .iter()
        .find_map(|(name, scale)| {
            let column = header.iter().position(|column| column == *name)?;
            Some((column, *scale))
        })
        .ok_or(TraceError::NoColumn)?;
    let lines = reader.into_records().enumerate().map(|(index, record)| {
        let record = record.ok();
        let line = record
            .as_ref()
            .and_then(csv::StringRecord::position)
            .and_then(|position| usize::try_from(position.line()).ok())
            .unwrap_or(index + 2);
        let value = record.as_ref().and_then(|record| record.get(column));
        let number: Option<f64> = value.and_then(|value| value.parse().ok());
        (line, number.map(|number| number / per_second))
    });
    Ok(lines.collect())
}

fn jsonl_seconds(text: &str) -> Lines {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| (index + 1, json_seconds(line)))
        .collect()
}

fn json_seconds(line: &str) -> Option<f64> {
    if let Ok(seconds) = serde_json::from_str::<f64>(line) {
        return Some(seconds);
    }
    let row: Row = serde_json::from_str(line).ok()?;
    row.seconds
        .or(row.milliseconds.map(|ms| ms / 1e3))
        .or(row.timestamp.map(|ms| ms / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: Result<&[u64], TraceError>) {
        let times = parse_trace(Path::new(path), text.as_bytes());
        let millis = times.map(|times| {
            let times = times.iter().map(Duration::as_millis);
            times.map(|ms| u64::try_from(ms).unwrap()).collect()
        });
        assert_eq!(millis, expected.map(<[u64]>::to_vec), "{text:?}");
    }

    #[test]
    fn traces_are_read_in_both_formats() {
        check(
            "a.csv",
            "\u{feff}id,seconds\r\n1,0\r\n2,0.25\r\n\r\n3,0.25\r\n",
            Ok(&[0, 250, 250]),
        );
        check("a.csv", "timestamp\n27\n1500\n", Ok(&[27, 1_500]));
        check(
            "a.jsonl",
            "0\n{\"seconds\":0.5}\n\n{\"timestamp\":750,\"x\":1}\n",
            Ok(&[0, 500, 750]),
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_line() {
        check("a.txt", "0", Err(TraceError::Kind));
        check("a.csv", "time\n0\n", Err(TraceError::NoColumn));
        check(
            "a.csv",
            "seconds\n0\nx\n",
            Err(TraceError::Line { line: 3 }),
        );
        check(
            "a.csv",
            "seconds\n1\n0.5\n",
            Err(TraceError::Order { line: 3 }),
        );
        check("a.jsonl", "0\n-1\n", Err(TraceError::Line { line: 2 }));
        check(
            "a.jsonl",
            "{\"seconds\":1e400}\n",
            Err(TraceError::Line { line: 1 }),
        );
        check("a.jsonl", "\n", Err(TraceError::Empty));
        check("a.csv", "seconds\n", Err(TraceError::Empty));
    }
}
