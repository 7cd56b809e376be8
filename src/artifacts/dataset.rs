//! A planned data set turned into rows and documents: which field of the files
//! says what. It builds values; it writes nothing.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::artifacts::added::AddedTokens;
use crate::artifacts::figures::{CacheSettings, Figures, RequestFacts};
use crate::artifacts::pyjson;
use crate::artifacts::rows::{FullRow, RowExtension, WarmupItem};
use crate::artifacts::summary::{length_summary, length_summary_with_total};
use crate::artifacts::{FORMAT_VERSION, PLUGIN_VERSION, SCHEMA_VERSION, SetLocation};
use crate::plan::Plan;
use crate::prompts::{BuiltPrompt, CanonicalPrefix, WarmupPrompt};
use crate::scenario::{CacheMode, InputLength, OutputLength, PromptFormat, Scenario};
use crate::secret::{Redactor, holds_secrets, shown_url};
use crate::theory::{HitAccount, Theory};
use crate::tokenizer::{Identity, Tokenizer};
use crate::units::{id_tuple_sha256, sha256_hex};

/// What the manifest says of a tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerFacts {
    /// Which one.
    pub identity: Identity,
    /// Ids of all special tokens, ascending.
    pub special_token_ids: Vec<u32>,
    /// Number of entries, added tokens included.
    pub vocab_size: usize,
}

impl From<&dyn Tokenizer> for TokenizerFacts {
    fn from(tokenizer: &dyn Tokenizer) -> Self {
        Self {
            identity: tokenizer.identity().clone(),
            special_token_ids: tokenizer.special_ids().to_vec(),
            vocab_size: tokenizer.vocab_size(),
        }
    }
}

/// A planned data set and what its documents say besides.
pub struct DataSet<'a> {
    scenario: &'a Scenario,
    plan: &'a Plan,
    theory: &'a Theory,
    added: AddedTokens,
    tokenizer: TokenizerFacts,
    corpus_sha256: &'a str,
    requests: Vec<RequestFacts>,
    figures: Figures,
    server_accounts: Vec<HitAccount>,
}

impl<'a> DataSet<'a> {
    /// Puts together what was planned. The solver's total, the theory's and the
    /// sum over the requests are three ways to the same number.
    pub fn new(
        scenario: &'a Scenario,
        plan: &'a Plan,
        theory: &'a Theory,
        tokenizer: &dyn Tokenizer,
        corpus_sha256: &'a str,
    ) -> Self {
        assert_eq!(
            plan.requests.len(),
            theory.requests.len(),
            "one theory a request"
        );
        let requests: Vec<RequestFacts> = plan
            .requests
            .iter()
            .zip(&theory.requests)
            .map(|(planned, theory)| RequestFacts {
                group: planned.group,
                dp_rank: planned.dp_rank,
                input_tokens: planned.input_tokens,
                output_tokens: planned.output_tokens,
                shared_prefix_tokens: planned.shared_prefix_tokens,
                hit_tokens: theory.hit_tokens,
            })
            .collect();
        let figures = Figures::new(CacheSettings::from(scenario), &requests);
        assert_eq!(figures.total, theory.total, "the theory adds up");
        assert_eq!(
            plan.block_size.whole_blocks(figures.total.hit_tokens),
            plan.solution.total_blocks,
            "the theory of the plan is what the solver promised"
        );
        let added = AddedTokens::new(&scenario.pcload, tokenizer);
        let server_accounts = added.accounts(plan.block_size, &requests);
        Self {
            scenario,
            plan,
            theory,
            added,
            tokenizer: tokenizer.into(),
            corpus_sha256,
            requests,
            figures,
            server_accounts,
        }
    }

    /// The figures of the data set.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The row of `prompt`.
    pub fn row(&self, prompt: &BuiltPrompt) -> FullRow {
        let server = &self.server_accounts[prompt.index];
        let extension = RowExtension {
            server_input_tokens: server.input_tokens,
            server_hit_tokens: server.hit_tokens,
            first_divergent_block_sha256: self.first_divergent_block(prompt),
            prompt_token_ids: self.sends_ids().then(|| prompt.ids.clone()),
        };
        FullRow::new(
            &self.plan.requests[prompt.index],
            self.plan.seed_tokens,
            &self.theory.requests[prompt.index],
            prompt,
            extension,
        )
    }

