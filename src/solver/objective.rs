//! How a schedule stands to the line: the four figures that are minimized, and
//! the declines that users see. It refuses to know how the schedule was found.

use super::{Instance, Start};

/// Figures of the cumulative hit rate (hit tokens / input tokens, 0..=1) after
/// each request, against the line's rate (the schedule's total / all input).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objective {
    /// Largest rate above the line's.
    pub overshoot_max: f64,
    /// Sum of rates above the line's, over requests.
    pub overshoot_sum: f64,
    /// Sum of rates below the line's, over requests.
    pub gap_sum: f64,
    /// Sum of falls of the cumulative rate from one request to the next.
    pub decline_sum: f64,
    /// Largest distance of the cumulative hits from the line, in blocks.
    pub distance_max_blocks: f64,
}

/// Blocks found by each request.
pub(super) fn hits(instance: &Instance, prefix_blocks: &[u64]) -> Vec<u64> {
    match instance.start {
        Start::Warm => prefix_blocks.to_vec(),
        Start::Empty => {
            let mut watermarks = vec![0; instance.lane_count()];
            instance
                .requests
                .iter()
                .zip(prefix_blocks)
                .map(|(request, &prefix)| {
                    let watermark = &mut watermarks[request.lane as usize];
                    let hit = prefix.min(*watermark);
                    *watermark = prefix.max(*watermark);
                    hit
                })
                .collect()
        }
    }
}

/// The figures of a schedule.
pub(super) fn measure(instance: &Instance, prefix_blocks: &[u64]) -> Objective {
    let hits = hits(instance, prefix_blocks);
    let total: u64 = hits.iter().sum();
    let mut tally = Tally::new(
        total,
        instance.total_input_tokens(),
        instance.block_size.tokens(),
    );
    let (mut sum, mut input) = (0, 0);
    for (request, hit) in instance.requests.iter().zip(hits) {
        let (sum_before, input_before) = (sum, input);
        sum += hit;
        input += request.input_tokens;
        tally.add((sum_before, input_before), (sum, input));
    }
    tally.objective
}

struct Tally {
    total_blocks: i128,
    total_input: i128,
    block_tokens: f64,
    objective: Objective,
}

impl Tally {
    fn new(total_blocks: u64, total_input: u64, block_tokens: u64) -> Self {
        Self {
            total_blocks: total_blocks.into(),
            total_input: total_input.into(),
            block_tokens: block_tokens as f64,
            objective: Objective::default(),
        }
    }

    /// Counts one request: cumulative (blocks, tokens) before and after it.
    fn add(&mut self, before: (u64, u64), after: (u64, u64)) {
        if after.1 == 0 {
            return;
        }
        let above = above_line(after, (self.total_blocks, self.total_input));
        let distance = above as f64 / self.total_input as f64;
        let rate = distance * self.block_tokens / after.1 as f64;
        let figures = &mut self.objective;
        figures.distance_max_blocks = figures.distance_max_blocks.max(distance.abs());
        if above > 0 {
            figures.overshoot_max = figures.overshoot_max.max(rate);
            figures.overshoot_sum += rate;
        } else {
            figures.gap_sum -= rate;
        }
        figures.decline_sum += self.block_tokens * decline(before, after);
    }
}

/// `blocks · total input − total blocks · tokens`: the distance above the line
/// in blocks, times the total input.
pub(super) fn above_line(at: (u64, u64), total: (i128, i128)) -> i128 {
    i128::from(at.0) * total.1 - total.0 * i128::from(at.1)
}

/// How far blocks per token fall from one (blocks, tokens) to the next.
pub(super) fn decline(before: (u64, u64), after: (u64, u64)) -> f64 {
    let fall =
        i128::from(before.0) * i128::from(after.1) - i128::from(after.0) * i128::from(before.1);
    if fall <= 0 || before.1 == 0 {
        return 0.0;
    }
    fall as f64 / (before.1 as f64 * after.1 as f64)
}
