//! A load profile laid over a data set: which stage takes how many requests,
//! and all arrival times. Numbers only; it waits for nothing.

use std::time::Duration;

use super::arrivals::{ArrivalLaw, draw};
use super::stage::{LoadPlan, LoadPlanError, Pace, PlannedEnd, PlannedStage};
use crate::rng::Seed;
use crate::scenario::{Arrival, LoadProfile, Stage, StageEnd, StageLoad};

impl LoadPlan {
    /// Lays `profile` over `request_count` requests and draws all arrivals from
    /// `seed` (streams `arrivals/stage-<index>`).
    pub fn new(
        profile: &LoadProfile,
        request_count: usize,
        seed: &Seed,
    ) -> Result<Self, LoadPlanError> {
        let mut laying = Laying {
            total: request_count,
            left: request_count,
            percent: 0.0,
            is_exact: true,
            concurrency: 1,
        };
        let mut stages = Vec::new();
        for (index, stage) in profile.stages.iter().enumerate() {
            stages.push(laying.stage(index, stage, seed)?);
        }
        let taken = request_count - laying.left;
        let ends_with_rest = matches!(stages.last(), Some(stage) if stage.end == PlannedEnd::Rest);
        if !profile.partial && !ends_with_rest {
            if !laying.is_exact {
                return Err(LoadPlanError::MayEndEarly);
            }
            if laying.left > 0 {
                return Err(LoadPlanError::Unused {
                    taken,
                    total: request_count,
                });
            }
        }
        let is_known = laying.is_exact || (ends_with_rest && laying.left == 0);
        if profile.cooldown_requests > 0 && !is_known {
            return Err(LoadPlanError::CooldownUnknown);
        }
        let planned_requests = if is_known { taken } else { request_count };
        let excluded = profile
            .warmup_requests
            .saturating_add(profile.cooldown_requests);
        if excluded > 0 && excluded >= planned_requests {
            return Err(LoadPlanError::NothingMeasured {
                excluded,
                planned: planned_requests,
            });
        }
        Ok(Self {
            stages,
            request_count,
            warmup_requests: profile.warmup_requests,
            cooldown_requests: profile.cooldown_requests,
            planned_requests,
            partial: profile.partial,
        })
    }
}

/// What is left while stages are laid one after the other.
struct Laying {
    total: usize,
    /// Requests no stage has taken; an upper bound once `is_exact` is false.
    left: usize,
    /// Sum of the shares so far.
    percent: f64,
    /// Whether each stage so far takes a number of requests known beforehand.
    is_exact: bool,
    /// Concurrency at the end of the stage before.
    concurrency: u32,
}

impl Laying {
    fn stage(
        &mut self,
        index: usize,
        stage: &Stage,
        seed: &Seed,
    ) -> Result<PlannedStage, LoadPlanError> {
        let wanted = self.wanted(index, stage)?;
        let limit = match stage.end {
            StageEnd::Duration(duration) => Some(duration),
            _ => None,
        };
        let available = wanted.unwrap_or(self.left);
        let pace = match &stage.load {
            StageLoad::Closed { concurrency, ramp } => {
                return Ok(self.closed(*concurrency, *ramp, stage.end, wanted));
            }
            StageLoad::Open {
                rate,
                arrival,
                max_in_flight,
            } => {
                let label = format!("arrivals/stage-{index}");
                let law = law(*arrival);
                let (arrivals_ns, length_ns) = draw(law, *rate, available, limit, seed, &label);
                Pace::Open {
                    arrivals_ns,
                    length_ns,
                    max_in_flight: *max_in_flight,
                    rate_per_second: rate.is_finite().then_some(*rate),
                }
            }
            StageLoad::Trace {
                times,
                max_in_flight,
            } => trace(times, available, limit, *max_in_flight),
        };
        let Pace::Open { arrivals_ns, .. } = &pace else {
            unreachable!("closed stages have returned");
        };
        let count = arrivals_ns.len();
        if let (Some(wanted), false) = (wanted, count == available) {
            // A trace that is shorter than what the stage asks for.
            return Err(LoadPlanError::TooFew {
                stage: index,
                wanted,
                left: count,
            });
        }
        self.left -= count;
        let end = match stage.end {
            StageEnd::Rest if self.left == 0 => PlannedEnd::Rest,
            StageEnd::Duration(duration) => PlannedEnd::Duration(duration),
            _ => PlannedEnd::Requests(count),
        };
        Ok(PlannedStage { pace, end })
    }

