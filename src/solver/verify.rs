//! Re-checks a solution from nothing but its problem. It shares no arithmetic
//! with the search: hits are replayed, the maximum is played at full capacity,
//! and the nearest total is judged by comparing distances.

use std::collections::BTreeMap;

use super::{Instance, LaneCapacity, Objective, Solution, Start, objective};

/// Figures are sums of one term a request; recomputing them in the same order
/// may differ by rounding only.
const OBJECTIVE_TOLERANCE: f64 = 1e-9;

/// What is wrong with a solution or its certificate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CertificateError {
    /// A prefix is missing or too many.
    #[error("the schedule has {prefixes} prefixes for {requests} requests")]
    Length {
        /// Prefixes in the schedule.
        prefixes: usize,
        /// Requests in the problem.
        requests: usize,
    },
    /// A prefix is longer than the request allows.
    #[error("request {index} shares {prefix_blocks} blocks, more than its {capacity_blocks}")]
    AboveCapacity {
        /// Place in the send order.
        index: usize,
        /// In the schedule.
        prefix_blocks: u64,
        /// In the problem.
        capacity_blocks: u64,
    },
    /// Replaying the schedule finds another total.
    #[error("the schedule hits {replayed} blocks, the solution says {stated}")]
    Total {
        /// By replay.
        replayed: u64,
        /// In the solution.
        stated: u64,
    },
    /// The stated maximum is not what full prefixes give.
    #[error("at most {replayed} blocks are reachable, the solution says {stated}")]
    Maximum {
        /// By replay.
        replayed: u64,
        /// In the solution.
        stated: u64,
    },
    /// Another reachable total is nearer to the target.
    #[error("a total of {nearer} blocks is nearer to the target than {stated}")]
    NotNearest {
        /// The better one.
        nearer: u64,
        /// In the solution.
        stated: u64,
    },
    /// A lane's stated figures are wrong.
    #[error("lane {lane} is described wrongly")]
    Lane {
        /// Its index.
        lane: u32,
    },
    /// A stated figure of the objective is wrong.
    #[error("{figure} is {recomputed}, the certificate says {stated}")]
    Objective {
        /// Its name.
        figure: &'static str,
        /// From the schedule.
        recomputed: f64,
        /// In the certificate.
        stated: f64,
    },
}

impl CertificateError {
    /// The stable code of the error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Length { .. } => "SCHEDULE_LENGTH",
            Self::AboveCapacity { .. } => "PREFIX_ABOVE_CAPACITY",
            Self::Total { .. } => "HIT_TOTAL_WRONG",
            Self::Maximum { .. } => "REACHABLE_MAX_WRONG",
            Self::NotNearest { .. } => "TOTAL_NOT_NEAREST",
            Self::Lane { .. } => "LANE_CAPACITY_WRONG",
            Self::Objective { .. } => "OBJECTIVE_WRONG",
        }
    }
}

/// Checks everything a solution states, the optimality of its objective apart.
pub fn verify(instance: &Instance, solution: &Solution) -> Result<(), CertificateError> {
    check_prefixes(instance, &solution.prefix_blocks)?;
    let replayed = play(instance, |index| solution.prefix_blocks[index]);
    if replayed != solution.total_blocks {
        return Err(CertificateError::Total {
            replayed,
            stated: solution.total_blocks,
        });
    }
    let most = play(instance, |index| instance.requests[index].capacity_blocks);
    if most != solution.max_blocks {
        return Err(CertificateError::Maximum {
            replayed: most,
            stated: solution.max_blocks,
        });
    }
    check_nearest(instance, solution)?;
    check_lanes(instance, &solution.certificate.lanes)?;
    let recomputed = objective::measure(instance, &solution.prefix_blocks);
    check_objective(&recomputed, &solution.certificate.objective)
}

fn check_prefixes(instance: &Instance, prefixes: &[u64]) -> Result<(), CertificateError> {
    if prefixes.len() != instance.requests.len() {
        return Err(CertificateError::Length {
            prefixes: prefixes.len(),
            requests: instance.requests.len(),
        });
    }
    for (index, (request, &prefix_blocks)) in instance.requests.iter().zip(prefixes).enumerate() {
        if prefix_blocks > request.capacity_blocks {
            return Err(CertificateError::AboveCapacity {
                index,
                prefix_blocks,
                capacity_blocks: request.capacity_blocks,
            });
        }
    }
    Ok(())
}

/// Hits of the schedule `prefix(index)`, in blocks.
fn play(instance: &Instance, prefix: impl Fn(usize) -> u64) -> u64 {
    let mut watermarks: BTreeMap<u32, u64> = BTreeMap::new();
    let mut hits = 0;
    for (index, request) in instance.requests.iter().enumerate() {
        let prefix = prefix(index);
        let watermark = watermarks.entry(request.lane).or_insert(0);
        hits += match instance.start {
            Start::Warm => prefix,
            Start::Empty => prefix.min(*watermark),
        };
        *watermark = prefix.max(*watermark);
    }
    hits
}

