//! Charts as SVG text, drawn by plotters. Each color is that of the light page,
//! and the page's style replaces it on dark ground, so that one drawing serves
//! both. Names of lines and dots are keys that the page writes beside the
//! drawing. It knows axes, lines, points and bars, not what they mean.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use serde::Serialize;

use super::html::HtmlError;
use super::paint::{GRID, INK, Key, Paint};

const SIZE: (u32, u32) = (520, 300);
/// Plotters draws letters at 1/1.24 of this.
const TEXT: i32 = 20;
/// Height of a row of bars, and of the axis below them.
const ROW: u32 = 26;
const FOOT: u32 = 66;
/// Width of the names of rows.
const NAMES: u32 = 168;
/// Letters of a row's name that fit there.
const NAME_LETTERS_MAX: usize = 21;
/// Rows that a drawing has at most; more would be no taller, only denser.
const ROWS_MAX: u32 = 60;

/// A drawing and its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Drawing {
    pub(super) svg: String,
    pub(super) keys: Vec<Key>,
}

/// A named line through points that ascend in x.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<[f64; 2]>,
}

/// Points of one color; without a key when the name is empty.
pub(super) struct Dots {
    pub(super) name: String,
    pub(super) paint: Paint,
    pub(super) radius: i32,
    pub(super) points: Vec<[f64; 2]>,
}

/// A stretch of the x axis that is marked over the whole height.
pub(super) struct Band {
    pub(super) name: String,
    pub(super) paint: Paint,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// What the axes say.
#[derive(Clone, Copy)]
pub(super) struct Axes {
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) x_label: fn(f64) -> String,
    pub(super) y_label: fn(f64) -> String,
}

/// A bar from `from` to `to` in row `row`, filled by `share` (0..=1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bar {
    pub(super) row: usize,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) share: f64,
    pub(super) paint: Paint,
}

/// Everything on one pair of axes, from the back to the front: bands, dots,
/// lines.
pub(super) struct Plot<'a> {
    pub(super) axes: &'a Axes,
    pub(super) bands: &'a [Band],
    pub(super) dots: &'a [Dots],
    pub(super) lines: &'a [Line],
    /// Color of the first line among the series; the others follow.
    pub(super) first_line: usize,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Lines and, behind them, points. `None` when there is nothing to draw.
pub(super) fn lines(
    axes: &Axes,
    lines: &[Line],
    points: &[[f64; 2]],
) -> Result<Option<Drawing>, HtmlError> {
    let dots = Dots {
        name: String::new(),
        paint: Paint::Series(0),
        radius: 2,
        points: points.to_vec(),
    };
    plot(&Plot {
        axes,
        bands: &[],
        dots: if points.is_empty() {
            &[]
        } else {
            std::slice::from_ref(&dots)
        },
        lines,
        first_line: usize::from(!points.is_empty()),
    })
}

/// `None` when there is no point to draw.
pub(super) fn plot(plot: &Plot<'_>) -> Result<Option<Drawing>, HtmlError> {
    let of_lines = plot.lines.iter().flat_map(|line| &line.points);
    let of_dots = plot.dots.iter().flat_map(|dots| &dots.points);
    let Some((mut x, y)) = ranges(of_lines.chain(of_dots)) else {
        return Ok(None);
    };
    for band in plot.bands {
        x.start = x.start.min(band.from);
        x.end = x.end.max(band.to);
    }
    let svg = draw(SIZE.1, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_top(14)
            .margin_right(36)
            .x_label_area_size(46)
            .y_label_area_size(86)
            .build_cartesian_2d(x, y.clone())
            .map_err(failed)?;
        let bands = plot.bands.iter().map(|band| {
            let style = band.paint.color().mix(0.22).filled();
            Rectangle::new([(band.from, y.start), (band.to, y.end)], style)
        });
        chart.draw_series(bands).map_err(failed)?;
        mesh(&mut chart, plot.axes, 6)?;
        for dots in plot.dots {
            let style = dots.paint.color().mix(0.6).filled();
            let circles = dots
                .points
                .iter()
                .map(|&[x, y]| Circle::new((x, y), dots.radius, style));
            chart.draw_series(circles).map_err(failed)?;
        }
        for (line, paint) in plot.painted() {
            let style = paint.color().stroke_width(2);
            let path = line.points.iter().map(|&[x, y]| (x, y));
            chart
                .draw_series(LineSeries::new(path, style))
                .map_err(failed)?;
            // One point is no line.
            if let [[x, y]] = line.points[..] {
                let dot = Circle::new((x, y), 3, paint.color().filled());
                chart.draw_series([dot]).map_err(failed)?;
            }
        }
        Ok(())
    })?;
    let keys = plot.keys();
    Ok(Some(Drawing { svg, keys }))
}

