//! The simulated server through its HTTP face, on paused time and streams
//! inside the process.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "edge: a test has a clock (paused) and fails by panicking"
)]

mod by_hand;
mod conformance;
mod counters;
mod faults;
mod limits;
mod model;
mod serving;
mod wire;
