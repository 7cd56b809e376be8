//! Reports: an analysis as tables for a terminal, rows for a spreadsheet, and
//! one HTML file. Everything goes into a writer it is given; it computes nothing
//! that the analysis does not say.

mod aisbench;
mod chart;
mod csv;
mod figures;
mod html;
mod names;
mod number;
mod page;
mod parity;
mod terminal;

#[cfg(test)]
mod fixture;

pub use aisbench::aisbench;
pub use csv::records_csv;
pub use html::{HtmlError, HtmlFacts, html};
pub use parity::parity;
pub use terminal::{TerminalOptions, terminal};
