//! A comparison of two runs as sentences and as a table for a terminal.

use std::io;

use super::TerminalOptions;
use super::number::{ABSENT, count, decimal};
use super::page::{Page, YELLOW, numbers};
use super::terminal::WIDE;
use crate::analyze::compare::{Judgment, MetricDifference, Quantity, RunComparison, Statistic};
use crate::stats::{Pairing, ROUNDS_MIN};

/// Writes the comparison: what is found first, then each figure.
pub fn comparison_terminal(
    comparison: &RunComparison,
    options: TerminalOptions,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut page = Page::new(options, out);
    page.text(&format!("A: {}", comparison.left))?;
    page.text(&format!("B: {}", comparison.right))?;
    page.text(&basis(comparison))?;
    page.cautions(comparison)?;
    for sentence in sentences(comparison) {
        page.text(&sentence)?;
    }
    page.metrics(comparison)
}

/// What the comparison says, a sentence a figure: all that was found, and of the
/// rest the figures that people ask for first.
pub fn sentences(comparison: &RunComparison) -> Vec<String> {
    asked(comparison).map(sentence).collect()
}

/// The figures that there is a sentence on.
pub(super) fn asked(comparison: &RunComparison) -> impl Iterator<Item = &MetricDifference> {
    comparison.metrics.iter().filter(|metric| {
        is_found(metric) || matches!(metric.statistic, Statistic::P50 | Statistic::Overall)
    })
}

fn is_found(metric: &MetricDifference) -> bool {
    matches!(metric.judgment, Judgment::Better | Judgment::Worse)
}

/// One figure in words.
pub(super) fn sentence(metric: &MetricDifference) -> String {
    let name = figure_name(metric);
    let told = metric.told();
    match metric.judgment {
        Judgment::Same => format!("{name}: the same on both sides"),
        Judgment::NotFound => format!(
            "{name}: no difference found, less than ±{} would go unseen",
            with_unit(metric, &plain(scaled(metric, told.detectable)))
        ),
        Judgment::Better | Judgment::Worse => {
            format!("B {}: {name} {}", verb(metric), amount(metric))
        }
    }
}

fn verb(metric: &MetricDifference) -> &'static str {
    let better = metric.judgment == Judgment::Better;
    match (metric.quantity, better) {
        (Quantity::HitRate, true) => "hits more",
        (Quantity::HitRate, false) => "hits less",
        (Quantity::SuccessRate, true) => "fails less",
        (Quantity::SuccessRate, false) => "fails more",
        (_, true) => "is faster",
        (_, false) => "is slower",
    }
}

/// `−12 % [−15, −9.0]`.
pub(super) fn amount(metric: &MetricDifference) -> String {
    if metric.judgment == Judgment::Same {
        return "same".to_owned();
    }
    let told = metric.told();
    let [value, low, high] =
        [told.value, told.interval.low, told.interval.high].map(|one| signed(scaled(metric, one)));
    format!("{} [{low}, {high}]", with_unit(metric, &value))
}

/// Name of quantity and statistic.
pub(super) fn figure_name(metric: &MetricDifference) -> String {
    let quantity = match metric.quantity {
        Quantity::TtftMs => "TTFT",
        Quantity::TpotMs => "TPOT",
        Quantity::ItlMs => "ITL",
        Quantity::E2elMs => "E2EL",
        Quantity::RequestsPerSecond => "requests a second",
        Quantity::OutputTokensPerSecond => "output tokens a second",
        Quantity::HitRate => "hit rate",
        Quantity::SuccessRate => "success rate",
    };
    match metric.statistic {
        Statistic::Mean => format!("{quantity} mean"),
        Statistic::P50 => format!("{quantity} p50"),
        Statistic::P99 => format!("{quantity} p99"),
        Statistic::Overall => quantity.to_owned(),
    }
}

/// The same where there is little room.
fn short_name(metric: &MetricDifference) -> String {
    match metric.quantity {
        Quantity::RequestsPerSecond => "requests/s".to_owned(),
        Quantity::OutputTokensPerSecond => "output tok/s".to_owned(),
        _ => figure_name(metric),
    }
}

/// A side's own figure, ratios in percent.
pub(super) fn own(metric: &MetricDifference, value: f64) -> String {
    if metric.quantity.is_ratio() {
        format!("{:.2} %", value * 100.0)
    } else {
        decimal(Some(value))
    }
}

/// What would go unseen.
pub(super) fn detectable(metric: &MetricDifference) -> String {
    if metric.judgment == Judgment::Same {
        return ABSENT.to_owned();
    }
    let value = plain(scaled(metric, metric.told().detectable));
    format!("±{}", with_unit(metric, &value))
}

fn scaled(metric: &MetricDifference, value: f64) -> f64 {
    if metric.is_relative() || metric.quantity.is_ratio() {
        value * 100.0
    } else {
        value
    }
}

fn with_unit(metric: &MetricDifference, value: &str) -> String {
    let unit = if metric.quantity.is_ratio() {
        " pp"
    } else if metric.is_relative() {
        " %"
    } else if metric.quantity.is_cost() {
        " ms"
    } else {
        " a second"
    };
    format!("{value}{unit}")
}

