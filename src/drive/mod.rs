//! Everything that happens against a server, in time: the phases around the
//! formal load, lanes, load profiles, the native driver.

pub mod aisbench;
pub mod concurrency;
mod config;
mod crew;
pub mod dispatch;
pub mod health;
mod journal;
pub mod native;
pub mod pacing;
pub mod phases;
pub mod probe;
pub mod progress;
pub mod sequencer;
mod worker;

pub use config::{LoadRequest, NativeConfig};
pub use journal::Sink;
