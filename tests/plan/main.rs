//! The plan, the solver and the theory against what the reference produced, and
//! whole plans built from scenarios.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::panic,
    reason = "edge: these tests read recorded data, and fail where they cannot"
)]

mod build;
mod golden;
mod recorded;
mod scenarios;
mod two_pass;