impl Plot<'_> {
    fn painted(&self) -> impl Iterator<Item = (&Line, Paint)> {
        let paints = (self.first_line..).map(Paint::Series);
        self.lines.iter().zip(paints)
    }

    fn keys(&self) -> Vec<Key> {
        let lines = self
            .painted()
            .filter(|(line, _)| !line.points.is_empty())
            .map(|(line, paint)| Key::new(&line.name, paint));
        let dots = self.dots.iter().filter(|dots| !dots.points.is_empty());
        let dots = dots.map(|dots| Key::new(&dots.name, dots.paint));
        let bands = self
            .bands
            .iter()
            .map(|band| Key::new(&band.name, band.paint));
        let all = lines.chain(dots).chain(bands);
        all.filter(|key| !key.name.is_empty()).collect()
    }
}

/// One row a name, with bars in it. `None` when there is no bar.
pub(super) fn bars(
    axes: &Axes,
    names: &[String],
    bars: &[Bar],
) -> Result<Option<Drawing>, HtmlError> {
    let ends = bars
        .iter()
        .flat_map(|bar| [[bar.from, 0.0], [bar.to, 0.0]])
        .collect::<Vec<_>>();
    let Some((x, _)) = ranges(ends.iter()) else {
        return Ok(None);
    };
    let from = x.start;
    let rows = names.len().max(1);
    let height = FOOT + u32::try_from(rows).unwrap_or(u32::MAX).min(ROWS_MAX) * ROW;
    let svg = draw(height, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(40)
            .x_label_area_size(44)
            .y_label_area_size(NAMES)
            .build_cartesian_2d(x, 0.0..rows as f64)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .label_style(("sans-serif", TEXT, &INK))
            .x_desc(axes.x)
            .x_label_formatter(&|value| (axes.x_label)(*value))
            .x_labels(4)
            .y_labels(0)
            .draw()
            .map_err(failed)?;
        let top = |row: usize| (rows - row) as f64;
        let boxes = bars.iter().map(|bar| {
            let style = bar
                .paint
                .color()
                .mix(0.25 + 0.75 * bar.share.clamp(0.0, 1.0))
                .filled();
            let corner = (bar.from, top(bar.row) - 0.18);
            Rectangle::new([corner, (bar.to, top(bar.row) - 0.82)], style)
        });
        chart.draw_series(boxes).map_err(failed)?;
        if from < 0.0 {
            let zero = [(0.0, 0.0), (0.0, rows as f64)];
            let line = LineSeries::new(zero, INK.stroke_width(1));
            chart.draw_series(line).map_err(failed)?;
        }
        // Names stand in the label area, one at the middle of each row.
        for (row, name) in names.iter().enumerate() {
            let (_, y) = chart.backend_coord(&(0.0, top(row) - 0.5));
            let style = ("sans-serif", TEXT, &INK).into_text_style(area);
            area.draw_text(&shortened(name), &style, (4, y - TEXT / 2))
                .map_err(failed)?;
        }
        Ok(())
    })?;
    let keys = Vec::new();
    Ok(Some(Drawing { svg, keys }))
}

/// A row's name, cut where the bars begin.
fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_LETTERS_MAX {
        return name.to_owned();
    }
    let kept: String = name.chars().take(NAME_LETTERS_MAX - 1).collect();
    format!("{}…", kept.trim_end())
}

fn draw(
    height: u32,
    paint: impl FnOnce(&Area<'_>) -> Result<(), HtmlError>,
) -> Result<String, HtmlError> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (SIZE.0, height)).into_drawing_area();
        paint(&area)?;
        area.present().map_err(failed)?;
    }
    Ok(text)
}