    fn first_divergent_block(&self, prompt: &BuiltPrompt) -> String {
        let shared = self.requests[prompt.index].shared_prefix_tokens;
        let block =
            self.added
                .first_divergent_block(self.plan.block_size, shared, prompt.ids.len());
        id_tuple_sha256(&prompt.ids[block])
    }

    /// `analysis.json` of a prepared set.
    pub fn analysis(&self, location: &SetLocation) -> Value {
        analysis(&self.figures, location.run_id())
    }

    /// `manifest.json` without its `artifacts`, which the store knows.
    pub fn manifest(
        &self,
        location: &SetLocation,
        prefixes: &[CanonicalPrefix],
        warmup: &[WarmupPrompt],
    ) -> Value {
        let plan: Vec<WarmupItem> = warmup.iter().map(WarmupItem::from).collect();
        let mut manifest = self.head(location, "prepared");
        let sections = json!({
            "corpus_sha256": self.corpus_sha256,
            "divergence": {
                "collision_status": "pass",
                "request_count": self.requests.len(),
                "strategy": "globally_unique_seed_block",
                "unique_request_blocks": self.requests.len(),
            },
            "dp": {
                "size": self.plan.dp_size,
                "cold_route_strategy": cold_route_strategy(self.plan.mode),
            },
            "groups": self.groups(prefixes),
            "prefix_cache": self.figures.prefix_cache(),
            "requests": request_section(&self.requests),
            "tokenizer": self.tokenizer_section(),
            "warmup": {"enabled": self.plan.mode == CacheMode::Warmup, "plan": plan},
            "pcload": self.extension(warmup),
        });
        merge(&mut manifest, sections);
        manifest
    }

    /// `manifest.json` of a set that is being written: enough for the next
    /// prepare to find and replace it.
    pub fn incomplete_manifest(&self, location: &SetLocation) -> Value {
        let mut manifest = self.head(location, "incomplete");
        manifest["pcload"] = json!({"format_version": FORMAT_VERSION});
        manifest
    }

    /// What `inspect` prints, `manifest` left out.
    pub fn inspect_summary(&self, log: Option<&Path>) -> Value {
        let figures = &self.figures;
        let mut groups = Map::new();
        let mut routes = std::collections::BTreeMap::<_, u64>::new();
        for request in &self.requests {
            let name = request.group.to_string();
            groups.insert(name, figures.groups[&request.group].request_count.into());
            if let Some(rank) = request.dp_rank {
                *routes.entry(rank).or_default() += 1;
            }
        }
        let reachability: Map<String, Value> = figures
            .groups
            .iter()
            .map(|(group, one)| {
                let interval = json!({"reachable_min": 0.0, "reachable_max": one.reachable_max()});
                (group.to_string(), interval)
            })
            .collect();
        let routes: Map<String, Value> = routes
            .iter()
            .map(|(rank, count)| (rank.to_string(), (*count).into()))
            .collect();
        let mut summary = json!({
            "run_id": self.scenario.run.run_id,
            "mode": self.plan.mode,
            "requested_target_hit_rate": self.scenario.prefix_cache.target_hit_rate_written,
            "effective_target_hit_rate": figures.theoretical_hit_rate(),
            "theoretical_hit_rate": figures.theoretical_hit_rate(),
            "reachable_min": 0.0,
            "reachable_max": figures.reachable_max(),
            "target_reachable": figures.target_reachable(),
            "group_reachability": reachability,
            "groups": groups,
            "input_tokens": length_summary_with_total(&input_lengths(&self.requests)),
            "output_tokens": length_summary_with_total(&output_lengths(&self.requests)),
            "dp_route_counts": routes,
            "sends_requests": false,
        });
        if let Some(log) = log {
            summary["log"] = text(log);
        }
        summary
    }

