//! The detailed result file of `vllm bench serve` (`--save-detailed`) as samples
//! of a comparison. Its times are seconds, its lists parallel, one item a
//! request in the order of the data set.

use serde::Deserialize;

use super::sample::{Sample, by_send};

/// A file that is no detailed result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BenchServeError {
    /// Not JSON, or other fields.
    #[error("not a result of `vllm bench serve`: {0}")]
    Shape(String),
    /// Only summaries, no request by itself.
    #[error("`{0}` is missing: the result holds summaries only")]
    NotDetailed(&'static str),
    /// Lists of unequal length.
    #[error("`{field}` has {found} items and `ttfts` {expected}")]
    Lengths {
        /// Which list.
        field: &'static str,
        /// Its length.
        found: usize,
        /// That of `ttfts`.
        expected: usize,
    },
}

/// What a result says.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchServe {
    /// `model_id`.
    pub model: String,
    /// `max_concurrency`; absent when unlimited.
    pub max_concurrency: Option<u64>,
    /// `request_rate` as it stands there.
    pub request_rate: String,
    /// Its requests in send order.
    pub samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Raw {
    model_id: String,
    max_concurrency: Option<u64>,
    #[serde(default)]
    request_rate: serde_json::Value,
    ttfts: Option<Vec<f64>>,
    itls: Option<Vec<Vec<f64>>>,
    output_lens: Option<Vec<u64>>,
    start_times: Option<Vec<f64>>,
    errors: Option<Vec<String>>,
    latencies: Option<Vec<f64>>,
}

impl BenchServe {
    /// Whether a document looks like one, before it is read in earnest.
    pub fn is_one(document: &serde_json::Value) -> bool {
        document.get("request_throughput").is_some() && document.get("model_id").is_some()
    }

    /// Reads a document. The first token is that of vLLM's client: the first
    /// chunk with a choice in it.
    pub fn read(document: &serde_json::Value) -> Result<Self, BenchServeError> {
        let raw = Raw::deserialize(document)
            .map_err(|error| BenchServeError::Shape(error.to_string()))?;
        let request_rate = match &raw.request_rate {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Ok(Self {
            samples: raw.samples()?,
            model: raw.model_id,
            max_concurrency: raw.max_concurrency,
            request_rate,
        })
    }
}

impl Raw {
    fn samples(&self) -> Result<Vec<Sample>, BenchServeError> {
        let ttfts = list(self.ttfts.as_deref(), "ttfts", None)?;
        let count = Some(ttfts.len());
        let itls = list(self.itls.as_deref(), "itls", count)?;
        let lens = list(self.output_lens.as_deref(), "output_lens", count)?;
        let starts = list(self.start_times.as_deref(), "start_times", count)?;
        let errors = list(self.errors.as_deref(), "errors", count)?;
        // Older versions do not write it: then the last gap is the end.
        let latencies = match &self.latencies {
            Some(all) => Some(list(Some(all), "latencies", count)?),
            None => None,
        };
        let origin = starts.iter().copied().fold(f64::INFINITY, f64::min);
        let mut samples: Vec<Sample> = (0..ttfts.len())
            .map(|place| {
                let gaps_s: f64 = itls[place].iter().sum();
                let end_s = latencies.map_or(ttfts[place] + gaps_s, |all| all[place]);
                let sent_s = starts[place] - origin;
                let ok = errors[place].is_empty();
                let after_first = lens[place].saturating_sub(1);
                let tpot = (end_s - ttfts[place]) / after_first as f64 * 1e3;
                Sample {
                    key: None,
                    run: 0,
                    sent_s,
                    ended_s: sent_s + end_s,
                    ok,
                    ttft_ms: ok.then_some(ttfts[place] * 1e3),
                    tpot_ms: (ok && after_first > 0).then_some(tpot),
                    e2el_ms: ok.then_some(end_s * 1e3),
                    gaps: itls[place].len() as u64,
                    gaps_ms: gaps_s * 1e3,
                    output_tokens: Some(lens[place]),
                    cached: None,
                }
            })
            .collect();
        samples.sort_by(by_send);
        Ok(samples)
    }
}

fn list<'a, T>(
    values: Option<&'a [T]>,
    field: &'static str,
    expected: Option<usize>,
) -> Result<&'a [T], BenchServeError> {
    let values = values.ok_or(BenchServeError::NotDetailed(field))?;
    match expected {
        Some(expected) if values.len() != expected => Err(BenchServeError::Lengths {
            field,
            found: values.len(),
            expected,
        }),
        _ => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::summarize;
    use serde_json::{Value, json};

    const RECORDED: &str = include_str!("../../../tests/data/vllm-0.32.0/bench_serve.conc8.json");

    fn close(found: Option<f64>, stated: &Value) {
        let (found, stated) = (found.unwrap(), stated.as_f64().unwrap());
        assert!((found / stated - 1.0).abs() < 1e-6, "{found} {stated}");
    }

    #[test]
    fn the_samples_of_a_recorded_result_give_its_own_summary() {
        let document: Value = serde_json::from_str(RECORDED).unwrap();
        assert!(BenchServe::is_one(&document));
        let result = BenchServe::read(&document).unwrap();
        assert_eq!(
            (result.samples.len(), result.max_concurrency),
            (120, Some(8))
        );
        let all = |pick: fn(&Sample) -> Option<f64>| {
            let values: Vec<f64> = result.samples.iter().filter_map(pick).collect();
            summarize(&values, &[])
        };
        let ttft = all(|sample| sample.ttft_ms);
        close(ttft.mean, &document["mean_ttft_ms"]);
        close(ttft.p50, &document["median_ttft_ms"]);
        close(ttft.p99, &document["p99_ttft_ms"]);
        let tpot = all(|sample| sample.tpot_ms);
        close(tpot.mean, &document["mean_tpot_ms"]);
        close(tpot.p99, &document["p99_tpot_ms"]);
        let gaps: f64 = result.samples.iter().map(|sample| sample.gaps_ms).sum();
        let count: u64 = result.samples.iter().map(|sample| sample.gaps).sum();
        close(Some(gaps / count as f64), &document["mean_itl_ms"]);
    }

    #[test]
    fn a_result_without_single_requests_says_what_is_missing() {
        let summary = json!({"model_id": "m", "request_throughput": 1.0});
        let error = BenchServe::read(&summary).unwrap_err();
        assert_eq!(error, BenchServeError::NotDetailed("ttfts"));
        let uneven = json!({
            "model_id": "m", "ttfts": [0.1, 0.2], "itls": [[]], "output_lens": [1, 1],
            "start_times": [0.0, 1.0], "errors": ["", ""],
        });
        let error = BenchServe::read(&uneven).unwrap_err();
        assert!(error.to_string().contains("`itls` has 1 items"));
        assert!(BenchServe::read(&json!([])).is_err());
    }
}
