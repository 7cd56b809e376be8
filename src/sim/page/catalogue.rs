//! Every family of vLLM's page in the order of the recorded single-process
//! page, with its help text and where its value stands. Values of features
//! that are not simulated (multi-modal cache, flops) are always zero.

use crate::sim::engine::{Account, Gauges, Histogram};

/// Reads a counter.
pub(super) type Count = fn(&Account) -> u64;
/// Reads a gauge.
pub(super) type Level = fn(Gauges) -> f64;

/// What one family shows.
#[derive(Clone, Copy)]
pub(super) enum Family {
    /// A counter of each rank, one series per value of `label`.
    Counter(&'static str, &'static [(&'static str, Count)]),
    /// A gauge of each rank.
    Gauge(&'static str, &'static [(&'static str, Level)]),
    /// A histogram of each rank.
    Histogram(fn(&Account) -> &Histogram),
    /// A counter of the whole server.
    Server(&'static str, &'static [&'static str]),
    /// The cache's configuration, all in labels.
    CacheConfig,
    /// The HTTP layer's own count.
    Http(HttpFamily),
    /// Lines of the Python process, without the rank label.
    Process(&'static str, &'static [(&'static str, ProcessValue)]),
}

/// What the HTTP layer counts.
#[derive(Clone, Copy)]
pub(super) enum HttpFamily {
    /// Requests by handler, method and status.
    Requests,
    /// Bytes of requests by handler.
    RequestSize,
    /// Bytes of responses by handler.
    ResponseSize,
    /// Times with many buckets.
    Fine,
    /// Times by handler and method.
    Coarse,
}

/// A value of the process that serves.
#[derive(Clone, Copy)]
pub(super) enum ProcessValue {
    /// Always the same.
    Fixed(f64),
    /// When the server started, in seconds since 1970.
    Start,
}

/// One family: name as on the page, help text, value.
pub(super) struct Listed {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) family: Family,
    /// Not in 0.24.0.
    pub(super) recent: bool,
}

const fn listed(name: &'static str, help: &'static str, family: Family) -> Listed {
    Listed {
        name,
        help,
        family,
        recent: false,
    }
}

const fn recent(name: &'static str, help: &'static str, family: Family) -> Listed {
    Listed {
        name,
        help,
        family,
        recent: true,
    }
}

/// The families.
pub(super) const CATALOGUE: &[Listed] = &[
    listed(
        "python_gc_objects_collected_total",
        "Objects collected during gc",
        Family::Process(
            "counter",
            &[
                ("{generation=\"0\"}", ProcessValue::Fixed(0.0)),
                ("{generation=\"1\"}", ProcessValue::Fixed(0.0)),
                ("{generation=\"2\"}", ProcessValue::Fixed(0.0)),
            ],
        ),
    ),
    listed(
        "python_gc_objects_uncollectable_total",
        "Uncollectable objects found during GC",
        Family::Process(
            "counter",
            &[
                ("{generation=\"0\"}", ProcessValue::Fixed(0.0)),
                ("{generation=\"1\"}", ProcessValue::Fixed(0.0)),
                ("{generation=\"2\"}", ProcessValue::Fixed(0.0)),
            ],
        ),
    ),
    listed(
        "python_gc_collections_total",
        "Number of times this generation was collected",
        Family::Process(
            "counter",
            &[
                ("{generation=\"0\"}", ProcessValue::Fixed(0.0)),
                ("{generation=\"1\"}", ProcessValue::Fixed(0.0)),
                ("{generation=\"2\"}", ProcessValue::Fixed(0.0)),
            ],
        ),
    ),
    listed(
        "python_info",
        "Python platform information",
        Family::Process(
            "gauge",
            &[(
                "{implementation=\"CPython\",major=\"3\",minor=\"11\",patchlevel=\"7\",version=\"3.11.7\"}",
                ProcessValue::Fixed(1.0),
            )],
        ),
    ),
    listed(
        "process_virtual_memory_bytes",
        "Virtual memory size in bytes.",
        Family::Process("gauge", &[("", ProcessValue::Fixed(0.0))]),
    ),
    listed(
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        Family::Process("gauge", &[("", ProcessValue::Fixed(0.0))]),
    ),
    listed(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        Family::Process("gauge", &[("", ProcessValue::Start)]),
    ),
    listed(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        Family::Process("counter", &[("", ProcessValue::Fixed(0.0))]),
    ),
    listed(
        "process_open_fds",
        "Number of open file descriptors.",
        Family::Process("gauge", &[("", ProcessValue::Fixed(0.0))]),
    ),
    listed(
        "process_max_fds",
        "Maximum number of open file descriptors.",
        Family::Process("gauge", &[("", ProcessValue::Fixed(20000.0))]),
    ),
    listed(
        "vllm:estimated_flops_per_gpu_total",
        "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
        Family::Counter("", &[("", |_| 0)]),
    ),
    listed(
        "vllm:estimated_read_bytes_per_gpu_total",
        "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
        Family::Counter("", &[("", |_| 0)]),
    ),
    listed(
        "vllm:estimated_write_bytes_per_gpu_total",
        "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
        Family::Counter("", &[("", |_| 0)]),
    ),
    listed(
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        Family::Gauge("", &[("", |g| g.running as f64)]),
    ),
    listed(
        "vllm:num_requests_waiting",
        "Number of requests waiting to be processed.",
        Family::Gauge("", &[("", |g| g.waiting as f64)]),
    ),
    listed(
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        Family::Gauge(
            "reason",
            &[("capacity", |g| g.waiting as f64), ("deferred", |_| 0.0)],
        ),
    ),
    listed(
        "vllm:engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        Family::Gauge(
            "sleep_state",
            &[
                ("awake", |_| 1.0),
                ("weights_offloaded", |_| 0.0),
                ("discard_all", |_| 0.0),
            ],
        ),
    ),
    listed(
        "vllm:kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        Family::Gauge("", &[("", |g| g.usage)]),
    ),
    listed(
        "vllm:prefix_cache_queries_total",
        "Prefix cache queries, in terms of number of queried tokens.",
        Family::Counter("", &[("", |a| a.queries)]),
    ),
    listed(
        "vllm:prefix_cache_hits_total",
        "Prefix cache hits, in terms of number of cached tokens.",
        Family::Counter("", &[("", |a| a.hits)]),
    ),
    listed(
        "vllm:external_prefix_cache_queries_total",
        "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.",
        Family::Counter("", &[("", |a| a.external_queries)]),
    ),
    listed(
        "vllm:external_prefix_cache_hits_total",
        "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.",
        Family::Counter("", &[("", |a| a.external_hits)]),
    ),
    listed(
        "vllm:mm_cache_queries_total",
        "Multi-modal cache queries, in terms of number of queried items.",
        Family::Counter("", &[("", |_| 0)]),
    ),
    listed(
        "vllm:mm_cache_hits_total",
        "Multi-modal cache hits, in terms of number of cached items.",
        Family::Counter("", &[("", |_| 0)]),
    ),
    listed(
        "vllm:num_preemptions_total",
        "Cumulative number of preemption from the engine.",
        Family::Counter("", &[("", |a| a.preemptions)]),
    ),
    listed(
        "vllm:prompt_tokens_total",
        "Number of prefill tokens processed.",
        Family::Counter("", &[("", |a| a.prompt_tokens)]),
    ),
    listed(
        "vllm:prompt_tokens_by_source_total",
        "Number of prompt tokens by source.",
        Family::Counter(
            "source",
            &[
                ("local_compute", |a| {
                    a.prompt_tokens - a.prompt_local - a.prompt_external
                }),
                ("local_cache_hit", |a| a.prompt_local),
                ("external_kv_transfer", |a| a.prompt_external),
            ],
        ),
    ),
    listed(
        "vllm:prompt_tokens_cached_total",
        "Number of cached prompt tokens (local + external).",
        Family::Counter("", &[("", |a| a.prompt_local + a.prompt_external)]),
    ),
    recent(
        "vllm:prompt_tokens_cached_by_source_total",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        Family::Counter(
            "source",
            &[
                ("device", |a| a.hits),
                ("host", |a| a.external_hits),
                ("p2p", |_| 0),
                ("disk", |_| 0),
                ("external_unspecified", |_| 0),
            ],
        ),
    ),
    listed(
        "vllm:generation_tokens_total",
        "Number of generation tokens processed.",
        Family::Counter("", &[("", |a| a.generation_tokens)]),
    ),
    listed(
        "vllm:request_success_total",
        "Count of successfully processed requests.",
        Family::Counter(
            "finished_reason",
            &[
                ("stop", |a| a.stopped),
                ("length", |a| a.full_length),
                ("abort", |a| a.aborted),
                ("error", |_| 0),
                ("repetition", |_| 0),
            ],
        ),
    ),
    recent(
        "vllm:admission_rejections_total",
        "Number of admission attempts rejected by a queue limit, by reason.",
        Family::Server("reason", &["max_num_queued_reqs", "max_num_queued_tokens"]),
    ),
    listed(
        "vllm:request_prompt_tokens",
        "Number of prefill tokens processed.",
        Family::Histogram(|a| &a.request_prompt_tokens),
    ),
    listed(
        "vllm:request_generation_tokens",
        "Number of generation tokens processed.",
        Family::Histogram(|a| &a.request_generation_tokens),
    ),
    listed(
        "vllm:iteration_tokens_total",
        "Histogram of number of tokens per engine_step.",
        Family::Histogram(|a| &a.iteration_tokens),
    ),
    listed(
        "vllm:request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        Family::Histogram(|a| &a.request_max_generation_tokens),
    ),
    listed(
        "vllm:request_params_n",
        "Histogram of the n request parameter.",
        Family::Histogram(|a| &a.params_n),
    ),
    listed(
        "vllm:request_params_max_tokens",
        "Histogram of the max_tokens request parameter.",
        Family::Histogram(|a| &a.params_max_tokens),
    ),
    listed(
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        Family::Histogram(|a| &a.ttft),
    ),
    listed(
        "vllm:inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        Family::Histogram(|a| &a.itl),
    ),
    listed(
        "vllm:request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        Family::Histogram(|a| &a.tpot),
    ),
    listed(
        "vllm:e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        Family::Histogram(|a| &a.e2e),
    ),
    listed(
        "vllm:request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        Family::Histogram(|a| &a.queue),
    ),
    listed(
        "vllm:request_inference_time_seconds",
        "Histogram of time spent in RUNNING phase for request.",
        Family::Histogram(|a| &a.inference),
    ),
    listed(
        "vllm:request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
        Family::Histogram(|a| &a.prefill),
    ),
    listed(
        "vllm:request_decode_time_seconds",
        "Histogram of time spent in DECODE phase for request.",
        Family::Histogram(|a| &a.decode),
    ),
    recent(
        "vllm:request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        Family::Histogram(|a| &a.request_preemptions),
    ),
    listed(
        "vllm:request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        Family::Histogram(|a| &a.prefill_computed),
    ),
    listed(
        "vllm:cache_config_info",
        "Information of the LLMEngine CacheConfig",
        Family::CacheConfig,
    ),
    listed(
        "http_requests_total",
        "Total number of requests by method, status and handler.",
        Family::Http(HttpFamily::Requests),
    ),
    listed(
        "http_request_size_bytes",
        "Content length of incoming requests by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. ",
        Family::Http(HttpFamily::RequestSize),
    ),
    listed(
        "http_response_size_bytes",
        "Content length of outgoing responses by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. ",
        Family::Http(HttpFamily::ResponseSize),
    ),
    listed(
        "http_request_duration_highr_seconds",
        "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
        Family::Http(HttpFamily::Fine),
    ),
    listed(
        "http_request_duration_seconds",
        "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
        Family::Http(HttpFamily::Coarse),
    ),
];
