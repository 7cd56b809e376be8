//! What AISBench 3.1 measures, by its own definitions, whoever took the stamps:
//! its result files read into values, the same values computed from stamps, and
//! its requests as records of this program. Pure; it knows neither the child
//! process nor where files lie.
//!
//! The definitions were read in the package (3.1.20260630) and are proved on
//! recorded runs: computed from the raw time points, every cell of its tables
//! comes out the same.

mod details;
mod records;
mod results;
mod stable;
mod table;
mod timed;

pub use details::{Detail, RequestTimes, ResultError, joined};
pub use records::{SentRow, to_record};
pub use results::{parse_common, parse_table};
pub use table::{Cell, Figure, MetricRow, Results, recompute};
pub use timed::{StageRule, Timed};
