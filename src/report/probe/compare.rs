//! Two records of one probe as one page: both answers, what was under test, and
//! the evidence of either beside the other's.

use std::io;

use serde::Serialize;
use serde_json::Value;

use super::{Answer, answer, figures, question, shown};
use crate::probe::{Comparison, Line, ProbeKind, ProbeRecord, TurnVerdict};
use crate::report::HtmlError;
use crate::report::chart::{Axes, Line as Drawn, Plot, plot};
use crate::report::figures::{Figure, PLAIN, as_percent, figure};
use crate::report::html::render;

const TEMPLATE: &str = include_str!("../pages/probe_comparison.html");

#[derive(Serialize)]
struct Page {
    probe: &'static str,
    question: &'static str,
    sides: [Side; 2],
    figures: Vec<Figure>,
    /// What differs about the arms themselves.
    differing: Vec<Row>,
    /// What does not.
    equal: Vec<Row>,
    results: Vec<Row>,
    differing_results: usize,
    /// Whether there are doses or needles, which sum the turns up.
    cases: bool,
}

#[derive(Serialize)]
struct Side {
    letter: &'static str,
    name: String,
    answer: Answer,
}

#[derive(Serialize)]
struct Row {
    name: String,
    left: String,
    right: String,
    same: bool,
    /// Whether it is one turn of a conversation.
    turn: bool,
}

/// Writes the page of two records that `comparison` sets side by side.
pub fn probe_comparison_html(
    records: [&ProbeRecord; 2],
    comparison: &Comparison,
    out: &mut impl io::Write,
) -> Result<(), HtmlError> {
    let [left, right] = records;
    let mut all: Vec<Figure> = together(records)?.into_iter().collect();
    all.extend(interleaved(
        figures::figures(left, "A: ")?,
        figures::figures(right, "B: ")?,
    ));
    let (equal, differing): (Vec<&Line>, Vec<&Line>) =
        comparison.setting.iter().partition(|line| line.same);
    let rows = |lines: Vec<&Line>| lines.into_iter().map(row).collect();
    let page = Page {
        probe: comparison.probe.name(),
        question: question(comparison.probe),
        sides: [side("A", left), side("B", right)],
        figures: all,
        differing: rows(differing),
        equal: rows(equal),
        differing_results: comparison.result.iter().filter(|line| !line.same).count(),
        results: comparison.result.iter().map(row).collect(),
        cases: matches!(comparison.probe, ProbeKind::Dose | ProbeKind::Needle),
    };
    render(TEMPLATE, page, out)
}

fn side(letter: &'static str, record: &ProbeRecord) -> Side {
    Side {
        letter,
        name: record
            .arm
            .clone()
            .unwrap_or_else(|| format!("started {}", record.started)),
        answer: answer(record.verdict, record.headline()),
    }
}

fn row(line: &Line) -> Row {
    Row {
        name: line.name.clone(),
        left: side_of(&line.left),
        right: side_of(&line.right),
        same: line.same,
        turn: line.name.contains(" round ") || line.name.ends_with(" cold copy"),
    }
}

/// What one record says, and a dash where it says nothing.
fn side_of(value: &Value) -> String {
    if value.is_null() {
        "-".to_owned()
    } else {
        shown(value)
    }
}

/// The nth of either beside the nth of the other.
fn interleaved(left: Vec<Figure>, right: Vec<Figure>) -> Vec<Figure> {
    let mut right = right.into_iter();
    let mut all = Vec::new();
    for figure in left {
        all.push(figure);
        all.extend(right.next());
    }
    all.extend(right);
    all
}

