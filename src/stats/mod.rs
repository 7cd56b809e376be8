//! Numbers about numbers: percentiles, summaries, histograms, averages, fits and
//! uncertainty. Pure; it refuses to know what the numbers measure.
//!
//! Percentile arguments are percent everywhere (`50.0` is the median, `0.5` is
//! the half percent), checked once by [`Percent`].

mod average;
mod bootstrap;
mod difference;
mod estimate;
mod fit;
mod histogram;
mod interval_log;
mod student;
mod summary;

pub use average::{time_weighted_mean, weighted_mean};
pub use bootstrap::{INDICATIVE_BELOW, Interval, percentile_intervals, sums_interval};
pub use difference::{Pairing, percentile_differences, ratio_difference};
pub use estimate::{Difference, Estimate, ROUNDS_MIN};
pub use fit::{Line, line_of_sums, slope_sums};
pub use histogram::{Histogram, RELATIVE_ERROR, RESOLUTION_NS};
pub use interval_log::IntervalLog;
pub use summary::{Percent, Summary, percentile, percentile_of_sorted, summarize};
