//! The whole document: its sections and fields, with their rules, defaults and
//! descriptions. What spans several fields is checked in `cross.rs`.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::rng::Seed;
use crate::scenario::groups::{self, Groups};
use crate::scenario::length::{self, Lengths, REQUESTS_MAX, TOKENS};
use crate::scenario::mode::Absent;
use crate::scenario::paths::World;
use crate::scenario::problem::{Code, Problem};
use crate::scenario::rule::{
    AnyInteger, Choice, Fixed, Flag, Integer, OrNull, Real, Rule, Text, Written,
};
use crate::scenario::section::Section;
use crate::scenario::{
    AisbenchConfig, CacheMode, CorpusConfig, InputLength, OrderStrategy, OutputKey, OutputLength,
    PcloadConfig, RunConfig, Selection, ServiceConfig, TokenizerConfig, ValidationConfig, aisbench,
    pcload, selection, service,
};
use crate::units::BlockSize;

/// The document as read, field by field.
pub(super) struct Document {
    pub(super) run: RunConfig,
    pub(super) tokenizer: TokenizerConfig,
    pub(super) corpus: CorpusConfig,
    pub(super) requests: Requests,
    pub(super) output_key: Option<OutputKey>,
    pub(super) prefix_cache: PrefixCache,
    pub(super) service: ServiceConfig,
    pub(super) validation: ValidationConfig,
    pub(super) aisbench: AisbenchConfig,
    pub(super) pcload: PcloadConfig,
    pub(super) notes: Vec<String>,
}

/// `requests` as read.
pub(super) struct Requests {
    pub(super) count: u64,
    pub(super) input: Option<Lengths<InputLength>>,
    pub(super) output: Option<Lengths<OutputLength>>,
}

/// `prefix_cache` as read.
pub(super) struct PrefixCache {
    pub(super) mode: CacheMode,
    pub(super) target_hit_rate: (f64, serde_json::Number),
    pub(super) seed_blocks: u64,
    pub(super) minimum_non_shared_length: u64,
    pub(super) groups: Groups,
    pub(super) order: OrderStrategy,
}

/// Reads all sections of `root`.
pub(super) fn read(
    root: &mut Section<'_>,
    world: World<'_>,
    environment_api_key: Option<&str>,
) -> Document {
    let mut notes = Vec::new();
    let about = "Version of the scenario format.";
    root.value("schema_version", about, &Fixed(json!("1.0")), "\"1.0\"");
    let run = run(root, world);
    let tokenizer = tokenizer(root, world, &mut notes);
    let block_size = root
        .sound_at("tokenizer.block_size")
        .then_some(tokenizer.block_size);
    Document {
        run,
        tokenizer,
        corpus: corpus(root, world),
        requests: requests(root, world),
        output_key: output_key(root),
        prefix_cache: prefix_cache(root, world, block_size),
        service: service::read(root, environment_api_key, &mut notes),
        validation: validation(root),
        aisbench: aisbench::read(root, world),
        pcload: root.object(
            "pcload",
            "What the reference plugin does not know.",
            |section| pcload::read(section, world),
        ),
        notes,
    }
}

fn run(root: &mut Section<'_>, world: World<'_>) -> RunConfig {
    root.object(
        "run",
        "Identity, randomness and output of the task.",
        |run| {
            let about = "Task name; a time stamp is appended. One file name component.";
            let run_id = run.value("run_id", about, &FileName, "\"gsm8k-prefix-cache-60\"");
            let about = "Root of all randomness: an integer of any size and sign.";
            let as_text = !run.manner().strict;
            let (random_seed, written): (Seed, Value) =
                run.value("random_seed", about, &AnyInteger { as_text }, "42");
            run.set("random_seed", written);
            let about = "Base of the artifact directory; a time stamp is appended.";
            let default = "\"./outputs/gsm8k-prefix-cache-60\"";
            let output_dir = world.resolve(&run.value("output_dir", about, &Text::Path, default));
            absolute(run, "output_dir", &output_dir);
            if output_dir.file_name().is_none() {
                let path = run.path_of("output_dir");
                let problem = Problem::new(Code::BadValue, path, "the directory has no name");
                let found = format!("`{}`", output_dir.display());
                run.refuse(
                    "output_dir",
                    problem.found(found).expected("a path below the root"),
                );
            }
            let about = "Whether existing artifacts may be replaced.";
            let overwrite = run.value("overwrite", about, &Flag, "false");
            RunConfig {
                run_id,
                random_seed,
                output_dir,
                overwrite,
            }
        },
    )
}

