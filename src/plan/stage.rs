//! A load plan and its stages, in numbers. They decide nothing.

use std::time::Duration;

/// The stages of a run, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// At least one.
    pub stages: Vec<PlannedStage>,
    /// Requests of the data set.
    pub request_count: usize,
    /// Leading requests of the send order that are kept out of the statistics.
    pub warmup_requests: usize,
    /// Trailing requests that are kept out of the statistics, counted from
    /// `planned_requests`.
    pub cooldown_requests: usize,
    /// Requests the stages take; the whole data set where that is open.
    pub planned_requests: usize,
    /// Whether the run may end before the data set does.
    pub partial: bool,
}

impl LoadPlan {
    /// A closed loop over the whole data set.
    pub fn closed(concurrency: u32, request_count: usize) -> Self {
        let pace = Pace::Closed {
            from: concurrency,
            concurrency,
            ramp: Duration::ZERO,
        };
        Self::one_stage(pace, request_count)
    }

    /// One stage over the whole data set.
    pub fn one_stage(pace: Pace, request_count: usize) -> Self {
        Self {
            stages: vec![PlannedStage {
                pace,
                end: PlannedEnd::Rest,
            }],
            request_count,
            warmup_requests: 0,
            cooldown_requests: 0,
            planned_requests: request_count,
            partial: false,
        }
    }

    /// Most requests that a stage can have in flight: no more than the data set
    /// has.
    pub fn most_in_flight(&self) -> usize {
        let of_stage = |stage: &PlannedStage| match &stage.pace {
            Pace::Closed {
                from, concurrency, ..
            } => (*from).max(*concurrency) as usize,
            Pace::Open {
                arrivals_ns,
                max_in_flight,
                ..
            } => max_in_flight.map_or(arrivals_ns.len(), |limit| limit as usize),
        };
        let most = self.stages.iter().map(of_stage).max().unwrap_or(0);
        most.min(self.request_count)
    }
}

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStage {
    /// How requests are released.
    pub pace: Pace,
    /// How the stage ends.
    pub end: PlannedEnd,
}

/// How a stage ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedEnd {
    /// When so many requests of it have been sent.
    Requests(usize),
    /// So long after its start; what has not been sent goes to the next stage.
    Duration(Duration),
    /// When the data set is used up.
    Rest,
}

/// How a stage releases requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// A request for each free slot.
    Closed {
        /// Slots at the start of the stage.
        from: u32,
        /// Slots at the end of the ramp.
        concurrency: u32,
        /// Time in which the slots change linearly.
        ramp: Duration,
    },
    /// A request at each arrival.
    Open {
        /// Offsets from the start of the stage in nanoseconds, ascending. The
        /// stage takes exactly as many requests.
        arrivals_ns: Vec<u64>,
        /// Length of the stage in nanoseconds; the next one begins there.
        length_ns: u64,
        /// Most requests in flight.
        max_in_flight: Option<u32>,
        /// Arrivals per second as asked for; `None` for a trace and for all at
        /// once.
        rate_per_second: Option<f64>,
    },
}

/// Why a profile does not fit a data set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadPlanError {
    /// A stage asks for more than is left.
    #[error("stages[{stage}] takes {wanted} requests, {left} of the data set are left")]
    TooFew {
        /// Which stage, from 0.
        stage: usize,
        /// Requests it asks for.
        wanted: usize,
        /// Requests that are left.
        left: usize,
    },
    /// Requests would be left over.
    #[error(
        "the profile takes {taken} of {total} requests; let the last stage take the rest, or set `partial = true`"
    )]
    Unused {
        /// Requests the stages take.
        taken: usize,
        /// Requests of the data set.
        total: usize,
    },
    /// A closed stage that ends by time may leave requests over.
    #[error(
        "the profile may end before the data set does; let the last stage take the rest, or set `partial = true`"
    )]
    MayEndEarly,
    /// The end of the run is not known beforehand.
    #[error("`cooldown_requests` needs stages that end by requests")]
    CooldownUnknown,
    /// Nothing would be measured.
    #[error(
        "`warmup_requests` and `cooldown_requests` together exclude {excluded} of {planned} requests"
    )]
    NothingMeasured {
        /// Requests kept out.
        excluded: usize,
        /// Requests the stages take.
        planned: usize,
    },
}

impl LoadPlanError {
    /// Stable code.
    pub fn code(&self) -> &'static str {
        "PROFILE_DOES_NOT_FIT"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(arrivals: usize, max_in_flight: Option<u32>) -> Pace {
        Pace::Open {
            arrivals_ns: vec![0; arrivals],
            length_ns: 0,
            max_in_flight,
            rate_per_second: None,
        }
    }

    #[test]
    fn most_in_flight_is_the_widest_stage_and_never_more_than_the_data_set() {
        let most = |pace, count| LoadPlan::one_stage(pace, count).most_in_flight();
        let ramp = |from, concurrency| Pace::Closed {
            from,
            concurrency,
            ramp: Duration::from_secs(1),
        };
        assert_eq!(most(ramp(8, 2), 100), 8);
        assert_eq!(most(ramp(2, 8), 100), 8);
        assert_eq!(most(ramp(2, 800), 100), 100);
        assert_eq!(most(open(30, None), 100), 30);
        assert_eq!(most(open(30, Some(4)), 100), 4);

        let mut plan = LoadPlan::closed(3, 100);
        plan.stages.push(PlannedStage {
            pace: open(60, Some(7)),
            end: PlannedEnd::Rest,
        });
        assert_eq!(plan.most_in_flight(), 7);
    }
}
