//! The charts of a probe's record: what each turn reused of what was due, what
//! each dose left, where each pass phrase stood, and what reuse did to the first
//! token. Nothing is computed but positions.

use std::collections::BTreeMap;

use crate::probe::{
    DoseCase, DoseVerdict, NeedleCase, NeedleVerdict, ProbeKind, ProbeRecord, RequestRow,
    TurnVerdict,
};
use crate::report::chart::{Axes, Band, Bar, Dots, Drawing, Line, Plot, bars, plot};
use crate::report::figures::{Figure, PLAIN, as_percent, figure};
use crate::report::html::HtmlError;
use crate::report::number::count;
use crate::report::paint::{Key, Paint};

/// Turns that have a row of their own; more of them are drawn as lines.
const ROWS_MAX: usize = 48;
/// Width of a mark, as a share of the axis.
const MARK_SHARE: f64 = 0.006;

/// All charts of a record that have something to show. `which` is put in front
/// of their titles, to tell one record's from another's.
pub(super) fn figures(record: &ProbeRecord, which: &str) -> Result<Vec<Figure>, HtmlError> {
    let turns: Vec<&RequestRow> = record.turns().collect();
    let drawn = match record.probe {
        ProbeKind::Single | ProbeKind::Alternation => vec![
            reuse(&format!("{which}Reuse by turn"), &turns)?,
            first_token(&format!("{which}First token by turn"), &turns)?,
        ],
        ProbeKind::Dose => vec![
            response(&format!("{which}Reuse after a dose"), record)?,
            dose_first_token(&format!("{which}First token after a dose"), record)?,
        ],
        ProbeKind::Needle => vec![needles(&format!("{which}Where the phrase stands"), record)?],
    };
    Ok(drawn.into_iter().flatten().collect())
}

/// The turns of the quoted single arm.
pub(super) fn control(record: &ProbeRecord) -> Result<Option<Figure>, HtmlError> {
    let Some(control) = &record.control else {
        return Ok(None);
    };
    let turns = control.requests.iter().filter(|row| row.kind.is_turn());
    reuse("The single arm: reuse by turn", &turns.collect::<Vec<_>>())
}

/// Cached tokens of each turn over its prompt, with a mark at what was due.
fn reuse(title: &str, turns: &[&RequestRow]) -> Result<Option<Figure>, HtmlError> {
    if turns.len() > ROWS_MAX {
        return reuse_lines(title, turns);
    }
    let longest = turns.iter().map(|row| row.prompt_tokens).max().unwrap_or(0);
    let half = longest as f64 * MARK_SHARE / 2.0;
    let mut drawn = Vec::new();
    for (row, turn) in turns.iter().enumerate() {
        let bar = |from: f64, to: f64, share: f64, paint: Paint| Bar {
            row,
            from,
            to,
            share,
            paint,
        };
        drawn.push(bar(0.0, turn.prompt_tokens as f64, 0.0, Paint::Soft));
        let cached = turn.cached_tokens.unwrap_or(0);
        drawn.push(bar(0.0, cached as f64, 1.0, turn_paint(turn.verdict)));
        if let Some(due) = turn.floor_tokens.map(|due| due as f64) {
            let missing = turn_paint(turn.verdict);
            drawn.push(bar(cached as f64, due.max(cached as f64), 0.2, missing));
            drawn.push(bar(due - half, due + half, 1.0, Paint::Ink));
        }
    }
    let names: Vec<String> = turns
        .iter()
        .map(|turn| format!("{}, turn {}", turn.side, turn.round))
        .collect();
    let axes = Axes {
        x: "prompt tokens",
        ..PLAIN
    };
    let drawing = bars(&axes, &names, &drawn)?.map(|drawing| Drawing {
        keys: reuse_keys(turns),
        ..drawing
    });
    let note = "From the cache, of the whole prompt; a turn passes when it reaches the mark.";
    Ok(figure(title, note, drawing))
}

fn reuse_keys(turns: &[&RequestRow]) -> Vec<Key> {
    let some = |wanted: TurnVerdict| turns.iter().any(|turn| turn.verdict == Some(wanted));
    let verdicts = [
        (TurnVerdict::Ok, "reused as due"),
        (TurnVerdict::Partial, "due, reused in part"),
        (TurnVerdict::Lost, "due and lost"),
        (TurnVerdict::NotCold, "reused where it had to be cold"),
    ];
    let mut keys: Vec<Key> = verdicts
        .into_iter()
        .filter(|(verdict, _)| some(*verdict))
        .map(|(verdict, name)| Key::new(name, turn_paint(Some(verdict))))
        .collect();
    keys.push(Key::new("prompt", Paint::Soft));
    keys.push(Key::new("due", Paint::Ink));
    keys
}

