//! The parity table for a terminal: AISBench beside the native driver.

use std::io;

use super::number::{ABSENT, decimal};
use super::page::{Page, numbers};
use super::terminal::TerminalOptions;
use crate::analyze::parity::{Agreement, By, Nearer, Parity, ParityRow};

/// Writes the tables of `parity`.
pub fn parity(
    parity: &Parity,
    options: TerminalOptions,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut page = Page::new(options, out);
    for (by, title) in [
        (By::Count, "Parity, counts"),
        (By::Aisbench, "By AISBench's definitions"),
        (By::Pcload, "By pcload's definitions"),
    ] {
        page.side_by_side(parity, by, title)?;
    }
    page.referee(parity)?;
    page.reasons(parity)
}

impl<W: io::Write> Page<'_, W> {
    fn side_by_side(&mut self, parity: &Parity, by: By, title: &str) -> io::Result<()> {
        let mut table = self.table(&[
            title,
            "AISBench",
            "native",
            "ratio",
            "difference",
            "95 % interval",
            "",
        ]);
        for row in parity.rows.iter().filter(|row| row.by == by) {
            let interval = row.interval.map_or_else(
                || "-".to_owned(),
                |interval| format!("{:+.2} to {:+.2}", interval.low, interval.high),
            );
            table.add_row(numbers([
                name(row),
                decimal(row.aisbench),
                decimal(row.native),
                row.ratio
                    .map_or_else(|| ABSENT.to_owned(), |ratio| format!("{ratio:.3}")),
                row.difference
                    .map_or_else(|| ABSENT.to_owned(), |apart| format!("{apart:+.2}")),
                interval,
                word(row.agreement).to_owned(),
            ]));
        }
        self.print(&table)
    }

    fn referee(&mut self, parity: &Parity) -> io::Result<()> {
        if parity.rows.iter().all(|row| row.nearer.is_none()) {
            return self.text(
                "Without the server's own log a difference may be the server's: its speed changes \
                 from run to run.",
            );
        }
        let mut table = self.table(&[
            "Against the server's log",
            "AISBench",
            "truth",
            "native",
            "truth",
            "nearer",
        ]);
        for row in parity.rows.iter().filter(|row| row.nearer.is_some()) {
            let by = if row.by == By::Aisbench {
                "AISBench's"
            } else {
                "ours"
            };
            table.add_row(numbers([
                format!("{}, {by}", name(row)),
                decimal(row.aisbench),
                decimal(row.truth_aisbench),
                decimal(row.native),
                decimal(row.truth_native),
                match row.nearer {
                    Some(Nearer::Native) => "native".to_owned(),
                    Some(Nearer::Aisbench) => "AISBench".to_owned(),
                    None => ABSENT.to_owned(),
                },
            ]));
        }
        self.print(&table)
    }

    /// Why the figures that are apart may be, each reason once.
    fn reasons(&mut self, parity: &Parity) -> io::Result<()> {
        let apart = [Agreement::Expected, Agreement::Differs];
        let mut said = Vec::new();
        for row in parity
            .rows
            .iter()
            .filter(|row| apart.contains(&row.agreement))
        {
            let why = row.reason.as_deref().unwrap_or("nothing explains it");
            let line = format!("- {}: {why}", name(row));
            if !said.contains(&line) {
                self.text(&line)?;
                said.push(line);
            }
        }
        Ok(())
    }
}

fn name(row: &ParityRow) -> String {
    let metric = match row.metric.strip_suffix("_ms") {
        Some(metric) => format!("{}, ms", metric.to_uppercase()),
        None => row.metric.replace('_', " "),
    };
    match row.statistic.as_str() {
        "total" => metric,
        statistic => format!("{metric} {statistic}"),
    }
}

fn word(agreement: Agreement) -> &'static str {
    match agreement {
        Agreement::Equal => "equal",
        Agreement::Within => "within 5 % or 3 ms",
        Agreement::Noise => "noise",
        Agreement::Expected => "expected",
        Agreement::Differs => "DIFFERS",
        Agreement::Unknown => ABSENT,
    }
}
