//! The fault options of `pcload sim`.

use std::time::Duration;

use clap::Args;

use super::{millis, seconds};
use crate::sim::Faults;

/// Faults; a share is a probability in 0..=1, drawn for each request.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Faults (all off by default, all seeded)")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(super) struct FaultArgs {
    /// Resets answer `success:false`.
    #[arg(long = "fault-refuse-reset")]
    refuse_reset: bool,
    /// Resets answer `success:true` and do nothing.
    #[arg(long = "fault-ignore-reset")]
    ignore_reset: bool,
    /// Resets never reach the external tier.
    #[arg(long = "fault-keep-external")]
    keep_external: bool,
    /// The rank header is not read.
    #[arg(long = "fault-ignore-rank-header")]
    ignore_rank_header: bool,
    /// Usage says nothing of cached tokens.
    #[arg(long = "fault-no-usage-details")]
    pub(super) no_usage_details: bool,
    /// Metrics are up to this many seconds old.
    #[arg(long = "fault-counter-lag", value_name = "S")]
    counter_lag: Option<f64>,
    /// Counters start from zero again after so many requests.
    #[arg(long = "fault-restart-counters-after", value_name = "N")]
    restart_counters_after: Option<u64>,
    /// Somebody else asks every so many seconds.
    #[arg(long = "fault-foreign-every", value_name = "S")]
    foreign_every: Option<f64>,
    /// Lookups after a preemption are counted again.
    #[arg(long = "fault-count-preempted")]
    count_preempted: bool,
    /// Share answered 429.
    #[arg(long = "fault-429", default_value_t = 0.0, value_name = "SHARE")]
    too_many_requests: f64,
    /// Share answered 503.
    #[arg(long = "fault-503", default_value_t = 0.0, value_name = "SHARE")]
    unavailable: f64,
    /// `Retry-After` of those answers, in seconds.
    #[arg(long = "fault-retry-after", value_name = "S")]
    retry_after: Option<u64>,
    /// Share of streams that say nothing but that the server is busy.
    #[arg(
        long = "fault-busy-stream",
        default_value_t = 0.0,
        value_name = "SHARE"
    )]
    busy_stream: f64,
    /// Share of streams with an error event after some tokens.
    #[arg(
        long = "fault-error-event",
        default_value_t = 0.0,
        value_name = "SHARE"
    )]
    error_event: f64,
    /// Share of streams that fall silent.
    #[arg(long = "fault-stall", default_value_t = 0.0, value_name = "SHARE")]
    stall: f64,
    /// Share of streams that end too early.
    #[arg(long = "fault-cut-stream", default_value_t = 0.0, value_name = "SHARE")]
    cut_stream: f64,
    /// Share of streams whose connection is reset.
    #[arg(
        long = "fault-reset-connection",
        default_value_t = 0.0,
        value_name = "SHARE"
    )]
    reset_connection: f64,
    /// Delay before every response head, in milliseconds.
    #[arg(long = "fault-slow-first-byte", value_name = "MS")]
    slow_first_byte: Option<f64>,
    /// Cut events into HTTP chunks at odd bytes.
    #[arg(long = "fault-split-chunks")]
    split_chunks: bool,
    /// Send so many events in one HTTP chunk, cut at odd bytes.
    #[arg(long = "fault-coalesce", value_name = "N")]
    coalesce: Option<u32>,
    /// Comments between events.
    #[arg(long = "fault-comments")]
    comments: bool,
    /// CRLF line ends in streams.
    #[arg(long = "fault-crlf")]
    crlf: bool,
    /// Old counter names beside the present ones.
    #[arg(long = "fault-duplicate-series")]
    duplicate_series: bool,
    /// A second model on the metrics page and in the list.
    #[arg(long = "fault-second-model")]
    second_model: bool,
    /// No series of this rank.
    #[arg(long = "fault-missing-rank", value_name = "RANK")]
    missing_rank: Option<u32>,
}

impl FaultArgs {
    /// The faults these arguments mean.
    pub(super) fn faults(&self) -> anyhow::Result<Faults> {
        Ok(Faults {
            refuse_reset: self.refuse_reset,
            ignore_reset: self.ignore_reset,
            keep_external: self.keep_external,
            ignore_rank_header: self.ignore_rank_header,
            counter_lag: self.counter_lag.map(seconds).transpose()?,
            restart_counters_after: self.restart_counters_after,
            foreign_every: self.foreign_every.map(seconds).transpose()?,
            count_preempted: self.count_preempted,
            too_many_requests: self.too_many_requests,
            unavailable: self.unavailable,
            retry_after: self.retry_after.map(Duration::from_secs),
            busy_stream: self.busy_stream,
            error_event: self.error_event,
            stall: self.stall,
            cut_stream: self.cut_stream,
            reset_connection: self.reset_connection,
            slow_first_byte: self.slow_first_byte.map(millis).transpose()?,
            split_chunks: self.split_chunks,
            coalesce: self.coalesce,
            comments: self.comments,
            crlf: self.crlf,
            duplicate_series: self.duplicate_series,
            second_model: self.second_model,
            missing_rank: self.missing_rank,
        })
    }
}
