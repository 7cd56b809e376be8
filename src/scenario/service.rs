//! The served endpoint: addresses, ranks, labels, waits and the credential.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::scenario::ServiceConfig;
use crate::scenario::json::{Kind, Node};
use crate::scenario::problem::{Code, Problem, Problems, join, shown};
use crate::scenario::rule::{
    Flag, Integer, OrNull, Real, Rule, Text, cast_integer, cast_integer_schema,
};
use crate::scenario::section::Section;
use crate::scenario::url::Address;
use crate::secret::{Secret, holds_secrets, shown_url};
use crate::units::DpRank;

/// Most data-parallel ranks.
const RANKS_MAX: u64 = 65_536;

/// Longest wait or interval, in seconds (eleven days).
const SECONDS_MAX: f64 = 1_000_000.0;

/// Reads `service`. A key in the environment stands in for one in the file.
pub(super) fn read(
    root: &mut Section<'_>,
    environment_api_key: Option<&str>,
    notes: &mut Vec<String>,
) -> ServiceConfig {
    let about = "Online inference service and its metrics.";
    root.object("service", about, |service| {
        let inference = ("inference_url", "Completions endpoint.", "/v1/completions");
        let inference_url = address(service, inference, notes);
        let metrics = ("metrics_url", "Prometheus endpoint.", "/metrics");
        let metrics_url = address(service, metrics, notes);
        let reset_url = reset_url(service, notes);
        let about = "Model name sent with each request.";
        let model = service.value("model", about, &Text::NonBlank, "\"model-name\"");
        let rule = Integer {
            min: 1,
            max: RANKS_MAX,
        };
        let dp_size = service.value("dp_size", "Data-parallel ranks.", &rule, "2");
        let dp_size = u32::try_from(dp_size).unwrap_or(u32::MAX);
        let about = "Go on when the reset is missing or fails.";
        let assume_empty_cache = service.value("assume_empty_cache", about, &Flag, "false");
        let ranks = service.sound("dp_size").then_some(dp_size);
        let about = "Prometheus `engine` label to rank; each rank at most once.";
        let engine_label_map = service.value("engine_label_map", about, &LabelMap { ranks }, "{}");
        let about = "Timeout of probes, warm-up, reset and metrics requests, in seconds.";
        let timeout_seconds = service.value("timeout_seconds", about, &TIMEOUT, "30");
        let api_key = api_key(service, environment_api_key);
        let about = "Interval of KV usage samples, in seconds; 0 for none.";
        let poll_interval_seconds = service.value("poll_interval_seconds", about, &INTERVAL, "5.0");
        ServiceConfig {
            inference_url,
            metrics_url,
            reset_url,
            model,
            dp_size,
            assume_empty_cache,
            engine_label_map,
            timeout_seconds,
            api_key,
            poll_interval_seconds,
        }
    })
}

const TIMEOUT: Real = Real {
    above: Some(0.0),
    min: None,
    max: Some(SECONDS_MAX),
};

const INTERVAL: Real = Real {
    above: None,
    min: Some(0.0),
    max: Some(SECONDS_MAX),
};

