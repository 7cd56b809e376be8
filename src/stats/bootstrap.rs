//! 95 % intervals by moving-block bootstrap over samples in send order: blocks
//! of neighbours are drawn, so that the dependence between requests that ran
//! together stays in the resamples (Künsch 1989). Seeded; it refuses to draw
//! from anything but the stream it is given.
//!
//! The block length is `⌈n^(1/3)⌉`, the rate that Hall, Horowitz and Jing (1995)
//! give for variances. A resample of sums costs one addition a block; one of
//! percentiles one count a sample, of its rank among all samples, so nothing is
//! sorted twice. Both draw fewer resamples from large series.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::summary::{Percent, interpolate, percentile_of_sorted, rank};
use crate::rng::Stream;

/// Intervals from fewer samples than this are only indicative.
pub const INDICATIVE_BELOW: usize = 100;

/// Resamples where they are cheap.
const RESAMPLES_MAX: usize = 1_000;
/// Resamples however many samples there are.
const RESAMPLES_MIN: usize = 200;
/// Blocks added up for one interval, about 10 ms of work.
pub(super) const ADDED_MAX: usize = 500_000;
/// Samples counted for one interval, about 30 ms of work.
pub(super) const COUNTED_MAX: usize = 20_000_000;
/// Ranks told apart; up to so many samples a percentile is exact, beyond that
/// its rank is off by less than one in so many.
const RANKS_MAX: usize = 65_536;

/// A 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies inside, ends included.
    pub fn covers(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    pub(super) fn of(mut replicates: Vec<f64>) -> Option<Self> {
        replicates.sort_unstable_by(f64::total_cmp);
        let at = |percent| percentile_of_sorted(&replicates, Percent::new(percent)?);
        Some(Self {
            low: at(2.5)?,
            high: at(97.5)?,
        })
    }
}

pub(super) fn resamples(affordable: usize) -> usize {
    affordable.clamp(RESAMPLES_MIN, RESAMPLES_MAX)
}

/// Ranges of `length` neighbours that together make one resample of `count`
/// samples.
pub(super) fn draw_blocks(
    count: usize,
    length: usize,
    stream: &mut Stream,
) -> Vec<std::ops::Range<usize>> {
    let starts = (count - length + 1) as u64;
    let mut left = count;
    let mut blocks = Vec::with_capacity(count.div_ceil(length));
    while left > 0 {
        let start = usize::try_from(stream.below(starts)).expect("below a usize");
        let taken = length.min(left);
        blocks.push(start..start + taken);
        left -= taken;
    }
    blocks
}

/// `⌈count^(1/3)⌉`, at least 1.
pub(super) fn block_length(count: usize) -> usize {
    let mut length = 1;
    while length * length * length < count {
        length += 1;
    }
    length
}

/// Interval of a statistic that depends on sums over the samples alone, such as
/// a mean (`[1, x]`) or a ratio of sums (`[part, whole]`). `None` below two
/// samples, or when `statistic` is absent for every resample.
pub fn sums_interval<const TERMS: usize>(
    rows: &[[f64; TERMS]],
    statistic: impl Fn([f64; TERMS]) -> Option<f64>,
    stream: &mut Stream,
) -> Option<Interval> {
    if rows.len() < 2 {
        return None;
    }
    let mut running = Vec::with_capacity(rows.len() + 1);
    let mut sums = [0.0; TERMS];
    running.push(sums);
    for row in rows {
        add(&mut sums, row, 1.0);
        running.push(sums);
    }
    let length = block_length(rows.len());
    let blocks = rows.len().div_ceil(length);
    let replicates = (0..resamples(ADDED_MAX / blocks)).filter_map(|_| {
        let mut sums = [0.0; TERMS];
        for block in draw_blocks(rows.len(), length, stream) {
            add(&mut sums, &running[block.end], 1.0);
            add(&mut sums, &running[block.start], -1.0);
        }
        statistic(sums)
    });
    Interval::of(replicates.collect())
}

