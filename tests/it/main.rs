//! The real program, run in a fresh folder as its users run it: exit status,
//! stdout, stderr, files. What the rooms do inside is tested elsewhere.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "edge: runs the program on files and loopback sockets, and fails where they do"
)]

mod bad_input;
mod bad_manifest;
mod bad_server;
#[path = "../artifacts/corruptions.rs"]
mod corruptions;
mod descriptors;
mod folder;
#[path = "../artifacts/golden.rs"]
#[allow(dead_code, reason = "the tests of the artifacts use more of it")]
mod golden;
mod interrupts;
mod mutations;
mod offline;
mod proxies;
mod recorded;
mod reuse;
mod run;
mod scenarios;
mod server;
#[path = "../docs/simulated.rs"]
#[allow(dead_code, reason = "the tests of the book use more of it")]
mod simulated;
mod usage;
