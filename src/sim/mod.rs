//! A simulated vLLM: prefix cache, scheduler, metrics and HTTP face, close
//! enough to the recorded servers that a client cannot tell them apart by
//! anything that matters for a benchmark. It refuses to know what is measured
//! against it.
//!
//! `engine` is a pure state machine on virtual time; the driver lets the time
//! pass, and the HTTP face turns requests into sequences and what the engine
//! delivers into answers:
//!
//! ```text
//! http → wire → prepare → engine → mail → mailbox → events → stream → line → client
//!                            ↑                           ↓
//!                          driver                      body
//! ```

mod alarm;
mod answers;
mod body;
mod config;
mod control;
mod core;
mod driver;
mod engine;
mod events;
mod faults;
mod generate;
mod http;
mod line;
mod mail;
mod mailbox;
mod mishap;
mod model;
mod operator;
mod page;
mod plain;
mod prepare;
mod refusal;
mod reply;
mod server;
mod stop;
mod stream;
mod toy;
mod traceback;
mod truth;
mod wire;

pub use config::{
    Answers, Config, CostModel, External, Hybrid, LookupCounting, Pace, Release, SimError,
};
pub use faults::Faults;
pub use server::Server;
pub use toy::Toy;
pub use truth::truth_schema;
