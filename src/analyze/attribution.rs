//! Why tokens that the executed theory promises were not served: each request
//! whose `cached_tokens` differs gets exactly one cause, with its evidence. The
//! tokens of all causes add up to the whole gap; that is asserted.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::account::RowTheory;
use super::capacity::Capacity;
use super::coarse::CoarseGrid;
use super::executed::send_order;
use super::inputs::{Inputs, Lane};
use super::pressure::Pressure;
use super::races::races;
use super::rows::Row;
use super::traffic::Traffic;
use crate::measure::gaps;
use crate::theory::ServerView;
use crate::units::{DpRank, GroupIndex, RunOffset};

/// Most requests listed one by one.
const EXAMPLES_MAX: usize = 200;

/// Why a request's cached tokens differ from the executed theory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// First of its prefix, as planned: what no cache could serve. It lies
    /// outside the gap.
    ColdAsPlanned,
    /// The request that brings the prefix in had no token yet.
    InFlightRace,
    /// The pool was under pressure.
    Evicted,
    /// Another rank answered, or its rank had not been warmed.
    RoutedElsewhere,
    /// It was preempted.
    Preempted,
    /// The server counts its prompt differently.
    TokenizerBoundary,
    /// Served in coarser blocks than believed (hybrid models).
    BlockFloor,
    /// Somebody else used the cache.
    ForeignTraffic,
    /// The server did not say; all its expected tokens count as lost.
    NotReported,
    /// More was served than the theory promises.
    BeyondTheory,
    /// None of these.
    Unexplained,
}

impl Cause {
    /// The name of the artifact.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ColdAsPlanned => "cold_as_planned",
            Self::InFlightRace => "in_flight_race",
            Self::Evicted => "evicted",
            Self::RoutedElsewhere => "routed_elsewhere",
            Self::Preempted => "preempted",
            Self::TokenizerBoundary => "tokenizer_boundary",
            Self::BlockFloor => "block_floor",
            Self::ForeignTraffic => "foreign_traffic",
            Self::NotReported => "not_reported",
            Self::BeyondTheory => "beyond_theory",
            Self::Unexplained => "unexplained",
        }
    }
}

/// Tokens lost to one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CauseTotal {
    /// The cause.
    pub cause: Cause,
    /// Requests it explains.
    pub requests: u64,
    /// Expected − cached tokens; negative where more was served.
    pub lost_tokens: i64,
}

/// One request that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttributedRequest {
    /// `full.jsonl`'s id.
    pub request_id: String,
    /// Executed theory, tokens.
    pub expected_tokens: u64,
    /// As reported, tokens.
    pub cached_tokens: Option<u64>,
    /// Its one cause.
    pub cause: Cause,
    /// What speaks for it.
    pub evidence: String,
}

/// The gap between executed theory and usage, by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attribution {
    /// Executed theory of the served requests, tokens.
    pub expected_tokens: u64,
    /// Reported as cached, tokens.
    pub cached_tokens: u64,
    /// Expected − cached; the sum over the causes.
    pub gap_tokens: i64,
    /// Causes with requests, in the order of [`Cause`].
    pub causes: Vec<CauseTotal>,
    /// What no cache could serve: outside the gap.
    pub cold_as_planned: Option<CauseTotal>,
    /// The first requests that differ, in send order.
    pub requests: Vec<AttributedRequest>,
    /// Requests that differ and are not listed.
    pub requests_left_out: u64,
}

