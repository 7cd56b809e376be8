//! Which shared-prefix lengths give the hit total nearest to the target, and
//! which order of hits reaches it best. Pure arithmetic on blocks; the room
//! refuses to know groups, ranks and text: a lane is a number.
//!
//! # The problem
//!
//! Request `i` may share `prefix_i ∈ 0..=capacity_i` blocks. In a lane that
//! starts empty its hit is `min(prefix_i, watermark)`, and the watermark
//! becomes `max(watermark, prefix_i)`; after a warm-up every prefix is a hit.
//! Lowering one prefix by one block lowers the total by 0 or 1, so all totals
//! from 0 to the largest are reachable, and the one nearest to the real-valued
//! target is chosen (ties to the smaller).
//!
//! # Among schedules of that total
//!
//! The *line* leads from nothing to the chosen total in proportion to the
//! input tokens sent. After a warm-up the cumulative hits stay as near to it
//! as what was sent before and what is still to come allow (`warmup`). From
//! an empty cache the largest overshoot of the cumulative rate above the line
//! is minimized, then the sum of overshoots, then the sum of gaps below, then
//! the sum of declines (`greedy`, `beam`).
//!
//! # What is proved
//!
//! The total is always optimal. So is the whole objective after a warm-up, and
//! from an empty cache where each lane's first request has the lane's largest
//! capacity. Elsewhere a bounded search improves on the greedy schedule;
//! [`Certificate::optimality`] says which case holds. On 201 random problems of
//! eight requests, compared with every schedule, the greedy schedule alone is
//! optimal 199 times (at worst 0.014 more overshoot, 0.019 in sum), and the
//! whole search always.

mod beam;
mod board;
#[cfg(test)]
mod exhaustive;
mod greedy;
mod objective;
mod target;
mod verify;
mod warmup;

use crate::units::BlockSize;

pub use objective::Objective;
pub use verify::{CertificateError, verify};

/// Most input tokens of one data set: the exact comparisons multiply three such
/// numbers in 128 bits.
pub const TOTAL_INPUT_TOKENS_MAX: u64 = 1 << 40;

/// What is in the cache when the first request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: a lane's first request finds nothing.
    Empty,
    /// Every prefix that any request shares.
    Warm,
}

/// One request as the solver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Most blocks it may share; they fit into its prompt.
    pub capacity_blocks: u64,
    /// The sequence it belongs to. After a warm-up lanes only order the
    /// certificate.
    pub lane: u32,
}

/// One problem: requests in send order and the rate wanted of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Cold or warm.
    pub start: Start,
    /// Tokens of a block.
    pub block_size: BlockSize,
    /// Hit tokens wanted per input token, 0..=1. Its shortest decimal text is
    /// taken as the exact value: 0.6 means six tenths.
    pub target_rate: f64,
    /// Requests in send order.
    pub requests: Vec<Request>,
}

impl Instance {
    /// Number of lanes: one more than the largest lane index.
    pub fn lane_count(&self) -> usize {
        self.requests
            .iter()
            .map(|request| request.lane as usize + 1)
            .max()
            .unwrap_or(0)
    }

    /// Input tokens of all requests.
    pub fn total_input_tokens(&self) -> u64 {
        self.requests
            .iter()
            .map(|request| request.input_tokens)
            .sum()
    }
}

/// The chosen schedule in blocks and what proves it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solution {
    /// Shared blocks of each request, in send order.
    pub prefix_blocks: Vec<u64>,
    /// Chosen hit total, in blocks.
    pub total_blocks: u64,
    /// Largest reachable hit total, in blocks; the smallest is 0.
    pub max_blocks: u64,
    /// What [`verify`] re-checks.
    pub certificate: Certificate,
}

/// What can be checked of a solution without trusting the solver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Certificate {
    /// What each lane can give; the reachable maximum is their sum.
    pub lanes: Vec<LaneCapacity>,
    /// How the schedule stands to the line.
    pub objective: Objective,
    /// What is known of the objective.
    pub optimality: Optimality,
}

/// What one lane can give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCapacity {
    /// The lane's index.
    pub lane: u32,
    /// Its requests.
    pub request_count: u64,
    /// Their input tokens.
    pub input_tokens: u64,
    /// Most hits it can have, in blocks: the sum of its capacities, from an
    /// empty cache without the largest one.
    pub reachable_blocks: u64,
}

