//! AISBench's per-request lines: what it says of each request, joined with the
//! time points that it keeps in a database beside them.

use serde::Deserialize;

/// A result file that does not hold what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {what}")]
pub struct ResultError {
    file: String,
    what: String,
}

impl ResultError {
    /// `file` is named for people.
    pub fn new(file: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            what: what.into(),
        }
    }
}

/// A line of `<dataset>_details.jsonl`, without the texts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Detail {
    /// Row of the data set, from 0.
    pub id: u64,
    /// Whether AISBench counts it as a success.
    pub success: bool,
    /// Why not; on a success what an earlier attempt failed with.
    #[serde(default)]
    pub error_info: Option<String>,
    /// By usage; 0 where the server reported none.
    #[serde(default)]
    pub input_tokens: u64,
    /// By usage; 0 where the server reported none.
    #[serde(default)]
    pub output_tokens: u64,
}

/// The time points of one line, in the order of the details.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RequestTimes {
    /// Row of the data set, from 0.
    pub id: u64,
    /// Seconds on the system's monotonic clock: the send, then each event.
    pub time_points: Vec<f64>,
}

/// Joins both files line by line. A last line that was cut off ends the list:
/// it is what a killed child leaves.
pub fn joined(details: &str, times: &str) -> Result<Vec<(Detail, RequestTimes)>, ResultError> {
    let details: Vec<Detail> = lines("the details", details)?;
    let times: Vec<RequestTimes> = lines("the time points", times)?;
    let pairs = details.into_iter().zip(times);
    pairs
        .map(|(detail, times)| {
            if detail.id != times.id {
                let what = format!("line of row {} stands at row {}", times.id, detail.id);
                return Err(ResultError::new("the time points", what));
            }
            let ordered = times.time_points.windows(2).all(|pair| pair[0] <= pair[1]);
            if !ordered || times.time_points.iter().any(|point| *point < 0.0) {
                let what = format!("those of row {} go backwards", detail.id);
                return Err(ResultError::new("the time points", what));
            }
            Ok((detail, times))
        })
        .collect()
}

fn lines<T: serde::de::DeserializeOwned>(file: &str, text: &str) -> Result<Vec<T>, ResultError> {
    let mut read = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, next, is_whole) = match rest.split_once('\n') {
            Some((line, next)) => (line, next, true),
            None => (rest, "", false),
        };
        match serde_json::from_str(line) {
            Ok(row) => read.push(row),
            Err(_) if !is_whole => break,
            Err(error) => {
                let what = format!("line {}: {error}", read.len() + 1);
                return Err(ResultError::new(file, what));
            }
        }
        rest = next;
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: &str = "{\"id\":3,\"success\":true,\"time_points\":[1.0,2.0]}\n";

    #[test]
    fn a_last_line_that_was_cut_off_is_left_out() {
        let details = "{\"id\":3,\"success\":true,\"error_info\":\"\"}\n{\"id\":4,\"succ";
        let rows = joined(details, TIMES).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].0.id, 3);
    }

    #[test]
    fn a_broken_line_and_lines_of_other_rows_are_refused() {
        for (details, times, expected) in [
            ("{\"id\":\n{\"id\":4}\n", TIMES, "the details: line 1"),
            (
                "{\"id\":4,\"success\":true}\n",
                TIMES,
                "line of row 3 stands at row 4",
            ),
            (
                "{\"id\":3,\"success\":true}\n",
                "{\"id\":3,\"time_points\":[2.0,1.0]}\n",
                "go backwards",
            ),
        ] {
            let error = joined(details, times).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
