//! Which shared-prefix lengths give the hit total nearest to the target.

/// The chosen schedule in blocks and what proves it.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Shared blocks of each request, in send order.
    pub prefix_blocks: Vec<u64>,
    /// Chosen hit total, in blocks.
    pub total_blocks: u64,
    /// Largest reachable hit total, in blocks; the smallest is 0.
    pub max_blocks: u64,
}