/// Both on one pair of axes: of conversations what each turn reused of what was
/// due, of doses the same by dose.
fn together(records: [&ProbeRecord; 2]) -> Result<Option<Figure>, HtmlError> {
    let is_dose = match records[0].probe {
        ProbeKind::Single | ProbeKind::Alternation => false,
        ProbeKind::Dose => true,
        ProbeKind::Needle => return Ok(None),
    };
    let points = if is_dose { of_doses } else { of_turns };
    let lines = ["A", "B"].into_iter().zip(records);
    let lines: Vec<Drawn> = lines
        .map(|(letter, record)| Drawn {
            name: letter.to_owned(),
            points: points(record),
        })
        .collect();
    let axes = Axes {
        x: if is_dose {
            "tokens of traffic between two turns"
        } else {
            "turn, in the order sent"
        },
        y: "reused of what was due",
        y_label: as_percent,
        ..PLAIN
    };
    let drawing = plot(&Plot {
        axes: &axes,
        bands: &[],
        dots: &[],
        lines: &lines,
        first_line: 0,
    })?;
    let note = if is_dose {
        "By the size of the traffic; the least of each size."
    } else {
        "Later turns of all conversations; 100 % is all that was due."
    };
    Ok(figure("A and B: reuse", note, drawing))
}

fn of_turns(record: &ProbeRecord) -> Vec<[f64; 2]> {
    let later = record
        .turns()
        .filter(|row| row.round > 1 && row.verdict != Some(TurnVerdict::Undecided));
    let shares = later.filter_map(|row| share(row.cached_tokens, row.floor_tokens));
    (1_u32..)
        .zip(shares)
        .map(|(place, share)| [f64::from(place), share])
        .collect()
}

fn of_doses(record: &ProbeRecord) -> Vec<[f64; 2]> {
    let mut least = std::collections::BTreeMap::<u64, f64>::new();
    for (case, turn) in figures::dose_turns(record) {
        let found = turn.and_then(|turn| share(turn.cached_tokens, turn.floor_tokens));
        if let Some(found) = found {
            let known = least.entry(case.measured_tokens).or_insert(found);
            *known = known.min(found);
        }
    }
    let points = least.into_iter();
    points.map(|(dose, share)| [dose as f64, share]).collect()
}

fn share(cached: Option<u64>, due: Option<u64>) -> Option<f64> {
    crate::units::ratio(cached?, due?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::compare;
    use crate::report::probe::fixture::{alternation, dose, needle};

    fn page(left: &ProbeRecord, right: &ProbeRecord) -> String {
        let comparison = compare(left, right).unwrap();
        let mut text = Vec::new();
        probe_comparison_html([left, right], &comparison, &mut text).unwrap();
        let page = String::from_utf8(text).unwrap();
        let links = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!links.contains("http") && !links.contains("<script"));
        assert!(!page.contains("NaN"), "{page}");
        page
    }

    #[test]
    fn both_answers_stand_above_what_differs() {
        let (broken, fixed) = (alternation(false), alternation(true));
        let page = page(&broken, &fixed);
        assert!(page.contains("id=\"verdict-a\" data-value=\"reproduced\""));
        assert!(page.contains("id=\"verdict-b\" data-value=\"passed\""));
        let differing = compare(&broken, &fixed).unwrap();
        let differing = differing.result.iter().filter(|line| !line.same).count();
        let table = page.split_once("id=\"results\"").unwrap().1;
        assert_eq!(table.matches("class=\"differs\"").count(), differing);
        // Both together, then reuse and first token of each.
        assert_eq!(page.matches("<figure>").count(), 5);
    }

    #[test]
    fn knees_and_needles_have_pages_too() {
        assert_eq!(page(&dose(1), &dose(2)).matches("<figure>").count(), 5);
        assert_eq!(page(&needle(), &needle()).matches("<figure>").count(), 2);
    }

    #[test]
    fn of_repeated_doses_the_least_reuse_is_drawn() {
        let mut record = dose(1);
        let last = record.requests.len() - 1;
        record.doses.push(record.doses[0].clone());
        let number = record.doses.len();
        let mut again = record.requests[last].clone();
        again.side = crate::probe::DoseCase::side(record.doses[0].dose_tokens, number);
        again.cached_tokens = Some(again.floor_tokens.unwrap() / 2);
        record.requests.push(again);
        let dose = record.doses[0].measured_tokens as f64;
        assert!(of_doses(&record).contains(&[dose, 0.5]));
    }
}
