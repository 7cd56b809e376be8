//! Everything that can be wrong with a simulated server, each by its own
//! option, all off by default.

use std::time::Duration;

use crate::sim::config::SimError;

/// Everything that is wrong with the server; all off by default. A share is a
/// probability in 0..=1, drawn for each request from the server's seed.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Faults {
    /// `/reset_prefix_cache` says `success:false` and does nothing.
    pub refuse_reset: bool,
    /// `/reset_prefix_cache` says `success:true` and does nothing.
    pub ignore_reset: bool,
    /// A reset never reaches the external tier, whatever it says
    /// (vllm-project/vllm#57727).
    pub keep_external: bool,
    /// `X-data-parallel-rank` is not read.
    pub ignore_rank_header: bool,
    /// Metrics show the state of up to this long ago.
    pub counter_lag: Option<Duration>,
    /// Counters start from zero again after this many requests.
    pub restart_counters_after: Option<u64>,
    /// Somebody else's request arrives this often.
    pub foreign_every: Option<Duration>,
    /// Lookups of preempted requests are counted again.
    pub count_preempted: bool,
    /// Share of requests answered 429.
    pub too_many_requests: f64,
    /// Share of requests answered 503.
    pub unavailable: f64,
    /// `Retry-After` of those answers, in whole seconds.
    pub retry_after: Option<Duration>,
    /// Share of streams that begin with 200 and then say, as their only event,
    /// that the server is busy.
    pub busy_stream: f64,
    /// Share of streams that end in an error event after some tokens.
    pub error_event: f64,
    /// Share of streams that fall silent, socket open, after some tokens.
    pub stall: f64,
    /// Share of streams that end without their last chunk.
    pub cut_stream: f64,
    /// Share of streams whose connection is reset after some tokens.
    pub reset_connection: f64,
    /// Delay before the response head.
    pub slow_first_byte: Option<Duration>,
    /// Events are cut into HTTP chunks at odd bytes.
    pub split_chunks: bool,
    /// This many events leave in one HTTP chunk, cut at odd bytes.
    pub coalesce: Option<u32>,
    /// Comments between events.
    pub comments: bool,
    /// CRLF line ends in streams.
    pub crlf: bool,
    /// The counters stand on the metrics page twice (old names beside new).
    pub duplicate_series: bool,
    /// A second model has series and a `/v1/models` entry.
    pub second_model: bool,
    /// This rank has no series on the metrics page.
    pub missing_rank: Option<u32>,
}

impl Faults {
    /// Refuses shares that are none, and ranks that do not exist.
    pub(super) fn check(&self, ranks: u32) -> Result<(), SimError> {
        let shares = [
            ("too_many_requests", self.too_many_requests),
            ("unavailable", self.unavailable),
            ("busy_stream", self.busy_stream),
            ("error_event", self.error_event),
            ("stall", self.stall),
            ("cut_stream", self.cut_stream),
            ("reset_connection", self.reset_connection),
        ];
        for (option, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(SimError::Option {
                    option,
                    problem: format!("is {share}, must be a share in 0..=1"),
                });
            }
        }
        if let Some(rank) = self.missing_rank.filter(|&rank| rank >= ranks) {
            return Err(SimError::Option {
                option: "missing_rank",
                problem: format!("is {rank}, but there are {ranks} ranks"),
            });
        }
        let zero = |time: Option<Duration>| time == Some(Duration::ZERO);
        if zero(self.foreign_every) || zero(self.counter_lag) || self.coalesce == Some(0) {
            return Err(SimError::Option {
                option: "foreign_every",
                problem: "and counter_lag, coalesce must be above zero when set".to_owned(),
            });
        }
        Ok(())
    }
}
