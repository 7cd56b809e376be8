//! The engines' own names: which series stands for which quantity, in which
//! order of preference, and how series that differ in a further label are put
//! together. Sources: vLLM's `vllm/v1/metrics/loggers.py` (0.9.2 to 0.32.0),
//! SGLang's metrics reference.

/// Engine whose names are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// Whichever the page shows.
    #[default]
    Auto,
    /// vLLM and its derivatives (vLLM-Ascend keeps the names).
    Vllm,
    /// SGLang.
    Sglang,
}

/// What a series counts or measures, for one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quantity {
    Queries,
    Hits,
    ExternalQueries,
    ExternalHits,
    PromptTokens,
    PromptTokensCached,
    GenerationTokens,
    Preemptions,
    KvCacheUsage,
    RequestsRunning,
    RequestsWaiting,
    CountingSince,
}

impl Quantity {
    /// Its key in `metric_names`.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Queries => "queries",
            Self::Hits => "hits",
            Self::ExternalQueries => "external_queries",
            Self::ExternalHits => "external_hits",
            Self::PromptTokens => "prompt_tokens",
            Self::PromptTokensCached => "prompt_tokens_cached",
            Self::GenerationTokens => "generation_tokens",
            Self::Preemptions => "preemptions",
            Self::KvCacheUsage => "kv",
            Self::RequestsRunning => "requests_running",
            Self::RequestsWaiting => "requests_waiting",
            Self::CountingSince => "counting_since",
        }
    }

    /// Whether the value is a level rather than a count since the start.
    pub(crate) fn is_gauge(self) -> bool {
        matches!(
            self,
            Self::KvCacheUsage
                | Self::RequestsRunning
                | Self::RequestsWaiting
                | Self::CountingSince
        )
    }
}

/// Where a quantity stands on an engine's page.
pub(crate) struct Source {
    pub(crate) quantity: Quantity,
    /// Names, the first one present wins; the others are its twins and are not
    /// added.
    pub(crate) names: &'static [&'static str],
    /// Only series whose label has one of these values; a series without the
    /// label passes when `unlabelled` is set.
    pub(crate) only: Option<LabelFilter>,
}

/// Picks some of the series of one name.
#[derive(Clone, Copy)]
pub(crate) struct LabelFilter {
    pub(crate) label: &'static str,
    /// Prefixes of the value that pass.
    pub(crate) prefixes: &'static [&'static str],
    pub(crate) unlabelled: bool,
}

/// One engine's page.
pub(crate) struct Adapter {
    /// Its name in [`crate::engine::EngineFacts`].
    pub(crate) engine: &'static str,
    pub(crate) prefix: &'static str,
    pub(crate) sources: &'static [Source],
    /// The label that says which rank a series belongs to.
    pub(crate) rank_label: &'static str,
    /// Counters that differ in any further label are parts of one count.
    pub(crate) sums_any_label: bool,
    /// Hits appear with the first hit; until then they are 0.
    pub(crate) hits_may_be_absent: bool,
}

/// Labels that split one rank's counter into parts to be added.
pub(crate) const PART_LABELS: &[&str] = &["pid"];

/// Labels of processes that all see the whole: the largest value is the newest.
pub(crate) const TWIN_LABELS: &[&str] = &["tp_rank", "pp_rank", "moe_ep_rank"];

const fn all(quantity: Quantity, names: &'static [&'static str]) -> Source {
    Source {
        quantity,
        names,
        only: None,
    }
}

/// vLLM's names. `_total` is what its client library appends to counters; up
/// to 0.11 the `gpu_` twins stand beside the first pair.
pub(crate) static VLLM: Adapter = Adapter {
    engine: "vllm",
    prefix: "vllm:",
    rank_label: "engine",
    sums_any_label: false,
    hits_may_be_absent: false,
    sources: &[
        all(
            Quantity::Queries,
            &[
                "vllm:prefix_cache_queries",
                "vllm:prefix_cache_queries_total",
                "vllm:gpu_prefix_cache_queries",
                "vllm:gpu_prefix_cache_queries_total",
            ],
        ),
        all(
            Quantity::Hits,
            &[
                "vllm:prefix_cache_hits",
                "vllm:prefix_cache_hits_total",
                "vllm:gpu_prefix_cache_hits",
                "vllm:gpu_prefix_cache_hits_total",
            ],
        ),
        all(
            Quantity::ExternalQueries,
            &[
                "vllm:external_prefix_cache_queries",
                "vllm:external_prefix_cache_queries_total",
            ],
        ),
        all(
            Quantity::ExternalHits,
            &[
                "vllm:external_prefix_cache_hits",
                "vllm:external_prefix_cache_hits_total",
            ],
        ),
        all(
            Quantity::PromptTokens,
            &["vllm:prompt_tokens", "vllm:prompt_tokens_total"],
        ),
        all(
            Quantity::PromptTokensCached,
            &[
                "vllm:prompt_tokens_cached",
                "vllm:prompt_tokens_cached_total",
            ],
        ),
        all(
            Quantity::GenerationTokens,
            &["vllm:generation_tokens", "vllm:generation_tokens_total"],
        ),
        all(
            Quantity::Preemptions,
            &["vllm:num_preemptions", "vllm:num_preemptions_total"],
        ),
        all(
            Quantity::KvCacheUsage,
            &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
        ),
        all(Quantity::RequestsRunning, &["vllm:num_requests_running"]),
        all(Quantity::RequestsWaiting, &["vllm:num_requests_waiting"]),
        all(
            Quantity::CountingSince,
            &[
                "vllm:prefix_cache_queries_created",
                "vllm:gpu_prefix_cache_queries_created",
            ],
        ),
    ],
};

