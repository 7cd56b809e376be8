//! A bounded search from an empty cache, for lanes whose first request has not
//! the lane's largest capacity. There the greedy schedule may miss a better one:
//! a watermark is raised only by a full hit, so it can pay to find less now,
//! or to raise later, when raising costs nothing.
//!
//! States after each request are (watermarks, cumulative hits); of two ways to
//! the same state the better is kept, and of all states the best few. Small
//! problems are searched whole, and the answer is then proved. The width
//! shrinks with the number of requests and lanes, so the time stays near-linear
//! and the memory linear in the requests.

use std::cmp::Ordering;
use std::rc::Rc;

use super::Optimality;
use super::board::{Board, Step};
use super::greedy;
use super::objective::{above_line, decline};

/// States kept after each request, at most.
const WIDTH_MAX: usize = 256;

/// Width times requests: about a tenth of a second of one core. Large problems
/// are left to the greedy schedule, because there is nothing to find: on 318
/// problems of 500 to 200,000 requests in 4 to 2,048 lanes, lengths uniform,
/// in powers of two, and ascending, at targets of 0.3 to 0.95, a search of
/// width 32 (20 s a million requests) gave the greedy schedule's figures to
/// three digits. Once it differed: 20,000 ascending lengths in 2,048 lanes lost
/// an overshoot of 0.001 percentage points and more than doubled the gaps.
const WORK_MAX: usize = 1 << 17;

/// Problems up to this many (request, prefix) pairs try every prefix.
const EVERY_PREFIX_MAX: u64 = 4096;

/// How much is searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// States kept after each request.
    pub width: usize,
    /// Whether every prefix is tried, not only those that promise something.
    pub every_prefix: bool,
}

impl Effort {
    /// What a problem of this size is worth.
    pub(super) fn for_size_of(board: &Board) -> Self {
        let lanes = board.lane_maxima.len();
        // A raise copies a state's watermarks; every lane is raised at least once.
        let work = board.requests.len() + lanes * lanes / 8;
        let pairs: u64 = board.requests.iter().map(|r| r.capacity_blocks + 1).sum();
        Self {
            width: (WORK_MAX / work.max(1)).min(WIDTH_MAX),
            every_prefix: pairs <= EVERY_PREFIX_MAX,
        }
    }
}

/// The best schedule found, never worse than `greedy`.
pub(super) fn improve(board: &Board, greedy: Vec<u64>, effort: Effort) -> (Vec<u64>, Optimality) {
    if effort.width < 2 {
        return (greedy, Optimality::Bounded);
    }
    let fallback = walk(board, &greedy);
    let first = search(board, effort, None);
    let limit = first.best.as_ref().map(|(score, _)| score.overshoot_max);
    // A state keeps one way to it, the one with the least overshoot so far. A
    // second pass that forbids larger overshoots can keep the one with the
    // least sums instead, as all its ways end with the same maximum.
    let second = match limit {
        Some(limit) if !limit.is_zero() => search(board, effort, Some(limit)),
        _ => Found {
            best: None,
            whole: true,
        },
    };
    let whole = first.whole && second.whole;
    let best = [first.best, second.best]
        .into_iter()
        .flatten()
        .min_by(|(a, _), (b, _)| a.order(b));
    match best {
        Some((score, prefixes)) if score.order(&fallback) == Ordering::Less || whole => {
            (prefixes, optimality(whole))
        }
        _ => (greedy, Optimality::Bounded),
    }
}

fn optimality(whole: bool) -> Optimality {
    if whole {
        Optimality::Proved
    } else {
        Optimality::Bounded
    }
}

/// A rate above the line's, as an exact fraction (over the total input).
#[derive(Clone, Copy, Debug)]
struct Overshoot {
    above: i128,
    input: u64,
}

impl Overshoot {
    const ZERO: Self = Self { above: 0, input: 1 };

    const fn is_zero(self) -> bool {
        self.above == 0
    }

    /// Exact: the products stay below 2^120.
    fn order(self, other: Self) -> Ordering {
        (self.above * i128::from(other.input)).cmp(&(other.above * i128::from(self.input)))
    }
}

/// The objective so far, in its order. Sums are in blocks per token.
#[derive(Clone, Copy, Debug)]
struct Score {
    overshoot_max: Overshoot,
    overshoot_sum: f64,
    gap_sum: f64,
    decline_sum: f64,
}

