//! The real AISBench as the driver of the formal phase: its configuration and
//! data rendered for a prepared set, its process started, watched and stopped,
//! its result files collected. What its numbers mean is
//! [`measure::aisbench`](crate::measure::aisbench)'s business; `render.rs` does
//! the thinking and touches nothing.
//!
//! # Which classes
//!
//! | set | classes |
//! |---|---|
//! | the prefix-cache plugin is importable | the plugin's |
//! | rows with a rank or a lane | a subclass of the stock model and inferencer |
//! | everything else | the stock package's |
//!
//! # Secrets
//!
//! AISBench writes its whole configuration into its results. So an API key, and
//! an address that may hold a credential, reach it through the environment and a
//! wrapping class, never through a file or a command line.

mod child;
mod collect;
mod error;
mod export;
mod folder;
mod literal;
mod python;
mod ready;
mod render;
mod requests;
mod run;

#[cfg(test)]
mod render_tests;

pub use child::ChildEnd;
pub use collect::Collected;
pub use error::AisbenchError;
pub use export::{Exported, export};
pub use folder::{FinishedRun, details_of, finished_run};
pub use python::{Python, find_python};
pub use ready::{Options, Ready, prepare};
pub use render::{Classes, Plan, SetPaths, command, configuration, dataset};
pub use requests::{AisbenchRow, check};
pub use run::{AisbenchOutcome, run};