/// Two digits at least, three at most.
fn plain(value: f64) -> String {
    match value.abs() {
        size if size >= 10.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn signed(value: f64) -> String {
    let digits = plain(value.abs());
    if value < 0.0 {
        format!("\u{2212}{digits}")
    } else {
        format!("+{digits}")
    }
}

/// What the comparison rests on.
pub(super) fn basis(comparison: &RunComparison) -> String {
    let [left, right] = comparison.requests.map(count);
    let pairs = comparison.pairs.map_or_else(
        || "not paired".to_owned(),
        |pairs| format!("{} pairs by request id", count(pairs)),
    );
    let rounds = comparison.rounds.into_iter().min().unwrap_or(0);
    let drift = if rounds >= ROUNDS_MIN as u64 {
        format!(", which hold what differs between the {rounds} rounds")
    } else {
        ". Whatever else changed between one run and the next is in no interval: `run --ab` with \
         3 rounds or more measures it"
            .to_owned()
    };
    format!(
        "{left} requests of A and {right} of B, {pairs}; B against A, with 95 % intervals (each \
         for itself: of 20 figures one lies outside by chance){drift}"
    )
}

impl<W: io::Write> Page<'_, W> {
    fn cautions(&mut self, comparison: &RunComparison) -> io::Result<()> {
        for caution in &comparison.cautions {
            let code = self.colored(&caution.code, YELLOW);
            writeln!(self.out, "- {code}")?;
            self.indented(&caution.message)?;
        }
        writeln!(self.out)
    }

    fn metrics(&mut self, comparison: &RunComparison) -> io::Result<()> {
        let wide = self.width >= WIDE;
        let mut header = vec!["Figure", "A", "B", "difference", "unseen below"];
        header.extend(wide.then_some("samples"));
        let mut table = self.table(&header);
        for metric in &comparison.metrics {
            let few = if metric.indicative { "*" } else { "" };
            let mut cells = vec![
                format!("{}{few}", short_name(metric)),
                own(metric, metric.difference.left),
                own(metric, metric.difference.right),
                amount(metric),
                detectable(metric),
            ];
            cells.extend(wide.then(|| samples(metric)));
            table.add_row(numbers(cells));
        }
        self.print(&table)?;
        if comparison.metrics.iter().any(|metric| metric.indicative) {
            self.text("* fewer than 100 samples: indicative only")?;
        }
        Ok(())
    }
}

/// Pairs, or the samples of both sides.
fn samples(metric: &MetricDifference) -> String {
    let [left, right] = metric.samples.map(count);
    match metric.pairing {
        Pairing::Paired => left,
        Pairing::Apart => format!("{left}, {right}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::comparison;

    fn metric(quantity: Quantity, value: f64, half_width: f64) -> MetricDifference {
        use crate::stats::{Difference, Estimate, Interval};
        let estimate = |scale: f64| Estimate {
            value: value * scale,
            interval: Interval {
                low: (value - half_width) * scale,
                high: (value + half_width) * scale,
            },
            detectable: half_width * 1.4 * scale,
        };
        let better = (value < 0.0) == quantity.is_cost();
        MetricDifference {
            quantity,
            statistic: Statistic::P50,
            judgment: match (estimate(1.0).is_found(), better) {
                (false, _) => Judgment::NotFound,
                (true, true) => Judgment::Better,
                (true, false) => Judgment::Worse,
            },
            pairing: Pairing::Paired,
            samples: [200, 200],
            indicative: false,
            difference: Difference {
                left: 1.0,
                right: 1.0 + value,
                absolute: estimate(1.0),
                relative: Some(estimate(1.0)),
            },
        }
    }

    #[test]
    fn sentences_say_who_is_better_by_how_much_and_how_surely() {
        let check = |metric: &MetricDifference, expected: &str| {
            assert_eq!(sentence(metric), expected);
        };
        check(
            &metric(Quantity::TtftMs, -0.12, 0.03),
            "B is faster: TTFT p50 \u{2212}12 % [\u{2212}15, \u{2212}9.0]",
        );
        check(
            &metric(Quantity::TtftMs, 0.01, 0.022),
            "TTFT p50: no difference found, less than ±3.1 % would go unseen",
        );
        let mut rate = metric(Quantity::OutputTokensPerSecond, -0.05, 0.01);
        rate.statistic = Statistic::Overall;
        check(
            &rate,
            "B is slower: output tokens a second \u{2212}5.0 % [\u{2212}6.0, \u{2212}4.0]",
        );
        let mut hits = metric(Quantity::HitRate, 0.031, 0.011);
        hits.statistic = Statistic::Overall;
        check(&hits, "B hits more: hit rate +3.1 pp [+2.0, +4.2]");
        hits.judgment = Judgment::Same;
        check(&hits, "hit rate: the same on both sides");
    }

    #[test]
    fn few_rounds_are_said_to_tell_nothing_of_the_time_between() {
        let mut comparison = comparison();
        for (rounds, words) in [
            ([1, 1], "in no interval: `run --ab`"),
            ([2, 8], "in no interval: `run --ab`"),
            ([3, 3], "hold what differs between the 3 rounds"),
        ] {
            comparison.rounds = rounds;
            assert!(basis(&comparison).contains(words), "{rounds:?}");
        }
    }

    #[test]
    fn the_table_fits_80_columns() {
        for width in [80, 120] {
            let mut text = Vec::new();
            let options = TerminalOptions {
                width,
                color: false,
            };
            comparison_terminal(&comparison(), options, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("B is slower: TPOT mean"), "{text}");
            let rows = text.lines().filter(|line| line.starts_with(" TPOT"));
            assert_eq!(rows.count(), 3, "a row takes one line\n{text}");
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(width), "{widest}\n{text}");
        }
    }
}