impl Score {
    const ZERO: Self = Self {
        overshoot_max: Overshoot::ZERO,
        overshoot_sum: 0.0,
        gap_sum: 0.0,
        decline_sum: 0.0,
    };

    fn order(&self, other: &Self) -> Ordering {
        self.overshoot_max
            .order(other.overshoot_max)
            .then(self.overshoot_sum.total_cmp(&other.overshoot_sum))
            .then(self.gap_sum.total_cmp(&other.gap_sum))
            .then(self.decline_sum.total_cmp(&other.decline_sum))
    }

    /// The score after request `index`, from `before` to `after` blocks.
    fn after(mut self, board: &Board, index: usize, before: u64, after: u64) -> Self {
        let input = board.input_sums[index];
        if input == 0 {
            return self;
        }
        let total = (board.total_blocks.into(), board.total_input.into());
        let above = above_line((after, input), total);
        let rate = above as f64 / board.total_input as f64 / input as f64;
        if above > 0 {
            let overshoot = Overshoot { above, input };
            if self.overshoot_max.order(overshoot) == Ordering::Less {
                self.overshoot_max = overshoot;
            }
            self.overshoot_sum += rate;
        } else {
            self.gap_sum -= rate;
        }
        let input_before = input - board.requests[index].input_tokens;
        self.decline_sum += decline((before, input_before), (after, input));
        self
    }
}

/// Where a schedule can be after some request.
#[derive(Clone, Debug)]
struct State {
    hits: u64,
    /// By how much the largest total still in reach exceeds the chosen one.
    slack: u64,
    /// Σ over lanes of what later capacities exceed the watermark by; at 0
    /// every later hit is open in every lane.
    shortfall: u64,
    watermarks: Rc<[u64]>,
    /// Sum of a mix of each (lane, watermark).
    digest: u64,
    score: Score,
    /// Index into the trail.
    node: u32,
}

impl State {
    fn start(board: &Board) -> Self {
        Self {
            hits: 0,
            slack: board.cold_max() - board.total_blocks,
            shortfall: board.lane_maxima.iter().sum(),
            watermarks: vec![0; board.lane_maxima.len()].into(),
            digest: 0,
            score: Score::ZERO,
            node: u32::MAX,
        }
    }

    fn after(&self, board: &Board, index: usize, step: Step) -> Self {
        let request = board.requests[index];
        let lane = request.lane as usize;
        let watermark = self.watermarks[lane];
        let later_max = board.later_maxima[index];
        let mut next = self.clone();
        next.hits += step.hit;
        next.slack -= step.waste;
        next.shortfall -= request
            .capacity_blocks
            .max(later_max)
            .saturating_sub(watermark);
        next.shortfall += later_max.saturating_sub(step.watermark);
        next.score = self.score.after(board, index, self.hits, next.hits);
        if step.watermark != watermark {
            let mut watermarks = self.watermarks.to_vec();
            watermarks[lane] = step.watermark;
            next.watermarks = watermarks.into();
            next.digest = self
                .digest
                .wrapping_sub(mix(lane, watermark))
                .wrapping_add(mix(lane, step.watermark));
        }
        next
    }

    /// Where every later hit is open, watermarks no longer matter.
    fn key(&self) -> (u64, u64) {
        (self.hits, if self.shortfall == 0 { 0 } else { self.digest })
    }

    fn same_place(&self, other: &Self) -> bool {
        self.hits == other.hits
            && (self.shortfall == 0 && other.shortfall == 0 || self.watermarks == other.watermarks)
    }
}

