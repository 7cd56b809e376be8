//! An analysis as tables for a terminal: verdict and findings first, because they
//! decide whether to read on. Color only repeats what a word says already.

use std::io;

use comfy_table::{Cell, CellAlignment};

use super::names::{cause_name, place_name, source_name};
use super::number::{ABSENT, count, decimal, maybe_count, ms, percent, points};
use super::page::{GREEN, PLAIN, Page, RED, YELLOW, numbers};
use crate::analyze::{AccountRow, Analysis, Finding, HitLine, Severity, StageReport, Verdict};
use crate::stats::Summary;

/// How the terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns; tables never get wider.
    pub width: u16,
    /// Whether to color; `NO_COLOR` is the caller's to read.
    pub color: bool,
}

/// From this width on there is room for all percentiles.
pub(super) const WIDE: u16 = 110;
/// Most groups, lanes and stages shown.
const ROWS_MAX: usize = 20;

/// Writes the tables of `analysis`.
pub fn terminal(
    analysis: &Analysis,
    options: TerminalOptions,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut page = Page::new(options, out);
    page.verdict(analysis)?;
    page.account(analysis)?;
    page.causes(analysis)?;
    page.latency(analysis)?;
    page.throughput(analysis)?;
    page.stages(&analysis.stages)?;
    page.places("Hits by rank", &analysis.hits.ranks)?;
    page.places("Hits by group", &analysis.hits.groups)?;
    if analysis.hits.ranks.len() > 1 && analysis.hits.groups.len() > 1 {
        page.places("Hits by group and rank", &analysis.hits.lanes)?;
    }
    page.kv(analysis)
}

