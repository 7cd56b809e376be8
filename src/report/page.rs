//! A page of text of a fixed width: tables, wrapped lines, and words that may be
//! colored. It knows nothing of what stands on it.

use std::io;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Row, Table, TableStyle};

use super::TerminalOptions;

/// One line under the header is enough to read by.
const LINES: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Where text goes, and how wide it may get.
pub(super) struct Page<'a, W> {
    pub(super) width: u16,
    pub(super) color: bool,
    pub(super) out: &'a mut W,
}

impl<'a, W: io::Write> Page<'a, W> {
    pub(super) fn new(options: TerminalOptions, out: &'a mut W) -> Self {
        Self {
            width: options.width,
            color: options.color,
            out,
        }
    }

    pub(super) fn table(&self, header: &[&str]) -> Table {
        let mut table = Table::new();
        table
            .load_style(LINES)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(self.width)
            .set_header(numbers(header.iter().copied()));
        table
    }

    pub(super) fn print(&mut self, table: &Table) -> io::Result<()> {
        writeln!(self.out)?;
        for line in table.lines() {
            writeln!(self.out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        self.wrapped(text, "")
    }

    pub(super) fn indented(&mut self, text: &str) -> io::Result<()> {
        self.wrapped(text, "  ")
    }

    /// Breaks between words; a word longer than the line stays whole.
    fn wrapped(&mut self, text: &str, indent: &str) -> io::Result<()> {
        let width = usize::from(self.width);
        let mut line = indent.to_owned();
        for word in text.split(' ') {
            let empty = line.len() == indent.len();
            let longer = line.chars().count() + usize::from(!empty) + word.chars().count();
            if !empty && longer > width {
                writeln!(self.out, "{line}")?;
                line.truncate(indent.len());
            } else if !empty {
                line.push(' ');
            }
            line.push_str(word);
        }
        writeln!(self.out, "{line}")
    }

    pub(super) fn colored(&self, word: &str, color: &str) -> String {
        if self.color && color != PLAIN {
            format!("\u{1b}[{color}m{word}\u{1b}[0m")
        } else {
            word.to_owned()
        }
    }
}

pub(super) const PLAIN: &str = "";
pub(super) const RED: &str = "1;31";
pub(super) const YELLOW: &str = "1;33";
pub(super) const GREEN: &str = "1;32";

/// A row whose first cell is a name and whose others are numbers.
pub(super) fn numbers<T: ToString>(cells: impl IntoIterator<Item = T>) -> Row {
    let mut row = Row::new();
    for (place, cell) in cells.into_iter().enumerate() {
        let alignment = if place == 0 {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        };
        row.add_cell(Cell::new(cell.to_string()).set_alignment(alignment));
    }
    row
}
