//! Progress of work that counts: a bar on a terminal, a few plain lines
//! elsewhere, nothing when quiet.

use std::cell::Cell;

use indicatif::{ProgressBar, ProgressStyle};

use super::output::{self, Voice};

/// Plain lines are written at each of this many equal parts.
const PLAIN_PARTS: u64 = 4;

/// Progress of one piece of work.
pub(super) struct Progress {
    voice: Voice,
    what: &'static str,
    total: u64,
    done: Cell<u64>,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Progress towards `total` of `what`.
    pub(super) fn new(voice: Voice, what: &'static str, total: u64) -> Self {
        let bar = (!voice.quiet && output::stderr_is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {percent}%")
                .expect("a constant template")
                .progress_chars("#>-");
            ProgressBar::new(total).with_style(style).with_message(what)
        });
        Self {
            voice,
            what,
            total,
            done: Cell::new(0),
            bar,
        }
    }

    /// Counts `count` more as done.
    pub(super) fn advance(&self, count: u64) {
        let before = self.done.get();
        let done = before + count;
        self.done.set(done);
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        } else {
            let part = |at: u64| at * PLAIN_PARTS / self.total.max(1);
            if part(done) > part(before) {
                self.voice
                    .say(&format!("{}: {done}/{}", self.what, self.total));
            }
        }
    }

    /// Ends the bar.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