/// Puts an absolute path into the filled configuration.
fn absolute(section: &mut Section<'_>, key: &str, path: &std::path::Path) {
    section.set(key, json!(path.to_string_lossy()));
}

fn tokenizer(root: &mut Section<'_>, world: World<'_>, notes: &mut Vec<String>) -> TokenizerConfig {
    root.object(
        "tokenizer",
        "Tokenizer and block size of the server.",
        |section| {
            let about = "Directory or `tokenizer.json` of the tokenizer, or its Hugging Face id.";
            let default = "\"/home/weights/Qwen3.6-27B\"";
            let path = section.value("path", about, &Text::NonEmptyPath, default);
            let about = "Prefix-cache block of the server, in tokens.";
            let block_size = section.value("block_size", about, &TOKENS, "16");
            let about = "Hugging Face revision; null for the default one.";
            let revision = section.value("revision", about, &OrNull(Text::NonBlank), "null");
            let about = "Accepted for the plugin's sake; pcload never executes remote code.";
            let trust_remote_code = section.value("trust_remote_code", about, &Flag, "false");
            if trust_remote_code {
                notes.push(
                    "tokenizer.trust_remote_code: pcload never executes remote code".to_owned(),
                );
            }
            TokenizerConfig {
                path,
                base_dir: world.base_dir.to_owned(),
                block_size: BlockSize::new(block_size).expect("a block holds at least one token"),
                revision,
                trust_remote_code,
            }
        },
    )
}

