//! The server's counters over the formal phase: deltas by rank, and the rates
//! they give. Rates are ratios of sums, never means of ratios; external tiers
//! stay apart, and a counter that went backwards gives no rate at all.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::account::HitLine;
use crate::engine::{COUNTING_SINCE, RankDelta, RankSnapshot, Snapshot, restart};
use crate::units::{DpRank, ratio};

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

impl Counters {
    /// `after − before`, rank by rank.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let mut ranks = BTreeMap::new();
        let mut regressions = Vec::new();
        for rank in before.ranks.keys().chain(after.ranks.keys()) {
            if ranks.contains_key(rank) {
                continue;
            }
            let pair = (before.ranks.get(rank), after.ranks.get(rank));
            let (Some(old), Some(new)) = pair else {
                regressions.push(Regression {
                    rank: rank.0,
                    counter: "queries".to_owned(),
                    before: pair.0.map(|old| old.queries),
                    after: pair.1.map(|new| new.queries),
                });
                continue;
            };
            let found = regressions_of(*rank, old, new);
            if found.is_empty() {
                ranks.insert(*rank, delta(old, new));
            } else if !regressions.contains(&found[0]) {
                regressions.extend(found);
            }
        }
        Self::Delta { ranks, regressions }
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
            Self::Delta { ranks, regressions } if regressions.is_empty() => Some(sum(ranks)),
            _ => None,
        }
    }
}

fn pairs(old: &RankSnapshot, new: &RankSnapshot) -> [(&'static str, Option<u64>, Option<u64>); 8] {
    [
        ("queries", Some(old.queries), Some(new.queries)),
        ("hits", Some(old.hits), Some(new.hits)),
        (
            "external_queries",
            old.external_queries,
            new.external_queries,
        ),
        ("external_hits", old.external_hits, new.external_hits),
        ("prompt_tokens", old.prompt_tokens, new.prompt_tokens),
        (
            "prompt_tokens_cached",
            old.prompt_tokens_cached,
            new.prompt_tokens_cached,
        ),
        (
            "generation_tokens",
            old.generation_tokens,
            new.generation_tokens,
        ),
        ("preemptions", old.preemptions, new.preemptions),
    ]
}

/// Counters that went backwards; where none did, but the engine counts since a
/// later moment, that moment.
fn regressions_of(rank: DpRank, old: &RankSnapshot, new: &RankSnapshot) -> Vec<Regression> {
    let found = |(counter, before, after): (&str, Option<u64>, Option<u64>)| Regression {
        rank: rank.0,
        counter: counter.to_owned(),
        before,
        after,
    };
    let backwards: Vec<Regression> = pairs(old, new)
        .into_iter()
        .filter(|(_, before, after)| matches!((before, after), (Some(b), Some(a)) if a < b))
        .map(found)
        .collect();
    if backwards.is_empty() {
        let restarted = restart(old, new).into_iter();
        return restarted
            .map(|(since, now)| found((COUNTING_SINCE, Some(since), Some(now))))
            .collect();
    }
    backwards
}

/// A series that appears only after its first event started from 0; one that is
/// gone cannot be subtracted.
fn delta(old: &RankSnapshot, new: &RankSnapshot) -> RankDelta {
    let [queries, hits, rest @ ..] =
        pairs(old, new).map(|(_, before, after)| Some(after? - before.unwrap_or(0)));
    let [
        external_queries,
        external_hits,
        prompt_tokens,
        prompt_tokens_cached,
        generation_tokens,
        preemptions,
    ] = rest;
    RankDelta {
        queries: queries.unwrap_or(0),
        hits: hits.unwrap_or(0),
        external_queries,
        external_hits,
        prompt_tokens,
        prompt_tokens_cached,
        generation_tokens,
        preemptions,
    }
}

/// A sum of optional counters is absent as soon as one rank lacks it.
fn sum(ranks: &BTreeMap<DpRank, RankDelta>) -> RankDelta {
    let whole = |pick: fn(&RankDelta) -> Option<u64>| -> Option<u64> {
        if ranks.is_empty() {
            return None;
        }
        ranks.values().map(pick).sum()
    };
    RankDelta {
        queries: ranks.values().map(|rank| rank.queries).sum(),
        hits: ranks.values().map(|rank| rank.hits).sum(),
        external_queries: whole(|rank| rank.external_queries),
        external_hits: whole(|rank| rank.external_hits),
        prompt_tokens: whole(|rank| rank.prompt_tokens),
        prompt_tokens_cached: whole(|rank| rank.prompt_tokens_cached),
        generation_tokens: whole(|rank| rank.generation_tokens),
        preemptions: whole(|rank| rank.preemptions),
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
        let external = delta.external_hits.unwrap_or(0);
        let cached = delta.prompt_tokens_cached.zip(delta.prompt_tokens);
        Self {
            local: HitLine::new(delta.queries, delta.hits),
            external_query_tokens: delta.external_queries,
            external_hit_tokens: delta.external_hits,
            combined_hit_rate: ratio(delta.hits + external, delta.queries),
            prompt_tokens: delta.prompt_tokens,
            prompt_tokens_cached: delta.prompt_tokens_cached,
            prompt_cached_rate: cached.and_then(|(cached, prompt)| ratio(cached, prompt)),
            generation_tokens: delta.generation_tokens,
            preemptions: delta.preemptions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
