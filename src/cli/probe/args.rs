//! `pcload probe` as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use crate::cli::duration::duration;

/// Options of `probe`.
#[derive(Clone, Debug, Args)]
pub struct ProbeArgs {
    /// Which probe.
    #[command(subcommand)]
    pub probe: Probe,
}

/// The probes.
#[derive(Clone, Debug, Subcommand)]
pub enum Probe {
    /// One conversation with nothing else on the server: does its next turn
    /// reuse the prefix at all? Makes the other probes readable.
    Single(SingleArgs),
    /// Two conversations in strict alternation: does either lose its prefix
    /// while the other speaks?
    Alternation(AlternationArgs),
    /// One request of varying size between two turns: at which size does reuse
    /// end?
    Dose(DoseArgs),
    /// A pass phrase in the reused prefix: is what is restored right?
    Needle(NeedleArgs),
}

/// Options of `probe single`.
#[derive(Clone, Debug, Args)]
pub struct SingleArgs {
    /// Prompt tokens of the first turn.
    #[arg(long, value_name = "N", default_value_t = 130_000)]
    pub tokens: u64,
    /// Turns, at least 2.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub turns: u32,
    /// What all probes take.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `probe alternation`.
#[derive(Clone, Debug, Args)]
pub struct AlternationArgs {
    /// Prompt tokens of the first turn of each conversation.
    #[arg(long, value_name = "N", default_value_t = 60_000)]
    pub tokens: u64,
    /// Turns of each conversation, at least 2.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub rounds: u32,
    /// Unrelated requests between two turns.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub noise: u32,
    /// Prompt tokens of each of them.
    #[arg(long, value_name = "N", default_value_t = 4_000)]
    pub noise_tokens: u64,
    /// What the other probes take besides.
    #[command(flatten)]
    pub control: ControlArgs,
    /// What all probes take.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `probe dose`.
#[derive(Clone, Debug, Args)]
pub struct DoseArgs {
    /// Prompt tokens of the conversation's first turn.
    #[arg(long, value_name = "N", default_value_t = 60_000)]
    pub tokens: u64,
    /// Sizes to try, in prompt tokens; 0 is no traffic.
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "0,5000,30000,60000",
        conflicts_with = "find_knee"
    )]
    pub doses: Vec<u64>,
    /// Search for the size at which reuse ends, instead of trying a list.
    #[arg(long)]
    pub find_knee: bool,
    /// Width of the interval that the search ends with, tokens.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        requires = "find_knee"
    )]
    pub resolution: u64,
    /// Observations on each side of the interval.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "find_knee")]
    pub repeats: u32,
    /// What the other probes take besides.
    #[command(flatten)]
    pub control: ControlArgs,
    /// What all probes take.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `probe needle`.
#[derive(Clone, Debug, Args)]
pub struct NeedleArgs {
    /// Prompt tokens of the first turn.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub tokens: u64,
    /// Where the pass phrase stands, as shares of the document (0 to 1).
    #[arg(
        long,
        value_name = "D,…",
        value_delimiter = ',',
        default_value = "0.05,0.5,0.95",
        allow_negative_numbers = true
    )]
    pub depths: Vec<f64>,
    /// Prompt tokens of an unrelated request between the two turns.
    #[arg(long, value_name = "N")]
    pub interleave: Option<u64>,
    /// What the other probes take besides.
    #[command(flatten)]
    pub control: ControlArgs,
    /// What all probes take.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of every probe but `single`.
#[derive(Clone, Debug, Default, Args)]
pub struct ControlArgs {
    /// Quote this record of `probe single`.
    #[arg(long, value_name = "RECORD", conflicts_with = "with_control")]
    pub control: Option<PathBuf>,
    /// Run the single arm first, at the same size.
    #[arg(long)]
    pub with_control: bool,
}

/// Options of every probe.
#[derive(Clone, Args)]
pub struct CommonArgs {
    /// Server to probe, e.g. <http://127.0.0.1:8000>.
    #[arg(long, value_name = "URL", env = "VLLM_API", hide_env_values = true)]
    pub url: String,
    /// Model; the server's only one by default.
    #[arg(long, value_name = "NAME", env = "VLLM_MODEL")]
    pub model: Option<String>,
    /// File that holds the API key.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// API key; others can see a command line, so prefer --api-key-file or the
    /// environment (`PCLOAD_API_KEY`, `OPENAI_API_KEY`, `VLLM_API_KEY`).
    #[arg(long, value_name = "KEY", conflicts_with = "api_key_file")]
    pub api_key: Option<String>,
    /// The engine's attention block in tokens, where its metric is wrong.
    #[arg(long, value_name = "N")]
    pub block: Option<u64>,
    /// Tokens between retained states, a multiple of the block; 0 for none.
    #[arg(long, value_name = "N")]
    pub retention: Option<u64>,
    /// Time for the whole probe, e.g. 25m; what was not reached is said.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Wait this long for a server that is still starting; no part of the
    /// budget.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait_ready: Option<Duration>,
    /// Time for one request.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub timeout: Duration,
    /// Further header of every request (repeatable).
    #[arg(long, value_name = "K=V", value_parser = header)]
    pub header: Vec<(String, String)>,
    /// Further body keys; by default
    /// `{"chat_template_kwargs":{"enable_thinking":false}}` where the server
    /// accepts it.
    #[arg(long, value_name = "JSON", value_parser = body)]
    pub extra_body: Option<Map<String, Value>>,
    /// Label of what is under test, for the record.
    #[arg(long, value_name = "LABEL")]
    pub arm: Option<String>,
    /// Record to write; by default into the working directory, with the time in
    /// its name.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the report as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl std::fmt::Debug for CommonArgs {
    /// Shows no credential: URL, key, header values and body may hold some.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommonArgs")
            .field("model", &self.model)
            .field("block", &self.block)
            .field("retention", &self.retention)
            .field("arm", &self.arm)
            .field("out", &self.out)
            .finish_non_exhaustive()
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        _ => Err("NAME=VALUE is needed".to_owned()),
    }
}

fn body(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err("a JSON object is needed".to_owned()),
        Err(error) => Err(format!("this is no JSON object: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_bodies_are_checked() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(header("X-A=b=c"), pair("X-A", "b=c"));
        assert!(header("X-A").is_err() && header("=b").is_err());
        assert!(body("[1]").is_err() && body("{").is_err());
        assert_eq!(body(r#"{"a":1}"#).unwrap().len(), 1);
    }
}
