//! Test tools: a scenario, a plan and prompts made by hand from a recorded set.
//! All literals of other rooms' types stand here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pcload::artifacts::{
    Claim, DataSet, Decision, FullRow, Inputs, Purpose, SetFiles, SetLocation, SetWriter, Stamp,
    TokenizerFacts, decide,
};
use pcload::plan::{Plan, PlannedGroup, PlannedRequest};
use pcload::prompts::{BuiltPrompt, CanonicalPrefix, WarmupPrompt};
use pcload::rng::Seed;
use pcload::scenario::{
    AisbenchArgs, AisbenchConfig, AisbenchDataset, AisbenchModel, Assignment, CorpusConfig,
    GroupsConfig, InputLength, OrderStrategy, OutputLength, PcloadConfig, PrefixCacheConfig,
    RequestsConfig, RunConfig, Scenario, Selection, ServiceConfig, TokenizerConfig,
    ValidationConfig,
};
use pcload::secret::Secret;
use pcload::solver::Solution;
use pcload::theory::{HitAccount, RequestTheory, Theory};
use pcload::tokenizer::Tokenizer;
use pcload::units::GroupIndex;
use serde_json::{Value, json};

use crate::golden::{GoldenSet, GoldenTokenizer};

/// A recorded set, as the rooms before this one would have handed it over.
pub(crate) struct Handmade {
    pub(crate) scenario: Scenario,
    pub(crate) plan: Plan,
    pub(crate) theory: Theory,
    pub(crate) prefixes: Vec<CanonicalPrefix>,
    pub(crate) warmup: Vec<WarmupPrompt>,
    pub(crate) prompts: Vec<BuiltPrompt>,
    pub(crate) tokenizer: GoldenTokenizer,
    pub(crate) corpus_sha256: String,
}

impl Handmade {
    /// Takes the recorded set `name` apart; its artifacts would go to
    /// `<folder>/out_<stamp>`.
    pub(crate) fn new(name: &str, tokenizer: &str, folder: &Path) -> Self {
        let set = GoldenSet::copy(name);
        let open = set.open();
        let rows = open.load_rows().unwrap();
        let tokenizer = GoldenTokenizer::load(tokenizer);
        let manifest = open.manifest().clone();
        let warmup = open
            .warmup_plan()
            .unwrap()
            .into_iter()
            .map(|item| WarmupPrompt {
                request_id: item.request_id,
                group: item.group_id,
                dp_rank: item.dp_rank,
                ids: tokenizer.encode(&item.prompt).unwrap(),
                text: item.prompt,
                shared_prefix_tokens: item.shared_prefix_tokens,
            })
            .collect();
        let prefixes = prefixes(&manifest, &rows, &tokenizer);
        Self {
            scenario: scenario(&manifest, folder, name),
            plan: plan(&manifest, &rows),
            theory: theory(&rows),
            prompts: prompts(&rows, &tokenizer),
            prefixes,
            warmup,
            tokenizer,
            corpus_sha256: manifest["corpus_sha256"].as_str().unwrap().to_owned(),
        }
    }

    pub(crate) fn data_set(&self) -> DataSet<'_> {
        DataSet::new(
            &self.scenario,
            &self.plan,
            &self.theory,
            &self.tokenizer,
            &self.corpus_sha256,
        )
    }

    pub(crate) fn manifest(&self, location: &SetLocation) -> Value {
        self.data_set()
            .manifest(location, &self.prefixes, &self.warmup)
    }
}

/// A stamp from its text.
pub(crate) fn stamp(text: &str) -> Stamp {
    text.parse().unwrap()
}

/// The stamp of the recorded sets.
pub(crate) fn now() -> Stamp {
    stamp("20260825_123456")
}

/// A new directory.
pub(crate) fn fresh(set: &Handmade, stamp: Stamp) -> Claim {
    Claim::fresh(
        &set.scenario.run.output_dir,
        &set.scenario.run.run_id,
        stamp,
    )
    .unwrap()
}

/// Begins to write.
pub(crate) fn begin(set: &Handmade, claim: Claim) -> SetWriter {
    let incomplete = set.data_set().incomplete_manifest(claim.location());
    SetWriter::begin(claim, incomplete, set.scenario.output_key).unwrap()
}

