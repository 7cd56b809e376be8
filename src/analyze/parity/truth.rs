//! The simulated server's own log as the referee: when it had a request, and
//! when it handed each token to its socket, on the machine's monotonic clock.

use serde::Deserialize;

use super::Side;

/// One request as the server saw it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TruthRow {
    /// When it had the request, ns.
    pub recv_ns: u64,
    /// When it sent each token, ns.
    pub sends_ns: Vec<u64>,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Whether the answer was sent to its end.
    #[serde(default)]
    pub complete: bool,
}

/// A log that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no row of a truth log: {message}")]
pub struct TruthError {
    /// From 1.
    pub line: usize,
    /// Why not.
    pub message: String,
}

/// Reads a truth log. A last line that is still being written is left out.
pub fn parse_truth(text: &str) -> Result<Vec<TruthRow>, TruthError> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let rows = whole.lines().enumerate().map(|(index, line)| {
        serde_json::from_str(line).map_err(|error| TruthError {
            line: index + 1,
            message: error.to_string(),
        })
    });
    rows.collect()
}

/// The rows of one driver's formal phase: those that came in between its first
/// send and its last end.
pub(super) fn of_run<'a>(rows: &'a [TruthRow], side: Side<'_>) -> Vec<&'a TruthRow> {
    let sends = side.records.iter().map(|record| record.t_send_ns.nanos());
    let ends = side
        .records
        .iter()
        .filter_map(|record| Some(record.ended_at()?.nanos()));
    let (Some(from), Some(to)) = (sends.min(), ends.max()) else {
        return Vec::new();
    };
    let window = side.origin_ns + from..=side.origin_ns + to;
    let inside = |row: &&TruthRow| row.complete && window.contains(&row.recv_ns);
    rows.iter().filter(inside).collect()
}

/// What the server says of a metric, ms.
pub(super) fn samples(rows: &[&TruthRow], metric: &str) -> Vec<f64> {
    let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    let of = |row: &&TruthRow| -> Vec<f64> {
        let (Some(&first), Some(&last)) = (row.sends_ns.first(), row.sends_ns.last()) else {
            return Vec::new();
        };
        match metric {
            "ttft_ms" => vec![ms(row.recv_ns, first)],
            "e2el_ms" => vec![ms(row.recv_ns, last)],
            "tpot_ms" if row.completion_tokens > 1 => {
                vec![ms(first, last) / (row.completion_tokens - 1) as f64]
            }
            "tpot_ms" => Vec::new(),
            _ => row
                .sends_ns
                .windows(2)
                .map(|pair| ms(pair[0], pair[1]))
                .collect(),
        }
    };
    rows.iter().flat_map(of).collect()
}
