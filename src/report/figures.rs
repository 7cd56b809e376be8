//! The charts of one analysis: which series goes on which axes. Nothing is
//! computed but positions.

use serde::Serialize;

use super::chart::{Axes, Bar, Drawing, Line, bars, lines};
use super::html::HtmlError;
use super::names::cause_name;
use super::paint::Paint;
use crate::analyze::{Analysis, CumulativePoint, TimeSlice};

/// A chart and what to say of it.
#[derive(Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) note: String,
    #[serde(flatten)]
    pub(super) drawing: Drawing,
}

/// All charts that have something to show.
pub(super) fn figures(analysis: &Analysis) -> Result<Vec<Figure>, HtmlError> {
    let drawn = [
        waterfall(analysis)?,
        cumulative(analysis)?,
        worth(analysis)?,
        percentiles(analysis)?,
        first_token_over_time(analysis)?,
        gaps_over_time(analysis)?,
        in_flight(analysis)?,
        kv(analysis)?,
        timeline(analysis)?,
    ];
    Ok(drawn.into_iter().flatten().collect())
}

/// A figure, where there is a drawing.
pub(super) fn figure(
    title: impl Into<String>,
    note: impl Into<String>,
    drawing: Option<Drawing>,
) -> Option<Figure> {
    drawing.map(|drawing| Figure {
        title: title.into(),
        note: note.into(),
        drawing,
    })
}

/// From the planned theory down to what usage reports, one step a cause.
fn waterfall(analysis: &Analysis) -> Result<Option<Figure>, HtmlError> {
    let overall = &analysis.hits.overall;
    let tokens =
        |line: Option<crate::analyze::HitLine>| line.map_or(0, |line| line.hit_tokens) as f64;
    let (planned, executed) = (tokens(overall.planned_server), tokens(overall.executed));
    if planned == 0.0 && executed == 0.0 && analysis.attribution.causes.is_empty() {
        return Ok(None);
    }
    let mut names = vec!["theory, planned".to_owned()];
    let mut steps = vec![(0.0, planned)];
    if executed < planned {
        names.push("not served".to_owned());
        steps.push((executed, planned));
    }
    let mut level = executed;
    for total in &analysis.attribution.causes {
        let next = level - total.lost_tokens as f64;
        names.push(cause_name(total.cause).to_owned());
        steps.push((next.min(level), next.max(level)));
        level = next;
    }
    names.push("by usage".to_owned());
    steps.push((0.0, level));
    let last = steps.len() - 1;
    let drawn: Vec<Bar> = steps
        .into_iter()
        .enumerate()
        .map(|(row, (from, to))| Bar {
            row,
            from,
            to,
            share: if row == 0 || row == last { 1.0 } else { 0.6 },
            paint: match row {
                0 => Paint::Series(0),
                row if row == last => Paint::Series(2),
                _ => Paint::Series(1),
            },
        })
        .collect();
    let axes = Axes {
        x: "hit tokens",
        ..PLAIN
    };
    let note = "Tokens that a perfect cache would serve, less what was lost, by cause.";
    Ok(figure(
        "From theory to actual",
        note,
        bars(&axes, &names, &drawn)?,
    ))
}

fn cumulative(analysis: &Analysis) -> Result<Option<Figure>, HtmlError> {
    let line = |name: &str, pick: fn(&CumulativePoint) -> Option<f64>| Line {
        name: name.to_owned(),
        points: analysis
            .series
            .cumulative
            .iter()
            .filter_map(|point| Some([point.requests as f64, pick(point)?]))
            .collect(),
    };
    let all = [
        line("theory, planned", |point| point.planned),
        line("theory, executed", |point| point.executed),
        line("actual, by usage", |point| point.actual),
    ];
    let axes = Axes {
        x: "requests sent",
        y: "hit rate",
        y_label: as_percent,
        ..PLAIN
    };
    let note = "Hit rate over everything sent so far.";
    Ok(figure(
        "Cumulative hit rate",
        note,
        lines(&axes, &all, &[])?,
    ))
}

fn worth(analysis: &Analysis) -> Result<Option<Figure>, HtmlError> {
    let points = &analysis.series.ttft_by_uncached;
    let most = points.iter().map(|point| point[0]).fold(0.0, f64::max);
    let fit = analysis.worth.fit.map(|fit| {
        let at = |x: f64| {
            [
                x,
                fit.intercept_ms + fit.ms_per_1000_uncached_tokens * x / 1e3,
            ]
        };
        Line {
            name: format!("{:.1} ms per 1,000 tokens", fit.ms_per_1000_uncached_tokens),
            points: vec![at(0.0), at(most)],
        }
    });
    let axes = Axes {
        x: "uncached prompt tokens",
        y: "TTFT, ms",
        ..PLAIN
    };
    let fit: Vec<Line> = fit.into_iter().collect();
    let note = "Each point is a request; the line is the least-squares fit.";
    Ok(figure(
        "What a hit is worth",
        note,
        lines(&axes, &fit, points)?,
    ))
}

