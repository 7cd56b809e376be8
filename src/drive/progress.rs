//! What a run has done so far, for whoever shows it: numbers that the driver
//! raises and others read at any time. Nothing waits for anything here.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::measure::{LiveHistogram, Outcome, RequestRecord};
use crate::units::ratio;

/// Ranks that are counted apart; what comes behind them is in the sums alone.
const RANKS_SHOWN: usize = 8;

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
    /// Of the first ranks, prompt tokens and cached ones.
    ranks: [[AtomicU64; 2]; RANKS_SHOWN],
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

    /// Cached over prompt tokens so far of each rank that requests were sent to,
    /// of the first `RANKS_SHOWN`; `None` of a rank that has answered none.
    pub fn hit_rates_by_rank(&self) -> Vec<Option<f64>> {
        let rates = self.ranks.iter().map(|tokens| {
            let [prompt, cached] = tokens.each_ref().map(|one| one.load(Ordering::Relaxed));
            ratio(cached, prompt)
        });
        let mut rates: Vec<_> = rates.collect();
        while rates.last() == Some(&None) {
            rates.pop();
        }
        rates
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
            let rank = record.dp_rank.map(|rank| rank.0 as usize);
            if let Some([prompt, cached]) = rank.and_then(|rank| self.ranks.get(rank)) {
                add(prompt, usage.prompt_tokens);
                add(cached, usage.cached_tokens.unwrap_or(0));
            }
        }
        if let Some(first) = record.content_ns.first() {
            let ttft = first.nanos().saturating_sub(record.t_send_ns.nanos());
            self.ttft.record(ttft);
        }
        add(&self.done, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample::stream;
    use crate::units::DpRank;

    #[test]
    fn hits_are_counted_by_rank_and_in_all() {
        let progress = Progress::default();
        progress.begin(4);
        for (rank, cached) in [(Some(0), 16), (Some(2), 0), (Some(2), 32), (Some(99), 64)] {
            let mut record = stream(&[10.0, 20.0], 2);
            record.dp_rank = rank.map(DpRank);
            record.usage = record.usage.map(|usage| crate::measure::Usage {
                cached_tokens: Some(cached),
                ..usage
            });
            progress.sent();
            progress.ended(&record);
        }
        // Each prompt has 64 tokens.
        let rates = progress.hit_rates_by_rank();
        assert_eq!(rates, [Some(0.25), None, Some(0.25)]);
        let view = progress.view();
        assert_eq!((view.prompt_tokens, view.cached_tokens), (256, 112));
        assert_eq!((view.done, view.in_flight()), (4, 0));
    }
}
