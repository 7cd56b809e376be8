//! What a scenario may say, and what its author is told when it does not.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::panic,
    reason = "edge: tests read recorded files, fail where they cannot, and say what they skip"
)]

mod anything;
#[path = "../conform/mod.rs"]
mod conform;
mod endpoint;
mod input;
mod lengths;
mod manifest;
mod messages;
mod profile_schema;
mod reference;
mod rules;
mod schema;
mod shipped;
