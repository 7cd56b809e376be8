//! A simulated vLLM: prefix cache, scheduler, metrics and HTTP face, close
//! enough to the recorded servers that a client cannot tell them apart by
//! anything that matters for a benchmark. It refuses to know what is measured
//! against it.
//!
//! `engine` is a pure state machine on virtual time; the HTTP face feeds it.

mod config;
mod engine;

pub use config::{
    Answers, Config, CostModel, External, Faults, Hybrid, LookupCounting, Pace, Release, SimError,
};
