//! pcload: prefix-cache workloads, their theory, and the load that proves it.
//!
//! The library is not published; it holds the rooms of the program so that
//! benches and property tests can reach them.
//!
//! # The map
//!
//! Values flow one way, and `cli` alone carries them from room to room:
//!
//! ```text
//! scenario → plan → prompts → artifacts → drive → measure → analyze → report
//!              ↑                             ↓
//!            solver                  service ↔ (server | sim)
//! ```
//!
//! | room | side | what it is for |
//! |---|---|---|
//! | [`system`] | edge | what the system lets a process have: descriptors |
//! | [`units`] | pure | block arithmetic, ranks, groups, offsets from the start of a run |
//! | [`rng`] | pure | one seed, many independent labelled ChaCha streams |
//! | [`secret`] | pure | credentials, and how they stay out of all that is shown |
//! | [`stats`] | pure | quantiles, summaries, histograms, bootstrap intervals |
//! | [`kvcache`] | pure | the prefix cache model: hash chain, eviction |
//! | [`engine`] | pure | Prometheus text, engine adapters, counter deltas |
//! | [`tokenizer`] | edge in `load.rs` | encode, decode, identity |
//! | [`corpus`] | edge in `load.rs` | passages out of JSONL |
//! | [`scenario`] | pure | raw shape, defaults, checks, load profiles |
//! | [`solver`] | pure | nearest reachable hit total, with a certificate |
//! | [`plan`] | pure | lengths, groups, order, lanes: numbers, no text |
//! | [`theory`] | pure | expected hits per request, lane, group and rank |
//! | [`prompts`] | pure | text of exact token length for each planned request |
//! | [`measure`] | pure | the request record and what is derived from it |
//! | [`artifacts`] | edge | file formats, atomic store, validation |
//! | [`service`] | edge | HTTP, SSE, control requests, scraping |
//! | [`drive`] | edge | lanes, load profiles, the native driver, phases |
//! | [`sim`] | edge | a simulated vLLM |
//! | [`probe`] | pure | designs and verdicts of the prefix-reuse probes |
//! | [`analyze`] | pure | joins theory, records and counters into a judgment |
//! | [`report`] | pure | analyses and probes to tables, HTML, CSV, Parquet |
//! | [`cli`] | edge | clap types, one file a command, the only printing |
//!
//! # Invariants
//!
//! - No room but `service` and `sim` knows HTTP.
//! - `report` computes nothing; `analyze` formats nothing.
//! - `plan` has never heard of text, `measure` never of HTTP.
//! - A failed request is data; an error is what stops the work.
//! - Nothing that is iterated comes out of a hash map.
//!
//! `tests/tidy.rs` holds the arrows between rooms against this map.

pub mod analyze;
pub mod artifacts;
pub mod cli;
pub mod corpus;
pub mod drive;
pub mod engine;
pub mod kvcache;
pub mod measure;
pub mod plan;
pub mod probe;
pub mod prompts;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod secret;
pub mod service;
pub mod sim;
pub mod solver;
pub mod stats;
pub mod system;
pub mod theory;
pub mod tokenizer;
pub mod units;