/// Compares with one block less and one block more; distances are convex, so
/// neighbors suffice. Distances within a millionth of a block, and within the
/// rounding of the target's tokens, count as equal: here the target is the
/// double itself, not its decimal text.
fn check_nearest(instance: &Instance, solution: &Solution) -> Result<(), CertificateError> {
    let wanted = instance.target_rate * instance.total_input_tokens() as f64
        / instance.block_size.tokens() as f64;
    let distance = |blocks: u64| (blocks as f64 - wanted).abs();
    let stated = solution.total_blocks;
    let below = stated.checked_sub(1);
    let above = (stated < solution.max_blocks).then_some(stated + 1);
    for nearer in below.into_iter().chain(above) {
        if distance(nearer) < distance(stated) - 1e-6 - wanted * 1e-15 {
            return Err(CertificateError::NotNearest { nearer, stated });
        }
    }
    Ok(())
}

fn check_lanes(instance: &Instance, stated: &[LaneCapacity]) -> Result<(), CertificateError> {
    let mut members: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for request in &instance.requests {
        let member = (request.input_tokens, request.capacity_blocks);
        members.entry(request.lane).or_default().push(member);
    }
    for (lane, members) in &members {
        let largest = members.iter().map(|member| member.1).max().unwrap_or(0);
        let all: u64 = members.iter().map(|member| member.1).sum();
        let right = LaneCapacity {
            lane: *lane,
            request_count: members.len() as u64,
            input_tokens: members.iter().map(|member| member.0).sum(),
            reachable_blocks: match instance.start {
                Start::Warm => all,
                Start::Empty => all - largest,
            },
        };
        if !stated.contains(&right) {
            return Err(CertificateError::Lane { lane: *lane });
        }
    }
    match stated.iter().find(|lane| !members.contains_key(&lane.lane)) {
        Some(extra) => Err(CertificateError::Lane { lane: extra.lane }),
        None => Ok(()),
    }
}

fn check_objective(recomputed: &Objective, stated: &Objective) -> Result<(), CertificateError> {
    let figures = |objective: &Objective| {
        [
            ("overshoot_max", objective.overshoot_max),
            ("overshoot_sum", objective.overshoot_sum),
            ("gap_sum", objective.gap_sum),
            ("decline_sum", objective.decline_sum),
            ("distance_max_blocks", objective.distance_max_blocks),
        ]
    };
    for ((figure, recomputed), (_, stated)) in figures(recomputed).into_iter().zip(figures(stated))
    {
        let tolerance = OBJECTIVE_TOLERANCE * recomputed.abs().max(1.0);
        let difference = (recomputed - stated).abs();
        if difference.is_nan() || difference > tolerance {
            return Err(CertificateError::Objective {
                figure,
                recomputed,
                stated,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::{Request, assess, solve};
    use crate::units::BlockSize;

    fn problem(start: Start) -> Instance {
        let request = |(capacity_blocks, lane)| Request {
            input_tokens: 16 * (capacity_blocks + 1),
            capacity_blocks,
            lane,
        };
        let requests = [(3, 0), (5, 1), (4, 0), (5, 1), (2, 0), (6, 1)];
        Instance {
            start,
            block_size: BlockSize::new(16).unwrap(),
            target_rate: 0.4,
            requests: requests.into_iter().map(request).collect(),
        }
    }

    fn broken(start: Start, change: impl Fn(&mut Solution)) -> &'static str {
        let problem = problem(start);
        let mut solution = solve(&problem).unwrap();
        assert_eq!(verify(&problem, &solution), Ok(()));
        change(&mut solution);
        verify(&problem, &solution).unwrap_err().code()
    }

    #[test]
    fn each_false_statement_is_found() {
        for start in [Start::Empty, Start::Warm] {
            let check = |expected, change: &dyn Fn(&mut Solution)| {
                assert_eq!(broken(start, change), expected);
            };
            check("SCHEDULE_LENGTH", &|s| s.prefix_blocks.truncate(3));
            check("PREFIX_ABOVE_CAPACITY", &|s| s.prefix_blocks[4] = 3);
            check("HIT_TOTAL_WRONG", &|s| s.total_blocks += 1);
            check("HIT_TOTAL_WRONG", &|s| s.prefix_blocks.fill(0));
            check("REACHABLE_MAX_WRONG", &|s| s.max_blocks -= 1);
            check("LANE_CAPACITY_WRONG", &|s| {
                s.certificate.lanes[0].reachable_blocks += 1;
            });
            check("LANE_CAPACITY_WRONG", &|s| {
                let mut extra = s.certificate.lanes[0];
                extra.lane = 9;
                s.certificate.lanes.push(extra);
            });
            check("LANE_CAPACITY_WRONG", &|s| s.certificate.lanes.clear());
            check("OBJECTIVE_WRONG", &|s| {
                s.certificate.objective.gap_sum += 1e-6;
            });
            check("OBJECTIVE_WRONG", &|s| {
                s.certificate.objective.decline_sum = f64::NAN;
            });
        }
    }

    #[test]
    fn a_total_that_is_not_the_nearest_is_found() {
        let problem = problem(Start::Warm);
        let nearest = solve(&problem).unwrap();
        let mut prefixes = nearest.prefix_blocks.clone();
        let at = prefixes.iter().position(|&prefix| prefix > 0).unwrap();
        prefixes[at] -= 1;
        let other = assess(&problem, prefixes).unwrap();
        assert_eq!(
            verify(&problem, &other),
            Err(CertificateError::NotNearest {
                nearer: nearest.total_blocks,
                stated: nearest.total_blocks - 1
            })
        );
    }
}
