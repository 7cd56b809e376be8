//! A run in the JSON of `vllm bench serve` (vLLM 0.32), so that tools made for
//! it can read it. Its definitions: TTFT ends with the first chunk that has a
//! choice, a request with its last one; ITL is between content chunks; failed
//! requests stand in the lists with zeros and their error.

use serde_json::{Map, Value, json};

use crate::measure::{Derived, Outcome, RequestRecord, derive, gaps};
use crate::stats::{Percent, percentile, summarize};

/// What the records do not say.
#[derive(Clone, Debug, PartialEq)]
pub struct VllmFacts {
    /// `YYYYMMDD-HHMMSS` of the start.
    pub date: String,
    /// Model asked for.
    pub model: String,
    /// Tokenizer of the prompts.
    pub tokenizer: String,
    /// Requests at a time, where that was fixed.
    pub max_concurrency: Option<u32>,
    /// Arrivals per second, where they were paced.
    pub request_rate: Option<f64>,
    /// Requests per second that met every objective, where there are some.
    pub goodput: Option<f64>,
    /// Percentiles of the four latencies.
    pub percentiles: Vec<Percent>,
}

/// The document; `records` in send order.
pub fn vllm_result(records: &[RequestRecord], facts: &VllmFacts) -> Value {
    let sent: Vec<&RequestRecord> = records.iter().filter(|record| record.was_sent()).collect();
    let good: Vec<&RequestRecord> = sent.iter().copied().filter(|one| one.succeeded()).collect();
    let derived: Vec<Derived> = good.iter().map(|record| derive(record)).collect();
    let seconds = duration_s(&sent);
    let rate = |count: f64| seconds.map(|seconds| count / seconds);
    let input: u64 = derived.iter().filter_map(|one| one.prompt_tokens).sum();
    let output: u64 = derived.iter().filter_map(|one| one.output_tokens).sum();
    let mut document = json!({
        "date": facts.date,
        "endpoint_type": "openai",
        "backend": "openai",
        "label": "pcload",
        "model_id": facts.model,
        "tokenizer_id": facts.tokenizer,
        "num_prompts": sent.len(),
        "request_rate": facts.request_rate.map_or(json!("inf"), Value::from),
        "burstiness": 1.0,
        "max_concurrency": facts.max_concurrency,
        "duration": seconds,
        "completed": good.len(),
        "failed": sent.len() - good.len(),
        "total_input_tokens": input,
        "total_output_tokens": output,
        "request_throughput": rate(good.len() as f64),
        "request_goodput": facts.goodput,
        "output_throughput": rate(output as f64),
        "total_token_throughput": rate((input + output) as f64),
        "max_concurrent_requests": most_at_once(&sent),
    });
    if let Value::Object(entries) = &mut document {
        entries.extend(lists(&sent));
        let itl = good.iter().flat_map(|record| gaps(record));
        let itl: Vec<f64> = itl.map(|nanos| nanos as f64 / 1e6).collect();
        let of = |pick: fn(&Derived) -> Option<f64>| {
            derived.iter().filter_map(pick).collect::<Vec<f64>>()
        };
        statistics(entries, "ttft", &of(ttft_ms), facts);
        statistics(entries, "tpot", &of(tpot_ms), facts);
        statistics(entries, "itl", &itl, facts);
        statistics(entries, "e2el", &of(|one| one.e2el_ms), facts);
    }
    document
}

/// To the first choice; of an answer that was not streamed, to its end.
fn ttft_ms(derived: &Derived) -> Option<f64> {
    derived.first_choice_ms.or(derived.e2el_ms)
}

/// Absent below two output tokens, as there.
fn tpot_ms(derived: &Derived) -> Option<f64> {
    let gaps = derived
        .output_tokens?
        .checked_sub(1)
        .filter(|gaps| *gaps > 0)?;
    Some((derived.e2el_ms? - ttft_ms(derived)?) / gaps as f64)
}

fn statistics(entries: &mut Map<String, Value>, name: &str, samples: &[f64], facts: &VllmFacts) {
    let summary = summarize(samples, &[]);
    let mut put = |key: String, value: Option<f64>| {
        entries.insert(key, json!(value));
    };
    put(format!("mean_{name}_ms"), summary.mean);
    put(format!("median_{name}_ms"), summary.p50);
    put(format!("std_{name}_ms"), summary.std);
    for percent in &facts.percentiles {
        put(
            format!("{percent}_{name}_ms"),
            percentile(samples, *percent),
        );
    }
}

