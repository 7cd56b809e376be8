//! Artifacts on disk: their formats against the reference plugin's own outputs,
//! the store, the search for sets to use again, and both checks.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "edge: these tests read and write sets on disk, and fail where they cannot"
)]

mod corruptions;
mod deep;
mod formats;
mod golden;
mod handmade;
mod mutations;
mod reuse;
mod runs;
mod store;
