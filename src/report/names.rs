//! What things are called in reports.

use crate::analyze::{AccountRow, Cause, RateSource};

/// Where a row of the account belongs.
pub(super) fn place_name(row: &AccountRow) -> String {
    match (&row.group, row.rank) {
        (Some(group), Some(rank)) => format!("{group}, rank {rank}"),
        (Some(group), None) => group.clone(),
        (None, Some(rank)) => format!("rank {rank}"),
        (None, None) => "all".to_owned(),
    }
}

pub(super) fn source_name(source: RateSource) -> &'static str {
    match source {
        RateSource::Counters => "cache counters",
        RateSource::PromptCounters => "prompt token counters",
        RateSource::Usage => "usage",
    }
}

pub(super) fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::ColdAsPlanned => "cold, as planned",
        Cause::InFlightRace => "prefix still in flight",
        Cause::Evicted => "evicted",
        Cause::RoutedElsewhere => "routed elsewhere",
        Cause::Preempted => "preempted",
        Cause::TokenizerBoundary => "tokenizer boundary",
        Cause::BlockFloor => "coarser blocks",
        Cause::ForeignTraffic => "foreign traffic",
        Cause::NotReported => "not reported",
        Cause::BeyondTheory => "served beyond theory",
        Cause::Unexplained => "unexplained",
    }
}
