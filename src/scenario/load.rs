//! From bytes to a resolved [`Scenario`], or to everything that is wrong with
//! them; and from a manifest's effective configuration back to one.

use std::path::Path;

use serde_json::{Value, json};

use crate::scenario::document::{self, Document};
use crate::scenario::json;
use crate::scenario::paths::{ReadFile, World};
use crate::scenario::problem::{Code, Problem, Problems, is_within};
use crate::scenario::section::{Manner, Section};
use crate::scenario::{
    InputLength, OutputLength, PrefixCacheConfig, RequestsConfig, Scenario, cross,
};
use crate::units::sha256_hex;

/// Loads a scenario.
///
/// `path` is the absolute path of its file; relative paths in it are meant from
/// there. `environment_api_key` stands in for `service.api_key`. `read` is asked
/// for the CSV files that the scenario takes lengths from, and for nothing else:
/// corpus and tokenizer are other rooms' business.
pub fn load(
    bytes: &[u8],
    path: &Path,
    environment_api_key: Option<&str>,
    read: &ReadFile<'_>,
) -> Result<Scenario, Problems> {
    let text = decoded(bytes)?;
    let world = World {
        base_dir: path.parent().unwrap_or(path),
        read: Some(read),
    };
    let strict = Manner {
        strict: true,
        fill: true,
    };
    let origin = Origin {
        path,
        sha256: sha256_hex(bytes),
    };
    resolve(
        (text, &|_| true),
        origin,
        world,
        strict,
        environment_api_key,
    )
}

/// What a manifest of this or the reference tool says about its scenario.
#[derive(Clone, Copy, Debug)]
pub struct ManifestScenario<'a> {
    /// `effective_config`.
    pub effective_config: &'a Value,
    /// The resolved `pcload` section, when the manifest has one.
    pub pcload: Option<&'a Value>,
    /// `scenario_path`; relative paths that the configuration still has are
    /// meant from its directory.
    pub scenario_path: &'a Path,
    /// `scenario_sha256`.
    pub scenario_sha256: &'a str,
    /// What the scenario is rebuilt for.
    pub purpose: ManifestPurpose,
}

/// What a scenario is rebuilt from a manifest for. Settings that the purpose
/// does not need may be unsound: another tool may have written them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestPurpose {
    /// To send the prepared requests; how they were generated is settled.
    Run,
    /// To judge measurements: ranks, labels and thresholds are needed.
    Analyze,
}

impl ManifestPurpose {
    fn needs(self, path: &str) -> bool {
        const GENERATION: &[&str] = &[
            "run.overwrite",
            "requests.input_length",
            "requests.output_length",
            "prefix_cache.groups.overrides",
        ];
        const JUDGMENT: &[&str] = &[
            "prefix_cache.mode",
            "prefix_cache.target_hit_rate",
            "service.dp_size",
            "service.engine_label_map",
            "validation",
        ];
        let within = |paths: &[&str]| paths.iter().any(|above| is_within(path, above));
        match self {
            Self::Run => !within(GENERATION),
            // A section that is no object is wrong for every purpose.
            Self::Analyze => within(JUDGMENT) || !path.contains('.'),
        }
    }
}

/// Rebuilds a scenario from a manifest. Unknown keys are passed over (another
/// version may have written them) and missing sections have their defaults;
/// values that the purpose needs must be sound, others fall back to defaults.
///
/// `run.run_id` and `run.output_dir` are the stamped ones. No file is read, so
/// lengths from CSV files come out as empty lists: the artifacts hold them.
/// Credentials in addresses are gone, the API key can only come from
/// `environment_api_key`.
pub fn from_manifest(
    manifest: ManifestScenario<'_>,
    environment_api_key: Option<&str>,
) -> Result<Scenario, Problems> {
    let mut value = manifest.effective_config.clone();
    if let (Value::Object(sections), Some(pcload)) = (&mut value, manifest.pcload) {
        sections.insert("pcload".to_owned(), pcload.clone());
    }
    let text = value.to_string();
    let world = World {
        base_dir: manifest
            .scenario_path
            .parent()
            .unwrap_or(manifest.scenario_path),
        read: None,
    };
    let tolerant = Manner {
        strict: false,
        fill: true,
    };
    let origin = Origin {
        path: manifest.scenario_path,
        sha256: manifest.scenario_sha256.to_owned(),
    };
    let needed = |problem: &Problem| manifest.purpose.needs(&problem.path);
    let scenario = resolve(
        (&text, &needed),
        origin,
        world,
        tolerant,
        environment_api_key,
    );
    scenario
        .map_err(Problems::without_positions)
        .map(|scenario| Scenario {
            effective_config: manifest.effective_config.clone(),
            ..scenario
        })
}

