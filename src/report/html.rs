//! An analysis as one HTML file that needs nothing else: no script, no network.
//! Light or dark as the reader's system is, readable on a phone, printable.

use std::io;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;

use super::figures::{Figure, figures};
use super::names::{cause_name, source_name};
use super::number;
use crate::analyze::{Analysis, HitLine};
use crate::stats::Summary;

const TEMPLATE: &str = include_str!("pages/run.html");

/// Colors and layout of all pages.
pub(super) const STYLE: &str = include_str!("pages/style.css");

/// What every page is made of, and what pages include.
const SHARED: [(&str, &str); 2] = [
    ("base.html", include_str!("pages/base.html")),
    ("figures.html", include_str!("pages/figures.html")),
];

/// What the page says of the run besides the analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HtmlFacts {
    /// Heading, e.g. the run id.
    pub title: String,
    /// Configuration, engine, digests: name and value, in order.
    pub facts: Vec<(String, String)>,
}

/// A page that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum HtmlError {
    /// A chart could not be drawn.
    #[error("cannot draw a chart: {0}")]
    Chart(String),
    /// The template failed.
    #[error("cannot fill the report: {0}")]
    Template(#[from] minijinja::Error),
    /// The page could not be written.
    #[error("cannot write the report: {0}")]
    Write(#[from] io::Error),
}

/// Everything the template names.
#[derive(Serialize)]
struct Page<'a> {
    facts: &'a HtmlFacts,
    analysis: &'a Analysis,
    latencies: Vec<(&'static str, &'a Summary)>,
    causes: Vec<(&'static str, u64, i64)>,
    matrix: Matrix,
    source: &'static str,
    figures: Vec<Figure>,
}

/// Hit rates of groups by rank.
#[derive(Serialize)]
struct Matrix {
    ranks: Vec<u32>,
    rows: Vec<MatrixRow>,
}

#[derive(Serialize)]
struct MatrixRow {
    group: String,
    /// Executed theory and usage for each rank.
    cells: Vec<[Option<f64>; 2]>,
}

/// Writes the report of one run.
pub fn html(
    analysis: &Analysis,
    facts: &HtmlFacts,
    out: &mut impl io::Write,
) -> Result<(), HtmlError> {
    let causes: Vec<_> = analysis
        .attribution
        .causes
        .iter()
        .map(|total| (cause_name(total.cause), total.requests, total.lost_tokens))
        .collect();
    let actual = analysis.hits.actual;
    let page = Page {
        facts,
        analysis,
        latencies: latencies(analysis),
        causes,
        matrix: matrix(analysis),
        source: actual.map_or(number::ABSENT, |actual| source_name(actual.source)),
        figures: figures(analysis)?,
    };
    render(TEMPLATE, page, out)
}

/// Fills `template`, which may extend and include the shared ones.
pub(super) fn render(
    template: &str,
    page: impl Serialize,
    out: &mut impl io::Write,
) -> Result<(), HtmlError> {
    let mut environment = Environment::new();
    // Whatever its name, it is HTML.
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_global("style", STYLE);
    environment.add_global("version", env!("CARGO_PKG_VERSION"));
    for (name, source) in SHARED {
        environment.add_template(name, source)?;
    }
    // What the filters make holds no character that HTML would take as its own.
    let safe = Value::from_safe_string;
    environment.add_filter("percent", move |value: Option<f64>| {
        safe(number::percent(value))
    });
    environment.add_filter("points", move |value: Option<f64>| {
        safe(number::points(value))
    });
    environment.add_filter("decimal", move |value: Option<f64>| {
        safe(number::decimal(value))
    });
    environment.add_filter("ms", move |value: Option<f64>| {
        let unit = if value.is_some() { " ms" } else { "" };
        safe(number::decimal(value) + unit)
    });
    environment.add_filter("count", move |value: Option<i64>| {
        safe(value.map_or_else(|| number::ABSENT.to_owned(), number::count))
    });
    let page = environment.render_str(template, Value::from(Serde(page)))?;
    out.write_all(page.as_bytes())?;
    Ok(())
}

fn latencies(analysis: &Analysis) -> Vec<(&'static str, &Summary)> {
    let latency = &analysis.latency;
    vec![
        ("TTFT", &latency.ttft_ms.summary),
        ("TPOT", &latency.tpot_ms.summary),
        ("ITL", &latency.itl_ms.summary),
        ("E2EL", &latency.e2el_ms.summary),
        ("TTFT from schedule", &latency.ttft_from_schedule_ms),
        ("E2EL from schedule", &latency.e2el_from_schedule_ms),
        ("queue delay", &latency.queue_delay_ms),
        ("lane wait", &latency.lane_wait_ms),
    ]
}

fn matrix(analysis: &Analysis) -> Matrix {
    let lanes = &analysis.hits.lanes;
    let mut ranks: Vec<u32> = lanes.iter().filter_map(|row| row.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let rate = |line: Option<HitLine>| line.and_then(|line| line.hit_rate);
    let rows = analysis.hits.groups.iter().filter_map(|group| {
        let group = group.group.clone()?;
        let cells = ranks.iter().map(|rank| {
            let lane = lanes
                .iter()
                .find(|lane| lane.rank == Some(*rank) && lane.group.as_ref() == Some(&group));
            lane.map_or([None, None], |lane| [rate(lane.executed), rate(lane.usage)])
        });
        Some(MatrixRow {
            cells: cells.collect(),
            group,
        })
    });
    Matrix {
        rows: rows.collect(),
        ranks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{explained, explained_run, hopeless};

    fn page(analysis: &Analysis) -> String {
        let facts = HtmlFacts {
            title: "run <one>".to_owned(),
            facts: vec![("engine".to_owned(), "vllm & co".to_owned())],
        };
        let mut text = Vec::new();
        html(analysis, &facts, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_page_holds_every_chart_and_the_values_of_the_analysis() {
        let analysis = explained();
        let page = page(&analysis);
        assert_eq!(page.matches("<figure>").count(), 9);
        assert!(page.contains("<span class=\"key one\">theory, planned</span>"));
        assert_eq!(page.matches("<svg").count(), 9);
        let rate = analysis.hits.actual.unwrap().line.hit_rate.unwrap();
        assert!(page.contains(&format!("id=\"hit-rate\" data-value=\"{rate}\"")));
        let p50 = analysis.latency.ttft_ms.summary.p50.unwrap();
        assert!(page.contains(&format!("id=\"ttft-p50\" data-value=\"{p50}\"")));
        let rate = analysis.throughput.output_tokens_per_second.unwrap();
        assert!(page.contains(&format!("id=\"output-rate\" data-value=\"{rate}\"")));
        assert!(page.contains("EVICTION_PRESSURE") && page.contains("larger KV pool"));
        assert!(page.contains("run &lt;one&gt;") && page.contains("vllm &amp; co"));
    }

    #[test]
    fn a_long_run_needs_no_longer_page() {
        let short = page(&explained_run(1_200).analyze()).len();
        let long = page(&explained_run(4_800).analyze()).len();
        assert!(long < short * 3 / 2 && long < 1_000_000, "{short} {long}");
    }

    #[test]
    fn the_page_asks_for_nothing_from_elsewhere() {
        for page in [page(&explained()), page(&hopeless())] {
            let links = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!links.contains("http") && !links.contains("<script"));
            assert!(!links.contains("src=") && !links.contains("@import"));
        }
    }

    #[test]
    fn a_failed_run_has_a_page_with_absent_numbers() {
        let page = page(&hopeless());
        assert!(page.contains("NO_SUCCESS") && page.contains("n/a"));
        assert!(!page.contains("NaN") && !page.contains(">none<"), "{page}");
    }
}