pub(super) fn attribute(
    inputs: &Inputs<'_>,
    view: ServerView,
    rows: &[Row<'_>],
    theory: &RowTheory,
    traffic: &Traffic,
    pressure: &Pressure,
) -> Attribution {
    let scene = Scene::of(inputs, view, rows, theory, traffic, pressure);
    let mut result = Attribution::default();
    let mut totals: BTreeMap<Cause, (u64, i64)> = BTreeMap::new();
    let mut cold = (0, 0);
    for index in send_order(rows) {
        let expected = theory.executed[index].expect("served rows have an executed theory");
        let cached = rows[index].cached_tokens();
        result.expected_tokens += expected;
        result.cached_tokens += cached.unwrap_or(0);
        let unreachable = signed(rows[index].planned.potential_tokens(view)) - signed(expected);
        if unreachable > 0 {
            cold = (cold.0 + 1, cold.1 + unreachable);
        }
        if cached == Some(expected) || (cached.is_none() && expected == 0) {
            continue;
        }
        let (cause, evidence) = scene.cause(index, expected, cached);
        let total = totals.entry(cause).or_default();
        total.0 += 1;
        total.1 += signed(expected) - signed(cached.unwrap_or(0));
        if result.requests.len() < EXAMPLES_MAX {
            result.requests.push(AttributedRequest {
                request_id: rows[index].planned.request_id.clone(),
                expected_tokens: expected,
                cached_tokens: cached,
                cause,
                evidence,
            });
        } else {
            result.requests_left_out += 1;
        }
    }
    result.gap_tokens = signed(result.expected_tokens) - signed(result.cached_tokens);
    result.causes = totals.into_iter().map(total_of).collect();
    result.cold_as_planned = (cold.0 > 0).then(|| total_of((Cause::ColdAsPlanned, cold)));
    let explained: i64 = result.causes.iter().map(|total| total.lost_tokens).sum();
    assert_eq!(
        explained, result.gap_tokens,
        "every lost token has one cause"
    );
    result
}

fn total_of((cause, (requests, lost_tokens)): (Cause, (u64, i64))) -> CauseTotal {
    CauseTotal {
        cause,
        requests,
        lost_tokens,
    }
}

/// Token counts are far below 2^63.
fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// Everything a cause is looked for in.
struct Scene<'a> {
    rows: &'a [Row<'a>],
    view: ServerView,
    /// Moment from which each row's prefix source has a token, where that is
    /// after the row was sent.
    races: BTreeMap<usize, RunOffset>,
    coarse: Option<CoarseGrid>,
    capacity: Option<&'a Capacity>,
    /// By lane, the first request that was sent and answered nothing.
    unserved: BTreeMap<Lane, (RunOffset, usize)>,
    /// Ranks that were asked for more prompt tokens than they admitted.
    short_ranks: BTreeMap<DpRank, u64>,
    preempted_ranks: BTreeMap<DpRank, u64>,
    usual_gap_nanos: u64,
    missing_warmups: &'a [(GroupIndex, DpRank)],
    foreign_tokens: Option<u64>,
    pressure: &'a Pressure,
}

impl<'a> Scene<'a> {
    fn of(
        inputs: &Inputs<'a>,
        view: ServerView,
        rows: &'a [Row<'a>],
        theory: &'a RowTheory,
        traffic: &Traffic,
        pressure: &'a Pressure,
    ) -> Self {
        let ranks = inputs.counters.ranks();
        Self {
            rows,
            view,
            races: races(inputs.mode, rows),
            coarse: CoarseGrid::of(view, rows, theory),
            capacity: theory.capacity.as_ref(),
            unserved: unserved(rows),
            short_ranks: short_ranks(inputs, view, rows),
            preempted_ranks: ranks
                .into_iter()
                .flatten()
                .filter_map(|(rank, delta)| Some((*rank, delta.preemptions.filter(|&n| n > 0)?)))
                .collect(),
            usual_gap_nanos: usual_gap(rows),
            missing_warmups: &inputs.control.warmup_missing,
            foreign_tokens: traffic.foreign_tokens(),
            pressure,
        }
    }

    /// The first cause that its evidence supports, the most specific first.
    fn cause(&self, index: usize, expected: u64, cached: Option<u64>) -> (Cause, String) {
        let Some(cached) = cached else {
            return (Cause::NotReported, "no cached_tokens in usage".to_owned());
        };
        if let Some(found) = self.tokenizer_boundary(index) {
            return found;
        }
        if cached > expected {
            return self.beyond_theory(index);
        }
        self.block_floor(expected, cached)
            .or_else(|| self.routed_elsewhere(index))
            .or_else(|| self.in_flight_race(index))
            .or_else(|| self.preempted(index))
            .or_else(|| self.evicted(index, expected))
            .or_else(|| self.never_warmed(index))
            .or_else(|| self.foreign())
            .unwrap_or_else(|| {
                let evidence = "no other cause has evidence".to_owned();
                (Cause::Unexplained, evidence)
            })
    }

    fn tokenizer_boundary(&self, index: usize) -> Option<(Cause, String)> {
        let row = &self.rows[index];
        let (seen, planned) = (
            row.prompt_tokens(self.view),
            row.planned.prompt_tokens(self.view),
        );
        (seen != planned).then(|| {
            let evidence = format!("the server counts {seen} prompt tokens, planned {planned}");
            (Cause::TokenizerBoundary, evidence)
        })
    }

    /// A failed request of the lane may have been admitted all the same.
    fn beyond_theory(&self, index: usize) -> (Cause, String) {
        let row = &self.rows[index];
        let unserved = self
            .unserved
            .get(&row.planned.lane())
            .filter(|(sent, _)| Some(*sent) <= row.sent_at());
        let evidence = match unserved {
            Some((_, failed)) => format!(
                "{} failed without a token but may have filled the cache",
                self.rows[*failed].planned.request_id
            ),
            None => "the cache held more than this run brought in".to_owned(),
        };
        (Cause::BeyondTheory, evidence)
    }

    fn block_floor(&self, expected: u64, cached: u64) -> Option<(Cause, String)> {
        let coarse = self.coarse.filter(|grid| grid.reuse(expected) == cached)?;
        let less = if coarse.gives_up_one {
            ", one less than whole"
        } else {
            ""
        };
        let evidence = format!(
            "all reuse is in multiples of {} tokens{less}",
            coarse.block.tokens()
        );
        Some((Cause::BlockFloor, evidence))
    }

    fn routed_elsewhere(&self, index: usize) -> Option<(Cause, String)> {
        let planned = self.rows[index].planned;
        let rank = planned.dp_rank?;
        let missing = self.short_ranks.get(&rank)?;
        let evidence = format!("rank {rank} admitted {missing} tokens less than were sent to it");
        Some((Cause::RoutedElsewhere, evidence))
    }

    /// Of a run that leaves the rank to the server: a rank that had not been
    /// warmed may have answered. A pool that is too small undoes a warm-up as
    /// well, so this comes after it.
    fn never_warmed(&self, index: usize) -> Option<(Cause, String)> {
        let planned = self.rows[index].planned;
        if planned.dp_rank.is_some() {
            return None;
        }
        let (_, rank) = self
            .missing_warmups
            .iter()
            .find(|(group, _)| *group == planned.group)?;
        let evidence = format!("{} was not warmed on rank {rank}", planned.group);
        Some((Cause::RoutedElsewhere, evidence))
    }

    fn in_flight_race(&self, index: usize) -> Option<(Cause, String)> {
        let ready = self.races.get(&index)?;
        let late = ready.millis_since(self.rows[index].sent_at()?);
        let evidence = format!("its prefix had its first token {late:.1} ms after the send");
        Some((Cause::InFlightRace, evidence))
    }

    fn preempted(&self, index: usize) -> Option<(Cause, String)> {
        let planned = self.rows[index].planned;
        let count = match planned.dp_rank {
            Some(rank) => self.preempted_ranks.get(&rank).copied()?,
            None => Some(self.preempted_ranks.values().sum()).filter(|&sum| sum > 0)?,
        };
        let longest = self.rows[index]
            .record
            .and_then(|record| gaps(record).max())?;
        let stalled = longest >= STALL_NANOS_MIN && longest >= STALL_FACTOR * self.usual_gap_nanos;
        stalled.then(|| {
            let ms = longest / 1_000_000;
            let evidence = format!("a stall of {ms} ms in its stream; {count} preemptions");
            (Cause::Preempted, evidence)
        })
    }

    fn evicted(&self, index: usize, expected: u64) -> Option<(Cause, String)> {
        if let Some(capacity) = self.capacity
            && let Some(kept) = capacity.hits[index].filter(|&kept| kept < expected)
        {
            let blocks = capacity.theory.pool_blocks;
            let evidence = format!("a pool of {blocks} blocks keeps {kept} of {expected} tokens");
            return Some((Cause::Evicted, evidence));
        }
        let evidence = self.pressure.on(self.rows[index].planned.dp_rank)?;
        Some((Cause::Evicted, evidence))
    }

    fn foreign(&self) -> Option<(Cause, String)> {
        let tokens = self.foreign_tokens?;
        let evidence = format!("{tokens} prompt tokens of others were counted");
        Some((Cause::ForeignTraffic, evidence))
    }
}

