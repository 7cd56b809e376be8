//! The schedule after a warm-up, when every prefix is a hit: cumulative hits
//! follow the line, rounded to the nearest block.

use super::board::Board;

/// In send order, each request brings the cumulative hits as near to the line
/// as its capacity and the total still to be reached allow; half a block rounds
/// up. So they are within half a block of the line wherever any schedule of the
/// same total that was as near before can be.
pub(super) fn schedule(board: &Board) -> Vec<u64> {
    let mut hits = 0;
    let mut prefixes = Vec::with_capacity(board.requests.len());
    for (index, request) in board.requests.iter().enumerate() {
        let later = board.later_capacities[index];
        let least = hits.max(board.total_blocks.saturating_sub(later));
        let most = board.total_blocks.min(hits + request.capacity_blocks);
        let line = round_half_up(
            board.total_blocks,
            board.input_sums[index],
            board.total_input,
        );
        let next = line.clamp(least, most);
        prefixes.push(next - hits);
        hits = next;
    }
    assert_eq!(hits, board.total_blocks, "a reachable total is reached");
    prefixes
}

/// `factor · part / whole`, rounded to the nearest number, halves up.
fn round_half_up(factor: u64, part: u64, whole: u64) -> u64 {
    let whole = u128::from(whole.max(1));
    let doubled = 2 * u128::from(factor) * u128::from(part);
    let nearest = (doubled + whole) / (2 * whole);
    u64::try_from(nearest).expect("a part of a factor is not above it")
}
