//! A comparison of two runs as one HTML file that needs nothing else.

use std::io;

use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde::Serialize;

use super::HtmlError;
use super::chart::{Axes, Bar, bars};
use super::compare::{amount, basis, detectable, figure_name, own, sentences};
use super::html::STYLE;
use super::number;
use crate::analyze::compare::{Judgment, RunComparison};

const TEMPLATE: &str = include_str!("compare.html");

/// Half the width of the mark at the difference itself, as a share of all.
const MARK_SHARE: f64 = 0.004;

/// Letters of a digest that tell it from others.
const DIGEST_SHOWN: usize = 12;

#[derive(Serialize)]
struct Page<'a> {
    comparison: &'a RunComparison,
    settings: Vec<[String; 3]>,
    basis: String,
    sentences: Vec<String>,
    rows: Vec<Row>,
    chart: Option<String>,
    style: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct Row {
    name: String,
    left: String,
    right: String,
    amount: String,
    detectable: String,
    judgment: &'static str,
    class: &'static str,
    value: f64,
}

/// Writes the report of one comparison.
pub fn comparison_html(
    comparison: &RunComparison,
    out: &mut impl io::Write,
) -> Result<(), HtmlError> {
    let known = |value: Option<&String>| {
        value.map_or(number::ABSENT.to_owned(), |value| {
            if is_digest(value) {
                format!("{}…", &value[..DIGEST_SHOWN])
            } else {
                value.clone()
            }
        })
    };
    let settings = comparison.settings.iter().map(|setting| {
        [
            setting.aspect.name().to_owned(),
            known(setting.left.as_ref()),
            known(setting.right.as_ref()),
        ]
    });
    let rows = comparison.metrics.iter().map(|metric| {
        let (judgment, class) = match metric.judgment {
            Judgment::Better => ("B is better", "good"),
            Judgment::Worse => ("B is worse", "bad"),
            Judgment::NotFound => ("not found", "soft"),
            Judgment::Same => ("the same", "soft"),
        };
        Row {
            name: figure_name(metric),
            left: own(metric, metric.difference.left),
            right: own(metric, metric.difference.right),
            amount: amount(metric),
            detectable: detectable(metric),
            judgment,
            class,
            value: metric.told().value,
        }
    });
    let page = Page {
        comparison,
        settings: settings.collect(),
        basis: basis(comparison),
        sentences: sentences(comparison),
        rows: rows.collect(),
        chart: chart(comparison)?,
        style: STYLE,
        version: env!("CARGO_PKG_VERSION"),
    };
    let mut environment = Environment::new();
    environment.add_template("compare.html", TEMPLATE)?;
    let page = environment
        .get_template("compare.html")?
        .render(Value::from(Serde(page)))?;
    out.write_all(page.as_bytes())?;
    Ok(())
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The relative differences with their intervals, a row a figure.
fn chart(comparison: &RunComparison) -> Result<Option<String>, HtmlError> {
    let told: Vec<_> = comparison
        .metrics
        .iter()
        .filter(|metric| metric.is_relative())
        .collect();
    let ends = || told.iter().map(|metric| metric.told().interval);
    let low = ends().map(|interval| interval.low).fold(0.0, f64::min);
    let high = ends().map(|interval| interval.high).fold(0.0, f64::max);
    let half = (high - low) * MARK_SHARE;
    let mut drawn = Vec::new();
    for (row, metric) in told.iter().enumerate() {
        let told = metric.told();
        let bar = |from: f64, to: f64, share: f64| Bar {
            row,
            from,
            to,
            share,
        };
        drawn.push(bar(told.interval.low, told.interval.high, 0.3));
        drawn.push(bar(told.value - half, told.value + half, 1.0));
    }
    if !told.is_empty() {
        // Nothing to see, but it keeps 0 on the axis.
        drawn.push(Bar {
            row: 0,
            from: 0.0,
            to: 0.0,
            share: 0.0,
        });
    }
    let names: Vec<String> = told.iter().map(|metric| figure_name(metric)).collect();
    let axes = Axes {
        x: "B against A",
        y: "",
        x_label: as_percent,
        y_label: as_percent,
    };
    bars(&axes, &names, &drawn)
}

fn as_percent(value: f64) -> String {
    format!("{} %", number::axis(value * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::comparison;

    #[test]
    fn the_page_holds_the_sentences_and_the_values() {
        let mut comparison = comparison();
        comparison.left = "run <a>".to_owned();
        let mut text = Vec::new();
        comparison_html(&comparison, &mut text).unwrap();
        let page = String::from_utf8(text).unwrap();
        assert_eq!(page.matches("<svg").count(), 1);
        assert!(page.contains("run &lt;a&gt;") && !page.contains("<script"));
        assert!(page.contains("B is slower: TPOT mean"));
        for metric in &comparison.metrics {
            let value = format!("data-value=\"{:?}\"", metric.told().value);
            assert!(page.contains(&value), "{value}");
        }
        assert!(
            !page.contains("NaN")
                && !page
                    .replace("http://www.w3.org/2000/svg", "")
                    .contains("http")
        );
    }
}
