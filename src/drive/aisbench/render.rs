//! AISBench's configuration, data and command line for a prepared set, as text.
//! Types stand as dotted names, so the configuration is plain data.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::literal::literal;
use super::requests::is_routed;
use super::{AisbenchError, AisbenchRow};
use crate::scenario::Scenario;
use crate::secret::shown_url;

/// Whose classes send the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Classes {
    /// The stock package's.
    Stock,
    /// Subclasses of them that route by rank and keep lanes.
    Adapter,
    /// Those of the prefix-cache plugin.
    Plugin,
}

/// The files of the prepared set, which the plugin's data set reads itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetPaths {
    /// `full.jsonl`.
    pub full: PathBuf,
    /// `requests.jsonl`.
    pub requests: PathBuf,
    /// `manifest.json`.
    pub manifest: PathBuf,
}

/// Everything a configuration is made of.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The scenario; its `aisbench` and `service` sections.
    pub scenario: &'a Scenario,
    /// Name of the set, time stamp included.
    pub run_id: &'a str,
    /// Files of the set.
    pub set: SetPaths,
    /// Folder of the tokenizer.
    pub tokenizer: PathBuf,
    /// Requests at a time.
    pub slots: u32,
    /// Body fields besides the scenario's generation arguments.
    pub extra_body: Map<String, Value>,
    /// Whose classes.
    pub classes: Classes,
    /// Where the data set lies.
    pub dataset: PathBuf,
}

impl Plan<'_> {
    /// Folder name of the model in AISBench's results.
    pub fn model_abbr(&self) -> String {
        let stated = self.scenario.aisbench.model.abbr.clone();
        folder_name(&stated.unwrap_or_else(|| format!("{}-vllm", self.run_id)))
    }

    /// Name of the data set in AISBench's results.
    pub fn dataset_abbr(&self) -> String {
        let stated = self.scenario.aisbench.dataset.abbr.clone();
        folder_name(&stated.unwrap_or_else(|| self.run_id.to_owned()))
    }

    /// The address, when it must not be written down or is not one that the
    /// stock classes can be told.
    pub fn hidden_url(&self) -> Option<String> {
        let url = &self.scenario.service.inference_url;
        let is_plain = shown_url(url) == *url && base_url(url).is_some();
        (!is_plain && self.classes != Classes::Plugin || shown_url(url) != *url)
            .then(|| keyed_url(url, self.scenario.service.api_key.is_configured()))
    }

    /// Whether the model class is wrapped, so that it looks into the
    /// environment.
    pub fn is_wrapped(&self) -> bool {
        self.scenario.service.api_key.is_configured() || self.hidden_url().is_some()
    }

    fn model_type(&self) -> String {
        let class = match self.classes {
            Classes::Stock => "ais_bench.benchmark.models.VLLMCustomAPI",
            Classes::Adapter => "pcload_aisbench.RoutedAPI",
            Classes::Plugin => "ais_bench_prefix_cache.models.VLLMPrefixCacheAPI",
        };
        if self.is_wrapped() {
            wrapped(class)
        } else {
            class.to_owned()
        }
    }
}

/// The name under which the adapter module has `class` wrapped.
fn wrapped(class: &str) -> String {
    let mut name = "pcload_aisbench.keyed_".to_owned();
    for byte in class.bytes() {
        let _infallible = write!(name, "{byte:02x}");
    }
    name
}

/// AISBench appends `v1/completions` to its base.
fn base_url(url: &str) -> Option<&str> {
    url.strip_suffix("/v1/completions")
}

/// A user part would be a second `Authorization` beside the key; the key wins.
fn keyed_url(url: &str, has_key: bool) -> String {
    let Ok(mut parsed) = url::Url::parse(url) else {
        return url.to_owned();
    };
    if has_key && (parsed.set_username("").is_err() || parsed.set_password(None).is_err()) {
        return url.to_owned();
    }
    parsed.into()
}

/// A name that AISBench can use for a folder: no separators, no dots.
fn folder_name(name: &str) -> String {
    let safe = |letter: char| {
        if letter.is_ascii_alphanumeric() || letter == '-' {
            letter
        } else {
            '_'
        }
    };
    name.chars().map(safe).collect()
}

/// The configuration file.
pub fn configuration(plan: &Plan<'_>) -> String {
    let assign = |name: &str, value: &Value| format!("{name} = {}\n", literal(value));
    let mut text = "# Written by pcload; do not edit.\n".to_owned();
    text += &assign("models", &json!([model(plan)]));
    text += &assign("datasets", &json!([data_set(plan)]));
    let calculator = json!({
        "type": "ais_bench.benchmark.calculators.DefaultPerfMetricCalculator",
        "stats_list": ["Average", "Min", "Max", "Median", "P75", "P90", "P99"],
    });
    text += &assign(
        "summarizer",
        &json!({
            "attr": "performance",
            "type": "ais_bench.benchmark.summarizers.DefaultPerfSummarizer",
            "calculator": calculator,
        }),
    );
    let work_dir = plan.scenario.aisbench.work_dir.to_string_lossy();
    text + &assign("work_dir", &json!(work_dir))
}

