//! The prefix-reuse probes: what a conversation's next turn must find in the
//! cache, and what it means when it does not. Designs and verdicts only; who
//! sends the requests and over what is none of this room's business.
//!
//! A probe passes when *every* checked turn is served the floor, never on
//! average: the failure it looks for is a clean 0 % that an average hides.

mod assess;
mod block;
mod calibration;
mod compare;
mod design;
mod document;
mod floor;
mod knee;
mod notes;
mod record;
mod verdict;

pub use assess::{
    Basis, DoseRun, NeedleRun, judge_doses, judge_needles, knee_of, pool_tokens, sum_up,
};
pub use block::{BlockDecision, BlockEvidence, BlockSource, decide_block};
pub use calibration::{Calibration, SIZE_TOLERANCE_RATIO, is_off};
pub use compare::{Comparison, Line, NotComparable, compare};
pub use design::{
    ANSWER_TOKENS_MAX, Design, DesignError, Doses, SIZE_TOKENS_MIN, TURN_GROWTH_TOKENS, dose_limit,
};
pub use document::{Document, DocumentWriter, pass_phrase};
pub use floor::{first_reuse_floor, next_turn_floor};
pub use knee::{Knee, KneeSearch, PoolShare};
pub use notes::{describe, why_nothing};
#[cfg(test)]
pub(crate) use record::tests::record_of;
pub use record::{
    Control, DoseCase, EngineRecord, Fact, FactSource, NeedleCase, PROBE_SCHEMA_VERSION, ProbeEnd,
    ProbeKind, ProbeRecord, RequestKind, RequestRow, ReuseSource, Totals,
};
pub use verdict::{
    DoseVerdict, Judge, NeedleVerdict, ProbeVerdict, TurnFacts, TurnVerdict, conclude, judge_needle,
};
