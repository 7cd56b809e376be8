//! The `pcload` section: what the reference plugin does not know.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::scenario::json::{Kind, Node};
use crate::scenario::paths::World;
use crate::scenario::problem::Code;
use crate::scenario::rule::{Choice, OrNull, Real, Rule, Text};
use crate::scenario::section::Section;
use crate::scenario::{CacheSalt, EngineChoice, PcloadConfig, PromptFormat, SpecialTokens};

/// Objectives: key in the scenario, name elsewhere, description.
const OBJECTIVES: &[(&str, &str, &str)] = &[
    (
        "ttft_ms",
        "ttft",
        "Longest time to the first token, in milliseconds.",
    ),
    (
        "tpot_ms",
        "tpot",
        "Longest time per output token, in milliseconds.",
    ),
    (
        "e2el_ms",
        "e2el",
        "Longest time to the last token, in milliseconds.",
    ),
];

/// Reads the section's own keys.
pub(super) fn read(section: &mut Section<'_>, world: World<'_>) -> PcloadConfig {
    let formats = Choice(&[
        ("text", PromptFormat::Text),
        ("token_ids", PromptFormat::TokenIds),
    ]);
    let about = "Whether prompts are sent as text or as token ids.";
    let prompt_format = section.value("prompt_format", about, &formats, "\"text\"");
    let about = "Whether the server adds special tokens such as BOS; `auto` is what the tokenizer's post-processor does.";
    let add_special_tokens = section.value("add_special_tokens", about, &Special, "\"auto\"");
    let engines = Choice(&[
        ("auto", EngineChoice::Auto),
        ("vllm", EngineChoice::Vllm),
        ("sglang", EngineChoice::Sglang),
    ]);
    let about = "Engine behind the endpoint; `auto` looks at its metrics page.";
    let engine = section.value("engine", about, &engines, "\"auto\"");
    let about = "Load profile (TOML); null for a closed loop of `aisbench.model.batch_size`.";
    let profile = section.value("profile", about, &OrNull(Text::NonEmptyPath), "null");
    let profile = profile.map(|path| world.resolve(&path));
    if let Some(path) = &profile {
        section.set("profile", json!(path.to_string_lossy()));
    }
    let about = "Cache salt sent with each request: a text, `per_run` for a fresh one each run, null for none.";
    let cache_salt = section.value("cache_salt", about, &OrNull(Salt), "null");
    let slo = section.object("slo", "Objectives of each request.", |slo| {
        let mut objectives = BTreeMap::new();
        for (key, name, about) in OBJECTIVES {
            if let Some(limit) = slo.optional(key, about, &Real::POSITIVE) {
                objectives.insert((*name).to_owned(), limit);
            }
        }
        objectives
    });
    PcloadConfig {
        prompt_format,
        add_special_tokens,
        engine,
        profile,
        cache_salt,
        slo,
    }
}

/// `"auto"`, true or false.
struct Special;

impl Rule for Special {
    type Output = SpecialTokens;

    fn expected(&self) -> String {
        "`auto`, true or false".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"enum": ["auto", true, false]})
    }

    fn read(&self, node: &Node<'_>) -> Result<SpecialTokens, Code> {
        match &node.kind {
            Kind::Text(text) if text == "auto" => Ok(SpecialTokens::Auto),
            Kind::Flag(true) => Ok(SpecialTokens::Add),
            Kind::Flag(false) => Ok(SpecialTokens::Omit),
            Kind::Text(_) => Err(Code::BadValue),
            _ => Err(Code::WrongType),
        }
    }
}

/// A salt, or `per_run`.
struct Salt;

impl Rule for Salt {
    type Output = CacheSalt;

    fn expected(&self) -> String {
        "a string that is not empty, or `per_run`".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"type": "string", "minLength": 1})
    }

    fn read(&self, node: &Node<'_>) -> Result<CacheSalt, Code> {
        match &node.kind {
            Kind::Text(text) if text == "per_run" => Ok(CacheSalt::PerRun),
            Kind::Text(text) if !text.is_empty() => Ok(CacheSalt::Fixed(text.clone())),
            Kind::Text(_) => Err(Code::BadValue),
            _ => Err(Code::WrongType),
        }
    }
}
