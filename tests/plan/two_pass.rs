//! The linear two-pass method that cold schedules are compared with: a greedy
//! walk under the line, then a walk backwards that gives up hits so that the
//! cumulative rate declines less.

use pcload::solver::Instance;

/// Sum of gaps below the line after the second pass, in rates.
pub(crate) fn gap_sum(instance: &Instance, total_blocks: u64) -> f64 {
    let path = lowered(instance, greedy(instance, total_blocks));
    let line = total_blocks as f64 / instance.total_input_tokens() as f64;
    let gaps = path
        .iter()
        .zip(input_sums(instance))
        .map(|(step, input)| (line - step.sum as f64 / input as f64).max(0.0));
    gaps.sum::<f64>() * instance.block_size.tokens() as f64
}

#[derive(Clone, Copy)]
struct Step {
    /// Cumulative hits.
    sum: u64,
    /// The most this request could have hit.
    most: u64,
    /// Whether it raised its lane's watermark.
    raises: bool,
}

fn input_sums(instance: &Instance) -> impl Iterator<Item = u64> {
    instance.requests.iter().scan(0, |sum, request| {
        *sum += request.input_tokens;
        Some(*sum)
    })
}

/// Largest total in reach from `watermarks` on, over the requests from `index`.
fn future(instance: &Instance, index: usize, watermarks: &[u64]) -> u64 {
    let mut watermarks = watermarks.to_vec();
    let mut hits = 0;
    for request in &instance.requests[index..] {
        let watermark = &mut watermarks[request.lane as usize];
        hits += request.capacity_blocks.min(*watermark);
        *watermark = request.capacity_blocks.max(*watermark);
    }
    hits
}

/// Pass 1: the longest prefix whose hit stays on or below the line, or else the
/// shortest one from which the total can still be reached.
fn greedy(instance: &Instance, total: u64) -> Vec<Step> {
    let whole = u128::from(instance.total_input_tokens());
    let mut watermarks = vec![0; instance.lane_count()];
    let mut sum = 0;
    let mut steps = Vec::new();
    for ((index, request), input) in instance
        .requests
        .iter()
        .enumerate()
        .zip(input_sums(instance))
    {
        let limit = u128::from(total) * u128::from(input) / whole;
        let lane = request.lane as usize;
        let found = watermarks[lane];
        let mut try_prefix = |prefix: u64| {
            watermarks[lane] = prefix.max(found);
            let sum = sum + prefix.min(found);
            let reaches = sum + future(instance, index + 1, &watermarks) >= total;
            (sum, sum <= total && reaches)
        };
        let below = (0..=request.capacity_blocks)
            .rev()
            .map(|prefix| (prefix, try_prefix(prefix)))
            .find(|(_, (sum, works))| *works && u128::from(*sum) <= limit);
        let (prefix, (after, _)) = below.unwrap_or_else(|| {
            (0..=request.capacity_blocks)
                .map(|prefix| (prefix, try_prefix(prefix)))
                .find(|(_, (_, works))| *works)
                .unwrap()
        });
        watermarks[lane] = prefix.max(found);
        sum = after;
        steps.push(Step {
            sum,
            most: request.capacity_blocks.min(found),
            raises: prefix > found,
        });
    }
    assert_eq!(sum, total);
    steps
}

/// Pass 2: backwards, each sum falls to the rate of the next one as far as the
/// next request's possible hits allow; requests that raise a watermark stay.
fn lowered(instance: &Instance, mut steps: Vec<Step>) -> Vec<Step> {
    let inputs: Vec<u64> = input_sums(instance).collect();
    for index in (0..steps.len().saturating_sub(1)).rev() {
        if steps[index].raises {
            continue;
        }
        let next = steps[index + 1];
        let level =
            u128::from(next.sum) * u128::from(inputs[index]) / u128::from(inputs[index + 1]);
        let least = next.sum - next.most.min(next.sum);
        let before = index.checked_sub(1).map_or(0, |before| steps[before].sum);
        let wanted = u64::try_from(level)
            .unwrap()
            .max(least)
            .max(before.min(steps[index].sum));
        steps[index].sum = steps[index].sum.min(wanted);
    }
    steps
}
