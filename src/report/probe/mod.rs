//! The record of a probe as one HTML file that needs nothing else, and two
//! records side by side: the question, its answer, the evidence.

mod compare;
mod figures;

#[cfg(test)]
mod fixture;

use std::io;

use serde::Serialize;
use serde_json::{Value, json};

use super::HtmlError;
use super::figures::Figure;
use super::html::render;
use super::number::{count, maybe_count};
use crate::probe::{ProbeKind, ProbeRecord, ProbeVerdict, RequestKind, RequestRow, ReuseSource};

pub use compare::probe_comparison_html;

const TEMPLATE: &str = include_str!("../pages/probe.html");

/// Rows of a table; the record holds them all.
const ROWS_MAX: usize = 400;

#[derive(Serialize)]
struct Page<'a> {
    record: &'a ProbeRecord,
    probe: &'static str,
    question: &'static str,
    answer: Answer,
    tiles: Vec<Tile>,
    figures: Vec<Figure>,
    turns: Vec<Turn>,
    turns_left_out: usize,
    doses: Vec<Dose>,
    needles: Vec<Needle>,
    control: Option<Answer>,
    /// Name, value, source.
    engine: Vec<[String; 3]>,
    options: String,
}

/// A probe's verdict in words, and the class of its color.
#[derive(Serialize)]
struct Answer {
    verdict: ProbeVerdict,
    word: &'static str,
    class: &'static str,
    headline: String,
}

/// One figure above the charts.
#[derive(Serialize)]
struct Tile {
    name: &'static str,
    value: String,
    id: &'static str,
    data: String,
}

/// A judged request.
#[derive(Serialize)]
struct Turn {
    side: String,
    round: String,
    prompt: u64,
    cached: String,
    due: String,
    ttft_ms: Option<f64>,
    e2el_ms: Option<f64>,
    verdict: Value,
    class: &'static str,
}

#[derive(Serialize)]
struct Dose {
    asked: u64,
    measured: u64,
    cached: String,
    due: String,
    verdict: Value,
    class: &'static str,
}

#[derive(Serialize)]
struct Needle {
    depth: f64,
    cached: String,
    due: String,
    answered: &'static str,
    cold_answered: &'static str,
    within_reuse: &'static str,
    answer: String,
    verdict: Value,
    class: &'static str,
}

/// Writes the page of one record.
pub fn probe_html(record: &ProbeRecord, out: &mut impl io::Write) -> Result<(), HtmlError> {
    let mut all = figures::figures(record, "")?;
    all.extend(figures::control(record)?);
    let judged = record.requests.iter().filter(|row| row.kind.is_judged());
    let page = Page {
        record,
        probe: record.probe.name(),
        question: question(record.probe),
        answer: answer(record.verdict, record.headline()),
        tiles: tiles(record),
        figures: all,
        turns_left_out: judged.clone().count().saturating_sub(ROWS_MAX),
        turns: judged.take(ROWS_MAX).map(turn).collect(),
        doses: doses(record),
        needles: needles(record),
        control: record.control.as_ref().map(|control| {
            let headline = format!(
                "{} of {} turns passed ({})",
                control.passed_count, control.checked_count, control.origin
            );
            answer(control.verdict, headline)
        }),
        engine: engine(record),
        options: format!("{:#}", record.options),
    };
    render(TEMPLATE, page, out)
}

/// What each probe asks.
fn question(probe: ProbeKind) -> &'static str {
    match probe {
        ProbeKind::Single => "Does a conversation alone reuse its own prefix?",
        ProbeKind::Alternation => "Does a conversation keep its prefix while another one speaks?",
        ProbeKind::Dose => "How much traffic between two turns does reuse survive?",
        ProbeKind::Needle => "Is what the cache restores the right state?",
    }
}

