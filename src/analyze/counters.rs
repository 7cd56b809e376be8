//! The server's counters over the formal phase: deltas by rank, and the rates
//! they give. Rates are ratios of sums, never means of ratios; external tiers
//! stay apart, and a counter that went backwards gives no rate at all.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::account::HitLine;
use crate::engine::{self, Gains, RankDelta, Snapshot};
use crate::units::DpRank;

/// What the counters say of the formal phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counters {
    /// A snapshot is missing, for this reason.
    Unavailable(String),
    /// Both snapshots, subtracted.
    Delta {
        /// By rank; only the ranks whose counters did not go backwards.
        ranks: BTreeMap<DpRank, RankDelta>,
        /// Series that went backwards. With any, there is no overall rate.
        regressions: Vec<Regression>,
    },
}

/// A counter that went backwards: its process was restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Regression {
    /// Rank of the engine.
    pub rank: u32,
    /// Which counter.
    pub counter: String,
    /// Value before; `None` when the rank was not there.
    pub before: Option<u64>,
    /// Value after; `None` when the rank is gone.
    pub after: Option<u64>,
}

impl From<engine::Regression> for Regression {
    fn from(one: engine::Regression) -> Self {
        Self {
            rank: one.rank.0,
            counter: one.counter.to_owned(),
            before: one.before,
            after: one.after,
        }
    }
}

impl Counters {
    /// `after − before`, rank by rank.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let Gains { sound, regressions } = engine::gains(before, after);
        if let Err(torn) = sound.check() {
            return Self::Unavailable(format!("{}: {torn}", torn.code()));
        }
        Self::Delta {
            ranks: sound.ranks,
            regressions: regressions.into_iter().map(Regression::from).collect(),
        }
    }

    /// Deltas by rank, as far as there are any.
    pub fn ranks(&self) -> Option<&BTreeMap<DpRank, RankDelta>> {
        match self {
            Self::Unavailable(_) => None,
            Self::Delta { ranks, .. } => Some(ranks),
        }
    }

    /// The sum over ranks; `None` when a rank is missing from it.
    pub fn total(&self) -> Option<RankDelta> {
        match self {
            Self::Delta { ranks, regressions } if regressions.is_empty() => {
                Some(RankDelta::sum(ranks))
            }
            _ => None,
        }
    }
}

/// Counters as the analysis states them, tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CounterRates {
    /// Local cache: queries and hits.
    pub local: HitLine,
    /// External tier queries; never added to the local ones.
    pub external_query_tokens: Option<u64>,
    /// External tier hits.
    pub external_hit_tokens: Option<u64>,
    /// (Local hits + external hits) / local queries.
    pub combined_hit_rate: Option<f64>,
    /// Prompt tokens admitted, each request once.
    pub prompt_tokens: Option<u64>,
    /// Of them served from any cache.
    pub prompt_tokens_cached: Option<u64>,
    /// The ratio of those two.
    pub prompt_cached_rate: Option<f64>,
    /// Generated tokens.
    pub generation_tokens: Option<u64>,
    /// Preempted requests.
    pub preemptions: Option<u64>,
}

impl CounterRates {
    /// The rates of one delta, a rank's or the sum.
    pub fn of(delta: &RankDelta) -> Self {
        Self {
            local: HitLine::new(delta.queries, delta.hits),
            external_query_tokens: delta.external_queries,
            external_hit_tokens: delta.external_hits,
            combined_hit_rate: delta.combined_hit_rate(),
            prompt_tokens: delta.prompt_tokens,
            prompt_tokens_cached: delta.prompt_tokens_cached,
            prompt_cached_rate: delta.cached_prompt_rate(),
            generation_tokens: delta.generation_tokens,
            preemptions: delta.preemptions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RankSnapshot;

    fn snapshot(ranks: &[(u64, u64)]) -> Snapshot {
        let ranks = ranks.iter().zip(0..).map(|(&(queries, hits), rank)| {
            let rank_snapshot = RankSnapshot {
                queries,
                hits,
                ..RankSnapshot::default()
            };
            (DpRank(rank), rank_snapshot)
        });
        Snapshot {
            ranks: ranks.collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_rate_is_the_ratio_of_sums() {
        let counters = Counters::between(
            &snapshot(&[(1_234_567, 1_000_000), (0, 0)]),
            &snapshot(&[(1_336_967, 1_061_440), (1_000, 0)]),
        );
        let first = &counters.ranks().unwrap()[&DpRank(0)];
        assert_eq!(CounterRates::of(first).local.hit_rate, Some(0.6));
        let total = counters.total().unwrap();
        assert_eq!((total.queries, total.hits), (103_400, 61_440));
    }

    #[test]
    fn a_counter_that_went_backwards_gives_no_overall_rate() {
        let counters = Counters::between(
            &snapshot(&[(10_000, 4_000), (50_000, 20_000)]),
            &snapshot(&[(11_000, 4_500), (300, 0)]),
        );
        assert_eq!(counters.total(), None);
        let Counters::Delta { ranks, regressions } = counters else {
            panic!("both snapshots were there");
        };
        let named: Vec<_> = regressions
            .iter()
            .map(|found| {
                (
                    found.rank,
                    found.counter.as_str(),
                    found.before,
                    found.after,
                )
            })
            .collect();
        assert_eq!(
            named,
            [
                (1, "queries", Some(50_000), Some(300)),
                (1, "hits", Some(20_000), Some(0))
            ]
        );
        assert_eq!(ranks.len(), 1);
        assert_eq!(
            CounterRates::of(&ranks[&DpRank(0)]).local.hit_rate,
            Some(0.5)
        );
    }

    #[test]
    fn a_rank_that_vanished_is_named_once() {
        let counters = Counters::between(&snapshot(&[(1, 0), (5, 1)]), &snapshot(&[(2, 0)]));
        let Counters::Delta { regressions, .. } = counters else {
            panic!("both snapshots were there");
        };
        assert_eq!(regressions.len(), 1);
        assert_eq!((regressions[0].rank, regressions[0].after), (1, None));
    }

    #[test]
    fn more_hits_than_queries_are_no_counters() {
        let counters = Counters::between(&snapshot(&[(10, 0)]), &snapshot(&[(20, 11)]));
        assert_eq!(
            counters,
            Counters::Unavailable(
                "HITS_EXCEED_QUERIES: DP rank 0: hits grew by 11, more than queries (10)"
                    .to_owned()
            )
        );
    }

    #[test]
    fn external_hits_join_only_the_combined_rate() {
        let rates = |queries, hits, external_queries, external_hits| {
            CounterRates::of(&RankDelta {
                queries,
                hits,
                external_queries: Some(external_queries),
                external_hits: Some(external_hits),
                ..RankDelta::default()
            })
        };
        for (rates, local, combined) in [
            (rates(1_000, 600, 1_000, 200), 0.6, 0.8),
            (rates(1_000, 600, 400, 200), 0.6, 0.8),
            (rates(44_460, 14_592, 29_868, 21_888), 0.328_205, 0.820_513),
        ] {
            assert!((rates.local.hit_rate.unwrap() - local).abs() < 1e-6);
            assert!((rates.combined_hit_rate.unwrap() - combined).abs() < 1e-6);
        }
    }

    #[test]
    fn no_queries_is_no_rate() {
        let rates = CounterRates::of(&RankDelta::default());
        assert_eq!(
            (rates.local.hit_rate, rates.combined_hit_rate),
            (None, None)
        );
    }
}