/// The JSON Schema (draft 2020-12) of a scenario.
pub fn schema() -> Value {
    let world = World {
        base_dir: Path::new("/"),
        read: None,
    };
    let manner = Manner {
        strict: true,
        fill: true,
    };
    let mut root = Section::new(None, "", manner);
    document::read(&mut root, world, None);
    let sections = root.finish().schema;
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pcload scenario",
        "description": "A prefix-cache benchmark. Every key may be absent and then has its default.",
    });
    for key in ["type", "properties", "additionalProperties"] {
        schema[key] = sections[key].clone();
    }
    schema
}

/// Where a scenario comes from.
struct Origin<'a> {
    path: &'a Path,
    sha256: String,
}

fn decoded(bytes: &[u8]) -> Result<&str, Problems> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let what = format!("not UTF-8 at byte {}", error.valid_up_to());
        Problem::new(Code::BadJson, "", what).expected("JSON in UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Resolves `text`; problems that do not count are dropped.
fn resolve(
    (text, counts): (&str, &dyn Fn(&Problem) -> bool),
    origin: Origin<'_>,
    world: World<'_>,
    manner: Manner,
    environment_api_key: Option<&str>,
) -> Result<Scenario, Problems> {
    let mut problems = Problems::default();
    let node = match json::parse(text, &mut problems) {
        Ok(node) => node,
        Err(problem) => {
            problems.push(*problem);
            return Err(problems.located(text));
        }
    };
    let has_pcload_section = node.get("pcload").is_some();
    let mut root = Section::new(Some(&node), "", manner);
    let mut document = document::read(&mut root, world, environment_api_key);
    cross::check(&mut document, &mut root);
    let finished = root.finish();
    problems.append(finished.problems.filtered(counts));
    if !problems.is_empty() {
        return Err(problems.located(text));
    }
    let mut effective_config = finished.filled;
    let effective_pcload = effective_config.remove("pcload").unwrap_or_default();
    Ok(Scenario {
        effective_config: Value::Object(effective_config),
        effective_pcload,
        has_pcload_section,
        ..assembled(document, origin)
    })
}

/// The scenario of a document without problems. What is absent in it could only
/// be so because of one.
fn assembled(document: Document, origin: Origin<'_>) -> Scenario {
    let requests = document.requests;
    let input = requests.input.map(|lengths| lengths.rule);
    let output = requests.output.map(|lengths| lengths.rule);
    let count = usize::try_from(requests.count).unwrap_or(usize::MAX);
    let cache = document.prefix_cache;
    let groups = cache.groups.resolved();
    assert!(count > 0, "a scenario has at least one request");
    assert!(
        groups.overrides.keys().all(|group| group.0 < groups.count),
        "an override names a group that is not there"
    );
    let (target_hit_rate, target_hit_rate_written) = cache.target_hit_rate;
    Scenario {
        path: origin.path.to_owned(),
        sha256: origin.sha256,
        run: document.run,
        tokenizer: document.tokenizer,
        corpus: document.corpus,
        requests: RequestsConfig {
            count,
            input_length: input.unwrap_or(InputLength::Fixed(1)),
            output_length: output.unwrap_or(OutputLength::Fixed(1)),
        },
        output_key: document.output_key,
        prefix_cache: PrefixCacheConfig {
            mode: cache.mode,
            target_hit_rate,
            target_hit_rate_written,
            seed_blocks: cache.seed_blocks,
            minimum_non_shared_length: cache.minimum_non_shared_length,
            groups,
            order: cache.order,
        },
        service: document.service,
        validation: document.validation,
        aisbench: document.aisbench,
        pcload: document.pcload,
        has_pcload_section: false,
        effective_config: Value::Null,
        effective_pcload: Value::Null,
        notes: document.notes,
    }
}

impl Scenario {
    /// The effective configuration as a manifest stores it: `run.run_id` and
    /// `run.output_dir` are those of one stamped task.
    pub fn stamped_effective_config(&self, run_id: &str, output_dir: &Path) -> Value {
        let mut config = self.effective_config.clone();
        config["run"]["run_id"] = json!(run_id);
        config["run"]["output_dir"] = json!(output_dir.to_string_lossy());
        config
    }
}
