//! What people see of a probe on a terminal of 80 columns: the engine, a line
//! as each request is answered, and the table at the end.

use comfy_table::{Cell, CellAlignment, Row};
use serde_json::{Value, json};

use crate::cli::output::{colored, columns, table as lined, wrapped};
use crate::probe::{
    DoseCase, EngineRecord, FactSource, NeedleCase, ProbeRecord, ProbeVerdict, RequestKind,
    RequestRow, ReuseSource,
};

/// Rows that the table shows at most; the record holds them all.
const TABLE_ROWS_MAX: usize = 200;

/// The engine's facts, one a line, each with its source.
pub(super) fn engine(record: &EngineRecord) -> String {
    let mut table = lined(&["engine", "", "from"]);
    for (name, fact) in &record.0 {
        let value = match &fact.value {
            Value::Null => "unknown".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) => number.as_u64().map_or(number.to_string(), grouped),
            other => other.to_string(),
        };
        let source = match fact.source {
            FactSource::Unknown => String::new(),
            source => word(&json!(source)),
        };
        table.add_row([name.replace('_', " "), value, source]);
    }
    trimmed(&table)
}

/// A table without the blanks at the ends of its lines.
fn trimmed(table: &comfy_table::Table) -> String {
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// The verdict of the whole, colored where that is wanted.
pub(super) fn headline(record: &ProbeRecord) -> String {
    let color = match record.verdict {
        ProbeVerdict::Passed => "1;32",
        ProbeVerdict::Reproduced => "1;31",
        ProbeVerdict::NotCold | ProbeVerdict::NothingJudged => "1;33",
    };
    let headline = record.headline();
    let (verdict, rest) = match headline.split_once(':') {
        Some((verdict, rest)) => (verdict, format!(":{rest}")),
        None => (headline.as_str(), String::new()),
    };
    format!("{}{rest}", colored(verdict, color))
}

/// One request as it was answered.
pub(super) fn row(row: &RequestRow) -> String {
    let what = match (row.kind, row.round) {
        (RequestKind::Calibration, _) => format!("{} sizing", row.side),
        (RequestKind::ColdControl, _) => format!("{} copy", row.side),
        (RequestKind::Dose, _) => format!("{} sent", row.side),
        (_, 0) => row.side.clone(),
        (_, round) => format!("{} turn {round}", row.side),
    };
    let floor = row
        .floor_tokens
        .map_or(String::new(), |floor| format!(" of {} due", grouped(floor)));
    let verdict = row.verdict.map_or(String::new(), |verdict| {
        format!("  {}", word(&json!(verdict)))
    });
    format!(
        "{what:<22} prompt {:>9}  cached {:>9}{floor}{verdict}",
        grouped(row.prompt_tokens),
        cached(row),
    )
}

fn cached(row: &RequestRow) -> String {
    match (row.cached_tokens, row.source) {
        (Some(tokens), ReuseSource::Counters) => format!("{}*", grouped(tokens)),
        (Some(tokens), _) => grouped(tokens),
        (None, _) => "?".to_owned(),
    }
}

/// The table of all judged requests.
pub(super) fn table(record: &ProbeRecord) -> String {
    let mut table = lined(&[]);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut header = Row::from(vec![Cell::new("Conversation")]);
    for name in ["turn", "prompt", "cached", "due", "TTFT, ms"] {
        header.add_cell(right(name.to_owned()));
    }
    header.add_cell(Cell::new("verdict"));
    table.set_header(header);
    let judged: Vec<&RequestRow> = record
        .requests
        .iter()
        .filter(|row| row.kind.is_judged())
        .collect();
    for row in judged.iter().take(TABLE_ROWS_MAX) {
        let round = match row.kind {
            RequestKind::ColdControl => "cold".to_owned(),
            _ => row.round.to_string(),
        };
        let due = row.floor_tokens.map_or("-".to_owned(), grouped);
        let ttft = row
            .ttft_ms
            .map_or("-".to_owned(), |ttft| format!("{ttft:.0}"));
        let verdict = row.verdict.map(|verdict| word(&json!(verdict)));
        table.add_row([
            Cell::new(&row.side),
            right(round),
            right(grouped(row.prompt_tokens)),
            right(cached(row)),
            right(due),
            right(ttft),
            Cell::new(verdict.unwrap_or_default()),
        ]);
    }
    let mut text = trimmed(&table);
    if judged.len() > TABLE_ROWS_MAX {
        let left = judged.len() - TABLE_ROWS_MAX;
        text.extend(["\n… and ", &left.to_string(), " more, in the record"]);
    }
    text
}

/// One dose.
pub(super) fn dose(case: &DoseCase) -> String {
    format!(
        "dose {:>9} ({} measured)  {}",
        grouped(case.dose_tokens),
        grouped(case.measured_tokens),
        word(&json!(case.verdict))
    )
}

/// One needle.
pub(super) fn needle(case: &NeedleCase) -> String {
    let right = |answered| if answered { "right" } else { "wrong" };
    format!(
        "needle at {}  {}  (answer {}, cold copy {})",
        case.depth_ratio,
        word(&json!(case.verdict)),
        right(case.answered),
        right(case.cold_answered)
    )
}

/// The block of the verdicts, and where it comes from.
pub(super) fn block(record: &ProbeRecord) -> String {
    let source = word(&json!(record.block_source));
    let block = match record.block_tokens {
        Some(tokens) => format!("block {} ({source})", grouped(tokens)),
        None => format!("no block ({source}: 90 % of the prompt before)"),
    };
    match record.retention_tokens {
        0 => block,
        interval => format!("{block}, retention {}", grouped(interval)),
    }
}

/// A sentence over as many lines as it needs, the later ones indented.
pub(super) fn note(text: &str) -> String {
    let whole = wrapped(&format!("  {text}"), usize::from(columns()));
    format!("- {}", whole.trim_start())
}

/// An enum's word as the record spells it.
fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A count with commas.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Fact, TurnVerdict};

    fn turn(cached: Option<u64>) -> RequestRow {
        RequestRow {
            kind: RequestKind::Turn,
            side: "A".into(),
            round: 2,
            prompt_tokens: 130_040,
            cached_tokens: cached,
            completion_tokens: 8,
            source: ReuseSource::Usage,
            ttft_ms: Some(12.4),
            e2el_ms: None,
            previous_tokens: 130_000,
            floor_tokens: Some(128_384),
            block_tokens: Some(2_176),
            verdict: Some(TurnVerdict::Lost),
        }
    }

    #[test]
    fn a_line_says_what_was_due_and_what_came() {
        assert_eq!(
            row(&turn(Some(0))),
            "A turn 2               prompt   130,040  cached         0 of 128,384 due  LOST"
        );
        assert!(row(&turn(None)).contains("cached         ?"));
        assert!(row(&turn(Some(1))).chars().count() <= 80);
    }

    #[test]
    fn counts_are_grouped_and_sentences_wrapped() {
        let pairs = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ];
        for (count, text) in pairs {
            assert_eq!(grouped(count), text);
        }
        let text = note(&"word ".repeat(60));
        assert!(text.starts_with("- word") && text.lines().count() >= 3);
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")));
    }

    #[test]
    fn each_fact_stands_with_its_source() {
        let mut facts = EngineRecord::default();
        facts.offer("block_size", Fact::new(480, FactSource::Metric));
        facts.offer("version", Fact::UNKNOWN);
        let lines = engine(&facts);
        let lines: Vec<Vec<&str>> = lines
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[2], ["block", "size", "480", "metric"]);
        assert_eq!(lines[3], ["version", "unknown"]);
    }
}