pub(super) fn add<const TERMS: usize>(sums: &mut [f64; TERMS], row: &[f64; TERMS], sign: f64) {
    for (sum, term) in sums.iter_mut().zip(row) {
        *sum += sign * term;
    }
}

/// Intervals of `percents` of the samples, which stand in send order; `None`
/// below two samples.
pub fn percentile_intervals<const COUNT: usize>(
    samples: &[f64],
    percents: [Percent; COUNT],
    stream: &mut Stream,
) -> [Option<Interval>; COUNT] {
    if samples.len() < 2 {
        return [None; COUNT];
    }
    let ranked = Ranked::of(samples);
    let length = block_length(samples.len());
    let resamples = resamples(COUNTED_MAX / samples.len());
    let mut replicates: [Vec<f64>; COUNT] = std::array::from_fn(|_| Vec::with_capacity(resamples));
    let mut counts = vec![0_u32; ranked.values.len()];
    for _ in 0..resamples {
        counts.fill(0);
        for block in draw_blocks(samples.len(), length, stream) {
            for &rank in &ranked.ranks[block] {
                counts[usize::from(rank)] += 1;
            }
        }
        for (kept, percent) in replicates.iter_mut().zip(percents) {
            kept.push(ranked.percentile(&counts, samples.len(), percent));
        }
    }
    replicates.map(Interval::of)
}

/// Samples as ranks among themselves.
pub(super) struct Ranked {
    /// Of each sample, in send order.
    pub(super) ranks: Vec<u16>,
    /// The sample that stands for each rank, ascending.
    pub(super) values: Vec<f64>,
}