fn mesh<'a, 'b: 'a>(
    chart: &mut Chart<'a, 'b>,
    axes: &Axes,
    labels: usize,
) -> Result<(), HtmlError> {
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(("sans-serif", TEXT, &INK))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_labels(labels)
        .y_labels(5)
        .x_label_formatter(&|value| (axes.x_label)(*value))
        .y_label_formatter(&|value| (axes.y_label)(*value))
        .draw()
        .map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> HtmlError {
    HtmlError::Chart(error.to_string())
}

/// What the points span, from 0 upwards in y, with a little air; never empty.
fn ranges<'a>(
    points: impl Iterator<Item = &'a [f64; 2]>,
) -> Option<(std::ops::Range<f64>, std::ops::Range<f64>)> {
    let (mut x, mut y) = ((f64::MAX, f64::MIN), (0.0_f64, f64::MIN));
    let mut any = false;
    for &[at, value] in points.filter(|point| point.iter().all(|part| part.is_finite())) {
        any = true;
        x = (x.0.min(at), x.1.max(at));
        y = (y.0.min(value), y.1.max(value));
    }
    let width = if x.1 > x.0 { x.1 - x.0 } else { 1.0 };
    let height = if y.1 > y.0 { y.1 - y.0 } else { 1.0 };
    any.then_some((x.0..x.0 + width, y.0..y.0 + height * 1.08))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: Axes = Axes {
        x: "time, s",
        y: "share",
        x_label: |value| format!("{value:.0}"),
        y_label: |value| format!("{value:.1}"),
    };

    fn line(name: &str) -> Line {
        Line {
            name: name.to_owned(),
            points: vec![[0.0, 0.0], [1.0, 1.0]],
        }
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        assert!(lines(&AXES, &[], &[]).unwrap().is_none());
        assert!(bars(&AXES, &[], &[]).unwrap().is_none());
        assert!(lines(&AXES, &[], &[[f64::NAN, 1.0]]).unwrap().is_none());
    }

    #[test]
    fn each_line_that_is_drawn_has_a_key() {
        let empty = Line {
            name: "nothing".to_owned(),
            points: Vec::new(),
        };
        let all = [line("a"), empty, line("c"), line("")];
        let drawing = lines(&AXES, &all, &[[0.5, 0.5]]).unwrap().unwrap();
        let keys = [
            Key::new("a", Paint::Series(1)),
            Key::new("c", Paint::Series(3)),
        ];
        assert_eq!(drawing.keys, keys);
        assert!(drawing.svg.contains("<circle"), "{}", drawing.svg);
    }

    #[test]
    fn names_of_rows_are_escaped_and_cut_and_colors_are_the_page_s() {
        let bar = Bar {
            to: 2.0,
            paint: Paint::Bad,
            ..Bar::default()
        };
        let name = "a<b and more than there is room for".to_owned();
        let svg = bars(&AXES, &[name], &[bar]).unwrap().unwrap().svg;
        assert!(svg.contains("a&lt;b and more than th…"), "{svg}");
        let style = super::super::html::STYLE.to_uppercase();
        for color in ["#1C2126", "#D9DEE3", "#B3261E"] {
            let replaced = format!("[FILL=\"{color}\"]");
            assert!(
                svg.contains(color) && style.contains(&replaced),
                "{color} {svg}"
            );
        }
    }

    #[test]
    fn a_band_widens_the_axis_and_has_a_key() {
        let band = Band {
            name: "knee".to_owned(),
            paint: Paint::Warn,
            from: 5.0,
            to: 9.0,
        };
        let plot = plot(&Plot {
            axes: &AXES,
            bands: &[band],
            dots: &[],
            lines: &[line("a")],
            first_line: 0,
        });
        let drawing = plot.unwrap().unwrap();
        assert!(drawing.svg.contains(">\n8\n<"), "{}", drawing.svg);
        assert_eq!(drawing.keys[1], Key::new("knee", Paint::Warn));
    }

    #[test]
    fn one_point_still_spans_a_range() {
        assert_eq!(ranges([[3.0, 0.0]].iter()), Some((3.0..4.0, 0.0..1.08)));
    }
}
