//! The difference of two snapshots: what the counters of each rank gained, and
//! the rates that follow. A counter never shrinks; where one did, the engine was
//! restarted and no total is made up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::engine::{RankDelta, RankSnapshot, Snapshot};
use crate::units::{DpRank, ratio};

/// `after − before` of every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Delta {
    /// What each rank gained.
    pub ranks: BTreeMap<DpRank, RankDelta>,
}

/// What stands for the counter where a restart shows in the time since which an
/// engine counts, in milliseconds of Unix time, and in no counter: all of them
/// have grown beyond where they were.
const COUNTING_SINCE: &str = "counting_since_ms";

/// A counter that cannot be subtracted: it was smaller after than before, or
/// its rank stands in one snapshot only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Regression {
    /// The rank.
    pub rank: DpRank,
    /// `queries`, `hits`, …; or `counting_since_ms`.
    pub counter: &'static str,
    /// Its value before; `None` when the rank was not there.
    pub before: Option<u64>,
    /// Its value after; `None` when the rank is gone.
    pub after: Option<u64>,
}

impl Regression {
    fn is_one_sided(&self) -> bool {
        self.before.is_none() || self.after.is_none()
    }
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: Option<u64>| value.map_or("absent".to_owned(), |v| v.to_string());
        let (before, after) = (value(self.before), value(self.after));
        let Self { rank, counter, .. } = self;
        write!(f, "DP rank {rank}: {counter} {before} -> {after}")
    }
}

/// Why two snapshots have no difference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DifferenceError {
    /// Some counters went backwards. The ranks that did not are in `partial`;
    /// nothing global follows from them.
    #[error("counters went backwards ({})", list(regressions))]
    CounterRegressed {
        /// Each of them.
        regressions: Vec<Regression>,
        /// The deltas of the ranks that are sound.
        partial: Delta,
    },
    /// More tokens found than looked up in the window.
    #[error("DP rank {rank}: hits grew by {hits}, more than queries ({queries})")]
    HitsExceedQueries {
        /// The rank.
        rank: DpRank,
        /// Growth of the queries.
        queries: u64,
        /// Growth of the hits.
        hits: u64,
    },
    /// A rank stands in one snapshot only.
    #[error("DP rank {rank} stands in only one of the two snapshots")]
    RanksDiffer {
        /// The rank.
        rank: DpRank,
    },
}

impl DifferenceError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::CounterRegressed { .. } => "COUNTER_REGRESSED",
            Self::HitsExceedQueries { .. } => "HITS_EXCEED_QUERIES",
            Self::RanksDiffer { .. } => "DP_RANKS_MISSING",
        }
    }

    /// What may help.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::CounterRegressed { .. } => Some(
                "an engine was restarted between the two readings; the window cannot be accounted for",
            ),
            Self::HitsExceedQueries { .. } => {
                Some("the two readings were torn by other traffic, or come from different servers")
            }
            Self::RanksDiffer { .. } => None,
        }
    }
}

fn list(regressions: &[Regression]) -> String {
    let texts: Vec<String> = regressions.iter().map(Regression::to_string).collect();
    texts.join("; ")
}

/// What two snapshots have between them, as far as it can be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gains {
    /// The ranks whose counters can be subtracted.
    pub sound: Delta,
    /// What is wrong with the others.
    pub regressions: Vec<Regression>,
}

/// `after − before`, rank by rank. Where `regressions` has an entry, nothing
/// global follows.
pub fn gains(before: &Snapshot, after: &Snapshot) -> Gains {
    let mut gains = Gains::default();
    let ranks: BTreeSet<DpRank> = before
        .ranks
        .keys()
        .chain(after.ranks.keys())
        .copied()
        .collect();
    for rank in ranks {
        let (old, new) = (before.ranks.get(&rank), after.ranks.get(&rank));
        let (Some(old), Some(new)) = (old, new) else {
            gains.regressions.push(Regression {
                rank,
                counter: "queries",
                before: old.map(|old| old.queries),
                after: new.map(|new| new.queries),
            });
            continue;
        };
        let mut lost = Vec::new();
        let delta = rank_difference(rank, old, new, &mut lost);
        if let Some((since, now)) = restart(old, new).filter(|_| lost.is_empty()) {
            lost.push(Regression {
                rank,
                counter: COUNTING_SINCE,
                before: Some(since),
                after: Some(now),
            });
        }
        if lost.is_empty() {
            gains.sound.ranks.insert(rank, delta);
        }
        gains.regressions.append(&mut lost);
    }
    gains
}

