//! What each turn, dose and needle says, and what the probe says of them all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::block::{BlockDecision, BlockSource, larger_block_that_explains};
use super::floor::{first_reuse_floor, next_turn_floor};
use crate::units::BlockSize;

/// Verdict of one conversation turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum TurnVerdict {
    /// Round 1, at most one block cached.
    Cold,
    /// Round 1 with more cached: the run is invalid.
    NotCold,
    /// At least the floor was reused.
    Ok,
    /// Something, but less than the floor.
    Partial,
    /// Nothing where something had to be.
    Lost,
    /// Too short to tell, block not confirmed, or reuse not reported.
    Undecided,
}

/// Verdict of one dose of interleaved traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum DoseVerdict {
    /// The conversation's prefix survived.
    Ok,
    /// A part of it did.
    Partial,
    /// Nothing did.
    Wiped,
    /// It cannot be told.
    Undecided,
}

impl From<TurnVerdict> for DoseVerdict {
    fn from(turn: TurnVerdict) -> Self {
        match turn {
            TurnVerdict::Ok => Self::Ok,
            TurnVerdict::Partial => Self::Partial,
            TurnVerdict::Lost => Self::Wiped,
            TurnVerdict::Cold | TurnVerdict::NotCold | TurnVerdict::Undecided => Self::Undecided,
        }
    }
}

/// Verdict of one needle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum NeedleVerdict {
    /// Reused and answered rightly.
    Ok,
    /// Reused and answered wrongly: the restored state is not the right one.
    WrongAnswer,
    /// Not reused, so nothing was tested.
    NoReuse,
    /// The cold copy was answered wrongly too; the case proves nothing.
    ModelCannot,
    /// Reuse cannot be told.
    Undecided,
}

/// Verdict of a whole probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeVerdict {
    /// Every checked turn passed.
    Passed,
    /// The defect is reproduced.
    Reproduced,
    /// A first turn was not cold; nothing can be said.
    NotCold,
    /// No turn could be checked.
    NothingJudged,
}

/// Judges turns with one block and retention interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judge {
    /// The block and where it comes from.
    pub block: BlockDecision,
    /// Retention interval in tokens, a multiple of the block; 0 for none.
    pub retention_tokens: u64,
}

/// One turn to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnFacts {
    /// From 1.
    pub round: u32,
    /// Prompt tokens of the conversation's previous request; 0 in round 1.
    pub previous_tokens: u64,
    /// Prompt tokens of this one.
    pub prompt_tokens: u64,
    /// Tokens served from the cache; `None` when it was not reported.
    pub cached_tokens: Option<u64>,
}

impl Judge {
    /// Tokens a healthy server reuses in the turn after `previous_tokens`.
    /// Without a block: 90 % of them, rounded up. The first reuse is rounded
    /// down to the retention interval.
    pub fn floor(&self, round: u32, previous_tokens: u64) -> u64 {
        let plain = match self.block.block {
            None => (previous_tokens * 9).div_ceil(10),
            Some(block) => next_turn_floor(previous_tokens, block),
        };
        match round {
            2 => first_reuse_floor(plain, self.retention_tokens),
            _ => plain,
        }
    }

    /// Judges one turn by itself.
    pub fn turn(&self, turn: TurnFacts) -> TurnVerdict {
        let Some(cached) = turn.cached_tokens else {
            return TurnVerdict::Undecided;
        };
        if turn.round <= 1 {
            // Without a block, a tenth of the prompt stands for "one block".
            let one_block = self
                .block
                .block
                .map_or(turn.prompt_tokens / 10, BlockSize::tokens);
            return if cached <= one_block {
                TurnVerdict::Cold
            } else {
                TurnVerdict::NotCold
            };
        }
        match self.floor(turn.round, turn.previous_tokens) {
            0 => TurnVerdict::Undecided,
            floor if cached >= floor => TurnVerdict::Ok,
            _ if cached == 0 => TurnVerdict::Lost,
            _ => TurnVerdict::Partial,
        }
    }