    /// `manifest.json` of `inspect`.
    pub fn inspect_manifest(&self, location: &SetLocation, log: Option<&Path>) -> Value {
        let mut manifest = self.head(location, "inspected");
        manifest["inspect"] = json!({
            "timestamp": location.stamp().to_string(),
            "base_run_id": self.scenario.run.run_id,
            "base_output_dir": text(&self.scenario.run.output_dir),
            "sends_requests": false,
            "summary": self.inspect_summary(log),
        });
        manifest["pcload"] = json!({"format_version": FORMAT_VERSION});
        manifest
    }

    fn head(&self, location: &SetLocation, status: &str) -> Value {
        let effective = stamped_config(self.scenario, location);
        let mut head = json!({
            "schema_version": SCHEMA_VERSION,
            "plugin_version": PLUGIN_VERSION,
            "status": status,
            "run_id": location.run_id(),
            "scenario_path": text(&self.scenario.path),
            "scenario_sha256": self.scenario.sha256,
        });
        if status == "prepared" {
            head["effective_config_sha256"] = config_sha256(&effective).into();
        }
        head["effective_config"] = effective;
        head
    }

    fn groups(&self, prefixes: &[CanonicalPrefix]) -> Value {
        let groups: Map<String, Value> = prefixes
            .iter()
            .map(|prefix| {
                let figures = &self.figures.groups[&prefix.group];
                let section = json!({
                    "canonical_prefix_sha256": &*prefix.sha256,
                    "canonical_prefix_tokens": prefix.ids.len(),
                    "gsm_indices": prefix.source_indices,
                    "gsm_question_sha256": prefix.source_sha256,
                    "max_shared_prefix_tokens": figures.max_shared_prefix_tokens,
                    "reachable_min": 0.0,
                    "reachable_max": figures.reachable_max(),
                    "theoretical_hit_rate": figures.theoretical_hit_rate(),
                });
                (prefix.group.to_string(), section)
            })
            .collect();
        assert_eq!(
            groups.len(),
            self.figures.groups.len(),
            "one prefix a group"
        );
        Value::Object(groups)
    }

    fn tokenizer_section(&self) -> Value {
        let facts = &self.tokenizer;
        let mut section = json!({
            "class": facts.identity.class,
            "path": facts.identity.path,
            "revision": facts.identity.revision,
            "special_token_ids": facts.special_token_ids,
            "vocab_size": facts.vocab_size,
        });
        let fingerprint = sha256_hex(pyjson::canonical(&section).as_bytes());
        section["fingerprint_sha256"] = fingerprint.into();
        section["block_size"] = self.plan.block_size.tokens().into();
        section
    }

    fn extension(&self, warmup: &[WarmupPrompt]) -> Value {
        let mut extension = json!({
            "format_version": FORMAT_VERSION,
            "config": self.scenario.effective_pcload,
            "server_view": self.added.summary(&self.requests, &self.server_accounts),
            "solver": self.figures.certificate(),
            "tokenizer_file_sha256": self.tokenizer.identity.file_sha256,
            "length_values_sha256": length_values_sha256(self.scenario),
        });
        if self.sends_ids() {
            let ids: Map<String, Value> = warmup
                .iter()
                .map(|item| (item.request_id.clone(), json!(item.ids)))
                .collect();
            extension["warmup_token_ids"] = Value::Object(ids);
        }
        extension
    }

    fn sends_ids(&self) -> bool {
        self.scenario.pcload.prompt_format == PromptFormat::TokenIds
    }
}

impl From<&Scenario> for CacheSettings {
    fn from(scenario: &Scenario) -> Self {
        Self {
            mode: scenario.prefix_cache.mode,
            block_size: scenario.tokenizer.block_size,
            minimum_non_shared_tokens: scenario.prefix_cache.minimum_non_shared_length,
            requested: scenario.prefix_cache.target_hit_rate_written.clone(),
            target_warning_pp: scenario.validation.target_warning_pp,
        }
    }
}

