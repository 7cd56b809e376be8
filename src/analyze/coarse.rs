//! Blocks coarser than believed, as hybrid models have them, recognized by where
//! all reported reuse lies.

use std::collections::BTreeSet;

use super::account::RowTheory;
use super::capacity::Capacity;
use super::rows::Row;
use crate::theory::ServerView;
use crate::units::BlockSize;

/// Reuse in blocks coarser than believed.
#[derive(Clone, Copy)]
pub(super) struct CoarseGrid {
    pub(super) block: BlockSize,
    /// The last whole block is given up as well (recurrent layers, speculative
    /// decoding).
    pub(super) gives_up_one: bool,
}

impl CoarseGrid {
    /// A grid that all reported reuse lies on and that explains nine tenths of
    /// what the theory expects, looked for only where something falls short.
    pub(super) fn of(view: ServerView, rows: &[Row<'_>], theory: &RowTheory) -> Option<Self> {
        let known: Vec<(u64, u64)> = rows
            .iter()
            .zip(&theory.executed)
            .filter_map(|(row, expected)| Some(((*expected)?, row.cached_tokens()?)))
            .filter(|&(expected, _)| expected > 0)
            .collect();
        let grid = known
            .iter()
            .fold(0, |grid, &(_, cached)| common_divisor(grid, cached));
        let block =
            BlockSize::new(grid).filter(|block| block.tokens() >= view.block_size.tokens())?;
        // On the server's own grid only the given-up block is left to find; a
        // small pool may cost each request one as well.
        let own = block.tokens() == view.block_size.tokens();
        let evicts = |one: &Capacity| one.theory.evicted_blocks > 0;
        if own && theory.capacity.as_ref().is_some_and(evicts) {
            return None;
        }
        // One value lies on its own grid: it takes two to show one.
        let values: BTreeSet<u64> = known.iter().map(|&(_, cached)| cached).collect();
        let short = known.iter().any(|(expected, cached)| cached < expected);
        if !short || values.iter().filter(|&&value| value > 0).count() < 2 {
            return None;
        }
        let kinds: &[bool] = if own { &[true] } else { &[false, true] };
        kinds.iter().copied().find_map(|gives_up_one| {
            let grid = Self {
                block,
                gives_up_one,
            };
            let fit = known
                .iter()
                .filter(|(expected, cached)| grid.reuse(*expected) == *cached);
            (fit.count() * 10 >= known.len() * 9).then_some(grid)
        })
    }

    pub(super) fn reuse(self, expected: u64) -> u64 {
        let given_up = if self.gives_up_one {
            self.block.tokens()
        } else {
            0
        };
        self.block.floor(expected).saturating_sub(given_up)
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