fn answer(verdict: ProbeVerdict, headline: String) -> Answer {
    let (word, class) = match verdict {
        ProbeVerdict::Passed => ("passed", "valid"),
        ProbeVerdict::Reproduced => ("defect reproduced", "invalid"),
        ProbeVerdict::NotCold => ("not cold", "degraded"),
        ProbeVerdict::NothingJudged => ("nothing judged", "degraded"),
    };
    // The pill says what the sentence begins with.
    let headline = match headline.split_once(": ") {
        Some((_, rest)) => rest.to_owned(),
        None => headline,
    };
    Answer {
        verdict,
        word,
        class,
        headline,
    }
}

fn tiles(record: &ProbeRecord) -> Vec<Tile> {
    let what = if record.probe == ProbeKind::Needle {
        "needles that passed"
    } else {
        "turns that passed"
    };
    let mut tiles = vec![Tile {
        name: what,
        value: format!("{} of {}", record.passed_count, record.checked_count),
        id: "passed",
        data: record.passed_count.to_string(),
    }];
    if let Some(knee) = &record.knee {
        let end = |tokens: Option<u64>| tokens.map_or("-".to_owned(), count);
        tiles.push(Tile {
            name: "largest harmless dose, tokens",
            value: end(knee.harmless_tokens),
            id: "harmless",
            data: text(knee.harmless_tokens),
        });
        tiles.push(Tile {
            name: "smallest harmful dose, tokens",
            value: end(knee.harmful_tokens),
            id: "harmful",
            data: text(knee.harmful_tokens),
        });
        let share = record.knee_share.and_then(|share| share.harmful_ratio);
        tiles.push(Tile {
            name: "harmful dose, share of the KV pool",
            value: super::number::percent(share),
            id: "pool-share",
            data: text(share),
        });
    }
    tiles.push(Tile {
        name: "attention block, tokens",
        value: maybe_count(record.block_tokens),
        id: "block",
        data: text(record.block_tokens),
    });
    tiles.push(Tile {
        name: "requests answered",
        value: count(record.totals.request_count as u64),
        id: "requests",
        data: record.totals.request_count.to_string(),
    });
    tiles.push(Tile {
        name: "prompt tokens sent",
        value: count(record.totals.prompt_tokens),
        id: "prompt-tokens",
        data: record.totals.prompt_tokens.to_string(),
    });
    tiles
}

fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn turn(row: &RequestRow) -> Turn {
    Turn {
        side: row.side.clone(),
        round: match row.kind {
            RequestKind::ColdControl => "cold copy".to_owned(),
            _ => row.round.to_string(),
        },
        prompt: row.prompt_tokens,
        cached: cached(row),
        due: due(row),
        ttft_ms: row.ttft_ms,
        e2el_ms: row.e2el_ms,
        verdict: json!(row.verdict),
        class: class(&json!(row.verdict)),
    }
}

/// Cached tokens; those from the counters bear a star.
fn cached(row: &RequestRow) -> String {
    let star = if row.source == ReuseSource::Counters {
        "*"
    } else {
        ""
    };
    maybe_count(row.cached_tokens) + star
}

fn due(row: &RequestRow) -> String {
    row.floor_tokens.map_or("-".to_owned(), count)
}

/// The color of a verdict, whichever kind of thing got it.
fn class(verdict: &Value) -> &'static str {
    match verdict.as_str() {
        Some("OK") => "good",
        Some("LOST" | "WIPED" | "WRONG-ANSWER" | "NO-REUSE") => "bad",
        Some("PARTIAL" | "NOT-COLD" | "MODEL-CANNOT") => "warn",
        _ => "soft",
    }
}

fn doses(record: &ProbeRecord) -> Vec<Dose> {
    let turns = figures::dose_turns(record).into_iter().take(ROWS_MAX);
    let dose = turns.map(|(case, turn)| Dose {
        asked: case.dose_tokens,
        measured: case.measured_tokens,
        cached: turn.map_or(super::number::ABSENT.to_owned(), cached),
        due: turn.map_or("-".to_owned(), due),
        verdict: json!(case.verdict),
        class: class(&json!(case.verdict)),
    });
    dose.collect()
}

