//! The whole program against simulated servers, healthy and faulty: `pcload run`
//! as a user starts it, a server in this process, and the judgment that comes
//! out. Each fault must be found under its code, and nothing else may be.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "edge: tests start servers and programs, and fail where the world does"
)]

mod blocks;
mod codes;
mod counters;
mod endings;
mod healthy;
mod pool;
mod real;
mod reset;
mod verdict;
mod world;