/// `after − before` of every rank, or why there is none.
pub fn difference(before: &Snapshot, after: &Snapshot) -> Result<Delta, DifferenceError> {
    let Gains { sound, regressions } = gains(before, after);
    if let Some(one) = regressions.iter().find(|one| one.is_one_sided()) {
        return Err(DifferenceError::RanksDiffer { rank: one.rank });
    }
    if !regressions.is_empty() {
        return Err(DifferenceError::CounterRegressed {
            regressions,
            partial: sound,
        });
    }
    sound.check()?;
    Ok(sound)
}

/// When the counters began, before and after, where that differs: the engine
/// was restarted in between.
fn restart(before: &RankSnapshot, after: &RankSnapshot) -> Option<(u64, u64)> {
    let pair = before.counting_since_ms.zip(after.counting_since_ms)?;
    (pair.0 != pair.1).then_some(pair)
}

fn rank_difference(
    rank: DpRank,
    before: &RankSnapshot,
    after: &RankSnapshot,
    lost: &mut Vec<Regression>,
) -> RankDelta {
    let mut grown = |counter: &'static str, before: u64, after: u64| {
        after.checked_sub(before).unwrap_or_else(|| {
            lost.push(Regression {
                rank,
                counter,
                before: Some(before),
                after: Some(after),
            });
            0
        })
    };
    let queries = grown("queries", before.queries, after.queries);
    let hits = grown("hits", before.hits, after.hits);
    // A labelled series appears with its first count: absent before means 0.
    let mut optional = |counter, before: Option<u64>, after: Option<u64>| {
        after.map(|after| grown(counter, before.unwrap_or(0), after))
    };
    RankDelta {
        queries,
        hits,
        external_queries: optional(
            "external_queries",
            before.external_queries,
            after.external_queries,
        ),
        external_hits: optional("external_hits", before.external_hits, after.external_hits),
        prompt_tokens: optional("prompt_tokens", before.prompt_tokens, after.prompt_tokens),
        prompt_tokens_cached: optional(
            "prompt_tokens_cached",
            before.prompt_tokens_cached,
            after.prompt_tokens_cached,
        ),
        generation_tokens: optional(
            "generation_tokens",
            before.generation_tokens,
            after.generation_tokens,
        ),
        preemptions: optional("preemptions", before.preemptions, after.preemptions),
    }
}

impl Delta {
    /// The sum over the ranks.
    pub fn total(&self) -> RankDelta {
        RankDelta::sum(&self.ranks)
    }

    /// Refuses a window in which more was found than looked up.
    pub fn check(&self) -> Result<(), DifferenceError> {
        match self.ranks.iter().find(|(_, one)| one.hits > one.queries) {
            Some((rank, one)) => Err(DifferenceError::HitsExceedQueries {
                rank: *rank,
                queries: one.queries,
                hits: one.hits,
            }),
            None => Ok(()),
        }
    }
}

impl RankDelta {
    /// The sum over `ranks`. An optional counter is `None` unless every rank
    /// has it.
    pub fn sum(ranks: &BTreeMap<DpRank, Self>) -> Self {
        let optional = |pick: fn(&Self) -> Option<u64>| -> Option<u64> {
            if ranks.is_empty() {
                return None;
            }
            ranks
                .values()
                .map(pick)
                .try_fold(0_u64, |sum, one| Some(sum.saturating_add(one?)))
        };
        let sum = |pick: fn(&Self) -> u64| ranks.values().map(pick).fold(0, u64::saturating_add);
        Self {
            queries: sum(|one| one.queries),
            hits: sum(|one| one.hits),
            external_queries: optional(|one| one.external_queries),
            external_hits: optional(|one| one.external_hits),
            prompt_tokens: optional(|one| one.prompt_tokens),
            prompt_tokens_cached: optional(|one| one.prompt_tokens_cached),
            generation_tokens: optional(|one| one.generation_tokens),
            preemptions: optional(|one| one.preemptions),
        }
    }

    /// Local hit rate, hits / queries, 0..=1; `None` without queries.
    pub fn hit_rate(&self) -> Option<f64> {
        ratio(self.hits, self.queries)
    }

    /// (local hits + external hits) / local queries, 0..=1. The denominator is
    /// never the external queries: what they count differs between versions.
    pub fn combined_hit_rate(&self) -> Option<f64> {
        ratio(
            self.hits.saturating_add(self.external_hits.unwrap_or(0)),
            self.queries,
        )
    }

