//! The rows of a prepared set as AISBench gets them, and what it would do to
//! them that must not happen.

use super::AisbenchError;
use crate::measure::aisbench::SentRow;

/// One row of the data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AisbenchRow {
    /// What is recorded of it.
    pub sent: SentRow,
    /// The prompt.
    pub prompt: String,
    /// The answer column; nothing looks at it.
    pub answer: String,
}

/// Columns of the data set: AISBench replaces each of them in braces, in the
/// prompt too, because the prompt fills its template first.
const COLUMNS: [&str; 8] = [
    "question",
    "answer",
    "max_out_len",
    "idx",
    "subdivision",
    "dp_rank",
    "group_id",
    "lane_sequence",
];

/// Most slots in one worker process, in which alone lanes can be kept.
const LANE_SLOTS_MAX: u32 = 500;
/// Most slots AISBench takes.
const SLOTS_MAX: u32 = 100_000;

/// Whether a row asks for a rank or a lane.
pub(super) fn is_routed(row: &AisbenchRow) -> bool {
    row.sent.dp_rank.is_some() || row.sent.lane_sequence.is_some()
}

/// Refuses what AISBench would not send as it is planned.
pub fn check(rows: &[AisbenchRow], slots: u32) -> Result<(), AisbenchError> {
    let has_lanes = rows.iter().any(|row| row.sent.lane_sequence.is_some());
    let limit = if has_lanes { LANE_SLOTS_MAX } else { SLOTS_MAX };
    if slots > limit {
        let why = if has_lanes {
            "beyond 500 slots it starts a second process, and lanes split"
        } else {
            "it takes at most 100,000 slots"
        };
        return Err(AisbenchError::Unsupported(format!(
            "{slots} requests at a time: {why}"
        )));
    }
    let columns = COLUMNS.map(|column| format!("{{{column}}}"));
    for row in rows {
        let found = columns
            .iter()
            .find(|column| row.prompt.contains(column.as_str()));
        if let Some(placeholder) = found {
            return Err(AisbenchError::Prompt {
                request_id: row.sent.request_id.clone(),
                placeholder: placeholder.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::units::{DpRank, GroupIndex};

    pub(in super::super) fn row(index: u32, prompt: &str, lane: Option<u32>) -> AisbenchRow {
        AisbenchRow {
            sent: SentRow {
                sequence_index: index,
                request_id: format!("request-{index:08}"),
                group: GroupIndex(0),
                dp_rank: lane.map(|_| DpRank(0)),
                lane_sequence: lane,
                planned_prompt_tokens: 4,
                max_tokens: 8,
            },
            prompt: prompt.to_owned(),
            answer: "none".to_owned(),
        }
    }

    #[test]
    fn a_prompt_that_would_be_changed_is_refused() {
        assert!(check(&[row(0, "a {b} {Question}", None)], 4).is_ok());
        for prompt in ["x {idx}", "{question}", "a{answer}b"] {
            let error = check(&[row(7, prompt, None)], 4).unwrap_err();
            assert_eq!(error.code(), "AISBENCH_PROMPT");
            assert!(error.to_string().starts_with("request-00000007"), "{error}");
        }
    }

    #[test]
    fn lanes_need_one_worker_process() {
        assert!(check(&[row(0, "a", Some(0))], 500).is_ok());
        assert!(check(&[row(0, "a", None)], 501).is_ok());
        let error = check(&[row(0, "a", Some(0))], 501).unwrap_err();
        assert_eq!(error.code(), "AISBENCH_UNSUPPORTED");
    }
}
