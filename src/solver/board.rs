//! A problem laid out for scheduling: the line, what is still to come after
//! each request, and the rule of one step. It refuses to know which step is
//! better.

use super::{Instance, Request, Start};

/// A problem with a chosen total. All vectors run over the requests.
#[derive(Debug)]
pub(super) struct Board {
    /// Requests in send order.
    pub requests: Vec<Request>,
    /// Input tokens up to and with each request.
    pub input_sums: Vec<u64>,
    /// Whole blocks below or on the line after each request.
    pub line_floors: Vec<u64>,
    /// Capacities of all later requests, summed.
    pub later_capacities: Vec<u64>,
    /// Largest capacity among later requests of the same lane.
    pub later_maxima: Vec<u64>,
    /// Largest capacity of each lane.
    pub lane_maxima: Vec<u64>,
    /// The hit total to reach, in blocks.
    pub total_blocks: u64,
    /// All input tokens.
    pub total_input: u64,
}

/// One lane-wise choice: the prefix and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Blocks the request shares.
    pub prefix: u64,
    /// Blocks it finds.
    pub hit: u64,
    /// The lane's watermark afterwards.
    pub watermark: u64,
    /// Blocks by which the largest total still in reach falls.
    pub waste: u64,
}

impl Board {
    /// Lays out `instance` with the total `total_blocks`.
    pub(super) fn new(instance: &Instance, total_blocks: u64) -> Self {
        let requests = instance.requests.clone();
        let input_sums: Vec<u64> = requests
            .iter()
            .scan(0, |sum, request| {
                *sum += request.input_tokens;
                Some(*sum)
            })
            .collect();
        let total_input = input_sums.last().copied().unwrap_or(0);
        let mut later_capacities = vec![0; requests.len()];
        let mut later_maxima = vec![0; requests.len()];
        let mut lane_maxima = vec![0; instance.lane_count()];
        let mut sum = 0;
        for (index, request) in requests.iter().enumerate().rev() {
            let lane = request.lane as usize;
            later_capacities[index] = sum;
            later_maxima[index] = lane_maxima[lane];
            sum += request.capacity_blocks;
            lane_maxima[lane] = request.capacity_blocks.max(lane_maxima[lane]);
        }
        let line_floors = input_sums
            .iter()
            .map(|&input| product_floor(total_blocks, input, total_input))
            .collect();
        debug_assert!(instance.start == Start::Warm || total_blocks <= sum);
        Self {
            requests,
            input_sums,
            line_floors,
            later_capacities,
            later_maxima,
            lane_maxima,
            total_blocks,
            total_input,
        }
    }

    /// Whether each lane's first request has the lane's largest capacity.
    /// Every later request may then hit what it likes.
    pub(super) fn first_is_largest(&self) -> bool {
        let mut seen = vec![false; self.lane_maxima.len()];
        self.requests.iter().all(|request| {
            let lane = request.lane as usize;
            std::mem::replace(&mut seen[lane], true)
                || request.capacity_blocks == self.lane_maxima[lane]
        })
    }

    /// Largest total from an empty cache.
    pub(super) fn cold_max(&self) -> u64 {
        let all: u64 = self.requests.iter().map(|r| r.capacity_blocks).sum();
        all - self.lane_maxima.iter().sum::<u64>()
    }

    /// What sharing `prefix` blocks does at request `index` when its lane's
    /// watermark is `watermark`.
    ///
    /// The most a lane can still give is `Σ later capacities − max(0, largest
    /// later capacity − watermark)`; the waste is what that and the hit lose
    /// together. It is 0 for the longest prefix.
    pub(super) fn step(&self, index: usize, watermark: u64, prefix: u64) -> Step {
        let capacity = self.requests[index].capacity_blocks;
        let later_max = self.later_maxima[index];
        let hit = prefix.min(watermark);
        let raised = prefix.max(watermark);
        let shortfall = capacity.max(later_max).saturating_sub(watermark);
        let left = later_max.saturating_sub(raised);
        Step {
            prefix,
            hit,
            watermark: raised,
            waste: capacity + left - hit - shortfall,
        }
    }
}

/// `factor · part / whole`, rounded down; 0 where there is no whole.
pub(super) fn product_floor(factor: u64, part: u64, whole: u64) -> u64 {
    let whole = u128::from(whole.max(1));
    let floor = u128::from(factor) * u128::from(part) / whole;
    u64::try_from(floor).expect("a part of a factor is not above it")
}
