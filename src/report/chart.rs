//! Charts as SVG text, drawn by plotters. Ink and grid have colors of their own
//! that the page's style replaces, so that one drawing serves light and dark.
//! It knows axes, lines, points and bars, not what they mean.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::html::HtmlError;

/// Stands for the page's text color.
const INK: RGBColor = RGBColor(1, 1, 1);
/// Stands for the page's grid color.
const GRID: RGBColor = RGBColor(2, 2, 2);
/// Told apart on light and dark ground.
const PALETTE: [RGBColor; 5] = [
    RGBColor(58, 124, 190),
    RGBColor(214, 120, 40),
    RGBColor(56, 150, 92),
    RGBColor(150, 92, 172),
    RGBColor(150, 130, 50),
];
const SIZE: (u32, u32) = (640, 360);
const TEXT: i32 = 17;

/// A named line through points that ascend in x.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<[f64; 2]>,
}

/// What the axes say.
pub(super) struct Axes {
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) x_label: fn(f64) -> String,
    pub(super) y_label: fn(f64) -> String,
}

/// A bar from `from` to `to` in row `row`, filled by `share` (0..=1).
pub(super) struct Bar {
    pub(super) row: usize,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) share: f64,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Lines and, in front of them, points. `None` when there is nothing to draw.
pub(super) fn lines(
    axes: &Axes,
    lines: &[Line],
    points: &[[f64; 2]],
) -> Result<Option<String>, HtmlError> {
    let all = || lines.iter().flat_map(|line| &line.points).chain(points);
    let Some((x, mut y)) = ranges(all()) else {
        return Ok(None);
    };
    // Room above the data for the names of the lines.
    y.end += (y.end - y.start) * 0.09 * lines.len() as f64;
    draw(SIZE.1, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(70)
            .build_cartesian_2d(x, y)
            .map_err(failed)?;
        mesh(&mut chart, axes, 6)?;
        let dots = points
            .iter()
            .map(|&[x, y]| Circle::new((x, y), 2, PALETTE[0].mix(0.45).filled()));
        chart.draw_series(dots).map_err(failed)?;
        let colors = PALETTE.iter().cycle().skip(usize::from(!points.is_empty()));
        for (line, &color) in lines.iter().zip(colors) {
            let path = line.points.iter().map(|&[x, y]| (x, y));
            chart
                .draw_series(LineSeries::new(path, color.stroke_width(2)))
                .map_err(failed)?
                .label(&line.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
                });
        }
        legend(&mut chart, lines.len())
    })
    .map(Some)
}

/// One row a name, with bars in it. `None` when there is no bar.
pub(super) fn bars(
    axes: &Axes,
    names: &[String],
    bars: &[Bar],
) -> Result<Option<String>, HtmlError> {
    let ends = bars
        .iter()
        .flat_map(|bar| [[bar.from, 0.0], [bar.to, 0.0]])
        .collect::<Vec<_>>();
    let Some((x, _)) = ranges(ends.iter()) else {
        return Ok(None);
    };
    let rows = names.len().max(1);
    let height = 60 + u32::try_from(rows).unwrap_or(u32::MAX).min(60) * 26;
    draw(height, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(30)
            .x_label_area_size(42)
            .y_label_area_size(170)
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
            .x_labels(6)
            .y_labels(0)
            .draw()
            .map_err(failed)?;
        let top = |row: usize| (rows - row) as f64;
        let boxes = bars.iter().map(|bar| {
            let style = PALETTE[0]
                .mix(0.25 + 0.75 * bar.share.clamp(0.0, 1.0))
                .filled();
            let corner = (bar.from, top(bar.row) - 0.18);
            Rectangle::new([corner, (bar.to, top(bar.row) - 0.82)], style)
        });
        chart.draw_series(boxes).map_err(failed)?;
        // Names stand in the label area, one at the middle of each row.
        for (row, name) in names.iter().enumerate() {
            let (_, y) = chart.backend_coord(&(0.0, top(row) - 0.5));
            let style = ("sans-serif", TEXT, &INK).into_text_style(area);
            area.draw_text(name, &style, (8, y - TEXT / 2))
                .map_err(failed)?;
        }
        Ok(())
    })
    .map(Some)
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

fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, lines: usize) -> Result<(), HtmlError> {
    if lines == 0 {
        return Ok(());
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", TEXT, &INK))
        .border_style(TRANSPARENT)
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

    #[test]
    fn nothing_to_draw_is_no_chart() {
        assert!(lines(&AXES, &[], &[]).unwrap().is_none());
        assert!(bars(&AXES, &[], &[]).unwrap().is_none());
        assert!(lines(&AXES, &[], &[[f64::NAN, 1.0]]).unwrap().is_none());
    }

    #[test]
    fn names_are_escaped_and_colors_left_to_the_page() {
        let line = Line {
            name: "a<b".to_owned(),
            points: vec![[0.0, 0.0], [1.0, 1.0]],
        };
        let svg = lines(&AXES, &[line], &[[0.5, 0.5]]).unwrap().unwrap();
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"), "{svg}");
        assert!(svg.contains("#010101") && svg.contains("<circle"), "{svg}");
    }

    #[test]
    fn one_point_still_spans_a_range() {
        assert_eq!(ranges([[3.0, 0.0]].iter()), Some((3.0..4.0, 0.0..1.08)));
    }
}
