//! The asynchronous runtime of the commands that talk to a server.

use tokio::runtime::{Builder, Runtime};

use super::exit::Failure;

/// Builds what `builder` describes, with clock and network.
pub(super) fn build(builder: &mut Builder) -> Result<Runtime, Failure> {
    builder
        .enable_all()
        .build()
        .map_err(|error| Failure::world("RUNTIME_FAILED", error.to_string()))
}