fn model(plan: &Plan<'_>) -> Value {
    let (service, model) = (&plan.scenario.service, &plan.scenario.aisbench.model);
    let mut kwargs: Map<String, Value> = model.generation_kwargs.iter().cloned().collect();
    kwargs.extend(plan.extra_body.clone());
    let mut entry = json!({
        "attr": "service",
        "type": plan.model_type(),
        "abbr": plan.model_abbr(),
        "path": plan.tokenizer.to_string_lossy(),
        "model": service.model,
        "stream": model.stream,
        "max_out_len": model.max_out_len,
        // The scenario counts re-sends, AISBench attempts.
        "retry": model.retry.saturating_add(1).min(1_000),
        "api_key": "",
        "batch_size": plan.slots,
        "generation_kwargs": kwargs,
    });
    let shown = shown_url(&service.inference_url);
    if plan.classes == Classes::Plugin {
        entry["inference_url"] = shown.into();
    } else {
        entry["url"] = base_url(&shown).unwrap_or(&shown).into();
        entry["request_rate"] = 0.into();
        entry["trust_remote_code"] = false.into();
    }
    entry
}

fn data_set(plan: &Plan<'_>) -> Value {
    let inferencer = match plan.classes {
        Classes::Stock => "ais_bench.benchmark.openicl.icl_inferencer.GenInferencer",
        Classes::Adapter => "pcload_aisbench.LaneInferencer",
        Classes::Plugin => "ais_bench_prefix_cache.openicl.icl_inferencer.PrefixCacheGenInferencer",
    };
    let mut entry = json!({
        "abbr": plan.dataset_abbr(),
        "reader_cfg": {
            "input_columns": ["question", "max_out_len"],
            "output_column": "answer",
        },
        "infer_cfg": {
            "prompt_template": {
                "type": "ais_bench.benchmark.openicl.icl_prompt_template.PromptTemplate",
                "template": "{question}",
            },
            "retriever": {"type": "ais_bench.benchmark.openicl.icl_retriever.ZeroRetriever"},
            "inferencer": {"type": inferencer},
        },
        "eval_cfg": {
            "evaluator": {"type": "ais_bench.benchmark.openicl.icl_evaluator.AccEvaluator"},
            "pred_role": plan.scenario.aisbench.dataset.pred_role,
        },
    });
    if plan.classes == Classes::Plugin {
        entry["type"] = "ais_bench_prefix_cache.datasets.PrefixCacheDataset".into();
        entry["requests_path"] = plan.set.requests.to_string_lossy().into();
        entry["full_path"] = plan.set.full.to_string_lossy().into();
        entry["manifest_path"] = plan.set.manifest.to_string_lossy().into();
    } else {
        entry["type"] = "ais_bench.benchmark.datasets.custom.CustomDataset".into();
        entry["path"] = plan.dataset.to_string_lossy().into();
    }
    entry
}

/// The data set file. The columns are those of the first row, so every row has
/// the same; the length's key is the only one that AISBench honors.
pub fn dataset(rows: &[AisbenchRow]) -> String {
    let routed = rows.iter().any(is_routed);
    let line = |row: &AisbenchRow| {
        let mut entry = json!({
            "question": row.prompt,
            "answer": row.answer,
            "max_tokens": row.sent.max_tokens,
        });
        if routed {
            entry["dp_rank"] = json!(row.sent.dp_rank.map(|rank| rank.0));
            entry["group_id"] = json!(row.sent.group);
            entry["lane_sequence"] = json!(row.sent.lane_sequence);
        }
        entry.to_string() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Arguments of the interpreter. AISBench takes the last of repeated options,
/// so the scenario's own come last.
pub fn command(
    config: &Path,
    work_dir: &Path,
    extra: &[String],
) -> Result<Vec<String>, AisbenchError> {
    for argument in extra {
        let name = argument.split('=').next().unwrap_or_default();
        if let Some((_, why)) = OWNED.iter().find(|(names, _)| means_one_of(name, names)) {
            return Err(AisbenchError::Argument {
                argument: argument.clone(),
                why,
            });
        }
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let own = [
        "-m".to_owned(),
        "ais_bench.benchmark.cli.main".to_owned(),
        text(config),
        "--mode".to_owned(),
        "perf".to_owned(),
        "--work-dir".to_owned(),
        text(work_dir),
        "--num-warmups".to_owned(),
        "0".to_owned(),
    ];
    Ok(own.into_iter().chain(extra.iter().cloned()).collect())
}

/// Python's argument parser takes beginnings of long options, and values glued
/// to short ones.
fn means_one_of(name: &str, options: &[&str]) -> bool {
    options.iter().any(|option| {
        if option.starts_with("--") {
            name.len() > 3 && option.starts_with(name)
        } else {
            name.starts_with(option) && !name.starts_with("--")
        }
    })
}

/// Options that would make it another run than the one that was prepared.
const OWNED: &[(&[&str], &str)] = &[
    (
        &["-m", "--mode"],
        "is set by pcload: only `perf` is measured",
    ),
    (&["-w", "--work-dir"], "belongs into `aisbench.work_dir`"),
    (&["-r", "--reuse"], "sends nothing"),
    (&["--dry-run"], "sends nothing"),
    (&["--num-prompts"], "would leave rows of the set out"),
    (
        &["--pressure", "--pressure-time"],
        "would send rows more than once",
    ),
    (&["--merge-ds"], "would rename the result files"),
    (&["--debug"], "hides the exit status of the load"),
    (
        &["--models", "--datasets", "--summarizer"],
        "would replace the configuration",
    ),
];
