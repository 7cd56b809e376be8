//! The command line as typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::output::Voice;

/// Prefix-cache load generator and judge for LLM inference servers.
///
/// pcload builds prompts with exactly controlled shared prefixes, works out the
/// hit rate a perfect prefix cache would reach, sends the prompts in the right
/// order, measures latency, reads the server's counters, and says whether the
/// numbers may be trusted.
#[derive(Debug, Parser)]
#[command(
    name = "pcload",
    version,
    propagate_version = true,
    infer_long_args = true
)]
#[command(after_help = "Examples:
  pcload demo                                   the whole story on a simulated server
  pcload inspect --scenario scenario.json       what hit rate is possible?
  pcload run --scenario scenario.json           what does my server really give?
  pcload probe alternation --url http://127.0.0.1:8000

Exit status: 0 done; 1 done and the answer is no; 2 wrong input; 3 the server or
the machine failed; 130 interrupted, with what was measured written.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How to talk.
    #[command(flatten)]
    pub global: Global,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Say nothing on stderr but errors.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Log more to stderr (-v info, -vv debug, -vvv trace).
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Form of log lines on stderr.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

impl Global {
    /// How to talk to people.
    pub fn voice(&self) -> Voice {
        Voice { quiet: self.quiet }
    }
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Preview a scenario: reachable hit rates, lengths, groups; sends nothing.
    Inspect(ScenarioArgs),
    /// Generate prompts, theory and manifest; sends nothing.
    Prepare(PrepareArgs),
    /// Check a prepared set for changed, cut, reordered or inconsistent files.
    Validate(ValidateArgs),
    /// Print a JSON Schema.
    Schema(SchemaArgs),
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// `--scenario`.
#[derive(Clone, Debug, Args)]
pub struct ScenarioArgs {
    /// Scenario file (JSON).
    #[arg(long, value_name = "FILE")]
    pub scenario: PathBuf,
}

/// Options of `prepare`.
#[derive(Clone, Debug, Args)]
pub struct PrepareArgs {
    /// Scenario file (JSON).
    #[arg(long, value_name = "FILE")]
    pub scenario: PathBuf,
    /// Rebuild the newest directory that was prepared from this scenario.
    #[arg(long)]
    pub overwrite: bool,
}

/// Options of `validate`.
#[derive(Clone, Debug, Args)]
pub struct ValidateArgs {
    /// Manifest of the set.
    #[arg(long, value_name = "FILE")]
    pub manifest: PathBuf,
    /// Re-derive everything: theory, lanes, digests, and, where the tokenizer
    /// is at hand, the token layout of every prompt.
    #[arg(long)]
    pub deep: bool,
}

/// Options of `schema`.
#[derive(Clone, Debug, Args)]
pub struct SchemaArgs {
    /// Of what.
    #[arg(value_enum)]
    pub kind: SchemaKind,
}

/// What there are schemas of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaKind {
    /// Scenario files.
    Scenario,
}
