//! Which block the verdicts are computed with, and how far it can be trusted.
//!
//! Order of trust: the option; the engine's metric, unless the engine's command
//! line carries an explicit block size (the metric then repeats that flag and
//! not the block a hybrid model really uses); a grid that all cached values of
//! the run fit; nothing (the 90 % rule).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::BlockSize;

/// Where the block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockSource {
    /// `--block`.
    Option,
    /// The engine's metrics page.
    Metric,
    /// The largest grid that all cached values of the run fit.
    Inferred,
    /// No block: 90 % of the previous prompt is asked for.
    Fallback,
}

/// The block of the verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDecision {
    /// Tokens per block; `None` with [`BlockSource::Fallback`].
    pub block: Option<BlockSize>,
    /// Where it comes from.
    pub source: BlockSource,
}

/// What is known when the block is decided.
#[derive(Clone, Debug, Default)]
pub struct BlockEvidence {
    /// `--block`.
    pub option: Option<BlockSize>,
    /// The engine's metric.
    pub metric: Option<BlockSize>,
    /// Whether the metric only repeats an explicit block size of the engine's
    /// command line.
    pub size_on_command_line: bool,
    /// Cached tokens of the conversation turns after the first.
    pub cached_tokens: Vec<u64>,
}

/// Decides the block by the order of trust.
pub fn decide_block(evidence: &BlockEvidence) -> BlockDecision {
    if let Some(block) = evidence.option {
        return BlockDecision {
            block: Some(block),
            source: BlockSource::Option,
        };
    }
    if let (Some(block), false) = (evidence.metric, evidence.size_on_command_line) {
        return BlockDecision {
            block: Some(block),
            source: BlockSource::Metric,
        };
    }
    match infer(&evidence.cached_tokens) {
        Some(block) => BlockDecision {
            block: Some(block),
            source: BlockSource::Inferred,
        },
        None => BlockDecision {
            block: None,
            source: BlockSource::Fallback,
        },
    }
}

/// The largest grid of at least two different values; one value alone fits
/// every grid that divides it and proves nothing.
fn infer(cached_tokens: &[u64]) -> Option<BlockSize> {
    let values: BTreeSet<u64> = cached_tokens
        .iter()
        .copied()
        .filter(|&tokens| tokens > 0)
        .collect();
    if values.len() < 2 {
        return None;
    }
    let grid = values.into_iter().fold(0, greatest_common_divisor);
    BlockSize::new(grid)
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    let (mut left, mut right) = (left, right);
    while right > 0 {
        (left, right) = (right, left % right);
    }
    left
}

/// A larger block that would make every one of `turns` (previous prompt tokens,
/// cached tokens) healthy where `block` does not: then the metric's block is
/// not confirmed, and the turns prove nothing. Only turns with reuse take part;
/// a clean zero is never excused.
pub(super) fn larger_block_that_explains(
    block: BlockSize,
    turns: &[(u64, u64)],
) -> Option<BlockSize> {
    let reused: Vec<(u64, u64)> = turns.iter().copied().filter(|turn| turn.1 > 0).collect();
    let grid = reused
        .iter()
        .fold(0, |grid, turn| greatest_common_divisor(grid, turn.1));
    if grid == 0 {
        return None;
    }
    // Every divisor of the grid fits the values; the largest asks for least.
    let candidate = BlockSize::new(grid)?;
    let fits = reused
        .iter()
        .all(|&(previous, cached)| cached >= super::next_turn_floor(previous, candidate));
    (fits && grid > block.tokens() && grid % block.tokens() == 0).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(tokens: u64) -> Option<BlockSize> {
        BlockSize::new(tokens)
    }

    #[test]
    fn the_option_beats_the_metric_and_the_metric_falls_to_an_explicit_flag() {
        let mut evidence = BlockEvidence {
            option: size(2_176),
            metric: size(128),
            size_on_command_line: true,
            cached_tokens: Vec::new(),
        };
        let decided = decide_block(&evidence);
        assert_eq!(
            (decided.block, decided.source),
            (size(2_176), BlockSource::Option)
        );
        evidence.option = None;
        assert_eq!(decide_block(&evidence).source, BlockSource::Fallback);
        evidence.size_on_command_line = false;
        evidence.metric = size(480);
        let decided = decide_block(&evidence);
        assert_eq!(
            (decided.block, decided.source),
            (size(480), BlockSource::Metric)
        );
    }

    #[test]
    fn two_different_values_give_a_grid_and_one_does_not() {
        assert_eq!(infer(&[0, 2_400, 2_880, 3_360]), size(480));
        assert_eq!(infer(&[2_400, 2_400, 0]), None);
        assert_eq!(infer(&[]), None);
    }

    #[test]
    fn a_larger_grid_explains_what_the_stated_block_would_call_partial() {
        let stated = size(16).unwrap();
        // 1,056 = 2 · 528 of 2,100: healthy for a block of 528 (or 1,056).
        assert!(larger_block_that_explains(stated, &[(2_100, 1_056)]).is_some());
        // The same 1,056 of an ever longer conversation is a loss for any block.
        let stuck = [(2_100, 1_056), (5_000, 1_056), (10_000, 1_056)];
        assert_eq!(larger_block_that_explains(stated, &stuck), None);
        // A clean zero is never excused.
        assert_eq!(larger_block_that_explains(stated, &[(2_100, 0)]), None);
    }
}
