//! From rows to a judged record: the block as far as the rows tell it, a
//! verdict for every row, dose and needle, and the probe's own verdict. It is
//! done once more over all rows at the end, since later turns may confirm or
//! refute the block of earlier ones.

use super::block::{BlockDecision, BlockEvidence, BlockSource, decide_block};
use super::knee::{Knee, KneeSearch};
use super::record::{DoseCase, NeedleCase, RequestKind, RequestRow};
use super::verdict::{
    DoseVerdict, Judge, NeedleVerdict, ProbeVerdict, TurnFacts, TurnVerdict, conclude, judge_needle,
};

/// What is known of the block before any request, and the retention interval.
#[derive(Clone, Debug, Default)]
pub struct Basis {
    /// Option, metric and flag; its cached values are filled in from the rows.
    pub block: BlockEvidence,
    /// Tokens between retained states; 0 for none.
    pub retention_tokens: u64,
}

/// A dose, and the row of the turn after it.
#[derive(Clone, Debug, PartialEq)]
pub struct DoseRun {
    /// What is recorded.
    pub case: DoseCase,
    /// Index of the turn's row.
    pub turn: usize,
}

/// A needle, and the row of the turn that asked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct NeedleRun {
    /// What is recorded.
    pub case: NeedleCase,
    /// Index of the question's row.
    pub turn: usize,
}

impl Basis {
    /// The judge that `rows` allow.
    pub fn judge(&self, rows: &[RequestRow]) -> Judge {
        let reused = rows
            .iter()
            .filter(|row| row.kind.is_turn() && row.round > 1);
        let mut evidence = self.block.clone();
        evidence.cached_tokens = reused.filter_map(|row| row.cached_tokens).collect();
        Judge {
            block: decide_block(&evidence),
            retention_tokens: self.retention_tokens,
        }
    }

    /// Judges every row that takes part, all together.
    pub fn judge_rows(&self, rows: &mut [RequestRow]) -> BlockDecision {
        let judge = self.judge(rows);
        let judged: Vec<usize> = (0..rows.len())
            .filter(|&index| rows[index].kind.is_judged())
            .collect();
        let facts: Vec<TurnFacts> = judged.iter().map(|&index| facts(&rows[index])).collect();
        let verdicts = judge.turns(&facts);
        for (index, verdict) in judged.into_iter().zip(verdicts) {
            let row = &mut rows[index];
            row.verdict = Some(verdict);
            row.block_tokens = judge.block.block.map(crate::units::BlockSize::tokens);
            row.floor_tokens = (row.round > 1).then(|| judge.floor(row.round, row.previous_tokens));
        }
        judge.block
    }
}

fn facts(row: &RequestRow) -> TurnFacts {
    TurnFacts {
        round: row.round,
        previous_tokens: row.previous_tokens,
        prompt_tokens: row.prompt_tokens,
        cached_tokens: row.cached_tokens,
    }
}

fn turn_verdict(rows: &[RequestRow], index: usize) -> TurnVerdict {
    let verdict = rows.get(index).and_then(|row| row.verdict);
    verdict.unwrap_or(TurnVerdict::Undecided)
}

impl DoseCase {
    /// What the requests of the `number`th case (from 1) bear as their side.
    pub fn side(dose_tokens: u64, number: usize) -> String {
        format!("dose {dose_tokens} #{number}")
    }
}

impl NeedleCase {
    /// What the requests of the `number`th case (from 1) bear as their side.
    pub fn side(depth_ratio: f64, number: usize) -> String {
        format!("needle {depth_ratio} #{number}")
    }
}

/// Verdicts of the doses, from their turns.
pub fn judge_doses(doses: &mut [DoseRun], rows: &[RequestRow]) {
    for dose in doses {
        dose.case.verdict = DoseVerdict::from(turn_verdict(rows, dose.turn));
    }
}

