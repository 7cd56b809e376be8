//! AISBench's two tables as a terminal shows them, whoever computed them.

use std::io;

use super::number::count;
use super::page::{Page, numbers};
use super::terminal::TerminalOptions;
use crate::measure::aisbench::Results;

/// Writes the tables of `results`.
pub fn aisbench(
    results: &Results,
    options: TerminalOptions,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut page = Page::new(options, out);
    let statistics = results.rows.iter().flat_map(|row| &row.cells);
    let mut header = vec!["By AISBench's definitions"];
    for cell in statistics {
        if !header.contains(&cell.statistic.as_str()) {
            header.push(&cell.statistic);
        }
    }
    header.push("N");
    let mut table = page.table(&header);
    for row in &results.rows {
        let unit = row.cells.first().map_or("", |cell| cell.unit.as_str());
        let name = if unit.is_empty() {
            row.metric.clone()
        } else {
            format!("{}, {unit}", row.metric)
        };
        let cells = row.cells.iter().map(|cell| cell.value.to_string());
        let line = std::iter::once(name).chain(cells);
        table.add_row(numbers(line.chain([count(row.count)])));
    }
    page.print(&table)?;
    let mut table = page.table(&["Common metric", &results.stage]);
    for figure in &results.common {
        let value = format!("{} {}", figure.value, figure.unit);
        table.add_row(numbers([figure.name.as_str(), value.trim_end()]));
    }
    page.print(&table)
}
