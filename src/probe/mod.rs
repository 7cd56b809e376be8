//! The prefix-reuse probes: what a conversation's next turn must find in the
//! cache, and what it means when it does not. Designs and verdicts only; who
//! sends the requests and over what is none of this room's business.
//!
//! A probe passes when *every* checked turn is served the floor, never on
//! average: the failure it looks for is a clean 0 % that an average hides.

mod block;
mod document;
mod floor;
mod knee;
mod record;
mod verdict;

pub use block::{BlockDecision, BlockEvidence, BlockSource, decide_block};
pub use document::{Document, DocumentWriter, pass_phrase};
pub use floor::{first_reuse_floor, next_turn_floor, replay_reuse};
pub use knee::{Knee, KneeSearch};
pub use record::{
    Calibration, DoseCase, EngineRecord, Fact, FactSource, NeedleCase, PROBE_SCHEMA_VERSION,
    ProbeKind, ProbeRecord, RequestKind, RequestRow, ReuseSource,
};
pub use verdict::{
    DoseVerdict, Judge, NeedleVerdict, ProbeVerdict, TurnFacts, TurnVerdict, conclude, judge_needle,
};