/// The same of many turns: a line a conversation, and one of what was due.
fn reuse_lines(title: &str, turns: &[&RequestRow]) -> Result<Option<Figure>, HtmlError> {
    let mut all = by_side(turns, |turn| Some(turn.cached_tokens? as f64));
    let due = by_side(turns, |turn| Some(turn.floor_tokens? as f64));
    all.extend(due.into_iter().take(1).map(|line| Line {
        name: format!("due, {}", line.name),
        ..line
    }));
    let axes = Axes {
        x: "turn",
        y: "cached tokens",
        ..PLAIN
    };
    let note = "From the cache, turn by turn, and what had to come from it.";
    Ok(figure(title, note, lines_of(&axes, &all)?))
}

fn first_token(title: &str, turns: &[&RequestRow]) -> Result<Option<Figure>, HtmlError> {
    let axes = Axes {
        x: "turn",
        y: "TTFT, ms",
        ..PLAIN
    };
    let note = "Turn 1 computes the whole prompt; a later one only what is not reused.";
    let all = by_side(turns, |turn| turn.ttft_ms);
    Ok(figure(title, note, lines_of(&axes, &all)?))
}

fn lines_of(axes: &Axes, lines: &[Line]) -> Result<Option<Drawing>, HtmlError> {
    plot(&Plot {
        axes,
        bands: &[],
        dots: &[],
        lines,
        first_line: 0,
    })
}

/// A line a conversation, its turns along x.
fn by_side(turns: &[&RequestRow], pick: impl Fn(&RequestRow) -> Option<f64>) -> Vec<Line> {
    let mut sides: BTreeMap<&str, Vec<[f64; 2]>> = BTreeMap::new();
    for turn in turns {
        let points = sides.entry(&turn.side).or_default();
        points.extend(pick(turn).map(|value| [f64::from(turn.round), value]));
    }
    let line = |(side, points): (&str, Vec<[f64; 2]>)| Line {
        name: format!("conversation {side}"),
        points,
    };
    sides.into_iter().map(line).collect()
}

/// Every dose with the turn after it.
pub(super) fn dose_turns(record: &ProbeRecord) -> Vec<(&DoseCase, Option<&RequestRow>)> {
    let numbered = (1..).zip(&record.doses);
    numbered
        .map(|(number, case)| {
            (
                case,
                last_turn(record, &DoseCase::side(case.dose_tokens, number)),
            )
        })
        .collect()
}

/// Every needle with the turn that asked for it.
pub(super) fn needle_turns(record: &ProbeRecord) -> Vec<(&NeedleCase, Option<&RequestRow>)> {
    let numbered = (1..).zip(&record.needles);
    numbered
        .map(|(number, case)| {
            let side = NeedleCase::side(case.depth_ratio, number);
            (case, last_turn(record, &side))
        })
        .collect()
}

fn last_turn<'r>(record: &'r ProbeRecord, side: &str) -> Option<&'r RequestRow> {
    record
        .turns()
        .filter(|row| row.side == side && row.round > 1)
        .last()
}

/// What each dose left of what was due, with the knee.
fn response(title: &str, record: &ProbeRecord) -> Result<Option<Figure>, HtmlError> {
    let axes = Axes {
        x: "tokens of traffic between two turns",
        y: "reused of what was due",
        y_label: as_percent,
        ..PLAIN
    };
    let dots = dots(record, |turn| {
        let due = turn.floor_tokens.filter(|due| *due > 0)?;
        Some(turn.cached_tokens? as f64 / due as f64)
    });
    let note = "Each point is a fresh conversation; 100 % is all that was due.";
    Ok(figure(title, note, dose_plot(&axes, record, &dots)?))
}

fn dose_first_token(title: &str, record: &ProbeRecord) -> Result<Option<Figure>, HtmlError> {
    let axes = Axes {
        x: "tokens of traffic between two turns",
        y: "TTFT, ms",
        ..PLAIN
    };
    let dots = dots(record, |turn| turn.ttft_ms);
    let note = "Of the turn after the traffic.";
    Ok(figure(title, note, dose_plot(&axes, record, &dots)?))
}

fn dose_plot(
    axes: &Axes,
    record: &ProbeRecord,
    dots: &[Dots],
) -> Result<Option<Drawing>, HtmlError> {
    plot(&Plot {
        axes,
        bands: &bands(record),
        dots,
        lines: &[],
        first_line: 0,
    })
}

