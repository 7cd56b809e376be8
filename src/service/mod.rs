//! Talking to the service under test, from two sides.
//!
//! The measured path: [`client`]s over connections that read with stamps, the
//! [`sse`] decoder, the classification of each [`chunk`]. The control side:
//! probes, resets, warm-up requests and counters, of which nothing is measured.
//! The room has never heard of lanes, plans or theory.

mod answer;
mod block_size;
pub mod chat;
pub mod chunk;
pub mod client;
pub mod clock;
pub mod connect;
pub mod connection;
mod control;
mod control_error;
mod control_http;
mod endpoint;
mod inline;
mod kv_poller;
mod payload;
mod protocol;
pub mod quiet;
mod ready;
mod reset_answer;
#[cfg(feature = "reqwest-client")]
pub mod second;
mod settings;
pub mod socket;
pub mod sse;
mod stamping;
pub mod stream;
pub mod target;
pub mod wire;

pub use answer::{ERROR_CHARS_MAX, ServedModel, bounded, error_words, models_of, usage_of};
pub use block_size::{MeasuredBlock, Replay};
pub use control::{ANSWER_BYTES_MAX, ControlClient, METRICS_BYTES_MAX, RANK_HEADER};
pub use control_error::ControlError;
pub use kv_poller::{
    KV_SAMPLES_MAX, KvGlobal, KvPoller, KvRank, KvRankSummary, KvSample, KvSamples, KvSummary, poll,
};
pub use reset_answer::{ResetVerdict, classify_reset, success_of};
pub use settings::{Completion, ControlPrompt, ControlSettings, ResetAttempt, Scrape};
