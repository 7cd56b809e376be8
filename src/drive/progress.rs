//! What a run has done so far, for whoever shows it: numbers that the driver
//! raises and others read at any time. Nothing waits for anything here.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::measure::{LiveHistogram, Outcome, RequestRecord};

/// Counters of a run under way.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    sent: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    output_tokens: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    /// Time to first token of finished requests, nanoseconds.
    ttft: LiveHistogram,
}

/// The counters at one moment. Requests and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressView {
    /// Requests of the data set.
    pub total: u64,
    /// Sent so far.
    pub sent: u64,
    /// Ended, well or not.
    pub done: u64,
    /// Of them failed.
    pub failed: u64,
    /// Generated tokens of ended requests.
    pub output_tokens: u64,
    /// Prompt tokens of ended requests.
    pub prompt_tokens: u64,
    /// Prompt tokens served from cache.
    pub cached_tokens: u64,
}

impl ProgressView {
    /// Requests in flight.
    pub fn in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.done)
    }
}

impl Progress {
    /// The counters now.
    pub fn view(&self) -> ProgressView {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Ended before sent, so that never more seem to have ended than sent.
        let done = load(&self.done);
        ProgressView {
            total: load(&self.total),
            sent: load(&self.sent),
            done,
            failed: load(&self.failed),
            output_tokens: load(&self.output_tokens),
            prompt_tokens: load(&self.prompt_tokens),
            cached_tokens: load(&self.cached_tokens),
        }
    }

    /// Quantile `q` of the time to first token so far, in milliseconds.
    pub fn ttft_ms(&self, q: f64) -> Option<f64> {
        Some(self.ttft.quantile(q)? as f64 / 1e6)
    }

    pub(super) fn begin(&self, total: usize) {
        self.total.store(total as u64, Ordering::Relaxed);
    }

    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, record: &RequestRecord) {
        let add = |counter: &AtomicU64, more| counter.fetch_add(more, Ordering::Relaxed);
        if record.outcome != Outcome::Success {
            add(&self.failed, 1);
        }
        if let Some(usage) = record.usage {
            add(&self.output_tokens, usage.completion_tokens);
            add(&self.prompt_tokens, usage.prompt_tokens);
            add(&self.cached_tokens, usage.cached_tokens.unwrap_or(0));
        }
        if let Some(first) = record.content_ns.first() {
            let ttft = first.nanos().saturating_sub(record.t_send_ns.nanos());
            self.ttft.record(ttft);
        }
        add(&self.done, 1);
    }
}
