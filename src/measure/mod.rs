//! The request record and what is derived from its stamps. The room has never
//! heard of HTTP: it is given stamps and facts, whoever took them.

mod record;
mod recorder;

pub use record::{
    Attempt, Failure, FailureKind, Outcome, RequestRecord, StatsPhase, TimestampSource, Usage,
};
pub use recorder::LiveHistogram;
