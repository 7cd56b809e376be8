//! Ctrl-C and SIGTERM: the first stops sending and drains, the second ends at
//! once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::output::Voice;
use crate::cli::signals::{self, Stage};

/// Listens for interrupts as long as it lives.
pub(super) struct Interrupts {
    /// Cancelled by the first interrupt.
    pub first: CancellationToken,
    /// Cancelled by the second.
    pub second: CancellationToken,
    _listener: JoinSet<()>,
    _elsewhere: Stage,
}

impl Interrupts {
    /// Listens from here on. Where the system refuses, the signals keep their
    /// default effect.
    pub(super) fn listen(voice: Voice) -> Self {
        let first = CancellationToken::new();
        let second = CancellationToken::new();
        let mut listener = JoinSet::new();
        let tokens = [first.clone(), second.clone()];
        // Before the task runs: a signal may come first.
        let signals = (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
        );
        listener.spawn(async move {
            let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
                return;
            };
            let words = [
                "interrupted: nothing more is sent; once more to end at once",
                "interrupted again: ending at once",
            ];
            for (token, word) in tokens.iter().zip(words) {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                voice.say(word);
                token.cancel();
            }
        });
        Self {
            first,
            second,
            _listener: listener,
            _elsewhere: signals::heard_elsewhere(),
        }
    }
}