const SGLANG_DEVICE: LabelFilter = LabelFilter {
    label: "cache_source",
    prefixes: &["device"],
    unlabelled: true,
};

const SGLANG_OTHER_TIERS: LabelFilter = LabelFilter {
    label: "cache_source",
    prefixes: &["host", "storage"],
    unlabelled: false,
};

const SGLANG_CACHED: &[&str] = &["sglang:cached_tokens", "sglang:cached_tokens_total"];
const SGLANG_PROMPT: &[&str] = &["sglang:prompt_tokens", "sglang:prompt_tokens_total"];

/// SGLang's names. Its prompt tokens are the queries; `cached_tokens_total` has
/// a part for each tier (`cache_source`) in current versions and no such label
/// in older ones. `sglang:cache_hit_rate` is a gauge of a moment and not read.
pub(crate) static SGLANG: Adapter = Adapter {
    engine: "sglang",
    prefix: "sglang:",
    rank_label: "dp_rank",
    sums_any_label: true,
    hits_may_be_absent: true,
    sources: &[
        all(Quantity::Queries, SGLANG_PROMPT),
        Source {
            quantity: Quantity::Hits,
            names: SGLANG_CACHED,
            only: Some(SGLANG_DEVICE),
        },
        Source {
            quantity: Quantity::ExternalHits,
            names: SGLANG_CACHED,
            only: Some(SGLANG_OTHER_TIERS),
        },
        all(Quantity::PromptTokens, SGLANG_PROMPT),
        all(Quantity::PromptTokensCached, SGLANG_CACHED),
        all(
            Quantity::GenerationTokens,
            &["sglang:generation_tokens", "sglang:generation_tokens_total"],
        ),
        all(
            Quantity::Preemptions,
            &["sglang:num_retracted_requests_total"],
        ),
        all(Quantity::KvCacheUsage, &["sglang:token_usage"]),
        all(Quantity::RequestsRunning, &["sglang:num_running_reqs"]),
        all(Quantity::RequestsWaiting, &["sglang:num_queue_reqs"]),
    ],
};

/// The gauge whose labels hold vLLM's cache configuration.
pub(crate) const VLLM_CACHE_CONFIG: &str = "vllm:cache_config_info";

/// The engine a name belongs to, if the name is one that is read.
pub(crate) fn adapter_of(name: &str) -> Option<&'static Adapter> {
    // Four of five lines of a page are histogram buckets.
    if name.ends_with("_bucket") {
        return None;
    }
    let adapter = [&VLLM, &SGLANG]
        .into_iter()
        .find(|adapter| name.starts_with(adapter.prefix))?;
    let known = |source: &Source| source.names.contains(&name);
    (name == VLLM_CACHE_CONFIG || adapter.sources.iter().any(known)).then_some(adapter)
}

impl LabelFilter {
    /// Whether a series with this label value (or without the label) passes.
    pub(crate) fn passes(&self, value: Option<&str>) -> bool {
        match value {
            None => self.unlabelled,
            Some(value) => self.prefixes.iter().any(|prefix| value.starts_with(prefix)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_series_that_are_read_are_recognised() {
        for wanted in [
            "vllm:prefix_cache_hits_total",
            "vllm:cache_config_info",
            "vllm:gpu_cache_usage_perc",
            "vllm:prefix_cache_queries_created",
        ] {
            assert_eq!(adapter_of(wanted).map(|found| found.engine), Some("vllm"));
        }
        assert_eq!(
            adapter_of("sglang:token_usage").map(|found| found.engine),
            Some("sglang")
        );
        // A histogram whose name ends in `_total`, other creation times and caches.
        for unwanted in [
            "vllm:iteration_tokens_total_sum",
            "vllm:prefix_cache_hits_created",
            "vllm:mm_cache_hits_total",
            "sglang:cache_hit_rate",
            "http_requests_total",
            "",
        ] {
            assert!(adapter_of(unwanted).is_none(), "{unwanted}");
        }
    }
}
