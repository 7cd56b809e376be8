//! The schedule from an empty cache that takes all it may: hits as near below
//! the line as the lane allows, above it only where the total could not be
//! reached otherwise. Linear, and optimal where each lane's first request has
//! the lane's largest capacity.
//!
//! Why it is optimal there: after a lane's first request (which finds nothing)
//! every hit up to the capacity is open, so the cumulative hits are any path
//! with steps in `0..=capacity`. The least path that still reaches the total is
//! below every other, so overshoot, its maximum and its sum, is least when hits
//! exceed the line only to follow that path; and among paths under
//! `max(line, least path)` the greedy one is above every other, so each gap is
//! the least. Both leave no choice to the declines.

use super::board::{Board, Step};

/// Shared blocks of each request.
pub(super) fn schedule(board: &Board) -> Vec<u64> {
    let mut watermarks = vec![0; board.lane_maxima.len()];
    let mut hits = 0;
    let mut slack = board.cold_max() - board.total_blocks;
    let mut prefixes = Vec::with_capacity(board.requests.len());
    for (index, request) in board.requests.iter().enumerate() {
        let watermark = &mut watermarks[request.lane as usize];
        let step = choose(board, index, *watermark, hits, slack);
        *watermark = step.watermark;
        hits += step.hit;
        slack -= step.waste;
        prefixes.push(step.prefix);
    }
    assert_eq!(hits, board.total_blocks, "a reachable total is reached");
    prefixes
}

/// The greedy step at request `index`: `hits` blocks were found before it, and
/// the largest total still in reach is `slack` above the chosen one.
pub(super) fn choose(board: &Board, index: usize, watermark: u64, hits: u64, slack: u64) -> Step {
    let capacity = board.requests[index].capacity_blocks;
    let longest = board.step(index, watermark, capacity);
    let room = board.line_floors[index].saturating_sub(hits);
    if longest.hit <= room {
        return longest;
    }
    let below = board.step(index, watermark, room);
    if below.waste <= slack {
        return below;
    }
    // Each block more is a block of waste less, but below a full hit: raising
    // the watermark may save more than the last block did.
    let forced = board.step(index, watermark, room + (below.waste - slack));
    if forced.hit < longest.hit {
        forced
    } else {
        longest
    }
}
