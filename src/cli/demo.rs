//! `pcload demo`: the whole story without a server, a model or a download. A
//! simulated server runs in this process; scenario, tokenizer and corpus are
//! embedded and written out first, so that every file can be looked at and the
//! run repeated by hand.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: writes the demo's inputs and runs a server beside the client"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tokio::runtime::Builder;

use super::args::{DemoArgs, Global};
use super::exit::{Exit, Failure};
use super::run::{self, LoadChoice};
use super::{inputs, output, report, runtime};
use crate::sim::{Config, CostModel, Pace, Server};
use crate::tokenizer::HfTokenizer;

/// The embedded tokenizer's file.
const TOKENIZER: &[u8] = include_bytes!("../../assets/demo/tokenizer/tokenizer.json");

/// The embedded corpus.
const CORPUS: &[u8] = include_bytes!("../../assets/demo/corpus.jsonl");

/// Name of the simulated model.
const MODEL: &str = "simulated-model";

/// The tokenizer that the demo and the simulated server have in common.
pub(super) fn embedded_tokenizer() -> Result<Arc<HfTokenizer>, Failure> {
    let tokenizer = HfTokenizer::from_bytes(TOKENIZER, "embedded", None)?;
    Ok(Arc::new(tokenizer))
}

/// Runs the command.
pub(super) fn run(args: &DemoArgs, global: &Global) -> Result<Exit, Failure> {
    let voice = global.voice();
    let folder = folder(args)?;
    let runtime = runtime::build(Builder::new_multi_thread().worker_threads(1))?;
    let server = runtime.block_on(Server::start(simulated(), embedded_tokenizer()?))?;
    let scenario_path = write_inputs(&folder, &server.base_url())?;
    voice.say(&format!(
        "demo: the server at {} is SIMULATED (in this process); its latencies say nothing about \
         any hardware",
        server.base_url()
    ));
    let scenario = inputs::scenario(&scenario_path)?;
    let finished = run::prepared(scenario, global)
        .and_then(|(set, scenario)| run::execute(&set, &scenario, &LoadChoice::default(), global));
    runtime.block_on(server.shutdown());
    let finished = finished?;
    let page = finished.directory.path().join("report.html");
    report::write_html(finished.directory.path(), &page)?;
    if args.open {
        report::open(&page, voice);
    }
    let summary = json!({
        "simulated": true,
        "verdict": finished.analysis.verdict,
        "theoretical_hit_rate": finished.document["theoretical_hit_rate"],
        "actual_hit_rate": finished.document["actual"]["global_hit_rate"],
        "scenario": scenario_path.to_string_lossy(),
        "run": finished.directory.path().to_string_lossy(),
        "report": page.to_string_lossy(),
    });
    voice.say(&format!("report: {}", page.display()));
    voice.say(&format!(
        "the server was SIMULATED; try yours: edit `service` in {} and `pcload run --scenario` it",
        scenario_path.display()
    ));
    output::print(&format!("{summary:#}\n"))?;
    Ok(finished.exit(false))
}

/// Two ranks, slow enough that one sees the difference a hit makes.
fn simulated() -> Config {
    Config {
        model: MODEL.to_owned(),
        ranks: 2,
        pace: Pace::Batched(CostModel {
            prefill_tokens_per_second: 8_000.0,
            ..CostModel::default()
        }),
        ..Config::default()
    }
}

/// The folder asked for, or a fresh one among the system's temporary files,
/// which stays.
fn folder(args: &DemoArgs) -> Result<PathBuf, Failure> {
    let unwritable = |what: &str, error: std::io::Error| {
        Failure::world("FILE_UNWRITABLE", format!("cannot make {what}: {error}"))
    };
    match &args.out {
        Some(out) => {
            fs::create_dir_all(out)
                .map_err(|error| unwritable(&format!("`{}`", out.display()), error))?;
            std::path::absolute(out).map_err(|error| unwritable("the folder", error))
        }
        None => tempfile::Builder::new()
            .prefix("pcload-demo-")
            .tempdir()
            .map(tempfile::TempDir::keep)
            .map_err(|error| unwritable("a temporary folder", error)),
    }
}

/// Writes tokenizer, corpus and scenario; returns the scenario's path.
fn write_inputs(folder: &Path, base_url: &str) -> Result<PathBuf, Failure> {
    let scenario = json!({
        "schema_version": "1.0",
        "run": {"run_id": "demo", "random_seed": 42, "output_dir": "./outputs/demo"},
        "tokenizer": {"path": "./tokenizer", "block_size": 16},
        "corpus": {"path": "./corpus.jsonl"},
        "requests": {
            "count": 160,
            "input_length": {"mode": "fixed", "value": 512},
            "output_length": {"mode": "uniform", "min": 16, "max": 48},
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
            "model": MODEL,
            "dp_size": 2,
            "poll_interval_seconds": 0.5,
        },
        "aisbench": {"model": {"batch_size": 8}},
    });
    let path = folder.join("scenario.json");
    let tokenizer = folder.join("tokenizer");
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(&tokenizer)?;
        fs::write(tokenizer.join("tokenizer.json"), TOKENIZER)?;
        fs::write(folder.join("corpus.jsonl"), CORPUS)?;
        fs::write(&path, format!("{scenario:#}\n"))
    };
    write().map_err(|error| {
        let message = format!("cannot write into `{}`: {error}", folder.display());
        Failure::world("FILE_UNWRITABLE", message)
    })?;
    Ok(path)
}