    /// Requests the stage asks for by number; `None` for as many as come.
    fn wanted(&mut self, stage: usize, planned: &Stage) -> Result<Option<usize>, LoadPlanError> {
        let wanted = match planned.end {
            StageEnd::Requests(count) => count,
            StageEnd::Percent(percent) => {
                let before = share(self.total, self.percent);
                self.percent += percent;
                share(self.total, self.percent) - before
            }
            StageEnd::Duration(_) | StageEnd::Rest => return Ok(None),
        };
        if wanted > self.left {
            return Err(LoadPlanError::TooFew {
                stage,
                wanted,
                left: self.left,
            });
        }
        Ok(Some(wanted))
    }

    fn closed(
        &mut self,
        concurrency: u32,
        ramp: Duration,
        end: StageEnd,
        wanted: Option<usize>,
    ) -> PlannedStage {
        let from = if ramp.is_zero() {
            concurrency
        } else {
            self.concurrency
        };
        self.concurrency = concurrency;
        let end = match (end, wanted) {
            (StageEnd::Duration(duration), _) => {
                self.is_exact = false;
                PlannedEnd::Duration(duration)
            }
            (_, Some(count)) => {
                self.left -= count;
                PlannedEnd::Requests(count)
            }
            (_, None) => {
                self.left = 0;
                PlannedEnd::Rest
            }
        };
        PlannedStage {
            pace: Pace::Closed {
                from,
                concurrency,
                ramp,
            },
            end,
        }
    }
}

/// `percent` of `total`, rounded down; all of it from 100 on.
fn share(total: usize, percent: f64) -> usize {
    if percent >= 100.0 {
        return total;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most `total`, and not negative"
    )]
    let share = (total as f64 * percent / 100.0).floor() as usize;
    share
}

fn law(arrival: Arrival) -> ArrivalLaw {
    match arrival {
        Arrival::Constant => ArrivalLaw::Constant,
        Arrival::Poisson => ArrivalLaw::Poisson,
        Arrival::Gamma { burstiness } => ArrivalLaw::Gamma { burstiness },
    }
}