/// The turns after doses by verdict, at the size the server counted.
fn dots(record: &ProbeRecord, pick: impl Fn(&RequestRow) -> Option<f64>) -> Vec<Dots> {
    let kinds = [
        (DoseVerdict::Ok, "OK", Paint::Good),
        (DoseVerdict::Partial, "PARTIAL", Paint::Warn),
        (DoseVerdict::Wiped, "WIPED", Paint::Bad),
        (DoseVerdict::Undecided, "UNDECIDED", Paint::Soft),
    ];
    let turns = dose_turns(record);
    let of = |verdict: DoseVerdict| {
        let cases = turns
            .iter()
            .filter(move |(case, _)| case.verdict == verdict);
        let point = |&(case, turn): &(&DoseCase, Option<&RequestRow>)| {
            Some([case.measured_tokens as f64, pick(turn?)?])
        };
        cases.filter_map(point).collect::<Vec<_>>()
    };
    let dots = kinds.map(|(verdict, name, paint)| Dots {
        name: name.to_owned(),
        paint,
        radius: 5,
        points: of(verdict),
    });
    dots.into()
}

/// The interval of the knee, and where the pool is full.
fn bands(record: &ProbeRecord) -> Vec<Band> {
    let mut bands = Vec::new();
    let Some(knee) = &record.knee else {
        return bands;
    };
    if let (Some(low), Some(high)) = (knee.harmless_tokens, knee.harmful_tokens) {
        bands.push(Band {
            name: format!("knee, {} to {} tokens", count(low), count(high)),
            paint: Paint::Series(1),
            from: low as f64,
            to: high as f64,
        });
    }
    let most = record.doses.iter().map(|case| case.measured_tokens).max();
    let room = record
        .knee_share
        .and_then(|share| share.pool_tokens.checked_sub(share.conversation_tokens));
    // A pool far larger than what was tried would only squeeze the points.
    if let Some(room) = room.filter(|room| most.is_some_and(|most| *room <= most * 2)) {
        let half = most.unwrap_or(0) as f64 * MARK_SHARE / 2.0;
        bands.push(Band {
            name: format!("pool full with the conversation, {} tokens", count(room)),
            paint: Paint::Ink,
            from: room as f64 - half,
            to: room as f64 + half,
        });
    }
    bands
}

/// The document of each needle: what was reused of it, and where the phrase
/// stood.
fn needles(title: &str, record: &ProbeRecord) -> Result<Option<Figure>, HtmlError> {
    let mut drawn = Vec::new();
    let mut names = Vec::new();
    for (row, (case, turn)) in needle_turns(record).into_iter().enumerate() {
        let bar = |from: f64, to: f64, share: f64, paint: Paint| Bar {
            row,
            from,
            to,
            share,
            paint,
        };
        names.push(format!("depth {}", case.depth_ratio));
        drawn.push(bar(0.0, 1.0, 0.0, Paint::Soft));
        if let Some(turn) = turn.filter(|turn| turn.previous_tokens > 0) {
            let reused = turn.cached_tokens.unwrap_or(0) as f64 / turn.previous_tokens as f64;
            drawn.push(bar(0.0, reused, 0.8, needle_paint(case.verdict)));
        }
        let half = MARK_SHARE;
        drawn.push(bar(
            case.depth_ratio - half,
            case.depth_ratio + half,
            1.0,
            Paint::Ink,
        ));
    }
    if names.is_empty() {
        return Ok(None);
    }
    let axes = Axes {
        x: "place in the first turn's prompt",
        x_label: as_percent,
        ..PLAIN
    };
    let keys = vec![
        Key::new("reused, answered rightly", Paint::Good),
        Key::new("reused, answered wrongly", Paint::Bad),
        Key::new("proves nothing", Paint::Warn),
        Key::new("pass phrase", Paint::Ink),
    ];
    let drawing = bars(&axes, &names, &drawn)?.map(|drawing| Drawing { keys, ..drawing });
    let note = "Colored is what came from the cache when the phrase was asked for; only a phrase \
                inside it tests what was restored.";
    Ok(figure(title, note, drawing))
}

fn turn_paint(verdict: Option<TurnVerdict>) -> Paint {
    match verdict {
        Some(TurnVerdict::Ok) => Paint::Good,
        Some(TurnVerdict::Partial | TurnVerdict::NotCold) => Paint::Warn,
        Some(TurnVerdict::Lost) => Paint::Bad,
        Some(TurnVerdict::Cold | TurnVerdict::Undecided) | None => Paint::Soft,
    }
}

fn needle_paint(verdict: NeedleVerdict) -> Paint {
    match verdict {
        NeedleVerdict::Ok => Paint::Good,
        NeedleVerdict::WrongAnswer | NeedleVerdict::NoReuse => Paint::Bad,
        NeedleVerdict::ModelCannot | NeedleVerdict::Undecided => Paint::Warn,
    }
}