    /// Judges all turns of a probe together. A block that only the metric
    /// vouches for is not confirmed when a larger one would make every partial
    /// turn healthy; those turns are then undecided.
    pub fn turns(&self, turns: &[TurnFacts]) -> Vec<TurnVerdict> {
        let mut verdicts: Vec<TurnVerdict> = turns.iter().map(|turn| self.turn(*turn)).collect();
        if !verdicts.contains(&TurnVerdict::Partial) || self.block.source == BlockSource::Option {
            return verdicts;
        }
        let later: Vec<(u64, u64)> = turns
            .iter()
            .filter(|turn| turn.round > 1)
            .filter_map(|turn| Some((turn.previous_tokens, turn.cached_tokens?)))
            .collect();
        let explained = self
            .block
            .block
            .and_then(|block| larger_block_that_explains(block, &later));
        if explained.is_some() {
            for verdict in &mut verdicts {
                if *verdict == TurnVerdict::Partial {
                    *verdict = TurnVerdict::Undecided;
                }
            }
        }
        verdicts
    }
}

/// Judges a needle: reuse of the turn that asked, whether the answer was right,
/// and whether the model answers a cold copy rightly.
pub fn judge_needle(turn: TurnVerdict, answered: bool, cold_answered: bool) -> NeedleVerdict {
    if !cold_answered {
        return NeedleVerdict::ModelCannot;
    }
    match (turn, answered) {
        (TurnVerdict::Ok, true) => NeedleVerdict::Ok,
        (TurnVerdict::Ok, false) => NeedleVerdict::WrongAnswer,
        (TurnVerdict::Partial | TurnVerdict::Lost, _) => NeedleVerdict::NoReuse,
        _ => NeedleVerdict::Undecided,
    }
}