fn corpus(root: &mut Section<'_>, world: World<'_>) -> CorpusConfig {
    root.object("corpus", "Text the prompts are made of.", |section| {
        let about = "JSONL file, one record a line.";
        let path = section.value("path", about, &Text::NonEmptyPath, "\"./GSM8K.jsonl\"");
        let path: PathBuf = world.resolve(&path);
        absolute(section, "path", &path);
        let about = "Key of the text in each record.";
        let field = section.value("field", about, &Text::Any, "\"question\"");
        let selection = selection::read(section, "selection", Some(r#"{"mode": "random"}"#));
        CorpusConfig {
            path,
            field,
            selection: selection.unwrap_or(Selection::Random),
        }
    })
}

fn requests(root: &mut Section<'_>, world: World<'_>) -> Requests {
    root.object(
        "requests",
        "Number and lengths of the formal requests.",
        |section| {
            let rule = Integer {
                min: 1,
                max: REQUESTS_MAX,
            };
            let count = section.value("count", "Formal requests.", &rule, "100");
            let input = Absent {
                object: Some(r#"{"mode": "fixed", "value": 1024}"#),
                mode: Some("fixed"),
            };
            let output = Absent {
                object: Some(r#"{"mode": "fixed", "value": 32}"#),
                mode: Some("fixed"),
            };
            Requests {
                count,
                input: length::input(section, "input_length", input, world),
                output: length::output(section, "output_length", output, world),
            }
        },
    )
}

fn output_key(root: &mut Section<'_>) -> Option<OutputKey> {
    root.object("output", "Fields of `requests.jsonl`.", |section| {
        let keys = Choice(&[
            ("max_tokens", OutputKey::MaxTokens),
            ("output_tokens", OutputKey::OutputTokens),
        ]);
        let about = "Key under which rows carry the output length; null omits it.";
        section.value("output_key", about, &OrNull(keys), "null")
    })
}

fn prefix_cache(
    root: &mut Section<'_>,
    world: World<'_>,
    block_size: Option<BlockSize>,
) -> PrefixCache {
    root.object("prefix_cache", "Prefixes, groups and send order.", |section| {
        let modes = Choice(&[("cold", CacheMode::Cold), ("warmup", CacheMode::Warmup)]);
        let about = "`warmup`: prefixes are cached before the formal requests; `cold`: they are not.";
        let mode = section.value("mode", about, &modes, "\"warmup\"");
        let rate = Written(Real {
            above: None,
            min: Some(0.0),
            max: Some(1.0),
        });
        let about = "Requested hit rate: hit tokens / prompt tokens.";
        let target_hit_rate = section.value("target_hit_rate", about, &rate, "0.6");
        let about = "Blocks of each request's unique seed.";
        let seed_blocks = section.value("seed_blocks", about, &TOKENS, "1");
        let minimum_non_shared_length = minimum(section, seed_blocks, block_size);
        let groups = groups::read(section, world);
        let order = section.object("order", "Order in which requests are sent.", |order| {
            let strategies = Choice(&[
                ("sequential", OrderStrategy::Sequential),
                ("within_group_shuffle", OrderStrategy::WithinGroupShuffle),
                ("interleave", OrderStrategy::Interleave),
                ("global_shuffle", OrderStrategy::GlobalShuffle),
                ("input_len_asc", OrderStrategy::InputLenAsc),
            ]);
            let about = "As dealt, shuffled within groups, round robin over groups, all shuffled, or round robin by ascending length.";
            order.value("strategy", about, &strategies, "\"interleave\"")
        });
        PrefixCache {
            mode,
            target_hit_rate,
            seed_blocks,
            minimum_non_shared_length,
            groups,
            order,
        }
    })
}

/// Reads `minimum_non_shared_length`, whose default and lower bound is the
/// length of the seed.
fn minimum(section: &mut Section<'_>, seed_blocks: u64, block_size: Option<BlockSize>) -> u64 {
    const KEY: &str = "minimum_non_shared_length";
    let about = "Tokens of each request that are never shared; at least and by default `seed_blocks` × `block_size`.";
    let written = section.optional(KEY, about, &TOKENS);
    let seed_tokens = block_size.map_or(1, |block| seed_blocks.saturating_mul(block.tokens()));
    if written.is_none() {
        section.set(KEY, json!(seed_tokens));
    }
    let known = section.sound("seed_blocks") && block_size.is_some();
    match written {
        Some(minimum) if known && minimum < seed_tokens => {
            let what = "shorter than the unique seed";
            let problem = Problem::new(Code::OutOfRange, section.path_of(KEY), what)
                .found(format!("`{minimum}`"))
                .expected(format!(
                    "at least {seed_tokens} (`seed_blocks` × `tokenizer.block_size`)"
                ));
            section.refuse(KEY, problem);
            seed_tokens
        }
        written => written.unwrap_or(seed_tokens),
    }
}

fn validation(root: &mut Section<'_>) -> ValidationConfig {
    let threshold = Real {
        above: None,
        min: Some(0.0),
        max: None,
    };
    root.object(
        "validation",
        "Warning thresholds, in percentage points.",
        |section| {
            let about = "Warn when theory is farther than this from the target.";
            let target = section.value("target_warning_pp", about, &threshold, "1.0");
            let about = "Warn when the actual rate is farther than this from theory.";
            let actual = section.value("actual_warning_pp", about, &threshold, "5.0");
            ValidationConfig {
                target_warning_pp: target,
                actual_warning_pp: actual,
            }
        },
    )
}

/// A name that is one component of a path on every system.
struct FileName;

/// Longest name, in bytes: file systems take 255, and artifacts add a time
/// stamp and an ending.
const NAME_BYTES_MAX: usize = 180;

impl Rule for FileName {
    type Output = String;

    fn expected(&self) -> String {
        format!(
            "one file name component of at most {NAME_BYTES_MAX} bytes: no `/`, `\\` or control character, not blank"
        )
    }

    fn schema(&self) -> Value {
        json!({
            "type": "string",
            "pattern": "^(?=.*\\S)(?!\\.\\.?$)[^/\\\\\\u0000-\\u001f\\u007f-\\u009f]+$",
            "maxLength": NAME_BYTES_MAX,
        })
    }

    fn read(&self, node: &crate::scenario::json::Node<'_>) -> Result<String, Code> {
        let name = Text::NonBlank.read(node)?;
        let sound = name != "."
            && name != ".."
            && name.len() <= NAME_BYTES_MAX
            && !name.contains(|letter: char| matches!(letter, '/' | '\\') || letter.is_control());
        sound.then_some(name).ok_or(Code::BadValue)
    }
}
