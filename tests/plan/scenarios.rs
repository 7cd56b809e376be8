//! Scenarios as values: one with every default, and what a recorded effective
//! configuration says of a plan.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pcload::rng::Seed;
use pcload::scenario::{
    AisbenchArgs, AisbenchConfig, AisbenchDataset, AisbenchModel, Assignment, CacheMode,
    CorpusConfig, GroupOverride, GroupsConfig, InputLength, LengthRange, OrderStrategy,
    OutputLength, PcloadConfig, PrefixCacheConfig, RequestsConfig, RunConfig, Scenario, Selection,
    ServiceConfig, TokenizerConfig, TruncatedNormal, ValidationConfig,
};
use pcload::secret::Secret;
use pcload::units::BlockSize;
use serde_json::{Number, Value};

use crate::recorded::{Recorded, float, small, uint};

/// Warm-up, one group, `count` prompts of 64 tokens in blocks of 16.
pub(crate) fn plain(mode: CacheMode, count: usize, dp_size: u32, target_rate: f64) -> Scenario {
    let nowhere = PathBuf::from("/nowhere");
    Scenario {
        path: nowhere.clone(),
        sha256: String::new(),
        run: RunConfig {
            run_id: "plan".to_owned(),
            random_seed: Seed::from(42),
            output_dir: nowhere.clone(),
            overwrite: false,
        },
        tokenizer: TokenizerConfig {
            path: String::new(),
            base_dir: nowhere.clone(),
            block_size: BlockSize::new(16).unwrap(),
            revision: None,
            trust_remote_code: false,
        },
        corpus: CorpusConfig {
            path: nowhere.clone(),
            field: "question".to_owned(),
            selection: Selection::Random,
        },
        requests: RequestsConfig {
            count,
            input_length: InputLength::Fixed(64),
            output_length: OutputLength::Fixed(32),
        },
        output_key: None,
        prefix_cache: PrefixCacheConfig {
            mode,
            target_hit_rate: target_rate,
            target_hit_rate_written: Number::from_f64(target_rate).unwrap(),
            seed_blocks: 1,
            minimum_non_shared_length: 16,
            groups: GroupsConfig {
                count: 1,
                assignment: Assignment::Uniform,
                overrides: BTreeMap::new(),
            },
            order: OrderStrategy::Interleave,
        },
        service: service(dp_size),
        validation: ValidationConfig {
            target_warning_pp: 1.0,
            actual_warning_pp: 5.0,
        },
        aisbench: aisbench(&nowhere),
        pcload: PcloadConfig::default(),
        has_pcload_section: false,
        effective_config: Value::Null,
        effective_pcload: Value::Null,
        notes: Vec::new(),
    }
}

fn service(dp_size: u32) -> ServiceConfig {
    ServiceConfig {
        inference_url: String::new(),
        metrics_url: String::new(),
        reset_url: None,
        model: String::new(),
        dp_size,
        assume_empty_cache: false,
        engine_label_map: BTreeMap::new(),
        timeout_seconds: 30.0,
        api_key: Secret::default(),
        poll_interval_seconds: 5.0,
    }
}

fn aisbench(nowhere: &Path) -> AisbenchConfig {
    AisbenchConfig {
        config: nowhere.to_owned(),
        work_dir: nowhere.to_owned(),
        extra_args: AisbenchArgs::default(),
        dataset: AisbenchDataset {
            abbr: None,
            pred_role: "BOT".to_owned(),
        },
        model: AisbenchModel {
            abbr: None,
            stream: true,
            max_out_len: 1,
            retry: 2,
            batch_size: 1,
            generation_kwargs: Vec::new(),
        },
    }
}