/// One entry a request, in seconds.
fn lists(sent: &[&RequestRecord]) -> Map<String, Value> {
    let each = |of: &dyn Fn(&RequestRecord, &Derived) -> Value| -> Value {
        let values = sent.iter().map(|record| of(record, &derive(record)));
        Value::Array(values.collect())
    };
    let good = |record: &RequestRecord, value: Option<f64>| {
        let seconds = value.filter(|_| record.succeeded()).map(|ms| ms / 1e3);
        json!(seconds.unwrap_or(0.0))
    };
    let mut lists = Map::new();
    let mut put = |name: &str, value: Value| {
        lists.insert(name.to_owned(), value);
    };
    put(
        "input_lens",
        each(&|record, derived| {
            json!(
                derived
                    .prompt_tokens
                    .unwrap_or(record.planned_prompt_tokens)
            )
        }),
    );
    put(
        "output_lens",
        each(&|record, derived| {
            let tokens = derived.output_tokens.filter(|_| record.succeeded());
            json!(tokens.unwrap_or(0))
        }),
    );
    put(
        "ttfts",
        each(&|record, derived| good(record, ttft_ms(derived))),
    );
    put(
        "itls",
        each(&|record, _| {
            let gaps = gaps(record).filter(|_| record.succeeded());
            json!(gaps.map(|nanos| nanos as f64 / 1e9).collect::<Vec<_>>())
        }),
    );
    put(
        "latencies",
        each(&|record, derived| good(record, derived.e2el_ms)),
    );
    put(
        "start_times",
        each(&|record, _| json!(record.t_send_ns.seconds())),
    );
    put(
        "generated_texts",
        each(&|record, _| json!(record.text.as_deref().unwrap_or_default())),
    );
    put(
        "errors",
        each(&|record, _| match &record.outcome {
            Outcome::Success => json!(""),
            Outcome::Failure(failure) => json!(failure.message),
        }),
    );
    lists
}

fn duration_s(sent: &[&RequestRecord]) -> Option<f64> {
    let from = sent.iter().map(|record| record.first_sent_at()).min()?;
    let to = sent.iter().filter_map(|record| record.ended_at()).max()?;
    (to > from).then(|| to.millis_since(from) / 1e3)
}

fn most_at_once(sent: &[&RequestRecord]) -> i64 {
    let mut events: Vec<(u64, i64)> = sent
        .iter()
        .filter_map(|record| Some((record.first_sent_at(), record.ended_at()?)))
        .flat_map(|(from, to)| [(from.nanos(), 1), (to.nanos(), -1)])
        .collect();
    events.sort_unstable();
    let mut level = 0;
    let levels = events.iter().map(|(_, step)| {
        level += step;
        level
    });
    levels.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::FailureKind;
    use crate::measure::sample::{at, failed, stream};

    #[test]
    fn figures_are_those_of_the_stamps() {
        let mut second = stream(&[150.0, 160.0, 170.0], 3);
        second.t_send_ns = at(100.0);
        second.first_choice_ns = Some(at(140.0));
        let records = [
            stream(&[50.0, 60.0], 2),
            second,
            failed(FailureKind::HttpStatus, Some(500), 0.0, 5.0),
        ];
        let mut records = records.to_vec();
        for record in &mut records[..2] {
            record.attempts = vec![crate::measure::Attempt {
                t_send_ns: record.t_send_ns,
                t_end_ns: record.stream_end_ns.unwrap(),
                body_started: true,
                failure: None,
            }];
        }
        let facts = VllmFacts {
            date: "20260101-120000".to_owned(),
            model: "m".to_owned(),
            tokenizer: "t".to_owned(),
            max_concurrency: Some(2),
            request_rate: None,
            goodput: None,
            percentiles: vec![Percent::new(99.0).unwrap()],
        };
        let document = vllm_result(&records, &facts);
        assert_eq!(document["completed"], 2);
        assert_eq!(document["failed"], 1);
        assert_eq!(document["total_input_tokens"], 128);
        assert_eq!(document["total_output_tokens"], 5);
        assert_eq!(document["duration"], 0.17);
        assert_eq!(document["mean_ttft_ms"], 45.0);
        assert_eq!(document["median_itl_ms"], 10.0);
        assert_eq!(document["mean_e2el_ms"], 65.0);
        // (60 − 50) / 1 and (70 − 40) / 2.
        assert_eq!(document["mean_tpot_ms"], 12.5);
        assert_eq!(document["ttfts"], json!([0.05, 0.04, 0.0]));
        assert_eq!(document["output_lens"], json!([2, 3, 0]));
        assert_eq!(document["max_concurrent_requests"], 2);
        assert!(document["p99_tpot_ms"].is_f64());
    }
}
