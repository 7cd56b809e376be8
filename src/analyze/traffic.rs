//! Whether the counters counted these requests and nothing else: what they
//! should have counted, between a least and a most, because the server may or
//! may not have admitted a request that failed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::rows::Row;
use crate::measure::{Failure, FailureKind, Outcome, RequestRecord};
use crate::theory::ServerView;

/// Prompt tokens the requests account for, against the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Of attempts that were surely served.
    pub expected_least: u64,
    /// And of those that may have been.
    pub expected_most: u64,
    /// Counted as admitted; absent where the engine has no such counter.
    pub counted_prompt_tokens: Option<u64>,
    /// Counted as cache queries; absent without counters.
    pub counted_queries: Option<u64>,
    /// Admitted tokens lie between least and most.
    pub prompt_tokens_agree: bool,
    /// So do the queries, and they equal the admitted tokens.
    pub queries_agree: bool,
}

impl Traffic {
    pub(super) fn of(counters: &Counters, view: ServerView, rows: &[Row<'_>]) -> Self {
        let (mut least, mut most) = (0, 0);
        if rows.iter().all(|row| row.record.is_none()) {
            // Without records the plan is all there is to go by.
            least = rows.iter().map(|row| row.planned.prompt_tokens(view)).sum();
            most = least;
        }
        for row in rows {
            let Some(record) = row.record else { continue };
            let tokens = row.prompt_tokens(view);
            let (sure, possible) = admitted_attempts(record);
            least += tokens * sure;
            most += tokens * possible;
        }
        let total = counters.total();
        let counted_prompt_tokens = total.as_ref().and_then(|total| total.prompt_tokens);
        let counted_queries = total.as_ref().map(|total| total.queries);
        let expected = least..=most;
        let within =
            |counted: Option<u64>| counted.is_some_and(|tokens| expected.contains(&tokens));
        let same = counted_prompt_tokens.is_none() || counted_prompt_tokens == counted_queries;
        Self {
            expected_least: least,
            expected_most: most,
            counted_prompt_tokens,
            counted_queries,
            prompt_tokens_agree: within(counted_prompt_tokens),
            queries_agree: within(counted_queries) && same,
        }
    }

    /// More tokens were admitted than the requests can explain.
    pub(super) fn foreign_tokens(&self) -> Option<u64> {
        self.counted_prompt_tokens?
            .checked_sub(self.expected_most)
            .filter(|&tokens| tokens > 0)
    }

    /// Fewer tokens were counted than were surely served; of the queries where
    /// the engine has no counter of admitted tokens.
    pub(super) fn missing_tokens(&self) -> Option<u64> {
        let counted = self.counted_prompt_tokens.or(self.counted_queries)?;
        self.expected_least
            .checked_sub(counted)
            .filter(|&tokens| tokens > 0)
    }
}

/// How many attempts were surely, and possibly, admitted by the server.
fn admitted_attempts(record: &RequestRecord) -> (u64, u64) {
    let earlier = record.attempts.iter().rev().skip(1);
    let possible_earlier = earlier
        .filter(|attempt| attempt.failure.as_ref().is_some_and(may_be_admitted))
        .count() as u64;
    let (sure, possible) = match &record.outcome {
        _ if record.was_served() => (1, 1),
        // Cancelled before it was sent.
        Outcome::Failure(_) if record.attempts.is_empty() => (0, 0),
        Outcome::Failure(failure) => (0, u64::from(may_be_admitted(failure))),
        Outcome::Success => (1, 1),
    };
    (sure, possible + possible_earlier)
}

/// A refused connection never was; neither is a client error, which the server
/// answers before it schedules anything.
fn may_be_admitted(failure: &Failure) -> bool {
    match failure.kind {
        FailureKind::Connect => false,
        FailureKind::HttpStatus => failure.code.is_none_or(|code| code >= 500),
        _ => true,
    }
}