fn trace(
    times: &[Duration],
    available: usize,
    limit: Option<Duration>,
    max_in_flight: Option<u32>,
) -> Pace {
    let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let arrivals_ns: Vec<u64> = times
        .iter()
        .filter(|time| limit.is_none_or(|limit| **time < limit))
        .take(available)
        .map(nanos)
        .collect();
    let last = arrivals_ns.last().copied().unwrap_or(0);
    Pace::Open {
        length_ns: limit.as_ref().map_or(last, nanos),
        arrivals_ns,
        max_in_flight,
        rate_per_second: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(concurrency: u32, end: StageEnd) -> Stage {
        let ramp = Duration::ZERO;
        Stage {
            load: StageLoad::Closed { concurrency, ramp },
            end,
        }
    }

    fn open(rate: f64, end: StageEnd) -> Stage {
        let load = StageLoad::Open {
            rate,
            arrival: Arrival::Constant,
            max_in_flight: None,
        };
        Stage { load, end }
    }

    fn lay(stages: Vec<Stage>, partial: bool, count: usize) -> Result<LoadPlan, LoadPlanError> {
        let profile = LoadProfile {
            stages,
            warmup_requests: 0,
            cooldown_requests: 0,
            partial,
        };
        LoadPlan::new(&profile, count, &Seed::from(1))
    }

    #[test]
    fn shares_take_the_whole_data_set() {
        let third = || closed(1, StageEnd::Percent(100.0 / 3.0));
        let plan = lay(vec![third(), third(), closed(1, StageEnd::Rest)], false, 10).unwrap();
        let ends: Vec<PlannedEnd> = plan.stages.iter().map(|stage| stage.end).collect();
        assert_eq!(
            ends,
            [
                PlannedEnd::Requests(3),
                PlannedEnd::Requests(3),
                PlannedEnd::Rest
            ]
        );
        assert_eq!(plan.planned_requests, 10);
    }

    #[test]
    fn a_profile_must_fit_the_data_set() {
        let ten = || closed(1, StageEnd::Requests(10));
        assert_eq!(
            lay(vec![ten(), ten()], false, 15),
            Err(LoadPlanError::TooFew {
                stage: 1,
                wanted: 10,
                left: 5
            })
        );
        assert_eq!(
            lay(vec![ten()], false, 15),
            Err(LoadPlanError::Unused {
                taken: 10,
                total: 15
            })
        );
        assert_eq!(lay(vec![ten()], true, 15).unwrap().planned_requests, 10);
        let timed = || closed(1, StageEnd::Duration(Duration::from_secs(1)));
        assert_eq!(
            lay(vec![timed()], false, 5),
            Err(LoadPlanError::MayEndEarly)
        );
        assert!(lay(vec![timed(), closed(1, StageEnd::Rest)], false, 5).is_ok());
        let second = StageEnd::Duration(Duration::from_secs(1));
        assert_eq!(
            lay(vec![open(4.0, second)], false, 5),
            Err(LoadPlanError::Unused { taken: 4, total: 5 })
        );
        assert!(lay(vec![open(4.0, second)], false, 4).is_ok());
    }

    #[test]
    fn a_ramp_begins_where_the_stage_before_ended() {
        let ramp = Duration::from_secs(1);
        let load = |concurrency| StageLoad::Closed { concurrency, ramp };
        let stages = vec![
            Stage {
                load: load(8),
                end: StageEnd::Requests(1),
            },
            Stage {
                load: load(2),
                end: StageEnd::Rest,
            },
        ];
        let plan = lay(stages, false, 5).unwrap();
        let from = |stage: &PlannedStage| match stage.pace {
            Pace::Closed {
                from, concurrency, ..
            } => (from, concurrency),
            Pace::Open { .. } => panic!("closed"),
        };
        assert_eq!(
            plan.stages.iter().map(from).collect::<Vec<_>>(),
            [(1, 8), (8, 2)]
        );
    }

    #[test]
    fn a_trace_must_be_long_enough() {
        let stage = |end| Stage {
            load: StageLoad::Trace {
                times: vec![Duration::ZERO, Duration::from_millis(5)],
                max_in_flight: None,
            },
            end,
        };
        assert_eq!(
            lay(vec![stage(StageEnd::Rest)], false, 3),
            Err(LoadPlanError::Unused { taken: 2, total: 3 })
        );
        assert_eq!(
            lay(vec![stage(StageEnd::Requests(3))], true, 3),
            Err(LoadPlanError::TooFew {
                stage: 0,
                wanted: 3,
                left: 2
            })
        );
        let plan = lay(vec![stage(StageEnd::Rest)], false, 2).unwrap();
        assert!(matches!(
            &plan.stages[0].pace,
            Pace::Open { arrivals_ns, .. } if *arrivals_ns == [0, 5_000_000]
        ));
    }

    #[test]
    fn exclusions_need_a_known_end_and_something_left() {
        let profile = |stages, warmup_requests, cooldown_requests| LoadProfile {
            stages,
            warmup_requests,
            cooldown_requests,
            partial: true,
        };
        let seed = Seed::from(1);
        let rest = || vec![closed(1, StageEnd::Rest)];
        assert!(LoadPlan::new(&profile(rest(), 2, 2), 5, &seed).is_ok());
        assert_eq!(
            LoadPlan::new(&profile(rest(), 3, 2), 5, &seed),
            Err(LoadPlanError::NothingMeasured {
                excluded: 5,
                planned: 5
            })
        );
        let timed = vec![closed(1, StageEnd::Duration(Duration::from_secs(1)))];
        assert_eq!(
            LoadPlan::new(&profile(timed, 0, 1), 5, &seed),
            Err(LoadPlanError::CooldownUnknown)
        );
    }
}