/// A preempted request stops for a second or two; shorter stops are scheduling.
const STALL_NANOS_MIN: u64 = 200_000_000;
/// And that is many times the usual gap.
const STALL_FACTOR: u64 = 10;

fn unserved(rows: &[Row<'_>]) -> BTreeMap<Lane, (RunOffset, usize)> {
    let mut first = BTreeMap::new();
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| !row.was_served()) {
        if let Some(sent) = row.sent_at() {
            let known = first.entry(row.planned.lane()).or_insert((sent, index));
            *known = (*known).min((sent, index));
        }
    }
    first
}

fn short_ranks(inputs: &Inputs<'_>, view: ServerView, rows: &[Row<'_>]) -> BTreeMap<DpRank, u64> {
    let mut asked: BTreeMap<DpRank, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.was_served()) {
        if let Some(rank) = row.planned.dp_rank {
            *asked.entry(rank).or_default() += row.prompt_tokens(view);
        }
    }
    let admitted = |rank| -> Option<u64> {
        let delta = inputs.counters.ranks()?.get(&rank)?;
        Some(delta.prompt_tokens.unwrap_or(delta.queries))
    };
    asked
        .into_iter()
        .filter_map(|(rank, asked)| {
            let missing = asked.checked_sub(admitted(rank)?)?;
            (missing > 0).then_some((rank, missing))
        })
        .collect()
}

/// The median gap of a sample of streams, at least 1 ms.
fn usual_gap(rows: &[Row<'_>]) -> u64 {
    let mut all: Vec<u64> = rows
        .iter()
        .filter_map(|row| row.record)
        .flat_map(gaps)
        .take(10_000)
        .collect();
    if all.is_empty() {
        return 1_000_000;
    }
    let middle = all.len() / 2;
    (*all.select_nth_unstable(middle).1).max(1_000_000)
}
