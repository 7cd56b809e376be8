//! Waiting for a server that is still starting. A model server listens only
//! when its model is loaded, minutes after its start; a gateway in front of it
//! answers 502, 503 or 504 until then.

#![allow(clippy::disallowed_methods, reason = "edge: waits for a server")]

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::service::{ControlClient, ControlError};

/// Pause between two looks: long against a look, short against a start.
const PAUSE: Duration = Duration::from_secs(1);

impl ControlClient {
    /// Waits until the server answers when it is asked for its models,
    /// whatever the answer, but at most `limit`.
    pub async fn ready(&self, limit: Duration) -> Result<(), ControlError> {
        let deadline = Instant::now() + limit;
        let mut last = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match timeout(left, self.models()).await {
                Ok(Err(error)) if is_starting(&error) => last = Some(error),
                Ok(_) => return Ok(()),
                Err(_) => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ControlError::NotReady {
                    seconds: limit.as_secs_f64(),
                    last: last.map_or_else(|| "no answer".to_owned(), |error| error.to_string()),
                });
            }
            sleep(PAUSE.min(left)).await;
        }
    }
}

/// Whether a server may say this before it is up.
fn is_starting(error: &ControlError) -> bool {
    matches!(
        error,
        ControlError::Unreachable { .. }
            | ControlError::Timeout { .. }
            | ControlError::Broken { .. }
            | ControlError::Status {
                status: 502..=504,
                ..
            }
    )
}
