//! A server, a folder and a scenario; `run` starts the program on them and waits
//! for its end.

use std::fs;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use pcload::measure::RequestRecord;
use pcload::sim::{Config, CostModel, Pace, Server};
use pcload::tokenizer::{self, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::verdict::Judged;

/// Tokens of each prompt.
pub(crate) const PROMPT_TOKENS: u64 = 256;
/// Formal requests of a run.
pub(crate) const REQUESTS: u64 = 48;

/// A path inside the package.
pub(crate) fn package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The tokenizer whose post-processor puts a BOS in front.
pub(crate) const WITH_BOS: &str = "tests/data/golden/tokenizers/tiny-bytelevel-bos";
/// The same without.
pub(crate) const WITHOUT_BOS: &str = "tests/data/golden/tokenizers/tiny-bytelevel";
/// The tokenizer that the program brings along.
pub(crate) const EMBEDDED: &str = "assets/demo/tokenizer";

/// A healthy server that is quick.
pub(crate) fn quick() -> Config {
    Config {
        pace: Pace::Batched(CostModel {
            prefill_tokens_per_second: 100_000.0,
            step: std::time::Duration::from_millis(2),
            ..CostModel::default()
        }),
        ..Config::default()
    }
}

/// The scenario's file, which holds what it is given, secrets too.
const SCENARIO: &str = "scenario.json";

/// See the file's description.
pub(crate) struct World {
    /// Alive as long as the world is: the server ends before its runtime.
    _alive: (Option<Server>, Runtime),
    folder: TempDir,
    scenario: Value,
    arguments: Vec<String>,
}

impl World {
    /// Starts a server with the embedded tokenizer.
    pub(crate) fn new(config: Config) -> Self {
        Self::speaking(config, EMBEDDED)
    }

    /// Starts a server with a tokenizer of the package.
    pub(crate) fn speaking(config: Config, tokenizer_path: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let path = package(tokenizer_path);
        let tokenizer: Arc<dyn Tokenizer> =
            Arc::new(tokenizer::load(path.to_str().unwrap(), Path::new("."), None).unwrap());
        let ranks = config.ranks;
        let model = config.model.clone();
        let server = runtime.block_on(Server::start(config, tokenizer)).unwrap();
        Self::at(&server.base_url(), (Some(server), runtime)).with(json!({
            "tokenizer": {"path": path},
            "service": {"dp_size": ranks, "model": model},
        }))
    }

    /// A world around a server that is there already.
    pub(crate) fn elsewhere(base_url: &str) -> Self {
        Self::at(base_url, (None, Runtime::new().unwrap()))
    }

    fn at(base_url: &str, alive: (Option<Server>, Runtime)) -> Self {
        let folder = TempDir::new().unwrap();
        let scenario = json!({
            "schema_version": "1.0",
            "run": {"run_id": "truth", "random_seed": 42, "output_dir": "out"},
            "tokenizer": {"path": package(EMBEDDED), "block_size": 16},
            "corpus": {"path": package("assets/demo/corpus.jsonl")},
            "requests": {
                "count": REQUESTS,
                "input_length": {"mode": "fixed", "value": PROMPT_TOKENS},
                "output_length": {"mode": "fixed", "value": 4},
            },
            "prefix_cache": {
                "mode": "cold",
                "target_hit_rate": 0.6,
                "groups": {"count": 4},
            },
            "service": {
                "inference_url": format!("{base_url}/v1/completions"),
                "metrics_url": format!("{base_url}/metrics"),
                "reset_url": format!("{base_url}/reset_prefix_cache"),
                "model": "sim",
                "dp_size": 1,
                "poll_interval_seconds": 0.2,
            },
            "aisbench": {"model": {
                "batch_size": 16,
                "generation_kwargs": {"ignore_eos": true},
            }},
        });
        Self {
            _alive: alive,
            folder,
            scenario,
            arguments: Vec::new(),
        }
    }

    /// Changes the scenario: objects are merged, everything else replaced.
    pub(crate) fn with(mut self, change: Value) -> Self {
        merge(&mut self.scenario, change);
        self
    }

    /// `service.inference_url`.
    pub(crate) fn inference_url(&self) -> String {
        let url = &self.scenario["service"]["inference_url"];
        url.as_str().unwrap().to_owned()
    }

    /// Adds an argument to the command line.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    fn command(&self) -> Command {
        let path = self.folder.path().join(SCENARIO);
        fs::write(&path, self.scenario.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pcload"));
        command
            .args(["run", "--scenario"])
            .arg(path)
            .args(&self.arguments)
            .env_remove("PCLOAD_API_KEY");
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self) -> Judged {
        Judged::of(&self.command().output().unwrap())
    }

    /// Runs it, sends SIGINT after the first line on stderr that `when` likes,
    /// and waits for its end.
    pub(crate) fn interrupt(&self, when: impl Fn(&str) -> bool) -> Judged {
        // Into a file: nobody reads a pipe while stderr is read.
        let path = self.folder.path().join("stdout.json");
        let mut child = self
            .command()
            .stdout(fs::File::create(&path).unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let mut sent = false;
        loop {
            let begin = said.len();
            if lines.read_line(&mut said).unwrap() == 0 {
                break;
            }
            if !sent && when(&said[begin..]) {
                sent = true;
                signal(&child);
            }
        }
        Judged::of(&Output {
            status: child.wait().unwrap(),
            stdout: fs::read(path).unwrap(),
            stderr: said.into_bytes(),
        })
    }

    /// The records of the newest run, in send order.
    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        let path = self.find("records.jsonl");
        let text = fs::read_to_string(path).unwrap();
        let mut records: Vec<RequestRecord> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        records.sort_by_key(|record| record.t_send_ns);
        records
    }

    /// The one file of this name below the output.
    pub(crate) fn find(&self, name: &str) -> PathBuf {
        let all = self.files();
        let mut named = all
            .iter()
            .filter(|path| path.file_name().is_some_and(|one| one == name));
        named.next().unwrap_or_else(|| panic!("no {name}")).clone()
    }

    /// Every file that the program wrote.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(path);
                }
            }
        }
        found.retain(|path| path.file_name().is_some_and(|name| name != SCENARIO));
        found.sort();
        found
    }
}

fn signal(child: &Child) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}