impl<W: io::Write> Page<'_, W> {
    fn verdict(&mut self, analysis: &Analysis) -> io::Result<()> {
        let verdict = analysis.verdict;
        let color = match verdict {
            Verdict::Valid => GREEN,
            Verdict::Degraded => YELLOW,
            Verdict::Invalid => RED,
        };
        let word = self.colored(verdict.as_str(), color);
        let actual = analysis.hits.actual;
        let rate = match actual.and_then(|actual| Some((actual.source, actual.line.hit_rate?))) {
            Some((source, rate)) => format!(
                "Hit rate {} (by {}), {} against the executed theory",
                percent(Some(rate)),
                source_name(source),
                points(analysis.hits.actual_minus_executed_pp),
            ),
            None => "The hit rate is not known".to_owned(),
        };
        writeln!(self.out, "Verdict: {word}")?;
        self.text(&format!(
            "{rate}; {} of {} requests succeeded",
            count(analysis.throughput.successes),
            count(analysis.throughput.requests),
        ))?;
        for finding in &analysis.findings {
            self.finding(finding)?;
        }
        Ok(())
    }

    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let color = match finding.severity {
            Severity::Note => PLAIN,
            Severity::Degraded => YELLOW,
            Severity::Invalid => RED,
        };
        let code = self.colored(finding.code.as_str(), color);
        writeln!(self.out, "- {code} ({})", finding.severity.as_str())?;
        self.indented(&finding.message)?;
        self.indented(&format!("hint: {}", finding.hint))
    }

    fn account(&mut self, analysis: &Analysis) -> io::Result<()> {
        let hits = &analysis.hits;
        let overall = &hits.overall;
        let mut table = self.table(&[
            "Hit rate",
            "requests",
            "prompt tokens",
            "hit tokens",
            "rate",
        ]);
        let mut line = |name: &str, requests: u64, line: Option<HitLine>| {
            let input = line.map(|line| line.input_tokens);
            let hit = line.map(|line| line.hit_tokens);
            table.add_row(numbers([
                name.to_owned(),
                count(requests),
                maybe_count(input),
                maybe_count(hit),
                percent(line.and_then(|line| line.hit_rate)),
            ]));
        };
        line("theory, planned", overall.requests, overall.planned);
        line(
            "theory, server's view",
            overall.requests,
            overall.planned_server,
        );
        line("theory, executed", overall.served, overall.executed);
        if let Some(capacity) = hits.capacity {
            line("theory, with eviction", overall.served, Some(capacity.line));
        }
        line("usage", overall.usage_requests, overall.usage);
        line("counters", overall.served, overall.counters);
        self.print(&table)?;
        if let Some(interval) = hits.usage_hit_rate_interval {
            let (low, high) = (percent(Some(interval.low)), percent(Some(interval.high)));
            let few = if hits.usage_interval_indicative {
                ", indicative"
            } else {
                ""
            };
            self.text(&format!("95 % interval by usage: {low} to {high}{few}"))?;
        }
        let counters = hits.counters.as_ref();
        if counters.is_some_and(|rates| rates.external_hit_tokens.unwrap_or(0) > 0) {
            let combined = counters.and_then(|rates| rates.combined_hit_rate);
            self.text(&format!("With external tiers: {}", percent(combined)))?;
        }
        if let Some(overlap) = hits.overlap.filter(|overlap| overlap.low != overlap.high) {
            let (low, high) = (
                percent(overlap.low.hit_rate),
                percent(overlap.high.hit_rate),
            );
            self.text(&format!(
                "Overlapping requests leave between {low} and {high}"
            ))?;
        }
        Ok(())
    }

    fn causes(&mut self, analysis: &Analysis) -> io::Result<()> {
        let attribution = &analysis.attribution;
        if !attribution.causes.is_empty() {
            let mut table = self.table(&["Lost tokens by cause", "requests", "tokens"]);
            for total in &attribution.causes {
                table.add_row(numbers([
                    cause_name(total.cause).to_owned(),
                    count(total.requests),
                    count(total.lost_tokens),
                ]));
            }
            table.add_row(numbers([
                "whole gap".to_owned(),
                String::new(),
                count(attribution.gap_tokens),
            ]));
            self.print(&table)?;
        }
        if let Some(fit) = analysis.worth.fit {
            let interval = fit.interval.map_or_else(String::new, |interval| {
                format!(
                    " [{}, {}]",
                    decimal(Some(interval.low)),
                    decimal(Some(interval.high))
                )
            });
            self.text(&format!(
                "A hit is worth {} ms{interval} for each 1,000 tokens (R² {:.2}); saved {} of {} ms a request",
                decimal(Some(fit.ms_per_1000_uncached_tokens)),
                fit.r_squared,
                decimal(Some(fit.realized_saving_ms)),
                decimal(Some(fit.theoretical_saving_ms)),
            ))?;
        }
        Ok(())
    }

    fn latency(&mut self, analysis: &Analysis) -> io::Result<()> {
        let latency = &analysis.latency;
        let wide = self.width >= WIDE;
        let mut header = vec!["Latency, ms", "count", "mean", "p50", "p90", "p99", "max"];
        if wide {
            header = vec![
                "Latency, ms",
                "count",
                "mean",
                "std",
                "min",
                "p50",
                "p75",
                "p90",
                "p95",
                "p99",
                "p99.9",
                "max",
            ];
        }
        if latency.e2el_ms.summary.count == 0 {
            writeln!(self.out)?;
            return self.text("No latencies: no request of the measured phase succeeded");
        }
        let mut table = self.table(&header);
        // What was not measured needs no line; queues and lanes always were.
        let mut line = |name: &str, summary: &Summary| {
            if summary.count > 0 {
                table.add_row(numbers(latency_cells(name, summary, wide)));
            }
        };
        line("TTFT", &latency.ttft_ms.summary);
        if let Some(first_choice) = &latency.first_choice_ms {
            line("first choice", first_choice);
        }
        line("TPOT", &latency.tpot_ms.summary);
        line("ITL", &latency.itl_ms.summary);
        line("E2EL", &latency.e2el_ms.summary);
        line("TTFT from schedule", &latency.ttft_from_schedule_ms);
        line("E2EL from schedule", &latency.e2el_from_schedule_ms);
        line("queue delay", &latency.queue_delay_ms);
        line("lane wait", &latency.lane_wait_ms);
        self.print(&table)?;
        if let Some(interval) = latency.ttft_ms.interval {
            let range = |low, high| format!("[{}, {}]", ms(Some(low)), ms(Some(high)));
            self.text(&format!(
                "TTFT 95 % intervals: mean {}, p50 {}, p99 {}{}",
                range(interval.mean.low, interval.mean.high),
                range(interval.p50.low, interval.p50.high),
                range(interval.p99.low, interval.p99.high),
                if interval.indicative {
                    " (indicative)"
                } else {
                    ""
                },
            ))?;
        }
        Ok(())
    }

    fn throughput(&mut self, analysis: &Analysis) -> io::Result<()> {
        let rates = &analysis.throughput;
        let mut table = self.table(&["Throughput", "", "Tokens a second", ""]);
        let mut line = |left: &str, left_value: String, right: &str, right_value: String| {
            let mut row = numbers([left.to_owned(), left_value]);
            row.add_cell(Cell::new(right));
            row.add_cell(Cell::new(right_value).set_alignment(CellAlignment::Right));
            table.add_row(row);
        };
        line(
            "duration, s",
            decimal(rates.duration_s),
            "output",
            decimal(rates.output_tokens_per_second),
        );
        line(
            "requests a second",
            decimal(rates.requests_per_second),
            "output, best second",
            decimal(rates.peak_output_tokens_per_second),
        );
        line(
            "concurrency, average",
            decimal(rates.concurrency_average),
            "input",
            decimal(rates.input_tokens_per_second),
        );
        line(
            "concurrency, most",
            count(rates.concurrency_max),
            "total",
            decimal(rates.total_tokens_per_second),
        );
        self.print(&table)?;
        if let Some(goodput) = &analysis.goodput {
            self.text(&format!(
                "Goodput: {} requests a second met every objective ({})",
                decimal(goodput.requests_per_second),
                percent(goodput.met_ratio),
            ))?;
        }
        Ok(())
    }

    fn stages(&mut self, stages: &[StageReport]) -> io::Result<()> {
        if stages.len() < 2 {
            return Ok(());
        }
        let mut table = self.table(&[
            "Stage",
            "target",
            "requests",
            "achieved/s",
            "TTFT p50",
            "TTFT p99",
            "queue p50",
        ]);
        for stage in stages.iter().take(ROWS_MAX) {
            let target = match (stage.target_concurrency, stage.offered_per_second) {
                (Some(concurrency), _) => format!("{concurrency} in flight"),
                (None, Some(rate)) => format!("{}/s", decimal(Some(rate))),
                (None, None) => stage.arrival.clone().unwrap_or_else(|| ABSENT.to_owned()),
            };
            table.add_row(numbers([
                stage.stage.to_string(),
                target,
                count(stage.throughput.requests),
                decimal(stage.throughput.requests_per_second),
                ms(stage.ttft_ms.p50),
                ms(stage.ttft_ms.p99),
                ms(stage.queue_delay_ms.p50),
            ]));
        }
        self.print(&table)?;
        self.left_out(stages.len())
    }

    fn places(&mut self, title: &str, rows: &[AccountRow]) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut table = self.table(&[
            title, "requests", "planned", "executed", "usage", "counters",
        ]);
        let rate = |line: Option<HitLine>| percent(line.and_then(|line| line.hit_rate));
        for row in rows.iter().take(ROWS_MAX) {
            table.add_row(numbers([
                place_name(row),
                count(row.requests),
                rate(row.planned_server),
                rate(row.executed),
                rate(row.usage),
                rate(row.counters),
            ]));
        }
        self.print(&table)?;
        self.left_out(rows.len())
    }

    fn kv(&mut self, analysis: &Analysis) -> io::Result<()> {
        if analysis.kv.ranks.is_empty() {
            return Ok(());
        }
        let mut table = self.table(&[
            "KV pool", "samples", "average", "peak", "running", "waiting",
        ]);
        for (rank, kv_use) in &analysis.kv.ranks {
            table.add_row(numbers([
                format!("rank {rank}"),
                count(kv_use.samples),
                percent(kv_use.average),
                percent(kv_use.peak),
                maybe_count(kv_use.running_max),
                maybe_count(kv_use.waiting_max),
            ]));
        }
        self.print(&table)
    }

    fn left_out(&mut self, rows: usize) -> io::Result<()> {
        match rows.saturating_sub(ROWS_MAX) {
            0 => Ok(()),
            more => self.text(&format!("and {more} more")),
        }
    }
}

fn latency_cells(name: &str, summary: &Summary, wide: bool) -> Vec<String> {
    let mut cells = vec![name.to_owned(), count(summary.count), ms(summary.mean)];
    if wide {
        cells.extend([
            ms(summary.std),
            ms(summary.min),
            ms(summary.p50),
            ms(summary.p75),
        ]);
        cells.extend([
            ms(summary.p90),
            ms(summary.p95),
            ms(summary.p99),
            ms(summary.p99_9),
        ]);
    } else {
        cells.extend([ms(summary.p50), ms(summary.p90), ms(summary.p99)]);
    }
    cells.push(ms(summary.max));
    cells
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
