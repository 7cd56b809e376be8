//! The search for the dose of interleaved traffic at which reuse breaks.
//!
//! A control without traffic first, then doubling until a dose breaks reuse,
//! then bisection to the resolution, then repeats on both sides of the border.
//! A dose counts as harmless when more than half of its observations were.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DoseVerdict;
use crate::units::ratio;

/// Most observations of one search; far above what bisection of 2^40 tokens
/// needs, so that verdicts which flip at random cannot keep it going.
const OBSERVATIONS_MAX: u32 = 96;

/// The state of a search. Feed it the verdict of each dose it asks for.
#[derive(Clone, Debug)]
pub struct KneeSearch {
    start_tokens: u64,
    limit_tokens: u64,
    resolution_tokens: u64,
    repeats: u32,
    seen: BTreeMap<u64, Seen>,
    observations: u32,
    undecided: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    harmless: u32,
    harmful: u32,
}

impl Seen {
    const fn count(self) -> u32 {
        self.harmless + self.harmful
    }

    const fn is_harmless(self) -> bool {
        self.harmless > self.harmful
    }
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// Largest dose that left reuse whole; `None` when even no traffic did not.
    pub harmless_tokens: Option<u64>,
    /// Smallest dose that broke it; `None` when no dose up to the limit did.
    pub harmful_tokens: Option<u64>,
    /// Observations at the harmless side, and how many of them were harmless.
    pub harmless_observations: [u32; 2],
    /// Observations at the harmful side, and how many of them were harmful.
    pub harmful_observations: [u32; 2],
    /// Whether the interval is as narrow as asked for.
    pub resolved: bool,
}

impl KneeSearch {
    /// A search from `start_tokens` up to `limit_tokens`, to `resolution_tokens`
    /// (at least 1), with `repeats` observations (at least 1) on each side.
    pub fn new(start_tokens: u64, limit_tokens: u64, resolution_tokens: u64, repeats: u32) -> Self {
        Self {
            start_tokens: start_tokens.clamp(1, limit_tokens.max(1)),
            limit_tokens: limit_tokens.max(1),
            resolution_tokens: resolution_tokens.max(1),
            repeats: repeats.max(1),
            seen: BTreeMap::new(),
            observations: 0,
            undecided: false,
        }
    }

    /// The next dose to try, in tokens; `None` when the search is over.
    pub fn next_dose(&self) -> Option<u64> {
        if self.undecided || self.observations >= OBSERVATIONS_MAX {
            return None;
        }
        if !self.seen.contains_key(&0) {
            return Some(0);
        }
        let (harmless, harmful) = self.border();
        let again = |dose: u64| self.seen[&dose].count() < self.repeats;
        match (harmless, harmful) {
            (None, Some(dose)) => again(dose).then_some(dose),
            (_, None) => {
                let largest = *self.seen.keys().next_back().unwrap_or(&0);
                let next = if largest == 0 {
                    self.start_tokens
                } else {
                    largest.saturating_mul(2).min(self.limit_tokens)
                };
                (largest < self.limit_tokens).then_some(next)
            }
            (Some(low), Some(high)) if high - low > self.resolution_tokens => {
                Some(low + (high - low) / 2)
            }
            (Some(low), Some(high)) => [low, high].into_iter().find(|&dose| again(dose)),
        }
    }

    /// Takes the verdict of a dose. An undecided one ends the search.
    pub fn observe(&mut self, dose_tokens: u64, verdict: DoseVerdict) {
        self.observations += 1;
        let seen = self.seen.entry(dose_tokens).or_default();
        match verdict {
            DoseVerdict::Ok => seen.harmless += 1,
            DoseVerdict::Partial | DoseVerdict::Wiped => seen.harmful += 1,
            DoseVerdict::Undecided => self.undecided = true,
        }
    }

    /// Largest harmless dose below the smallest harmful one, and that one.
    fn border(&self) -> (Option<u64>, Option<u64>) {
        let decided = || self.seen.iter().filter(|(_, seen)| seen.count() > 0);
        let harmful = decided().find(|(_, seen)| !seen.is_harmless());
        let harmful = harmful.map(|(&dose, _)| dose);
        let below = |dose: u64| harmful.is_none_or(|limit| dose < limit);
        let harmless = decided().rfind(|(dose, seen)| seen.is_harmless() && below(**dose));
        (harmless.map(|(&dose, _)| dose), harmful)
    }

    /// What is known so far.
    pub fn result(&self) -> Knee {
        let (harmless, harmful) = self.border();
        let seen = |dose: Option<u64>| {
            dose.and_then(|dose| self.seen.get(&dose).copied())
                .unwrap_or_default()
        };
        let (low, high) = (seen(harmless), seen(harmful));
        let resolved = match (harmless, harmful) {
            (Some(low), Some(high)) => high - low <= self.resolution_tokens,
            _ => false,
        };
        Knee {
            harmless_tokens: harmless,
            harmful_tokens: harmful,
            harmless_observations: [low.count(), low.harmless],
            harmful_observations: [high.count(), high.harmful],
            resolved,
        }
    }
}