/// `analysis.json` of a prepared set with these figures.
pub(crate) fn analysis(figures: &Figures, run_id: &str) -> Value {
    let cache = figures.prefix_cache();
    json!({
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "status": "prepared",
        "requested_target_hit_rate": cache["requested_target_hit_rate"],
        "effective_target_hit_rate": cache["effective_target_hit_rate"],
        "theoretical_hit_rate": cache["theoretical_hit_rate"],
        "target_difference_pp": cache["target_absolute_difference_pp"],
        "target_signed_difference_pp": cache["target_signed_difference_pp"],
        "target_absolute_difference_pp": cache["target_absolute_difference_pp"],
        "validation": {
            "status": figures.validation_status(),
            "target_reachable": figures.target_reachable(),
            "warning_only": true,
            "affects_exit_code": false,
        },
        "theory": figures.theory(),
        "warnings": figures.target_warnings(),
    })
}

/// `manifest.requests`.
pub(crate) fn request_section(requests: &[RequestFacts]) -> Value {
    let inputs = input_lengths(requests);
    json!({
        "count": requests.len(),
        "total_input_tokens": inputs.iter().sum::<u64>(),
        "input_length_summary": length_summary(&inputs),
        "output_length_summary": length_summary(&output_lengths(requests)),
    })
}

/// `manifest.dp.cold_route_strategy`.
pub(crate) fn cold_route_strategy(mode: CacheMode) -> Option<&'static str> {
    (mode == CacheMode::Cold).then_some("group_round_robin")
}

/// `effective_config_sha256`.
pub(crate) fn config_sha256(effective_config: &Value) -> String {
    sha256_hex(pyjson::canonical(effective_config).as_bytes())
}

/// Digest of the lengths that stand outside the scenario's own bytes (CSV
/// files), overrides included: an input that the scenario's digest misses.
pub(crate) fn length_values_sha256(scenario: &Scenario) -> String {
    let mut values = Vec::new();
    let mut note = |name: String, input: Option<&InputLength>, output: Option<&OutputLength>| {
        if let Some(InputLength::Explicit(lengths)) = input {
            values.push(json!([name, "input", lengths]));
        }
        if let Some(OutputLength::Explicit(lengths)) = output {
            values.push(json!([name, "output", lengths]));
        }
    };
    let requests = &scenario.requests;
    let (input, output) = (&requests.input_length, &requests.output_length);
    note("requests".to_owned(), Some(input), Some(output));
    for (group, rules) in &scenario.prefix_cache.groups.overrides {
        let (input, output) = (&rules.input_length, &rules.output_length);
        note(group.to_string(), input.as_ref(), output.as_ref());
    }
    sha256_hex(pyjson::canonical(&Value::Array(values)).as_bytes())
}

fn stamped_config(scenario: &Scenario, location: &SetLocation) -> Value {
    let config = scenario.stamped_effective_config(location.run_id(), location.directory());
    without_secrets(&config, &scenario.service.redactor())
}

/// The configuration without credentials, wherever they were repeated.
fn without_secrets(value: &Value, redactor: &Redactor) -> Value {
    let clean = |item: &Value| without_secrets(item, redactor);
    match value {
        Value::String(text) if text.contains("://") && holds_secrets(text) => {
            shown_url(text).into()
        }
        Value::String(text) => redactor.clean(text).into(),
        Value::Array(items) => items.iter().map(clean).collect(),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, item)| (key.clone(), clean(item)));
            Value::Object(entries.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn input_lengths(requests: &[RequestFacts]) -> Vec<u64> {
    requests.iter().map(|one| one.input_tokens).collect()
}

fn output_lengths(requests: &[RequestFacts]) -> Vec<u64> {
    requests.iter().map(|one| one.output_tokens).collect()
}

fn text(path: &Path) -> Value {
    path.to_string_lossy().into()
}

fn merge(document: &mut Value, sections: Value) {
    let (Value::Object(into), Value::Object(from)) = (document, sections) else {
        unreachable!("both are objects");
    };
    into.extend(from);
}