/// Writes the whole set into a claimed directory.
pub(crate) fn prepare(set: &Handmade, claim: Claim) -> SetFiles {
    let data_set = set.data_set();
    let location = claim.location().clone();
    let mut writer = begin(set, claim);
    for prompt in &set.prompts {
        writer.push(&data_set.row(prompt)).unwrap();
    }
    let analysis = data_set.analysis(&location);
    writer.finish(set.manifest(&location), &analysis).unwrap()
}

/// Looks for a set of this scenario and these inputs.
pub(crate) fn look(set: &Handmade, purpose: Purpose, now: Stamp) -> Decision {
    let facts = TokenizerFacts::from(&set.tokenizer as &dyn Tokenizer);
    let inputs = Inputs {
        corpus_sha256: &set.corpus_sha256,
        tokenizer: &facts,
    };
    decide(&set.scenario, inputs, purpose, now).unwrap()
}

/// `run`.
pub(crate) const RUN: Purpose = Purpose::Run { overwrite: false };

/// `prepare`.
pub(crate) const PREPARE: Purpose = Purpose::Prepare { overwrite: false };

fn prompts(rows: &[FullRow], tokenizer: &GoldenTokenizer) -> Vec<BuiltPrompt> {
    rows.iter()
        .map(|row| BuiltPrompt {
            index: row.sequence_index as usize,
            text: row.question.clone(),
            ids: tokenizer.encode(&row.question).unwrap(),
            natural_suffix_tokens: row.natural_suffix_tokens,
            source_indices: row.gsm_indices.clone(),
            source_sha256: row.gsm_hashes.clone(),
            canonical_prefix_sha256: Arc::from(row.canonical_prefix_sha256.as_str()),
            seed_sha256: row.seed_sha256.clone(),
            divergence_block_sha256: row.divergence_block_sha256.clone(),
            first_divergent_block_sha256: String::new(),
        })
        .collect()
}

fn prefixes(
    manifest: &Value,
    rows: &[FullRow],
    tokenizer: &GoldenTokenizer,
) -> Vec<CanonicalPrefix> {
    let groups = manifest["groups"].as_object().unwrap();
    groups
        .iter()
        .map(|(name, section)| {
            let group: GroupIndex = name.parse().unwrap();
            let longest = rows
                .iter()
                .filter(|row| row.group_id == group)
                .max_by_key(|row| row.shared_prefix_tokens)
                .unwrap();
            let length = section["canonical_prefix_tokens"].as_u64().unwrap();
            let ids = tokenizer.encode(&longest.question).unwrap();
            CanonicalPrefix {
                group,
                ids: ids[..usize::try_from(length).unwrap()].to_vec(),
                sha256: section["canonical_prefix_sha256"].as_str().unwrap().into(),
                source_indices: from(&section["gsm_indices"]),
                source_sha256: from(&section["gsm_question_sha256"]),
            }
        })
        .collect()
}

fn theory(rows: &[FullRow]) -> Theory {
    let mut theory = Theory::default();
    for row in rows {
        theory.requests.push(RequestTheory {
            watermark_before: row.watermark_before,
            hit_tokens: row.theoretical_hit_tokens,
            watermark_after: row.watermark_after,
        });
        let add = |account: &mut HitAccount| {
            account.input_tokens += row.actual_input_tokens;
            account.hit_tokens += row.theoretical_hit_tokens;
        };
        add(&mut theory.total);
        add(theory.groups.entry(row.group_id).or_default());
        if let Some(rank) = row.dp_rank {
            add(theory.ranks.entry(rank).or_default());
        }
    }
    theory
}