/// A knee seen against the KV pool: it moves with the pool when the loss is one
/// of capacity, and stands still when it is structural.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolShare {
    /// Tokens that the pool of one rank holds.
    pub pool_tokens: u64,
    /// Prompt tokens of the conversation that has to survive.
    pub conversation_tokens: u64,
    /// Largest harmless dose over the pool.
    pub harmless_ratio: Option<f64>,
    /// Smallest harmful dose over the pool.
    pub harmful_ratio: Option<f64>,
    /// Conversation and smallest harmful dose together over the pool: near 1
    /// when reuse ends because the pool is full.
    pub harmful_with_conversation_ratio: Option<f64>,
}

impl Knee {
    /// The knee against a pool of `pool_tokens`; `None` without a pool.
    pub fn share(&self, pool_tokens: u64, conversation_tokens: u64) -> Option<PoolShare> {
        if pool_tokens == 0 {
            return None;
        }
        let share = |dose: Option<u64>| ratio(dose?, pool_tokens);
        let both = self.harmful_tokens.map(|dose| dose + conversation_tokens);
        Some(PoolShare {
            pool_tokens,
            conversation_tokens,
            harmless_ratio: share(self.harmless_tokens),
            harmful_ratio: share(self.harmful_tokens),
            harmful_with_conversation_ratio: share(both),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn search(mut search: KneeSearch, knee_tokens: u64) -> (Knee, Vec<u64>) {
        let mut doses = Vec::new();
        while let Some(dose) = search.next_dose() {
            doses.push(dose);
            let verdict = if dose <= knee_tokens {
                DoseVerdict::Ok
            } else {
                DoseVerdict::Wiped
            };
            search.observe(dose, verdict);
        }
        (search.result(), doses)
    }

    #[test]
    fn a_clean_control_comes_first_and_both_sides_are_repeated() {
        let (knee, doses) = search(KneeSearch::new(4_000, 100_000, 1_000, 3), 9_500);
        assert_eq!(doses[0], 0);
        assert_eq!(knee.harmless_observations, [3, 3]);
        assert_eq!(knee.harmful_observations, [3, 3]);
        assert!(knee.resolved);
    }

    #[test]
    fn no_dose_up_to_the_limit_that_breaks_reuse_is_no_knee() {
        let (knee, doses) = search(KneeSearch::new(4_000, 20_000, 1_000, 3), 1_000_000);
        assert_eq!(doses, [0, 4_000, 8_000, 16_000, 20_000]);
        assert_eq!(
            (knee.harmless_tokens, knee.harmful_tokens),
            (Some(20_000), None)
        );
    }

    #[test]
    fn reuse_that_is_broken_without_traffic_has_no_knee_either() {
        let mut search = KneeSearch::new(4_000, 20_000, 1_000, 2);
        while let Some(dose) = search.next_dose() {
            search.observe(dose, DoseVerdict::Wiped);
        }
        let knee = search.result();
        assert_eq!((knee.harmless_tokens, knee.harmful_tokens), (None, Some(0)));
    }

    #[test]
    fn a_knee_is_stated_as_a_share_of_the_pool() {
        let (knee, _) = search(KneeSearch::new(4_000, 100_000, 1_000, 3), 30_000);
        let share = knee.share(40_000, 10_000).unwrap();
        assert!((0.72..=0.75).contains(&share.harmless_ratio.unwrap()));
        assert!((0.75..0.78).contains(&share.harmful_ratio.unwrap()));
        assert!((1.0..1.03).contains(&share.harmful_with_conversation_ratio.unwrap()));
        assert_eq!(knee.share(0, 10_000), None);
    }

    #[test]
    fn an_undecided_dose_ends_the_search() {
        let mut search = KneeSearch::new(4_000, 20_000, 1_000, 2);
        search.observe(0, DoseVerdict::Undecided);
        assert_eq!(search.next_dose(), None);
        assert!(!search.result().resolved);
    }

    proptest! {
        #[test]
        fn the_knee_lies_in_the_interval(
            knee_tokens in 0_u64..60_000,
            start in 1_u64..20_000,
            resolution in 1_u64..5_000,
        ) {
            let (knee, _) = search(KneeSearch::new(start, 60_000, resolution, 3), knee_tokens);
            let (low, high) = (knee.harmless_tokens.unwrap(), knee.harmful_tokens.unwrap());
            prop_assert!(low <= knee_tokens && knee_tokens < high);
            prop_assert!(high - low <= resolution);
        }

        #[test]
        fn verdicts_that_flip_at_random_cannot_keep_it_going(
            flips in proptest::collection::vec(any::<bool>(), 200),
        ) {
            let mut search = KneeSearch::new(100, 10_000, 10, 3);
            let mut flips = flips.into_iter();
            let mut count = 0;
            while let Some(dose) = search.next_dose() {
                count += 1;
                prop_assert!(count <= OBSERVATIONS_MAX);
                let harmless = flips.next().unwrap_or(true);
                let verdict = if harmless { DoseVerdict::Ok } else { DoseVerdict::Partial };
                search.observe(dose, verdict);
            }
        }
    }
}