    /// Cached / prompt tokens by the counters that take each request once.
    pub fn cached_prompt_rate(&self) -> Option<f64> {
        ratio(self.prompt_tokens_cached?, self.prompt_tokens?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(ranks: &[(u64, u64)]) -> Snapshot {
        let rank = |(index, &(queries, hits)): (usize, &(u64, u64))| {
            let snapshot = RankSnapshot {
                queries,
                hits,
                ..RankSnapshot::default()
            };
            (DpRank(u32::try_from(index).unwrap()), snapshot)
        };
        Snapshot {
            ranks: ranks.iter().enumerate().map(rank).collect(),
            ..Snapshot::default()
        }
    }

    /// An engine that was restarted within the window (NovaSky-AI/SkyRL#1662).
    #[test]
    fn a_counter_that_went_backwards_names_its_rank_and_both_values() {
        let before = snapshot(&[(10_000, 4_000), (50_000, 20_000)]);
        let after = snapshot(&[(11_000, 4_500), (300, 0)]);
        let error = difference(&before, &after).unwrap_err();
        assert_eq!(error.code(), "COUNTER_REGRESSED");
        let DifferenceError::CounterRegressed {
            regressions,
            partial,
        } = &error
        else {
            panic!("{error}");
        };
        let text: Vec<String> = regressions.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "DP rank 1: queries 50000 -> 300",
                "DP rank 1: hits 20000 -> 0"
            ]
        );
        assert_eq!(partial.ranks.keys().collect::<Vec<_>>(), [&DpRank(0)]);
        let sound = &partial.ranks[&DpRank(0)];
        assert_eq!((sound.queries, sound.hits), (1_000, 500));
        assert_eq!(sound.hit_rate(), Some(0.5));
    }

    /// A restart just after the first reading, or a long run after it.
    #[test]
    fn a_restart_shows_in_the_time_of_creation_when_the_counters_have_caught_up() {
        let mut before = snapshot(&[(500, 100), (500, 100)]);
        let mut after = snapshot(&[(9_000, 4_000), (9_000, 4_000)]);
        for (since, page) in [(1_000, &mut before), (2_500, &mut after)] {
            page.ranks.get_mut(&DpRank(0)).unwrap().counting_since_ms = Some(700);
            page.ranks.get_mut(&DpRank(1)).unwrap().counting_since_ms = Some(since);
        }
        let error = difference(&before, &after).unwrap_err();
        assert_eq!(error.code(), "COUNTER_REGRESSED");
        let text = error.to_string();
        assert!(text.contains("DP rank 1: counting_since_ms 1000 -> 2500"));
        assert!(!text.contains("DP rank 0"), "{text}");
        // A page that does not say is no restart.
        after.ranks.get_mut(&DpRank(1)).unwrap().counting_since_ms = None;
        assert!(difference(&before, &after).is_ok());
    }

    /// vllm-project/vllm#30522: what external queries count differs by version,
    /// so the combined rate is over local queries.
    #[test]
    fn external_hits_stand_apart_and_the_denominator_is_local() {
        let rate = |local: (u64, u64), external: (u64, u64)| {
            let delta = RankDelta {
                queries: local.0,
                hits: local.1,
                external_queries: Some(external.0),
                external_hits: Some(external.1),
                ..RankDelta::default()
            };
            (
                delta.hit_rate().unwrap(),
                delta.combined_hit_rate().unwrap(),
            )
        };
        assert_eq!(rate((1_000, 600), (1_000, 200)), (0.6, 0.8));
        assert_eq!(rate((1_000, 600), (400, 200)), (0.6, 0.8));
        let (local, combined) = rate((44_460, 14_592), (29_868, 21_888));
        assert!((local - 0.328_205).abs() < 5e-7 && (combined - 0.820_513).abs() < 5e-7);
    }

    #[test]
    fn a_rank_in_one_snapshot_only_is_an_error() {
        let one = snapshot(&[(1, 0)]);
        let two = snapshot(&[(1, 0), (1, 0)]);
        for (before, after) in [(&one, &two), (&two, &one)] {
            let error = difference(before, after).unwrap_err();
            assert_eq!(error, DifferenceError::RanksDiffer { rank: DpRank(1) });
        }
    }

    #[test]
    fn no_traffic_has_no_rate() {
        let same = snapshot(&[(5, 1)]);
        let total = difference(&same, &same).unwrap().total();
        assert_eq!((total.queries, total.hit_rate()), (0, None));
        assert_eq!(Delta::default().total(), RankDelta::default());
    }
}