/// What is known of a schedule's objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Optimality {
    /// No schedule of the same total is better.
    Proved,
    /// A better one may exist: the search was bounded, or the schedule was not
    /// made here.
    #[default]
    Bounded,
}

/// Why there is nothing to solve.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SolverError {
    /// The target is no rate.
    #[error("the target hit rate must be a number from 0 to 1, not `{rate}`")]
    TargetOutOfRange {
        /// As given.
        rate: f64,
    },
    /// Beyond [`TOTAL_INPUT_TOKENS_MAX`].
    #[error("the requests have more than {TOTAL_INPUT_TOKENS_MAX} input tokens in all")]
    TooManyTokens,
    /// A prefix cannot be longer than its prompt.
    #[error(
        "request {index} has {input_tokens} input tokens, too few for a prefix of \
         {capacity_blocks} blocks"
    )]
    CapacityAboveInput {
        /// Place in the send order.
        index: usize,
        /// Its prompt.
        input_tokens: u64,
        /// Its stated capacity.
        capacity_blocks: u64,
    },
}

impl SolverError {
    /// The stable code of the error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TargetOutOfRange { .. } => "TARGET_OUT_OF_RANGE",
            Self::TooManyTokens => "TOO_MANY_TOKENS",
            Self::CapacityAboveInput { .. } => "CAPACITY_ABOVE_INPUT",
        }
    }
}

/// The schedule whose hit total is nearest to the target.
pub fn solve(instance: &Instance) -> Result<Solution, SolverError> {
    check(instance)?;
    let lanes = lane_capacities(instance);
    let max_blocks = lanes.iter().map(|lane| lane.reachable_blocks).sum();
    let total_blocks = target::nearest_total(instance, max_blocks);
    let board = board::Board::new(instance, total_blocks);
    let (prefix_blocks, optimality) = match instance.start {
        Start::Warm => (warmup::schedule(&board), Optimality::Proved),
        Start::Empty => cold_schedule(&board),
    };
    let objective = objective::measure(instance, &prefix_blocks);
    Ok(Solution {
        prefix_blocks,
        total_blocks,
        max_blocks,
        certificate: Certificate {
            lanes,
            objective,
            optimality,
        },
    })
}

fn cold_schedule(board: &board::Board) -> (Vec<u64>, Optimality) {
    let greedy = greedy::schedule(board);
    if board.first_is_largest() {
        return (greedy, Optimality::Proved);
    }
    beam::improve(board, greedy, beam::Effort::for_size_of(board))
}

/// The solution that a given schedule stands for, e.g. one read from a file.
/// Its total is what the schedule gives, whatever the target.
pub fn assess(instance: &Instance, prefix_blocks: Vec<u64>) -> Result<Solution, SolverError> {
    check(instance)?;
    let lanes = lane_capacities(instance);
    let objective = objective::measure(instance, &prefix_blocks);
    Ok(Solution {
        total_blocks: objective::hits(instance, &prefix_blocks).iter().sum(),
        max_blocks: lanes.iter().map(|lane| lane.reachable_blocks).sum(),
        prefix_blocks,
        certificate: Certificate {
            lanes,
            objective,
            optimality: Optimality::Bounded,
        },
    })
}

fn check(instance: &Instance) -> Result<(), SolverError> {
    if !(0.0..=1.0).contains(&instance.target_rate) {
        return Err(SolverError::TargetOutOfRange {
            rate: instance.target_rate,
        });
    }
    let mut total = 0_u64;
    for (index, request) in instance.requests.iter().enumerate() {
        total = total.saturating_add(request.input_tokens);
        if total > TOTAL_INPUT_TOKENS_MAX {
            return Err(SolverError::TooManyTokens);
        }
        if request.capacity_blocks > instance.block_size.whole_blocks(request.input_tokens) {
            return Err(SolverError::CapacityAboveInput {
                index,
                input_tokens: request.input_tokens,
                capacity_blocks: request.capacity_blocks,
            });
        }
    }
    Ok(())
}