fn percentiles(analysis: &Analysis) -> Result<Option<Figure>, HtmlError> {
    // The axis ends where the finest curve's own percentiles end; 100 % has no
    // place on it.
    let all: Vec<Line> = analysis
        .series
        .curves
        .iter()
        .map(|curve| Line {
            name: curve.metric.trim_end_matches("_ms").to_uppercase(),
            points: curve
                .points
                .iter()
                .filter(|point| point[0] < 100.0)
                .map(|&[percent, ms]| [-(1.0 - percent / 100.0).log10(), ms])
                .collect(),
        })
        .collect();
    let axes = Axes {
        x: "percentile",
        y: "ms",
        x_label: as_nines,
        ..PLAIN
    };
    let note = "Latency by percentile; each step to the right is ten times rarer.";
    Ok(figure(
        "Latency distributions",
        note,
        lines(&axes, &all, &[])?,
    ))
}

fn over_time(analysis: &Analysis, name: &str, pick: fn(&TimeSlice) -> Option<f64>) -> Line {
    let slices = analysis.series.slices.iter();
    Line {
        name: name.to_owned(),
        points: slices
            .filter_map(|slice| Some([slice.start_s, pick(slice)?]))
            .collect(),
    }
}

fn first_token_over_time(analysis: &Analysis) -> Result<Option<Figure>, HtmlError> {
    let all = [
        over_time(analysis, "TTFT p50", |slice| slice.ttft_p50_ms),
        over_time(analysis, "TTFT p99", |slice| slice.ttft_p99_ms),
        over_time(analysis, "queue delay, mean", |slice| {
            slice.queue_delay_mean_ms
        }),
    ];
    let axes = Axes {
        x: "time, s",
        y: "ms",
        ..PLAIN
    };
    let note = "By the moment of the first token; the queue delay by the send.";
    Ok(figure(
        "First token over time",
        note,
        lines(&axes, &all, &[])?,
    ))
}

fn gaps_over_time(analysis: &Analysis) -> Result<Option<Figure>, HtmlError> {
    let all = [over_time(analysis, "ITL, mean", |slice| slice.itl_mean_ms)];
    let axes = Axes {
        x: "time, s",
        y: "ms",
        ..PLAIN
    };
    Ok(figure(
        "Inter-token latency over time",
        "Mean of each slice.",
        lines(&axes, &all, &[])?,
    ))
}

fn in_flight(analysis: &Analysis) -> Result<Option<Figure>, HtmlError> {
    let all = [over_time(analysis, "in flight", |slice| {
        Some(slice.in_flight)
    })];
    let axes = Axes {
        x: "time, s",
        y: "requests",
        ..PLAIN
    };
    Ok(figure(
        "Requests in flight",
        "Average of each slice.",
        lines(&axes, &all, &[])?,
    ))
}

fn kv(analysis: &Analysis) -> Result<Option<Figure>, HtmlError> {
    let all: Vec<Line> = analysis
        .series
        .kv
        .iter()
        .map(|series| Line {
            name: format!("rank {}", series.rank),
            points: series.points.clone(),
        })
        .collect();
    let axes = Axes {
        x: "time, s",
        y: "share of the pool",
        y_label: as_percent,
        ..PLAIN
    };
    Ok(figure(
        "KV pool in use",
        "As the server states it.",
        lines(&axes, &all, &[])?,
    ))
}

fn timeline(analysis: &Analysis) -> Result<Option<Figure>, HtmlError> {
    let lanes = &analysis.series.lanes;
    let names: Vec<String> = lanes
        .iter()
        .map(|lane| match lane.rank {
            Some(rank) => format!("{}, rank {rank}", lane.group),
            None => lane.group.clone(),
        })
        .collect();
    let drawn: Vec<Bar> = lanes
        .iter()
        .enumerate()
        .flat_map(|(row, lane)| {
            lane.spans.iter().map(move |&[from, to, share]| Bar {
                row,
                from,
                to,
                share,
                paint: Paint::Series(0),
            })
        })
        .collect();
    let note = match analysis.series.lanes_left_out {
        0 => "Darker is a larger share from the cache.".to_owned(),
        more => format!("Darker is a larger share from the cache. {more} lanes are not shown."),
    };
    let axes = Axes {
        x: "time, s",
        ..PLAIN
    };
    Ok(figure(
        "Requests by lane",
        note,
        bars(&axes, &names, &drawn)?,
    ))
}

pub(super) const PLAIN: Axes = Axes {
    x: "",
    y: "",
    x_label: as_number,
    y_label: as_number,
};

fn as_number(value: f64) -> String {
    super::number::axis(value)
}

pub(super) fn as_percent(value: f64) -> String {
    format!("{} %", super::number::axis(value * 100.0))
}

/// Whole steps of the logarithmic axis only.
fn as_nines(step: f64) -> String {
    let whole = step.round();
    if (step - whole).abs() > 1e-6 {
        return String::new();
    }
    let percent = (1.0 - 10_f64.powf(-whole)) * 100.0;
    // Enough decimals for the nines and no more.
    format!("p{}", (percent * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_axis_names_whole_steps() {
        let labels: Vec<_> = [0.0, 0.5, 1.0, 2.0, 3.0].map(as_nines).into();
        assert_eq!(labels, ["p0", "", "p90", "p99", "p99.9"]);
    }
}