/// Verdicts of the needles, from their turns and answers.
pub fn judge_needles(needles: &mut [NeedleRun], rows: &[RequestRow]) {
    for needle in needles {
        let turn = turn_verdict(rows, needle.turn);
        let case = &mut needle.case;
        case.within_reuse = rows.get(needle.turn).and_then(|row| {
            let stands_at = case.depth_ratio * row.previous_tokens as f64;
            Some(stands_at < row.cached_tokens? as f64)
        });
        case.verdict = judge_needle(turn, case.answered, case.cold_answered);
    }
}

/// The knee that the judged doses give. `search` is one without observations.
pub fn knee_of(search: &KneeSearch, doses: &[DoseRun]) -> Knee {
    let mut search = search.clone();
    for dose in doses {
        search.observe(dose.case.dose_tokens, dose.case.verdict);
    }
    search.result()
}

/// What the probe says: its verdict, how many turns or cases were checked, and
/// how many of them passed. Undecided ones and needles that prove nothing are
/// not checked.
pub fn sum_up(rows: &[RequestRow], needles: &[NeedleRun]) -> (ProbeVerdict, usize, usize) {
    let turns: Vec<TurnVerdict> = rows.iter().filter_map(|row| row.verdict).collect();
    let cases: Vec<NeedleVerdict> = needles.iter().map(|run| run.case.verdict).collect();
    let asks = rows.iter().any(|row| row.kind == RequestKind::Question);
    let (checked, passed) = if asks {
        let checked = cases
            .iter()
            .filter(|case| !matches!(case, NeedleVerdict::ModelCannot | NeedleVerdict::Undecided));
        let passed = cases.iter().filter(|case| **case == NeedleVerdict::Ok);
        (checked.count(), passed.count())
    } else {
        let checked = turns.iter().filter(|turn| {
            matches!(
                turn,
                TurnVerdict::Ok | TurnVerdict::Partial | TurnVerdict::Lost
            )
        });
        let passed = turns.iter().filter(|turn| **turn == TurnVerdict::Ok);
        (checked.count(), passed.count())
    };
    // A question whose case never came to its end judges nothing by itself.
    let turns = if asks && cases.is_empty() {
        let invalid = turns.iter().copied();
        invalid
            .filter(|turn| *turn == TurnVerdict::NotCold)
            .collect()
    } else {
        turns
    };
    (conclude(&turns, &cases), checked, passed)
}