/// Reads an address; what may be secret in it does not get into the filled
/// configuration.
fn address(
    service: &mut Section<'_>,
    (key, about, path): (&'static str, &str, &str),
    notes: &mut Vec<String>,
) -> String {
    let default = match path {
        "/metrics" => "\"http://127.0.0.1:8000/metrics\"",
        _ => "\"http://127.0.0.1:8000/v1/completions\"",
    };
    let url = service.value(key, about, &Address, default);
    keep_secrets_out(service, key, &url, notes);
    url
}

fn reset_url(service: &mut Section<'_>, notes: &mut Vec<String>) -> Option<String> {
    const DEFAULT: &str = "\"http://127.0.0.1:8000/reset_prefix_cache\"";
    let about = "Endpoint that empties the prefix cache; null or \"\" for none.";
    let url = service.value("reset_url", about, &OrNull(OrEmpty), DEFAULT);
    let url = url.filter(|url| !url.is_empty())?;
    keep_secrets_out(service, "reset_url", &url, notes);
    Some(url)
}

fn keep_secrets_out(service: &mut Section<'_>, key: &str, url: &str, notes: &mut Vec<String>) {
    if holds_secrets(url) {
        service.set(key, Value::String(shown_url(url)));
        notes.push(format!(
            "{}: user info, query and fragment of the address are used but kept out of all \
             artifacts; a run from the manifest goes without them",
            service.path_of(key)
        ));
    }
}

/// An address, or nothing.
struct OrEmpty;

impl Rule for OrEmpty {
    type Output = String;

    fn expected(&self) -> String {
        Address.expected()
    }

    fn schema(&self) -> Value {
        json!({"anyOf": [{"const": ""}, Address.schema()]})
    }

    fn read(&self, node: &Node<'_>) -> Result<String, Code> {
        match &node.kind {
            Kind::Text(text) if text.is_empty() => Ok(String::new()),
            _ => Address.read(node),
        }
    }
}

/// `engine` labels to ranks. The reference takes the ranks as text, too.
struct LabelMap {
    ranks: Option<u32>,
}

impl LabelMap {
    fn rank(&self, node: &Node<'_>) -> Result<DpRank, Code> {
        let rank = u32::try_from(cast_integer(node)?).ok();
        let inside = |rank: &u32| self.ranks.is_none_or(|ranks| *rank < ranks);
        rank.filter(inside).map(DpRank).ok_or(Code::OutOfRange)
    }
}

impl Rule for LabelMap {
    type Output = BTreeMap<String, DpRank>;

    fn expected(&self) -> String {
        "an object of labels and ranks".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"type": "object", "additionalProperties": cast_integer_schema()})
    }

    fn read(&self, node: &Node<'_>) -> Result<Self::Output, Code> {
        let Kind::Object(entries) = &node.kind else {
            return Err(Code::WrongType);
        };
        let rank = |(label, node): &(String, Node<'_>)| Ok((label.clone(), self.rank(node)?));
        entries.iter().map(rank).collect()
    }

    fn check(&self, node: &Node<'_>, path: &str, problems: &mut Problems) -> Option<Self::Output> {
        let Kind::Object(entries) = &node.kind else {
            let problem = Problem::new(Code::WrongType, path, "wrong type");
            let problem = problem.found(node.found()).expected(self.expected());
            problems.push(problem.at(Some(node.offset)));
            return None;
        };
        let mut map = BTreeMap::new();
        let mut owners: BTreeMap<DpRank, &str> = BTreeMap::new();
        for (label, node) in entries {
            let problem = match self.rank(node) {
                Err(code) => {
                    let ranks = self.ranks.map_or_else(String::new, |ranks| {
                        format!(" from 0 to {}", ranks.saturating_sub(1))
                    });
                    Problem::new(code, join(path, label), "no such rank")
                        .found(node.found())
                        .expected(format!("a rank{ranks}"))
                        .hint("ranks end below `service.dp_size`")
                }
                Ok(rank) => match owners.insert(rank, label) {
                    None => {
                        map.insert(label.clone(), rank);
                        continue;
                    }
                    Some(other) => {
                        let what = format!("rank {rank} already belongs to label {}", shown(other));
                        Problem::new(Code::Conflict, join(path, label), what)
                            .expected("one label a rank")
                    }
                },
            };
            problems.push(problem.at(Some(node.offset)));
        }
        Some(map)
    }
}

/// Reads the credential. No problem shows it, and the filled configuration only
/// says whether there is one.
fn api_key(service: &mut Section<'_>, environment: Option<&str>) -> Secret {
    let about = "Credential; `PCLOAD_API_KEY` stands in. It is never written anywhere.";
    let written = service.value("api_key", about, &Key, "\"\"");
    service.unset("api_key");
    let key = match (written.as_str(), environment) {
        ("", Some(stand_in)) => {
            if !sendable(stand_in) {
                let what = "the key cannot be sent in a header";
                let problem = Problem::new(Code::BadValue, "PCLOAD_API_KEY", what);
                service
                    .problems()
                    .push(problem.expected("visible ASCII characters"));
            }
            Secret::new(stand_in)
        }
        _ => Secret::new(written),
    };
    service.set("api_key_configured", Value::Bool(key.is_configured()));
    key
}

/// A credential, or none.
struct Key;

/// Whether `key` can stand in a header.
fn sendable(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Rule for Key {
    type Output = String;

    fn expected(&self) -> String {
        "a string of visible ASCII characters, \"\" or null for no key".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[!-~]*$"}]})
    }

    fn read(&self, node: &Node<'_>) -> Result<String, Code> {
        match &node.kind {
            Kind::Null => Ok(String::new()),
            Kind::Text(text) if sendable(text) => Ok(text.clone()),
            Kind::Text(_) => Err(Code::BadValue),
            _ => Err(Code::WrongType),
        }
    }

    fn check(&self, node: &Node<'_>, path: &str, problems: &mut Problems) -> Option<String> {
        self.read(node)
            .map_err(|code| {
                let problem = Problem::new(code, path, "not a usable key");
                let problem = problem.found(node.type_name()).expected(self.expected());
                problems.push(problem.at(Some(node.offset)));
            })
            .ok()
    }
}
