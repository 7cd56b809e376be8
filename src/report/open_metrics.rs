//! The summary of a run as OpenMetrics text (the exposition format 1.0.0), for
//! dashboards and gates. Times are seconds, as the format wants its units.

use std::fmt::Write as _;
use std::io;

use crate::analyze::{Analysis, HitLine, Severity, Verdict};
use crate::stats::Summary;

/// Writes the summary; every sample carries `run` as a label.
pub fn open_metrics(analysis: &Analysis, run: &str, out: &mut impl io::Write) -> io::Result<()> {
    let mut text = Text {
        run: run.to_owned(),
        text: String::new(),
    };
    text.verdict(analysis);
    text.requests(analysis);
    text.rates(analysis);
    text.hits(analysis);
    text.losses(analysis);
    let latency = &analysis.latency;
    text.summary("ttft", "Send to first token.", &latency.ttft_ms.summary);
    text.summary("tpot", "Time per output token.", &latency.tpot_ms.summary);
    text.summary("itl", "Gap between two chunks.", &latency.itl_ms.summary);
    text.summary("e2el", "Send to last token.", &latency.e2el_ms.summary);
    text.summary("queue_delay", "Schedule to send.", &latency.queue_delay_ms);
    text.text.push_str("# EOF\n");
    out.write_all(text.text.as_bytes())
}

/// Text that grows family by family.
struct Text {
    run: String,
    text: String,
}