/// The finalizer of splitmix64 (Steele, Lea and Flood 2014); 0 for a watermark
/// of 0, so that an untouched lane adds nothing.
fn mix(lane: usize, watermark: u64) -> u64 {
    if watermark == 0 {
        return 0;
    }
    let mut bits = (lane as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(watermark.wrapping_mul(0xd6e8_feb8_6659_fd93));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

struct Found {
    best: Option<(Score, Vec<u64>)>,
    /// Nothing was left out.
    whole: bool,
}

/// Searches schedules whose overshoot stays within `limit`.
fn search(board: &Board, effort: Effort, limit: Option<Overshoot>) -> Found {
    let Effort {
        width,
        every_prefix,
    } = effort;
    let mut whole = every_prefix;
    let mut trail: Vec<(u32, u64)> = Vec::with_capacity(board.requests.len() * width / 2);
    let mut states = vec![State::start(board)];
    let mut children = Vec::new();
    for index in 0..board.requests.len() {
        for state in &states {
            for step in steps(board, index, state, every_prefix) {
                let child = state.after(board, index, step);
                let over = |limit: Overshoot| child.score.overshoot_max.order(limit).is_gt();
                if !limit.is_some_and(over) {
                    children.push((child, step.prefix));
                }
            }
        }
        whole &= select(&mut children, width);
        states.clear();
        for (mut child, prefix) in children.drain(..) {
            let node = u32::try_from(trail.len()).expect("width times requests is bounded");
            trail.push((child.node, prefix));
            child.node = node;
            states.push(child);
        }
    }
    let best = states.iter().min_by(|a, b| a.score.order(&b.score));
    Found {
        best: best.map(|state| (state.score, follow(&trail, state.node))),
        whole,
    }
}

/// The steps worth trying at request `index`.
fn steps(board: &Board, index: usize, state: &State, every_prefix: bool) -> Vec<Step> {
    let request = board.requests[index];
    let watermark = state.watermarks[request.lane as usize];
    let capacity = request.capacity_blocks;
    let step = |prefix| board.step(index, watermark, prefix);
    let possible =
        |step: &Step| step.waste <= state.slack && state.hits + step.hit <= board.total_blocks;
    if every_prefix {
        return (0..=capacity).map(step).filter(possible).collect();
    }
    let greedy = greedy::choose(board, index, watermark, state.hits, state.slack);
    if state.shortfall == 0 {
        return vec![greedy];
    }
    let mut prefixes = Vec::with_capacity(4);
    if watermark < capacity {
        // A full hit with and without raising the watermark.
        prefixes.extend([watermark, capacity]);
    }
    prefixes.extend(saving(board, index, state).filter(|&prefix| prefix < greedy.hit));
    let others = prefixes
        .into_iter()
        .map(step)
        .filter(|other| possible(other) && other.prefix != greedy.prefix);
    std::iter::once(greedy).chain(others).collect()
}

/// The hit that leaves room below the line for the next request to raise its
/// lane's watermark.
fn saving(board: &Board, index: usize, state: &State) -> impl Iterator<Item = u64> {
    let next = board.requests.get(index + 1).and_then(|next| {
        let watermark = state.watermarks[next.lane as usize];
        let raises = watermark < next.capacity_blocks && next.lane != board.requests[index].lane;
        raises.then_some(watermark)
    });
    next.and_then(|watermark| board.line_floors[index + 1].checked_sub(state.hits + watermark))
        .into_iter()
}

/// Keeps the best way to each state and the best `width` states, a quarter of
/// them those with the highest watermarks. False when a state was left out.
fn select(children: &mut Vec<(State, u64)>, width: usize) -> bool {
    children.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()).then(a.score.order(&b.score)));
    children.dedup_by(|(later, _), (kept, _)| later.same_place(kept));
    if children.len() <= width {
        return true;
    }
    let ahead = width - width / 4;
    children.select_nth_unstable_by(ahead, |(a, _), (b, _)| by_score(a, b));
    children[ahead..].sort_by(|(a, _), (b, _)| a.shortfall.cmp(&b.shortfall).then(by_score(a, b)));
    children.truncate(width);
    false
}

fn by_score(a: &State, b: &State) -> Ordering {
    a.score.order(&b.score).then(a.key().cmp(&b.key()))
}

fn follow(trail: &[(u32, u64)], last: u32) -> Vec<u64> {
    let mut prefixes = Vec::new();
    let mut node = last;
    while let Some(&(parent, prefix)) = trail.get(node as usize) {
        prefixes.push(prefix);
        node = parent;
    }
    prefixes.reverse();
    prefixes
}

fn walk(board: &Board, prefixes: &[u64]) -> Score {
    let mut watermarks = vec![0_u64; board.lane_maxima.len()];
    let (mut hits, mut score) = (0, Score::ZERO);
    for (index, &prefix) in prefixes.iter().enumerate() {
        let watermark = &mut watermarks[board.requests[index].lane as usize];
        let before = hits;
        hits += prefix.min(*watermark);
        *watermark = prefix.max(*watermark);
        score = score.after(board, index, before, hits);
    }
    score
}
