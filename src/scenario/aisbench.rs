//! How the AISBench child is driven, and what of it holds for the native driver
//! too: retries, concurrency, streaming, generation arguments.

use serde_json::{Value, json};

use crate::scenario::json::{Kind, Node, number};
use crate::scenario::length::TOKENS;
use crate::scenario::paths::World;
use crate::scenario::problem::{Code, Problem, Problems, join};
use crate::scenario::rule::{Fixed, Flag, Integer, OrNull, Rule, Text};
use crate::scenario::section::Section;
use crate::scenario::{AisbenchArgs, AisbenchConfig, AisbenchDataset, AisbenchModel};

/// Reads `aisbench`.
pub(super) fn read(root: &mut Section<'_>, world: World<'_>) -> AisbenchConfig {
    root.object("aisbench", "How AISBench is launched.", |section| {
        let about = "Path of the AISBench configuration template.";
        let default = "\"./plugins/prefix_cache/config_examples/prefix_cache_perf.py\"";
        let config = section.value("config", about, &Text::NonEmptyPath, default);
        let about = "Base directory of AISBench's results.";
        let default = "\"./outputs/default\"";
        let work_dir = section.value("work_dir", about, &Text::NonEmptyPath, default);
        let about =
            "Arguments for the AISBench command: a list of strings, or an object of options.";
        let extra_args = section.value("extra_args", about, &Args, "[]");
        AisbenchConfig {
            config: world.resolve(&config),
            work_dir: world.resolve(&work_dir),
            extra_args: AisbenchArgs(extra_args),
            dataset: dataset(section),
            model: model(section),
        }
    })
}

fn dataset(section: &mut Section<'_>) -> AisbenchDataset {
    section.object("dataset", "Data set entry.", |dataset| {
        let about = "Display name; null for the run id.";
        let abbr = dataset.value("abbr", about, &OrNull(Text::NonBlank), "null");
        let columns = Fixed(json!(["question", "max_out_len"]));
        dataset.value(
            "input_columns",
            "Columns of the reader; they cannot be changed.",
            &columns,
            r#"["question", "max_out_len"]"#,
        );
        let about = "Answer column; it cannot be changed.";
        dataset.value(
            "output_column",
            about,
            &Fixed(json!("answer")),
            "\"answer\"",
        );
        let about = "Prompt template; any other would change the token counts.";
        let template = Fixed(json!("{question}"));
        dataset.value("prompt_template", about, &template, "\"{question}\"");
        let about = "Role of the prediction.";
        let pred_role = dataset.value("pred_role", about, &Text::NonBlank, "\"BOT\"");
        AisbenchDataset { abbr, pred_role }
    })
}

fn model(section: &mut Section<'_>) -> AisbenchModel {
    let small = |min| Integer {
        min,
        max: u64::from(u32::MAX),
    };
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    section.object("model", "Model entry.", |model| {
        let about = "Display name; null for `<run id>-vllm`.";
        let abbr = model.value("abbr", about, &OrNull(Text::NonBlank), "null");
        let about = "Model attribute; AISBench measures no other.";
        model.value("attr", about, &Fixed(json!("service")), "\"service\"");
        let about = "Whether responses are streamed.";
        let stream = model.value("stream", about, &Flag, "true");
        let about = "Output limit where a row has none, in tokens.";
        let max_out_len = model.value("max_out_len", about, &TOKENS, "1");
        let about = "Re-sends allowed after a failure before any body byte.";
        let retry = narrow(model.value("retry", about, &small(0), "2"));
        let about = "Concurrency when no load profile is given.";
        let batch_size = narrow(model.value("batch_size", about, &small(1), "1"));
        let about = "Further body fields of each formal request.";
        let default = r#"{"temperature": 0, "ignore_eos": true}"#;
        let generation_kwargs = model.value("generation_kwargs", about, &Kwargs, default);
        AisbenchModel {
            abbr,
            stream,
            max_out_len,
            retry,
            batch_size,
            generation_kwargs,
        }
    })
}

/// Command-line arguments in both forms.
struct Args;

impl Rule for Args {
    type Output = Vec<String>;

    fn expected(&self) -> String {
        "a list of strings, or an object of options".to_owned()
    }

    fn schema(&self) -> Value {
        let single = json!({"type": ["string", "number"]});
        json!({"anyOf": [
            {"type": "array", "items": {"type": "string"}},
            {
                "type": "object",
                "propertyNames": {"pattern": "^-"},
                "additionalProperties": {"anyOf": [
                    single,
                    {"type": "boolean"},
                    {"type": "array", "minItems": 1, "items": single},
                ]},
            },
        ]})
    }

    fn read(&self, node: &Node<'_>) -> Result<Vec<String>, Code> {
        let mut problems = Problems::default();
        let args = self.check(node, "", &mut problems);
        args.ok_or(Code::BadValue)
    }

    fn check(&self, node: &Node<'_>, path: &str, problems: &mut Problems) -> Option<Vec<String>> {
        let mut args = Vec::new();
        let before = problems.len();
        let mut refuse = |path: String, node: &Node<'_>, expected: &str| {
            let problem = Problem::new(Code::WrongType, path, "not an argument");
            let problem = problem.found(node.type_name()).expected(expected);
            problems.push(problem.at(Some(node.offset)));
        };
        match &node.kind {
            Kind::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    match &item.kind {
                        Kind::Text(text) => args.push(text.clone()),
                        _ => refuse(format!("{path}[{index}]"), item, "a string"),
                    }
                }
            }
            Kind::Object(entries) => {
                for (option, item) in entries {
                    let path = join(path, option);
                    match option_args(option, item) {
                        Ok(more) => args.extend(more),
                        Err(expected) => refuse(path, item, expected),
                    }
                }
            }
            _ => refuse(path.to_owned(), node, &self.expected()),
        }
        (problems.len() == before).then_some(args)
    }
}

