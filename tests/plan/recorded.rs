//! Reads what the reference wrote: rows, manifest and analysis of one prepared
//! set, and the few fields of its scenario that a plan is made of.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pcload::plan::{Plan, PlannedGroup, PlannedRequest};
use pcload::scenario::CacheMode;
use pcload::solver::Solution;
use pcload::units::{BlockSize, DpRank, GroupIndex};
use serde_json::Value;

/// One prepared set.
pub(crate) struct Recorded {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) manifest: Value,
    pub(crate) analysis: Value,
    /// `full.jsonl`; empty where it was too large to be kept.
    pub(crate) rows: Vec<Value>,
}

pub(crate) fn uint(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

pub(crate) fn float(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

pub(crate) fn small(value: &Value) -> u32 {
    u32::try_from(uint(value)).unwrap()
}

/// All sets at hand: the self-made ones, and the larger ones where they are.
pub(crate) fn all() -> Vec<Recorded> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sets = in_folder(&root.join("tests/data/golden"), "tiny-");
    assert!(!sets.is_empty(), "the self-made sets belong to the tests");
    let shared = std::env::var_os("PCLOAD_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let golden = shared.join("golden");
    if golden.is_dir() {
        sets.extend(in_folder(&golden, "gsm-"));
    } else {
        eprintln!("skipped: the gsm-* sets, {} is not there", golden.display());
    }
    sets
}

fn in_folder(folder: &Path, prefix: &str) -> Vec<Recorded> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
        .iter()
        .map(|name| read(&folder.join(name), name))
        .collect()
}

fn read(folder: &Path, name: &str) -> Recorded {
    let json =
        |file: &str| serde_json::from_str(&fs::read_to_string(folder.join(file)).unwrap()).unwrap();
    let rows = fs::read_to_string(folder.join("full.jsonl")).unwrap_or_default();
    Recorded {
        name: name.to_owned(),
        folder: folder.to_owned(),
        manifest: json("manifest.json"),
        analysis: json("analysis.json"),
        rows: rows
            .lines()
            .map(|row| serde_json::from_str(row).unwrap())
            .collect(),
    }
}

impl Recorded {
    pub(crate) fn config(&self) -> &Value {
        &self.manifest["effective_config"]
    }

    pub(crate) fn mode(&self) -> CacheMode {
        match self.config()["prefix_cache"]["mode"].as_str().unwrap() {
            "cold" => CacheMode::Cold,
            _ => CacheMode::Warmup,
        }
    }

    pub(crate) fn block_size(&self) -> BlockSize {
        BlockSize::new(uint(&self.config()["tokenizer"]["block_size"])).unwrap()
    }

    pub(crate) fn target_rate(&self) -> f64 {
        float(&self.config()["prefix_cache"]["target_hit_rate"])
    }

    pub(crate) fn minimum_non_shared(&self) -> u64 {
        uint(&self.manifest["prefix_cache"]["minimum_non_shared_length"])
    }

    /// The plan that the rows follow, without its certificate.
    pub(crate) fn plan(&self) -> Plan {
        let requests: Vec<PlannedRequest> = self.rows.iter().map(request).collect();
        let mut groups: BTreeMap<GroupIndex, PlannedGroup> = BTreeMap::new();
        for request in &requests {
            let group = groups.entry(request.group).or_insert(PlannedGroup {
                group: request.group,
                request_count: 0,
                max_shared_prefix_tokens: 0,
            });
            let longest = &mut group.max_shared_prefix_tokens;
            *longest = request.shared_prefix_tokens.max(*longest);
            group.request_count += 1;
        }
        Plan {
            mode: self.mode(),
            block_size: self.block_size(),
            dp_size: small(&self.config()["service"]["dp_size"]),
            seed_tokens: uint(&self.rows[0]["seed_tokens"]),
            requests,
            groups: groups.into_values().collect(),
            solution: Solution::default(),
        }
    }
}

fn request(row: &Value) -> PlannedRequest {
    let optional = |value: &Value| (!value.is_null()).then(|| small(value));
    PlannedRequest {
        request_id: row["request_id"].as_str().unwrap().to_owned(),
        group: row["group_id"].as_str().unwrap().parse().unwrap(),
        occurrence: small(&row["occurrence_index_within_group"]),
        dp_rank: optional(&row["dp_rank"]).map(DpRank),
        lane_sequence: optional(&row["lane_sequence"]),
        input_tokens: uint(&row["target_input_tokens"]),
        output_tokens: uint(&row["max_tokens"]),
        shared_prefix_tokens: uint(&row["shared_prefix_tokens"]),
        random_seed: uint(&row["request_random_seed"]),
    }
}
