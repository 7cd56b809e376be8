//! The live view of the formal phase: three lines that are drawn again on a
//! terminal, a plain line every few seconds elsewhere, nothing when quiet. It
//! only reads counters.

#![allow(clippy::disallowed_methods, reason = "edge: a timer draws the view")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cli::output::{self, Voice};
use crate::drive::progress::Progress;
use crate::units::ratio;

/// Between two drawings on a terminal.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);

/// Between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A view that is drawn in its own task.
pub(super) struct Live {
    task: JoinSet<()>,
    stop: CancellationToken,
}

impl Live {
    /// Starts drawing `progress`.
    pub(super) fn start(voice: Voice, progress: Arc<Progress>) -> Self {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        if !voice.quiet {
            task.spawn(draw(voice, progress, stop.clone()));
        }
        Self { task, stop }
    }

    /// Draws the last state and stops.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        while self.task.join_next().await.is_some() {}
    }
}

async fn draw(voice: Voice, progress: Arc<Progress>, stop: CancellationToken) {
    let started = Instant::now();
    let bar = output::stderr_is_terminal().then(|| {
        let style = ProgressStyle::with_template("[{bar:20}] {prefix}\n{msg}")
            .expect("a constant template")
            .progress_chars("#>-");
        ProgressBar::new(1).with_style(style)
    });
    output::draw_under(bar.clone());
    let interval = if bar.is_some() {
        DRAW_INTERVAL
    } else {
        LINE_INTERVAL
    };
    loop {
        let stopped = tokio::time::timeout(interval, stop.cancelled())
            .await
            .is_ok();
        let lines = state(&progress, started.elapsed(), stopped);
        match &bar {
            Some(bar) => {
                let view = progress.view();
                bar.set_length(view.total.max(1));
                bar.set_position(view.done);
                let [head, figures, hits] = lines.each_ref().map(|line| output::cut(line));
                bar.set_prefix(head);
                bar.set_message(format!("{figures}\n{hits}"));
            }
            None => voice.say(&joined(&lines)),
        }
        if stopped {
            if let Some(bar) = &bar {
                output::draw_under(None);
                bar.finish_and_clear();
                voice.say(&joined(&lines));
            }
            return;
        }
    }
}

fn joined(lines: &[String; 3]) -> String {
    let filled = lines.iter().filter(|line| !line.is_empty());
    filled.cloned().collect::<Vec<_>>().join(", ")
}

/// The state of the run: how far it is, in at most 55 columns, so that a bar
/// fits in front of it; its figures; its hits.
fn state(progress: &Progress, elapsed: Duration, is_over: bool) -> [String; 3] {
    let view = progress.view();
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let mut head = format!("{}/{} done", view.done, view.total);
    if !is_over {
        let _infallible = write!(head, ", {} in flight", view.in_flight());
    }
    if !is_over && view.done > 0 && view.done < view.total {
        let left = seconds / view.done as f64 * (view.total - view.done) as f64;
        let _infallible = write!(head, ", {left:.0} s left");
    }
    let mut line = format!(
        "{:.1} req/s, {:.0} tok/s",
        view.done as f64 / seconds,
        view.output_tokens as f64 / seconds,
    );
    let quantiles = (progress.ttft_ms(0.5), progress.ttft_ms(0.99));
    if let (Some(middle), Some(high)) = quantiles {
        let _infallible = write!(line, ", TTFT p50 {middle:.0} ms, p99 {high:.0} ms");
    }
    if view.failed > 0 {
        let _infallible = write!(line, ", {} failed", view.failed);
    }
    [head, line, hits(progress)]
}

/// The hit rate so far, by rank too where there are several.
fn hits(progress: &Progress) -> String {
    let view = progress.view();
    let Some(rate) = ratio(view.cached_tokens, view.prompt_tokens) else {
        return String::new();
    };
    let mut line = format!("hit rate {:.1} %", rate * 100.0);
    let ranks = progress.hit_rates_by_rank();
    if ranks.len() > 1 {
        let ranks = ranks.iter().map(|rate| match rate {
            Some(rate) => format!("{:.1}", rate * 100.0),
            None => "-".to_owned(),
        });
        let ranks: Vec<String> = ranks.collect();
        let _infallible = write!(line, " (by rank {})", ranks.join(", "));
    }
    line
}