/// One option of the object form: a value, several values, a switch, or nothing.
fn option_args(option: &str, node: &Node<'_>) -> Result<Vec<String>, &'static str> {
    const VALUE: &str = "a string, a number, a list of them, true or false";
    if !option.starts_with('-') {
        return Err("an option that begins with `-`");
    }
    let single = |node: &Node<'_>| match &node.kind {
        Kind::Text(text) => Ok(text.clone()),
        Kind::Number(text) => Ok((*text).to_owned()),
        _ => Err(VALUE),
    };
    let values = match &node.kind {
        Kind::Flag(false) => return Ok(Vec::new()),
        Kind::Flag(true) => Vec::new(),
        Kind::List(items) if items.is_empty() => return Err(VALUE),
        Kind::List(items) => items.iter().map(single).collect::<Result<_, _>>()?,
        _ => vec![single(node)?],
    };
    Ok(std::iter::once(option.to_owned()).chain(values).collect())
}

/// Body fields that pcload sets itself.
const OWNED: &[&str] = &[
    "prompt",
    "prompt_embeds",
    "stream",
    "stream_options",
    "model",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "num_return_sequences",
    "best_of",
    "use_beam_search",
    "echo",
    "add_special_tokens",
    "data_parallel_rank",
];

/// Body fields that change what is cached or looked up.
const CACHE_CHANGING: &[&str] = &[
    "truncate_prompt_tokens",
    "prompt_logprobs",
    "kv_transfer_params",
];

/// Further body fields of formal requests.
struct Kwargs;

impl Rule for Kwargs {
    type Output = Vec<(String, Value)>;

    fn expected(&self) -> String {
        "an object of request fields".to_owned()
    }

    fn schema(&self) -> Value {
        let refused: Vec<&str> = OWNED.iter().chain(CACHE_CHANGING).copied().collect();
        json!({
            "type": "object",
            "propertyNames": {"not": {"enum": refused}},
            "properties": {
                "cache_salt": {
                    "type": "string",
                    "minLength": 1,
                    "description": "The salt of the whole run, warm-up included.",
                },
                "min_tokens": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "At most the shortest output limit.",
                },
            },
        })
    }

    fn read(&self, node: &Node<'_>) -> Result<Self::Output, Code> {
        let mut problems = Problems::default();
        let fields = self.check(node, "", &mut problems);
        fields.filter(|_| problems.is_empty()).ok_or(Code::BadValue)
    }

    fn check(&self, node: &Node<'_>, path: &str, problems: &mut Problems) -> Option<Self::Output> {
        let Kind::Object(entries) = &node.kind else {
            let problem = Problem::new(Code::WrongType, path, "wrong type");
            let problem = problem.found(node.found()).expected(self.expected());
            problems.push(problem.at(Some(node.offset)));
            return None;
        };
        for (key, node) in entries {
            if let Some(problem) = refused_field(key, node, &join(path, key)) {
                problems.push(problem.at(Some(node.offset)));
            }
            finite(node, &join(path, key), problems);
        }
        let field = |(key, node): &(String, Node<'_>)| (key.clone(), node.to_value());
        Some(entries.iter().map(field).collect())
    }
}

/// The problem of one body field that would break the measurement.
fn refused_field(key: &str, node: &Node<'_>, path: &str) -> Option<Problem> {
    if OWNED.contains(&key) {
        let what = "this field is set for each request by pcload itself";
        let problem = Problem::new(Code::Conflict, path, what).hint(match key {
            "max_tokens" | "max_completion_tokens" => "use `requests.output_length`",
            "stream" => "use `aisbench.model.stream`",
            "model" => "use `service.model`",
            "add_special_tokens" => "use `pcload.add_special_tokens`",
            _ => "remove it",
        });
        return Some(problem);
    }
    if CACHE_CHANGING.contains(&key) {
        let what = "this field changes what is cached or looked up";
        return Some(Problem::new(Code::Conflict, path, what).hint("remove it"));
    }
    let (sound, expected) = match key {
        "cache_salt" => (
            matches!(&node.kind, Kind::Text(salt) if !salt.is_empty()),
            "one constant string that is not empty",
        ),
        "min_tokens" => (
            matches!(&node.kind, Kind::Number(text) if text.parse::<u64>().is_ok()),
            "an integer of at least 0",
        ),
        _ => return None,
    };
    let problem = Problem::new(Code::BadValue, path, "not allowed here");
    let problem = problem.found(node.found()).expected(expected);
    (!sound).then_some(problem)
}

/// Refuses numbers that could not be passed on as they were written.
fn finite(node: &Node<'_>, path: &str, problems: &mut Problems) {
    match &node.kind {
        Kind::Number(text) => {
            let held = number(text).is_some_and(|number| {
                !number.is_f64() || !crate::scenario::json::is_integer(text) || *text == "-0"
            });
            if !held {
                let problem = Problem::new(Code::NotFinite, path, "too large a number");
                let problem = problem.found(node.found());
                let expected = "a number that fits 64 bits";
                problems.push(problem.expected(expected).at(Some(node.offset)));
            }
        }
        Kind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                finite(item, &format!("{path}[{index}]"), problems);
            }
        }
        Kind::Object(entries) => {
            for (key, item) in entries {
                finite(item, &join(path, key), problems);
            }
        }
        Kind::Null | Kind::Flag(_) | Kind::Text(_) => {}
    }
}
