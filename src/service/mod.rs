//! Talking to the service under test. The measured path: [`connection`]s that
//! read with stamps, the [`sse`] decoder, the classification of each [`chunk`].
//! The room has never heard of lanes, plans or theory.

pub mod chunk;
pub mod clock;
mod payload;
pub mod socket;
pub mod sse;