fn lane_capacities(instance: &Instance) -> Vec<LaneCapacity> {
    let mut lanes = vec![LaneCapacity::default(); instance.lane_count()];
    let mut largest = vec![0_u64; lanes.len()];
    for request in &instance.requests {
        let index = request.lane as usize;
        let lane = &mut lanes[index];
        lane.lane = request.lane;
        lane.request_count += 1;
        lane.input_tokens += request.input_tokens;
        lane.reachable_blocks += request.capacity_blocks;
        largest[index] = largest[index].max(request.capacity_blocks);
    }
    if instance.start == Start::Empty {
        for (lane, largest) in lanes.iter_mut().zip(largest) {
            lane.reachable_blocks -= largest;
        }
    }
    lanes.retain(|lane| lane.request_count > 0);
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(target_rate: f64, lengths: &[u64], lanes: u32) -> Instance {
        let request = |(lane, &input_tokens): (u32, &u64)| Request {
            input_tokens,
            capacity_blocks: (input_tokens - 16) / 16,
            lane: lane % lanes,
        };
        Instance {
            start: Start::Empty,
            block_size: BlockSize::new(16).unwrap(),
            target_rate,
            requests: (0..).zip(lengths).map(request).collect(),
        }
    }

    #[test]
    fn late_large_prompts_cost_no_overshoot() {
        // A schedule found by hand has neither overshoot nor decline; under the
        // objective here its gaps are what counts next.
        let instance = lengths(
            86.0 * 16.0 / 3588.0,
            &[
                64, 128, 256, 96, 96, 128, 64, 128, 128, 512, 512, 64, 512, 900,
            ],
            3,
        );
        let by_hand = vec![3, 1, 1, 5, 2, 2, 1, 7, 3, 31, 30, 3, 31, 30];
        let by_hand = assess(&instance, by_hand).unwrap();
        let found = solve(&instance).unwrap();
        assert_eq!((found.total_blocks, found.max_blocks), (86, 109));
        assert_eq!(by_hand.total_blocks, 86);
        let (found, by_hand) = (found.certificate.objective, by_hand.certificate.objective);
        assert!(by_hand.overshoot_max + by_hand.decline_sum == 0.0);
        assert!(found.overshoot_max == 0.0);
        assert!(found.gap_sum <= by_hand.gap_sum, "{found:?} {by_hand:?}");
    }

    #[test]
    fn one_prompt_after_a_warm_up_takes_the_nearer_block() {
        let mut instance = lengths(0.2, &[42], 1);
        instance.start = Start::Warm;
        let solution = solve(&instance).unwrap();
        assert_eq!((solution.prefix_blocks, solution.max_blocks), (vec![1], 1));
    }

    #[test]
    fn nothing_to_send_is_solved_by_nothing() {
        for start in [Start::Empty, Start::Warm] {
            let mut instance = lengths(0.5, &[], 1);
            instance.start = start;
            let solution = solve(&instance).unwrap();
            assert_eq!(verify(&instance, &solution), Ok(()));
            assert_eq!((solution.total_blocks, solution.max_blocks), (0, 0));
        }
    }

    #[test]
    fn the_largest_problem_does_not_overflow() {
        let mut instance = lengths(0.7, &[1 << 38; 4], 2);
        instance.block_size = BlockSize::new(1).unwrap();
        for request in &mut instance.requests {
            request.capacity_blocks = request.input_tokens - 1;
        }
        let solution = solve(&instance).unwrap();
        assert_eq!(verify(&instance, &solution), Ok(()));
        instance.requests[0].input_tokens += 1;
        assert_eq!(solve(&instance), Err(SolverError::TooManyTokens));
    }

    #[test]
    fn what_is_no_problem_is_refused() {
        let mut instance = lengths(0.5, &[64, 64], 1);
        for rate in [f64::NAN, -0.1, 1.1] {
            instance.target_rate = rate;
            assert_eq!(solve(&instance).unwrap_err().code(), "TARGET_OUT_OF_RANGE");
        }
        instance.target_rate = 0.5;
        instance.requests[1].capacity_blocks = 5;
        assert_eq!(solve(&instance).unwrap_err().code(), "CAPACITY_ABOVE_INPUT");
    }
}
