//! The AISBench driver: recorded result files and definitions, and the driver
//! around a child process that is a small script.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "edge: tests read recorded files and run the program"
)]

mod child;
mod recorded;
