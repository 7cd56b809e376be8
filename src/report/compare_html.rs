//! A comparison of two runs as one HTML file that needs nothing else.

use std::io;

use serde::Serialize;

use super::HtmlError;
use super::chart::{Axes, Bar, bars};
use super::compare::{amount, asked, basis, detectable, figure_name, own, sentence};
use super::figures::{Figure, PLAIN, as_percent, figure};
use super::html::render;
use super::number;
use super::paint::Paint;
use crate::analyze::compare::{Judgment, RunComparison};

const TEMPLATE: &str = include_str!("pages/comparison.html");

/// Half the width of the mark at the difference itself, as a share of all.
const MARK_SHARE: f64 = 0.004;

/// Letters of a digest that tell it from others.
const DIGEST_SHOWN: usize = 12;

#[derive(Serialize)]
struct Page<'a> {
    comparison: &'a RunComparison,
    /// What, A's, B's, and a word where they differ.
    settings: Vec<[String; 4]>,
    basis: String,
    /// Class and words.
    sentences: Vec<(&'static str, String)>,
    rows: Vec<Row>,
    figures: Vec<Figure>,
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
            differs(setting.same).to_owned(),
        ]
    });
    let rows = comparison.metrics.iter().map(|metric| {
        let judgment = match metric.judgment {
            Judgment::Better => "B is better",
            Judgment::Worse => "B is worse",
            Judgment::NotFound => "not found",
            Judgment::Same => "the same",
        };
        Row {
            name: figure_name(metric),
            left: own(metric, metric.difference.left),
            right: own(metric, metric.difference.right),
            amount: amount(metric),
            detectable: detectable(metric),
            judgment,
            class: class(metric.judgment),
            value: metric.told().value,
        }
    });
    // What is found stands before what is not.
    let mut told: Vec<_> = asked(comparison)
        .map(|metric| (class(metric.judgment), sentence(metric)))
        .collect();
    told.sort_by_key(|(class, _)| *class == NOT_FOUND);
    let page = Page {
        comparison,
        settings: settings.collect(),
        basis: basis(comparison),
        sentences: told,
        rows: rows.collect(),
        figures: chart(comparison)?.into_iter().collect(),
    };
    render(TEMPLATE, page, out)
}

const NOT_FOUND: &str = "soft";

fn class(judgment: Judgment) -> &'static str {
    match judgment {
        Judgment::Better => "good",
        Judgment::Worse => "bad",
        Judgment::NotFound | Judgment::Same => NOT_FOUND,
    }
}

fn differs(same: Option<bool>) -> &'static str {
    match same {
        Some(true) => "",
        Some(false) => "differs",
        None => "not known of both",
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The relative differences with their intervals, a row a figure.
fn chart(comparison: &RunComparison) -> Result<Option<Figure>, HtmlError> {
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
        let paint = match metric.judgment {
            Judgment::Better => Paint::Good,
            Judgment::Worse => Paint::Bad,
            Judgment::NotFound | Judgment::Same => Paint::Soft,
        };
        let bar = |from: f64, to: f64, share: f64| Bar {
            row,
            from,
            to,
            share,
            paint,
        };
        drawn.push(bar(told.interval.low, told.interval.high, 0.3));
        drawn.push(bar(told.value - half, told.value + half, 1.0));
    }
    if !told.is_empty() {
        // Nothing to see, but it keeps 0 on the axis.
        drawn.push(Bar::default());
    }
    let names: Vec<String> = told.iter().map(|metric| figure_name(metric)).collect();
    let axes = Axes {
        x: "B against A",
        x_label: as_percent,
        ..PLAIN
    };
    let note = "The difference and its 95 % interval; an interval that leaves out 0 is a \
                difference that was found.";
    Ok(figure("Differences", note, bars(&axes, &names, &drawn)?))
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