impl Text {
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let _infallible = writeln!(self.text, "# TYPE pcload_{name} {kind}");
        if !unit.is_empty() {
            let _infallible = writeln!(self.text, "# UNIT pcload_{name} {unit}");
        }
        let _infallible = writeln!(self.text, "# HELP pcload_{name} {help}");
    }

    /// One sample; an absent value has none.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: Option<f64>) {
        let Some(value) = value else { return };
        let run = escaped(&self.run);
        let _infallible = write!(self.text, "pcload_{name}{{run=\"{run}\"");
        for (label, text) in labels {
            let _infallible = write!(self.text, ",{label}=\"{}\"", escaped(text));
        }
        let _infallible = writeln!(self.text, "}} {value}");
    }

    fn verdict(&mut self, analysis: &Analysis) {
        self.family(
            "verdict",
            "stateset",
            "",
            "Whether the numbers can be believed.",
        );
        for verdict in [Verdict::Valid, Verdict::Degraded, Verdict::Invalid] {
            let is_it = f64::from(u8::from(verdict == analysis.verdict));
            let labels = [("pcload_verdict", verdict.as_str())];
            self.sample("verdict", &labels, Some(is_it));
        }
        self.family("findings", "gauge", "", "What speaks against the numbers.");
        for severity in [Severity::Note, Severity::Degraded, Severity::Invalid] {
            let found = analysis.findings.iter();
            let count = found.filter(|finding| finding.severity == severity).count();
            let labels = [("severity", severity.as_str())];
            self.sample("findings", &labels, Some(count as f64));
        }
    }

    fn requests(&mut self, analysis: &Analysis) {
        let rates = &analysis.throughput;
        let failures = rates.requests.saturating_sub(rates.successes);
        self.family("requests", "gauge", "", "Requests of the measure phase.");
        for (outcome, count) in [("success", rates.successes), ("failure", failures)] {
            self.sample("requests", &[("outcome", outcome)], Some(count as f64));
        }
        self.family("tokens", "gauge", "", "Tokens of the successes.");
        for (kind, count) in [
            ("input", rates.input_tokens),
            ("output", rates.output_tokens),
        ] {
            self.sample("tokens", &[("kind", kind)], Some(count as f64));
        }
    }

    fn rates(&mut self, analysis: &Analysis) {
        let rates = &analysis.throughput;
        let goodput = analysis.goodput.as_ref();
        let all = [
            (
                "requests_per_second",
                "Successes a second.",
                rates.requests_per_second,
            ),
            (
                "input_tokens_per_second",
                "Prompt tokens a second.",
                rates.input_tokens_per_second,
            ),
            (
                "output_tokens_per_second",
                "Output tokens a second.",
                rates.output_tokens_per_second,
            ),
            (
                "concurrency_average",
                "Requests in flight.",
                rates.concurrency_average,
            ),
            (
                "goodput_requests_per_second",
                "Requests a second that met every objective.",
                goodput.and_then(|goodput| goodput.requests_per_second),
            ),
        ];
        for (name, help, value) in all {
            if value.is_some() {
                self.family(name, "gauge", "", help);
                self.sample(name, &[], value);
            }
        }
    }

    fn hits(&mut self, analysis: &Analysis) {
        let name = "hit_rate_ratio";
        self.family(
            name,
            "gauge",
            "ratio",
            "Prompt tokens from the prefix cache.",
        );
        let overall = &analysis.hits.overall;
        let rate = |line: Option<HitLine>| line.and_then(|line| line.hit_rate);
        let sources = [
            ("planned", overall.planned),
            ("planned_server", overall.planned_server),
            ("executed", overall.executed),
            ("usage", overall.usage),
            ("counters", overall.counters),
        ];
        for (source, line) in sources {
            self.sample(name, &[("source", source)], rate(line));
        }
        for row in &analysis.hits.ranks {
            let Some(rank) = row.rank else { continue };
            let rank = rank.to_string();
            for (source, line) in [("usage", row.usage), ("counters", row.counters)] {
                self.sample(name, &[("source", source), ("rank", &rank)], rate(line));
            }
        }
    }

    fn losses(&mut self, analysis: &Analysis) {
        self.family("lost_tokens", "gauge", "", "Hit tokens lost, by cause.");
        for total in &analysis.attribution.causes {
            let cause = super::names::cause_name(total.cause);
            let tokens = Some(total.lost_tokens as f64);
            self.sample("lost_tokens", &[("cause", cause)], tokens);
        }
    }

    fn summary(&mut self, name: &str, help: &str, summary: &Summary) {
        let family = format!("{name}_seconds");
        self.family(&family, "summary", "seconds", help);
        let seconds = |ms: Option<f64>| ms.map(|ms| ms / 1e3);
        let quantiles = [
            ("0.5", summary.p50),
            ("0.9", summary.p90),
            ("0.95", summary.p95),
            ("0.99", summary.p99),
            ("0.999", summary.p99_9),
        ];
        for (quantile, ms) in quantiles {
            self.sample(&family, &[("quantile", quantile)], seconds(ms));
        }
        let count = summary.count as f64;
        let sum = summary.mean.map_or(0.0, |mean| mean * count);
        self.sample(&format!("{family}_sum"), &[], seconds(Some(sum)));
        self.sample(&format!("{family}_count"), &[], Some(count));
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{explained, hopeless};

    fn text(analysis: &Analysis) -> String {
        let mut text = Vec::new();
        open_metrics(analysis, "a \"b\"\\", &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn samples_stand_under_their_family_and_the_text_ends() {
        for text in [text(&explained()), text(&hopeless())] {
            assert!(text.ends_with("# EOF\n") && !text.contains("NaN"));
            let mut family = String::new();
            for line in text.lines().filter(|line| *line != "# EOF") {
                if let Some(rest) = line.strip_prefix("# TYPE ") {
                    family = rest.split(' ').next().unwrap().to_owned();
                } else if let Some(rest) = line.strip_prefix("# ") {
                    assert!(rest.contains(&family), "{line}");
                } else {
                    assert!(line.starts_with(&family), "{line} under {family}");
                    assert!(line.contains("{run=\"a \\\"b\\\"\\\\\""), "{line}");
                }
            }
        }
    }

    #[test]
    fn values_are_those_of_the_analysis() {
        let analysis = explained();
        let text = text(&analysis);
        let value = |start: &str| {
            let line = text.lines().find(|line| {
                line.replace("run=\"a \\\"b\\\"\\\\\",", "")
                    .starts_with(start)
            });
            line.unwrap()
                .rsplit(' ')
                .next()
                .unwrap()
                .parse::<f64>()
                .unwrap()
        };
        let p50 = analysis.latency.ttft_ms.summary.p50.unwrap();
        assert!((value("pcload_ttft_seconds{quantile=\"0.5\"") - p50 / 1e3).abs() < 1e-12);
        let rate = analysis.hits.overall.counters.unwrap().hit_rate.unwrap();
        assert!((value("pcload_hit_rate_ratio{source=\"counters\"}") - rate).abs() < 1e-12);
        assert!((value("pcload_requests{outcome=\"success\"") - 120.0).abs() < 1e-12);
    }
}