fn needles(record: &ProbeRecord) -> Vec<Needle> {
    let turns = figures::needle_turns(record).into_iter().take(ROWS_MAX);
    let right = |answered| if answered { "right" } else { "wrong" };
    let needle = turns.map(|(case, turn)| Needle {
        depth: case.depth_ratio,
        cached: turn.map_or(super::number::ABSENT.to_owned(), cached),
        due: turn.map_or("-".to_owned(), due),
        answered: right(case.answered),
        cold_answered: right(case.cold_answered),
        within_reuse: match case.within_reuse {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known",
        },
        answer: case.answer.clone(),
        verdict: json!(case.verdict),
        class: class(&json!(case.verdict)),
    });
    needle.collect()
}

fn engine(record: &ProbeRecord) -> Vec<[String; 3]> {
    let facts = record.engine.0.iter().map(|(name, fact)| {
        let source = json!(fact.source);
        [
            name.replace('_', " "),
            shown(&fact.value),
            source.as_str().unwrap_or_default().to_owned(),
        ]
    });
    facts.collect()
}

/// A value of a record as people read it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_u64().map_or(number.to_string(), count),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{alternation, dose, needle};
    use super::*;

    fn page(record: &ProbeRecord) -> String {
        let mut text = Vec::new();
        probe_html(record, &mut text).unwrap();
        let page = String::from_utf8(text).unwrap();
        let links = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!links.contains("http") && !links.contains("<script"));
        assert!(!page.contains("NaN") && !page.contains(">none<"), "{page}");
        page
    }

    #[test]
    fn the_answer_stands_first_and_each_turn_has_its_row() {
        let record = alternation(false);
        let page = page(&record);
        assert!(page.contains("class=\"verdict invalid\">defect reproduced<"));
        assert!(page.contains("id=\"passed\" data-value=\"2\">2 of 6<"));
        assert_eq!(page.matches("data-verdict=\"LOST\"").count(), 4);
        assert_eq!(page.matches("data-verdict=\"COLD\"").count(), 2);
        assert!(page.contains("A &lt;one&gt;"), "names are escaped");
        // Reuse, first token, and those of the single arm.
        assert_eq!(page.matches("<figure>").count(), 3);
        let answer = page.find("defect reproduced").unwrap();
        assert!(answer < page.find("<svg").unwrap());
    }

    #[test]
    fn a_dose_has_its_knee_as_tiles_and_as_a_band() {
        let page = page(&dose(1));
        assert!(page.contains("id=\"harmless\" data-value=\"12000\">12,000<"));
        assert!(page.contains("id=\"harmful\" data-value=\"13000\">13,000<"));
        assert!(page.contains("knee, 12,000 to 13,000 tokens"));
        assert!(page.contains("pool full with the conversation, 12,500 tokens"));
        assert_eq!(page.matches("<figure>").count(), 2);
    }

    #[test]
    fn a_needle_shows_both_answers_and_whether_it_tests_anything() {
        let page = page(&needle());
        assert_eq!(page.matches("data-verdict=\"WRONG-ANSWER\"").count(), 1);
        assert_eq!(page.matches("data-verdict=\"MODEL-CANNOT\"").count(), 1);
        assert!(page.contains("<td>right</td>") && page.contains("<td>no</td>"));
        assert_eq!(page.matches("<figure>").count(), 1);
    }

    #[test]
    fn a_record_without_a_turn_has_a_page_that_says_so() {
        let mut empty = alternation(true);
        empty.requests.clear();
        empty.control = None;
        empty.verdict = ProbeVerdict::NothingJudged;
        let page = page(&empty);
        assert!(page.contains("nothing judged") && page.contains("There is nothing to draw."));
    }

    #[test]
    fn a_long_conversation_is_drawn_as_lines() {
        let mut long = alternation(true);
        let turn = long.requests[2].clone();
        long.requests = (1..=200)
            .map(|round| RequestRow {
                round,
                ..turn.clone()
            })
            .collect();
        let page = page(&long);
        assert!(page.contains("due, conversation A"), "{page}");
        assert!(page.len() < 200_000, "{}", page.len());
    }
}
