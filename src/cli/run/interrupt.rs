//! Ctrl-C and SIGTERM: the first stops sending and drains, the second ends at
//! once.

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
    /// Listens from here on.
    pub(super) fn listen(voice: Voice) -> Self {
        let first = CancellationToken::new();
        let second = CancellationToken::new();
        let mut listener = JoinSet::new();
        let tokens = [first.clone(), second.clone()];
        // Before the task runs: a signal may come first.
        let (elsewhere, mut interrupts) = signals::heard_elsewhere();
        listener.spawn(async move {
            let words = [
                "interrupted: nothing more is sent; once more to end at once",
                "interrupted again: ending at once",
            ];
            for (token, word) in tokens.iter().zip(words) {
                interrupts.next().await;
                voice.say(word);
                token.cancel();
            }
            // A third one has nothing left to end: it is received and ignored.
            loop {
                interrupts.next().await;
            }
        });
        Self {
            first,
            second,
            _listener: listener,
            _elsewhere: elsewhere,
        }
    }
}
