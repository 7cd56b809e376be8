//! Reports: an analysis as tables for a terminal, rows for a spreadsheet or a
//! data frame, and one HTML file; so too a comparison, and a probe. Everything goes into a writer it is given; it computes nothing
//! that the analysis does not say.

mod aisbench;
mod chart;
mod columns;
mod compare;
mod compare_html;
mod csv;
mod figures;
mod html;
mod names;
mod number;
mod open_metrics;
mod page;
mod paint;
mod parity;
mod parquet;
mod probe;
mod terminal;

#[cfg(test)]
mod fixture;

pub use aisbench::aisbench;
pub use compare::{comparison_terminal, sentences};
pub use compare_html::comparison_html;
pub use csv::records_csv;
pub use html::{HtmlError, HtmlFacts, html};
pub use open_metrics::open_metrics;
pub use parity::parity;
pub use parquet::records_parquet;
pub use probe::{probe_comparison_html, probe_html};
pub use terminal::{TerminalOptions, terminal};
