//! One stage of a load plan, in numbers. It decides nothing.

use std::time::Duration;

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