/// The scenario of a recorded set.
pub(crate) fn of(set: &Recorded) -> Scenario {
    let config = set.config();
    let cache = &config["prefix_cache"];
    let count = usize::try_from(uint(&config["requests"]["count"])).unwrap();
    let dp_size = small(&config["service"]["dp_size"]);
    let mut scenario = plain(set.mode(), count, dp_size, set.target_rate());
    scenario.run.random_seed = Seed::from_decimal(config["run"]["random_seed"].to_string());
    scenario.tokenizer.block_size = set.block_size();
    scenario.requests.input_length = input_length(&config["requests"]["input_length"], &set.folder);
    scenario.requests.output_length =
        output_length(&config["requests"]["output_length"], &set.folder);
    scenario.prefix_cache.seed_blocks = uint(&cache["seed_blocks"]);
    scenario.prefix_cache.minimum_non_shared_length = set.minimum_non_shared();
    scenario.prefix_cache.order =
        serde_json::from_value(cache["order"]["strategy"].clone()).unwrap();
    scenario.prefix_cache.groups = groups(&cache["groups"], &set.folder);
    scenario
}

fn groups(value: &Value, folder: &Path) -> GroupsConfig {
    let assignment = &value["assignment"];
    let overrides = value["overrides"].as_object().unwrap().iter();
    let rule = |rules: &Value| GroupOverride {
        input_length: rules
            .get("input_length")
            .map(|rule| input_length(rule, folder)),
        output_length: rules
            .get("output_length")
            .map(|rule| output_length(rule, folder)),
        corpus_selection: None,
    };
    GroupsConfig {
        count: small(&value["count"]),
        assignment: match assignment["mode"].as_str().unwrap() {
            "uniform" => Assignment::Uniform,
            "zipf" => Assignment::Zipf {
                exponent: float(&assignment["exponent"]),
            },
            _ => Assignment::Weights(
                assignment["weights"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(float)
                    .collect(),
            ),
        },
        overrides: overrides
            .map(|(group, rules)| (group.parse().unwrap(), rule(rules)))
            .collect(),
    }
}

fn input_length(value: &Value, folder: &Path) -> InputLength {
    match value["mode"].as_str().unwrap() {
        "fixed" => InputLength::Fixed(uint(&value["value"])),
        "explicit" => InputLength::Explicit(
            value["values"]
                .as_array()
                .unwrap()
                .iter()
                .map(uint)
                .collect(),
        ),
        "csv" => InputLength::Explicit(csv_column(folder, 0)),
        "range" => {
            let range = |range: &Value| LengthRange {
                min: uint(&range["min"]),
                max: uint(&range["max"]),
                count: usize::try_from(uint(&range["count"])).unwrap(),
            };
            InputLength::Ranges(
                value["ranges"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(range)
                    .collect(),
            )
        }
        _ => InputLength::TruncatedNormal(truncated_normal(value)),
    }
}

fn output_length(value: &Value, folder: &Path) -> OutputLength {
    match value["mode"].as_str().unwrap() {
        "fixed" => OutputLength::Fixed(uint(&value["value"])),
        "csv" => OutputLength::Explicit(csv_column(folder, 1)),
        "uniform" => OutputLength::Uniform {
            min: uint(&value["min"]),
            max: uint(&value["max"]),
        },
        _ => OutputLength::TruncatedNormal(truncated_normal(value)),
    }
}

fn truncated_normal(value: &Value) -> TruncatedNormal {
    let (min, max) = (uint(&value["min"]), uint(&value["max"]));
    let or = |key: &str, default: f64| value.get(key).map_or(default, float);
    TruncatedNormal {
        min,
        max,
        mean: or("mean", (min + max) as f64 / 2.0),
        std: or("std", ((max - min) as f64 / 4.0).max(1.0)),
    }
}

fn csv_column(folder: &Path, column: usize) -> Vec<u64> {
    let text = fs::read_to_string(folder.join("lengths.csv")).unwrap();
    let cell = |line: &str| line.split(',').nth(column).unwrap().trim().parse().unwrap();
    text.lines().skip(1).map(cell).collect()
}