/// What the turns say together: one failing turn is enough, and a first turn
/// that was not cold makes the whole run worthless.
pub fn conclude(turns: &[TurnVerdict], needles: &[NeedleVerdict]) -> ProbeVerdict {
    if turns.contains(&TurnVerdict::NotCold) {
        return ProbeVerdict::NotCold;
    }
    let bad_turn = |turn: &TurnVerdict| matches!(turn, TurnVerdict::Partial | TurnVerdict::Lost);
    let bad_needle =
        |case: &NeedleVerdict| matches!(case, NeedleVerdict::WrongAnswer | NeedleVerdict::NoReuse);
    // In a needle probe the cases judge the turns, so only they count.
    if needles.iter().any(bad_needle) || (needles.is_empty() && turns.iter().any(bad_turn)) {
        return ProbeVerdict::Reproduced;
    }
    let passed = if needles.is_empty() {
        turns.contains(&TurnVerdict::Ok)
    } else {
        needles.contains(&NeedleVerdict::Ok)
    };
    if passed {
        ProbeVerdict::Passed
    } else {
        ProbeVerdict::NothingJudged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(block: u64, source: BlockSource, retention_tokens: u64) -> Judge {
        Judge {
            block: BlockDecision {
                block: BlockSize::new(block),
                source,
            },
            retention_tokens,
        }
    }

    fn turn(round: u32, previous_tokens: u64, cached: Option<u64>) -> TurnFacts {
        TurnFacts {
            round,
            previous_tokens,
            prompt_tokens: previous_tokens + 100,
            cached_tokens: cached,
        }
    }

    #[test]
    fn a_turn_is_judged_by_the_floor_and_not_by_a_share() {
        let judge = judge(480, BlockSource::Metric, 0);
        let cases = [
            (2_400, TurnVerdict::Ok),
            (2_880, TurnVerdict::Ok),
            (1_920, TurnVerdict::Partial),
            (0, TurnVerdict::Lost),
        ];
        for (cached, verdict) in cases {
            assert_eq!(judge.turn(turn(3, 3_040, Some(cached))), verdict);
        }
        assert_eq!(judge.turn(turn(1, 0, Some(0))), TurnVerdict::Cold);
        assert_eq!(judge.turn(turn(1, 0, Some(480))), TurnVerdict::Cold);
        assert_eq!(judge.turn(turn(1, 0, Some(2_400))), TurnVerdict::NotCold);
    }

    #[test]
    fn absent_reuse_and_short_conversations_are_undecided() {
        let judge = judge(480, BlockSource::Metric, 0);
        assert_eq!(judge.turn(turn(2, 3_040, None)), TurnVerdict::Undecided);
        assert_eq!(judge.turn(turn(2, 959, Some(0))), TurnVerdict::Undecided);
    }

    #[test]
    fn only_the_first_reuse_is_rounded_to_the_retention_interval() {
        let judge = judge(2_176, BlockSource::Option, 13_056);
        assert_eq!(judge.turn(turn(2, 20_000, Some(13_056))), TurnVerdict::Ok);
        assert_eq!(
            judge.turn(turn(3, 20_000, Some(13_056))),
            TurnVerdict::Partial
        );
        assert_eq!(judge.turn(turn(3, 20_000, Some(17_408))), TurnVerdict::Ok);
    }

    #[test]
    fn a_metric_that_a_larger_block_contradicts_is_not_confirmed() {
        let facts = [turn(1, 0, Some(0)), turn(2, 2_100, Some(1_056))];
        let by_metric = judge(16, BlockSource::Metric, 0).turns(&facts);
        assert_eq!(by_metric, [TurnVerdict::Cold, TurnVerdict::Undecided]);
        let by_option = judge(16, BlockSource::Option, 0).turns(&facts);
        assert_eq!(by_option, [TurnVerdict::Cold, TurnVerdict::Partial]);
    }

    #[test]
    fn without_a_block_nine_tenths_are_asked_for() {
        let judge = Judge {
            block: BlockDecision {
                block: None,
                source: BlockSource::Fallback,
            },
            retention_tokens: 0,
        };
        assert_eq!(judge.turn(turn(2, 1_000, Some(900))), TurnVerdict::Ok);
        assert_eq!(judge.turn(turn(2, 1_000, Some(899))), TurnVerdict::Partial);
        let retaining = Judge {
            retention_tokens: 400,
            ..judge
        };
        assert_eq!(retaining.floor(2, 1_000), 800);
        assert_eq!(retaining.floor(3, 1_000), 900);
    }

    #[test]
    fn one_lost_turn_fails_the_probe_whatever_the_average() {
        let mut turns = vec![TurnVerdict::Cold, TurnVerdict::Ok, TurnVerdict::Ok];
        assert_eq!(conclude(&turns, &[]), ProbeVerdict::Passed);
        turns.push(TurnVerdict::Lost);
        assert_eq!(conclude(&turns, &[]), ProbeVerdict::Reproduced);
        turns.push(TurnVerdict::NotCold);
        assert_eq!(conclude(&turns, &[]), ProbeVerdict::NotCold);
        let nothing = [TurnVerdict::Cold, TurnVerdict::Undecided];
        assert_eq!(conclude(&nothing, &[]), ProbeVerdict::NothingJudged);
    }

    #[test]
    fn a_needle_needs_reuse_and_the_right_answer_and_a_model_that_can() {
        use NeedleVerdict as Needle;
        use TurnVerdict as Turn;
        let cases = [
            (Turn::Ok, true, true, Needle::Ok),
            (Turn::Ok, false, true, Needle::WrongAnswer),
            (Turn::Lost, true, true, Needle::NoReuse),
            (Turn::Partial, false, true, Needle::NoReuse),
            (Turn::Ok, false, false, Needle::ModelCannot),
            (Turn::Lost, true, false, Needle::ModelCannot),
            (Turn::Undecided, true, true, Needle::Undecided),
        ];
        for (turn, answered, cold, verdict) in cases {
            assert_eq!(judge_needle(turn, answered, cold), verdict);
        }
        let cannot = conclude(&[Turn::Cold, Turn::Ok], &[Needle::ModelCannot]);
        assert_eq!(cannot, ProbeVerdict::NothingJudged);
        let wrong = conclude(&[Turn::Cold, Turn::Ok], &[Needle::Ok, Needle::WrongAnswer]);
        assert_eq!(wrong, ProbeVerdict::Reproduced);
    }
}