fn plan(manifest: &Value, rows: &[FullRow]) -> Plan {
    let config = &manifest["effective_config"];
    let block: u64 = from(&config["tokenizer"]["block_size"]);
    let mut groups: BTreeMap<GroupIndex, PlannedGroup> = BTreeMap::new();
    for row in rows {
        let group = groups.entry(row.group_id).or_insert(PlannedGroup {
            group: row.group_id,
            request_count: 0,
            max_shared_prefix_tokens: 0,
        });
        group.request_count += 1;
        group.max_shared_prefix_tokens =
            group.max_shared_prefix_tokens.max(row.shared_prefix_tokens);
    }
    let requests = rows.iter().map(|row| PlannedRequest {
        request_id: row.request_id.clone(),
        group: row.group_id,
        occurrence: row.occurrence_index_within_group,
        dp_rank: row.dp_rank,
        lane_sequence: row.lane_sequence,
        input_tokens: row.target_input_tokens,
        output_tokens: row.max_tokens,
        shared_prefix_tokens: row.shared_prefix_tokens,
        random_seed: row.request_random_seed,
    });
    Plan {
        mode: from(&config["prefix_cache"]["mode"]),
        block_size: from(&config["tokenizer"]["block_size"]),
        dp_size: from(&config["service"]["dp_size"]),
        seed_tokens: rows[0].seed_tokens,
        requests: requests.collect(),
        groups: groups.into_values().collect(),
        solution: Solution {
            prefix_blocks: rows
                .iter()
                .map(|row| row.shared_prefix_tokens / block)
                .collect(),
            total_blocks: rows
                .iter()
                .map(|row| row.theoretical_hit_tokens)
                .sum::<u64>()
                / block,
            ..Solution::default()
        },
    }
}

fn scenario(manifest: &Value, folder: &Path, run_id: &str) -> Scenario {
    let config = &manifest["effective_config"];
    let cache = &config["prefix_cache"];
    let mut effective_config = config.clone();
    effective_config["run"]["run_id"] = run_id.into();
    Scenario {
        path: manifest["scenario_path"].as_str().unwrap().into(),
        sha256: from(&manifest["scenario_sha256"]),
        run: RunConfig {
            run_id: run_id.to_owned(),
            random_seed: Seed::from(42),
            output_dir: folder.join("out"),
            overwrite: false,
        },
        tokenizer: TokenizerConfig {
            path: from(&config["tokenizer"]["path"]),
            base_dir: folder.to_owned(),
            block_size: from(&config["tokenizer"]["block_size"]),
            revision: None,
            trust_remote_code: false,
        },
        corpus: CorpusConfig {
            path: folder.join("tiny.jsonl"),
            field: "question".to_owned(),
            selection: Selection::Random,
        },
        requests: RequestsConfig {
            count: from(&config["requests"]["count"]),
            input_length: InputLength::Fixed(1),
            output_length: OutputLength::Fixed(1),
        },
        output_key: from(&config["output"]["output_key"]),
        prefix_cache: PrefixCacheConfig {
            mode: from(&cache["mode"]),
            target_hit_rate: from(&cache["target_hit_rate"]),
            target_hit_rate_written: from(&cache["target_hit_rate"]),
            seed_blocks: from(&cache["seed_blocks"]),
            minimum_non_shared_length: from(&cache["minimum_non_shared_length"]),
            groups: GroupsConfig {
                count: from(&cache["groups"]["count"]),
                assignment: Assignment::Uniform,
                overrides: BTreeMap::new(),
            },
            order: OrderStrategy::Interleave,
        },
        service: service(config),
        validation: ValidationConfig {
            target_warning_pp: from(&config["validation"]["target_warning_pp"]),
            actual_warning_pp: from(&config["validation"]["actual_warning_pp"]),
        },
        aisbench: aisbench(folder),
        pcload: PcloadConfig::default(),
        has_pcload_section: false,
        effective_config,
        effective_pcload: json!({"prompt_format": "text"}),
        notes: vec![],
    }
}

fn service(config: &Value) -> ServiceConfig {
    ServiceConfig {
        inference_url: "http://127.0.0.1:8000/v1/completions".to_owned(),
        metrics_url: "http://127.0.0.1:8000/metrics".to_owned(),
        reset_url: None,
        model: "m".to_owned(),
        dp_size: from(&config["service"]["dp_size"]),
        assume_empty_cache: false,
        engine_label_map: BTreeMap::new(),
        timeout_seconds: 30.0,
        api_key: Secret::default(),
        poll_interval_seconds: 5.0,
    }
}

fn aisbench(folder: &Path) -> AisbenchConfig {
    AisbenchConfig {
        config: folder.join("perf.py"),
        work_dir: folder.join("aisbench"),
        extra_args: AisbenchArgs(vec![]),
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
            generation_kwargs: vec![],
        },
    }
}

fn from<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}