/// Tokens of the pool of one rank, `num_gpu_blocks · B`, with the block that
/// the engine counts its pool in: an inferred one may be a multiple of it.
pub fn pool_tokens(
    decision: BlockDecision,
    metric_block: Option<u64>,
    num_gpu_blocks: Option<u64>,
    kv_cache_tokens: Option<u64>,
) -> Option<u64> {
    let stated = matches!(decision.source, BlockSource::Option | BlockSource::Metric);
    let block = decision.block.map(crate::units::BlockSize::tokens);
    match (stated, block, num_gpu_blocks) {
        (true, Some(block), Some(blocks)) => blocks.checked_mul(block),
        _ => kv_cache_tokens.or_else(|| num_gpu_blocks?.checked_mul(metric_block?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::ReuseSource;
    use crate::units::BlockSize;

    fn row(kind: RequestKind, round: u32, previous: u64, cached: Option<u64>) -> RequestRow {
        RequestRow {
            kind,
            side: "A".to_owned(),
            round,
            prompt_tokens: previous + 60,
            cached_tokens: cached,
            completion_tokens: 8,
            source: ReuseSource::Usage,
            ttft_ms: None,
            e2el_ms: None,
            previous_tokens: previous,
            floor_tokens: None,
            block_tokens: None,
            verdict: None,
        }
    }

    fn basis(metric: u64) -> Basis {
        Basis {
            block: BlockEvidence {
                metric: BlockSize::new(metric),
                ..BlockEvidence::default()
            },
            retention_tokens: 0,
        }
    }

    #[test]
    fn rows_get_floor_block_and_verdict_and_noise_gets_none() {
        let mut rows = [
            row(RequestKind::Turn, 1, 0, Some(0)),
            row(RequestKind::Noise, 0, 0, Some(0)),
            row(RequestKind::Turn, 2, 3_040, Some(2_400)),
            row(RequestKind::Turn, 3, 3_100, Some(0)),
        ];
        let decision = basis(480).judge_rows(&mut rows);
        assert_eq!(decision.source, BlockSource::Metric);
        let verdicts = rows.clone().map(|row| row.verdict);
        assert_eq!(
            verdicts,
            [
                Some(TurnVerdict::Cold),
                None,
                Some(TurnVerdict::Ok),
                Some(TurnVerdict::Lost)
            ]
        );
        assert_eq!(rows[2].floor_tokens, Some(2_400));
        assert_eq!(rows[2].block_tokens, Some(480));
        assert_eq!(sum_up(&rows, &[]), (ProbeVerdict::Reproduced, 2, 1));
    }

    #[test]
    fn a_later_turn_refutes_the_excuse_of_an_earlier_one() {
        // Alone, 1,056 of 2,100 fits a block of 1,056 or 528.
        let mut rows = vec![
            row(RequestKind::Turn, 1, 0, Some(0)),
            row(RequestKind::Turn, 2, 2_100, Some(1_056)),
        ];
        basis(16).judge_rows(&mut rows);
        assert_eq!(rows[1].verdict, Some(TurnVerdict::Undecided));
        rows.push(row(RequestKind::Turn, 3, 2_160, Some(2_144)));
        basis(16).judge_rows(&mut rows);
        assert_eq!(rows[1].verdict, Some(TurnVerdict::Partial));
    }

    #[test]
    fn needles_judge_the_turns_of_their_probe() {
        let mut rows = [
            row(RequestKind::Turn, 1, 0, Some(0)),
            row(RequestKind::Question, 2, 3_040, Some(2_400)),
            row(RequestKind::ColdControl, 1, 0, Some(0)),
        ];
        basis(480).judge_rows(&mut rows);
        let case = |answered, cold_answered| NeedleRun {
            case: NeedleCase {
                depth_ratio: 0.5,
                answered,
                cold_answered,
                within_reuse: None,
                answer: String::new(),
                verdict: NeedleVerdict::Undecided,
            },
            turn: 1,
        };
        for (answered, cold, verdict, summary) in [
            (true, true, NeedleVerdict::Ok, (ProbeVerdict::Passed, 1, 1)),
            (
                false,
                true,
                NeedleVerdict::WrongAnswer,
                (ProbeVerdict::Reproduced, 1, 0),
            ),
            (
                false,
                false,
                NeedleVerdict::ModelCannot,
                (ProbeVerdict::NothingJudged, 0, 0),
            ),
        ] {
            let mut needles = [case(answered, cold)];
            judge_needles(&mut needles, &rows);
            assert_eq!(needles[0].case.verdict, verdict);
            assert_eq!(needles[0].case.within_reuse, Some(true));
            assert_eq!(sum_up(&rows, &needles), summary);
        }
        // 0.95 of 3,040 tokens lies behind the 2,400 that were reused.
        let mut deep = [case(true, true)];
        deep[0].case.depth_ratio = 0.95;
        judge_needles(&mut deep, &rows);
        assert_eq!(deep[0].case.within_reuse, Some(false));
        // Interrupted before the cold control: nothing is judged.
        assert_eq!(sum_up(&rows[..2], &[]), (ProbeVerdict::NothingJudged, 0, 0));
    }

    #[test]
    fn a_pool_is_counted_in_the_engine_s_own_blocks() {
        let decision = |tokens, source| BlockDecision {
            block: BlockSize::new(tokens),
            source,
        };
        let metric = decision(16, BlockSource::Metric);
        assert_eq!(pool_tokens(metric, Some(16), Some(100), None), Some(1_600));
        // Inferred from two values that are three blocks apart.
        let inferred = decision(48, BlockSource::Inferred);
        assert_eq!(
            pool_tokens(inferred, Some(16), Some(100), None),
            Some(1_600)
        );
        assert_eq!(
            pool_tokens(inferred, Some(16), Some(100), Some(1_584)),
            Some(1_584)
        );
        assert_eq!(pool_tokens(metric, Some(16), None, None), None);
    }
}
