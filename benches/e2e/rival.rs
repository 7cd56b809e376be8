//! `vllm-rs bench serve`, vLLM's own client in Rust, beside ours: the same mock,
//! core and priority, so that the ratio of the two costs survives a noisy
//! machine. It is run where `PCLOAD_RIVAL_VLLM_RS` names the program, which is
//! the file `vllm/vllm-rs` of the Python wheel vllm 0.33.0.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::mock::Mock;
use crate::{Case, processor};
use nix::sys::resource::UsageWho;

/// Names the program.
const PROGRAM: &str = "PCLOAD_RIVAL_VLLM_RS";

/// What the rival has cost: the whole process, its start (0.3 s) included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RivalFigures {
    /// Chunks it has read.
    pub chunks: u64,
    /// Processor seconds per million chunks, user and system.
    pub cpu_seconds_per_million: f64,
    /// Of them in user mode.
    pub user_seconds_per_million: f64,
}

/// The program, where it is at hand.
pub fn program() -> Option<PathBuf> {
    std::env::var_os(PROGRAM).map(PathBuf::from)
}

/// Runs `case` by the rival; `None` where it has no such load or fails.
pub fn run(rival: &Path, case: &Case, mock: &Path, folder: &Path) -> Option<RivalFigures> {
    if case.killed || case.rate.is_some() {
        return None;
    }
    let server = Mock::start(mock, folder, case.mock);
    let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo/tokenizer");
    let before = processor(UsageWho::RUSAGE_CHILDREN);
    // This process is pinned, and its children are with it.
    let mut command = Command::new(rival);
    command.args(["bench", "serve", "--backend", "openai"]);
    if !case.spread.is_zero() {
        // Its starts are spread by an arrival rate, as ours are by a ramp: streams
        // that start together stay together, and their chunks come in bursts.
        let rate = f64::from(case.streams) / case.spread.as_secs_f64();
        command.args(["--request-rate", &rate.to_string()]);
    }
    let status = command
        .arg("--base-url")
        .arg(server.url().trim_end_matches("/v1/completions"))
        .args(["--endpoint", "/v1/completions", "--model", "mock"])
        .arg("--tokenizer")
        .arg(tokenizer)
        .args(["--dataset-name", "random", "--random-input-len", "16"])
        .args(["--random-output-len", &case.chunks.to_string()])
        .args(["--num-prompts", &case.requests.to_string()])
        .args(["--max-concurrency", &case.streams.to_string()])
        .args(["--disable-tqdm", "--ignore-eos", "--num-warmups", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok()?;
    let after = processor(UsageWho::RUSAGE_CHILDREN);
    let seen = server.requests()?;
    if !status.success() || seen < case.requests as u64 {
        return None;
    }
    let chunks = case.requests as u64 * case.chunks;
    let per_million = |seconds: f64| seconds / (chunks as f64 / 1e6);
    Some(RivalFigures {
        chunks,
        cpu_seconds_per_million: per_million(after.0 - before.0 + after.1 - before.1),
        user_seconds_per_million: per_million(after.0 - before.0),
    })
}
