//! The probes against the simulated vLLM: what its knobs break, they find, and
//! what is whole, they leave alone.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use pcload::sim::{Answers, Config, Hybrid, Pace, Server, Toy};
use pcload::units::BlockSize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Run;

/// A simulator on loopback that ends with its value.
struct Simulated {
    server: Server,
    _runtime: Runtime,
}

impl Simulated {
    /// One that answers at once, as `change` has set it.
    fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            pace: Pace::Flood,
            ..Config::default()
        };
        change(&mut config);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let starting = Server::start(config, Arc::new(Toy::default()));
        let server = runtime.block_on(starting).unwrap();
        Self {
            server,
            _runtime: runtime,
        }
    }

    fn probe(&self, probe: &str, options: &str) -> Run {
        let url = self.server.base_url();
        let mut arguments = vec!["probe", probe, "--url", &url];
        arguments.extend(options.split_whitespace());
        Run::of(&arguments)
    }
}

fn hybrid(interleaving_loss: bool, retention_interval: Option<u64>) -> impl FnOnce(&mut Config) {
    move |config| {
        config.block = BlockSize::new(480).unwrap();
        config.hybrid = Some(Hybrid {
            retention_interval,
            interleaving_loss,
        });
    }
}

#[test]
fn interleaving_loss_shows_in_alternation_and_nowhere_else() {
    let broken = Simulated::start(hybrid(true, None));
    let single = broken.probe("single", "--tokens 6000 --turns 4");
    assert_eq!(single.status, 0, "{}", single.stderr);
    let options = "--tokens 6000 --rounds 3 --noise 1 --noise-tokens 500 --with-control";
    let run = broken.probe("alternation", options);
    assert_eq!(run.status, 1, "{}", run.stderr);
    let named: Vec<String> = ["A round 2", "B round 2", "A round 3", "B round 3"]
        .map(|turn| format!("{turn} LOST"))
        .to_vec();
    assert_eq!(run.summary()["failures"], json!(named));
    assert_eq!(run.summary()["control"], "passed");
    assert!(run.noted("lost to interleaving"));

    let whole = Simulated::start(hybrid(false, None));
    let run = whole.probe("alternation", options);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(run.summary()["passed_count"], 4);
}

#[test]
fn a_retention_interval_shortens_the_first_reuse_alone() {
    let server = Simulated::start(hybrid(false, Some(1_920)));
    let options = "--tokens 6000 --turns 3";
    let run = server.probe("single", &format!("{options} --retention 1920"));
    assert_eq!(run.status, 0, "{}", run.stderr);
    // 3,840 of 6,000 tokens are reused; at 0.95 nothing of them is tested.
    let needle = "--tokens 6000 --depths 0.5,0.95 --retention 1920";
    let run = server.probe("needle", needle);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let within = |case: &Value| case["within_reuse"].as_bool().unwrap();
    let summary = run.summary();
    let cases = summary["needles"].as_array().unwrap();
    assert_eq!(cases.iter().map(within).collect::<Vec<_>>(), [true, false]);
    assert!(run.noted("at depth 0.95 the phrase stands behind"));
    let run = server.probe("single", &format!("{options} --retention 1000"));
    assert_eq!((run.status, run.code()), (2, "RETENTION_NOT_A_MULTIPLE"));
}

/// Knee of a pool of `pool_tokens`, and its share of the pool.
fn knee(pool_tokens: u64) -> (u64, u64, f64) {
    let server = Simulated::start(|config| {
        config.pool_blocks = u32::try_from(pool_tokens / 16 + 1).unwrap();
        config.max_model_len = pool_tokens;
    });
    let run = server.probe("dose", "--tokens 400 --find-knee --resolution 250");
    assert_eq!(run.status, 1, "{}", run.stderr);
    let summary = run.summary();
    assert_eq!(summary["knee"]["resolved"], true, "{summary}");
    let tokens = |name: &str| summary["knee"][name].as_u64().unwrap();
    (
        tokens("harmless_tokens"),
        tokens("harmful_tokens"),
        summary["knee_share"]["harmful_ratio"].as_f64().unwrap(),
    )
}

#[test]
fn twice_the_pool_is_twice_the_knee() {
    let (low, high, share) = knee(10_000);
    // Beside 400 tokens of conversation 9,600 fit, and a block is to spare.
    assert!(
        low <= 9_632 && high >= 9_600 - 250 && high - low <= 250,
        "{low} {high}"
    );
    assert!((0.9..1.0).contains(&share), "{share}");
    let (twice_low, twice_high, twice_share) = knee(20_000);
    let ratio = twice_high as f64 / high as f64;
    assert!((1.95..2.1).contains(&ratio), "{high} {twice_high}");
    assert!(twice_low <= 19_632 && twice_high - twice_low <= 250);
    assert!((0.9..1.0).contains(&twice_share));
}

#[test]
fn a_stale_restore_is_a_wrong_answer() {
    for (answers, status, verdict) in [
        (Answers::Right, 0, "OK"),
        (Answers::Stale, 1, "WRONG-ANSWER"),
        (Answers::Never, 2, "MODEL-CANNOT"),
    ] {
        let server = Simulated::start(|config| config.answers = answers);
        let run = server.probe("needle", "--tokens 3000 --interleave 1000");
        assert_eq!(run.status, status, "{answers:?}: {}", run.stderr);
        let summary = run.summary();
        let needles = summary["needles"].as_array().unwrap();
        assert_eq!(needles.len(), 3);
        for case in needles {
            assert_eq!(case["verdict"], verdict, "{summary}");
        }
    }
}

#[test]
fn usage_details_that_are_left_out_are_counted_instead() {
    let server = Simulated::start(|config| config.prompt_tokens_details = false);
    let run = server.probe("single", "--tokens 3000");
    assert_eq!(run.status, 0, "{}", run.stderr);
    let rows = run.record()["requests"].as_array().unwrap().clone();
    assert!(rows.iter().all(|row| row["source"] == "counters"));
}

/// A simulator in a process of its own; ended with its value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The facts of an engine are those of the process that serves the port: its
/// flags, in either spelling, and its environment.
#[test]
#[cfg(target_os = "linux")]
fn facts_are_read_from_the_serving_process() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcload"));
    command.args(["sim", "--pace", "flood", "--port", "0"]);
    // The older page repeats the flag and says nothing of what came of it.
    command.args(["--release", "0.24.0"]);
    command.args(["--block-size=32", "--max-model-len", "20000"]);
    command.args(["--data-parallel-size", "2"]);
    command.env("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "64");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Process(command.spawn().unwrap());
    let mut announced = String::new();
    let stdout = process.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut announced).unwrap();
    let announced: Value = serde_json::from_str(&announced).unwrap();
    let url = announced["url"].as_str().unwrap();
    let run = Run::of(&["probe", "single", "--url", url, "--tokens", "3000"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let engine = run.record()["engine"].clone();
    for (name, value, source) in [
        ("block_size", 32, "flag"),
        ("block_size_metric", 32, "metric"),
        ("max_model_len", 20_000, "flag"),
        ("data_parallel_size", 2, "flag"),
        ("retention_interval", 64, "environment"),
    ] {
        assert_eq!(
            engine[name],
            json!({"value": value, "source": source}),
            "{name}"
        );
    }
    assert!(run.noted("started with --block-size 32"));
}
