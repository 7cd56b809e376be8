//! What a rank counts: the counters and histograms of its metrics page.
//! Numbers only; names, labels and help texts stand in `page`.

/// A cumulative histogram with fixed upper bounds.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::sim) struct Histogram {
    bounds: &'static [f64],
    /// Observations at or below each bound and above the one before.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    /// An empty histogram; the bucket `+Inf` is implied.
    pub(in crate::sim) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len()],
            count: 0,
            sum: 0.0,
        }
    }

    /// Counts one observation.
    pub(in crate::sim) fn observe(&mut self, value: f64) {
        let at = self.bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.count += 1;
        self.sum += value;
    }

    /// Upper bounds with the number of observations at or below each.
    pub(in crate::sim) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut below = 0;
        self.bounds
            .iter()
            .zip(&self.counts)
            .map(move |(&bound, &count)| {
                below += count;
                (bound, below)
            })
    }

    /// Number of observations.
    pub(in crate::sim) fn count(&self) -> u64 {
        self.count
    }

    /// Sum of observations.
    pub(in crate::sim) fn sum(&self) -> f64 {
        self.sum
    }
}

/// Bounds of token counts per request (vLLM's `build_1_2_5_buckets` below the
/// context length of the recorded servers).
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4,
];
const STEP_TOKENS: &[f64] = &[
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];
const TTFT: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_TIME: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_TIME: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

/// Everything one rank has counted since its counters began. Tokens unless
/// the name says otherwise; times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::sim) struct Account {
    /// Prompt tokens looked up in the local cache.
    pub(in crate::sim) queries: u64,
    /// Of them found.
    pub(in crate::sim) hits: u64,
    /// Prompt tokens looked up in the external tier.
    pub(in crate::sim) external_queries: u64,
    /// Of them found.
    pub(in crate::sim) external_hits: u64,
    /// Preempted sequences.
    pub(in crate::sim) preemptions: u64,
    /// Prompt tokens of sequences that got their first token.
    pub(in crate::sim) prompt_tokens: u64,
    /// Of them found in the local cache.
    pub(in crate::sim) prompt_local: u64,
    /// Of them found in the external tier.
    pub(in crate::sim) prompt_external: u64,
    /// Generated tokens.
    pub(in crate::sim) generation_tokens: u64,
    /// Sequences ended by their own end token.
    pub(in crate::sim) stopped: u64,
    /// Sequences ended by their limit.
    pub(in crate::sim) full_length: u64,
    /// Sequences ended by an operator.
    pub(in crate::sim) aborted: u64,
    /// Prompt length of ended sequences.
    pub(in crate::sim) request_prompt_tokens: Histogram,
    /// Output length of ended sequences.
    pub(in crate::sim) request_generation_tokens: Histogram,
    /// Tokens of each step that delivered any.
    pub(in crate::sim) iteration_tokens: Histogram,
    /// Longest output among a request's choices.
    pub(in crate::sim) request_max_generation_tokens: Histogram,
    /// Choices asked for.
    pub(in crate::sim) params_n: Histogram,
    /// Output limit asked for.
    pub(in crate::sim) params_max_tokens: Histogram,
    /// Arrival to first token.
    pub(in crate::sim) ttft: Histogram,
    /// Token to token.
    pub(in crate::sim) itl: Histogram,
    /// Mean token to token, per request.
    pub(in crate::sim) tpot: Histogram,
    /// Arrival to last token.
    pub(in crate::sim) e2e: Histogram,
    /// Arrival to admission.
    pub(in crate::sim) queue: Histogram,
    /// Admission to last token.
    pub(in crate::sim) inference: Histogram,
    /// Admission to first token.
    pub(in crate::sim) prefill: Histogram,
    /// First to last token.
    pub(in crate::sim) decode: Histogram,
    /// Preemptions per request.
    pub(in crate::sim) request_preemptions: Histogram,
    /// Prompt tokens computed per request.
    pub(in crate::sim) prefill_computed: Histogram,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            queries: 0,
            hits: 0,
            external_queries: 0,
            external_hits: 0,
            preemptions: 0,
            prompt_tokens: 0,
            prompt_local: 0,
            prompt_external: 0,
            generation_tokens: 0,
            stopped: 0,
            full_length: 0,
            aborted: 0,
            request_prompt_tokens: Histogram::new(TOKENS),
            request_generation_tokens: Histogram::new(TOKENS),
            iteration_tokens: Histogram::new(STEP_TOKENS),
            request_max_generation_tokens: Histogram::new(TOKENS),
            params_n: Histogram::new(CHOICES),
            params_max_tokens: Histogram::new(TOKENS),
            ttft: Histogram::new(TTFT),
            itl: Histogram::new(TOKEN_TIME),
            tpot: Histogram::new(TOKEN_TIME),
            e2e: Histogram::new(REQUEST_TIME),
            queue: Histogram::new(REQUEST_TIME),
            inference: Histogram::new(REQUEST_TIME),
            prefill: Histogram::new(REQUEST_TIME),
            decode: Histogram::new(REQUEST_TIME),
            request_preemptions: Histogram::new(PREEMPTIONS),
            prefill_computed: Histogram::new(TOKENS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.observe(value);
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(1.0, 2), (2.0, 3)]);
        assert_eq!(histogram.count(), 4);
        assert!((histogram.sum() - 12.0).abs() < 1e-12);
    }
}