impl Ranked {
    pub(super) fn of(samples: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..samples.len()).collect();
        order.sort_unstable_by(|&a, &b| samples[a].total_cmp(&samples[b]));
        let width = samples.len().div_ceil(RANKS_MAX);
        let mut ranks = vec![0; samples.len()];
        for (place, &index) in order.iter().enumerate() {
            ranks[index] = u16::try_from(place / width).expect("at most RANKS_MAX ranks");
        }
        let middle = |group: &[usize]| samples[group[group.len() / 2]];
        Self {
            ranks,
            values: order.chunks(width).map(middle).collect(),
        }
    }

    /// The percentile of a resample of `size` samples, given how often each
    /// rank was drawn.
    pub(super) fn percentile(&self, counts: &[u32], size: usize, percent: Percent) -> f64 {
        let (below, share) = rank(size - 1, percent);
        let mut up_to = 0;
        let mut ranks = counts.iter().zip(&self.values).map(|(&count, &value)| {
            up_to += count as usize;
            (up_to, value)
        });
        let low = ranks.find(|(up_to, _)| *up_to > below);
        let (reached, low) = low.expect("a resample has all its ranks");
        let high = if reached > below + 1 || below + 1 == size {
            low
        } else {
            ranks
                .find(|(up_to, _)| *up_to > below + 1)
                .map_or(low, |(_, value)| value)
        };
        interpolate(low, high, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;
    use crate::stats::percentile;

    fn mean_of([count, sum]: [f64; 2]) -> Option<f64> {
        (count > 0.0).then(|| sum / count)
    }

    fn normals(seed: u64, count: usize) -> Vec<f64> {
        let mut stream = Seed::from(seed).stream("samples");
        (0..count).map(|_| 10.0 + stream.normal()).collect()
    }

    #[test]
    fn the_true_mean_and_median_are_covered_as_often_as_promised() {
        let median = Percent::new(50.0).unwrap();
        let (mut mean_hits, mut median_hits) = (0, 0);
        for seed in 0..100 {
            let samples = normals(seed, 200);
            let mut stream = Seed::from(seed).stream("bootstrap");
            let rows: Vec<_> = samples.iter().map(|&x| [1.0, x]).collect();
            let mean = sums_interval(&rows, mean_of, &mut stream).unwrap();
            let [middle] = percentile_intervals(&samples, [median], &mut stream);
            mean_hits += u32::from(mean.covers(10.0));
            median_hits += u32::from(middle.unwrap().covers(10.0));
        }
        assert!((86..=100).contains(&mean_hits), "{mean_hits} of 100");
        assert!((86..=100).contains(&median_hits), "{median_hits} of 100");
    }

    #[test]
    fn the_width_of_a_mean_is_what_theory_says() {
        let samples = normals(5, 2_000);
        let rows: Vec<_> = samples.iter().map(|&x| [1.0, x]).collect();
        let interval = sums_interval(&rows, mean_of, &mut Seed::from(5).stream("b")).unwrap();
        let expected = 2.0 * 1.96 / 2_000_f64.sqrt();
        let width = interval.high - interval.low;
        assert!((width / expected - 1.0).abs() < 0.25, "{width} {expected}");
    }

    #[test]
    fn equal_seeds_draw_equal_intervals() {
        let samples = normals(1, 150);
        let p99 = Percent::new(99.0).unwrap();
        let draw = || percentile_intervals(&samples, [p99], &mut Seed::from(9).stream("b"));
        assert_eq!(draw(), draw());
    }

    #[test]
    fn a_ratio_of_constants_has_no_width() {
        let rows = vec![[3.0, 4.0]; 50];
        let ratio = |[part, whole]: [f64; 2]| (whole > 0.0).then(|| part / whole);
        let interval = sums_interval(&rows, ratio, &mut Seed::from(1).stream("b")).unwrap();
        assert_eq!((interval.low, interval.high), (0.75, 0.75));
        let nothing = sums_interval(&[[0.0, 0.0]; 5], ratio, &mut Seed::from(1).stream("b"));
        assert_eq!(nothing, None);
    }

    #[test]
    fn counted_ranks_give_the_same_percentile_as_sorting() {
        let mut samples = normals(3, 101);
        samples.extend([10.0, 10.0, 10.0]);
        let ranked = Ranked::of(&samples);
        let mut stream = Seed::from(4).stream("draw");
        for percent in [0.0, 13.7, 50.0, 99.0, 100.0] {
            let percent = Percent::new(percent).unwrap();
            let mut counts = vec![0; ranked.values.len()];
            let mut drawn = Vec::new();
            for block in draw_blocks(samples.len(), 5, &mut stream) {
                for index in block {
                    counts[usize::from(ranked.ranks[index])] += 1;
                    drawn.push(samples[index]);
                }
            }
            let counted = ranked.percentile(&counts, samples.len(), percent);
            assert_eq!(Some(counted), percentile(&drawn, percent));
        }
    }

    #[test]
    fn more_samples_than_ranks_lose_next_to_nothing() {
        let samples: Vec<f64> = (0..200_000).map(f64::from).collect();
        let ranked = Ranked::of(&samples);
        let width = 200_000_usize.div_ceil(RANKS_MAX);
        let counts: Vec<u32> = samples
            .chunks(width)
            .map(|chunk| u32::try_from(chunk.len()).unwrap())
            .collect();
        let p99 = ranked.percentile(&counts, samples.len(), Percent::new(99.0).unwrap());
        assert!((p99 / 198_000.0 - 1.0).abs() < 1e-4, "{p99}");
    }

    #[test]
    fn blocks_make_up_exactly_one_resample() {
        let mut stream = Seed::from(2).stream("b");
        for count in [2, 7, 27, 28, 1_000] {
            let blocks = draw_blocks(count, block_length(count), &mut stream);
            assert_eq!(
                blocks.iter().map(ExactSizeIterator::len).sum::<usize>(),
                count
            );
            assert!(blocks.iter().all(|block| block.end <= count));
        }
        assert_eq!(
            (block_length(1), block_length(27), block_length(28)),
            (1, 3, 4)
        );
    }
}
