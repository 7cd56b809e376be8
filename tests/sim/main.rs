//! The simulated server through its HTTP face, on paused time and streams
//! inside the process; `sockets` alone has real ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "edge: a test has a clock (paused) and fails by panicking"
)]

mod by_hand;
mod compare;
mod conformance;
mod counters;
mod faults;
mod limits;
mod model;
mod operator;
mod serving;
mod sockets;
mod stops;
mod table;
mod wire;
