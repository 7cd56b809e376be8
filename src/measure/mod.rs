//! The request record and what is derived from its stamps. The room has never
//! heard of HTTP: it is given stamps and facts, whoever took them.

pub mod aisbench;
mod calibration;
mod derive;
mod logs;
mod record;
mod recorder;

#[cfg(test)]
mod derive_tests;
#[cfg(test)]
pub(crate) mod sample;

pub use calibration::{
    Calibration, CalibrationError, SeenLoad, ServerTruth, calibration, seen_load,
};
pub use derive::{Derived, TokenSource, derive, gaps};
pub use logs::interval_logs;
pub use record::{
    Attempt, Failure, FailureKind, Outcome, RequestRecord, StatsPhase, TimestampSource, Usage,
};
pub use recorder::LiveHistogram;
