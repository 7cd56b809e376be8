//! The command line as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::compare_runs::CompareArgs;
use super::duration::duration;
use super::output::Voice;
use super::probe::ProbeArgs;
use super::report::ReportArgs;

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
  pcload doctor --scenario scenario.json        is everything there that a run needs?
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

/// Options of every command, which help lists after its own.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Say nothing on stderr but errors.
    #[arg(long, short, global = true, display_order = 900)]
    pub quiet: bool,
    /// Log more to stderr (-v info, -vv debug, -vvv trace).
    #[arg(long, short, global = true, display_order = 901, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Form of log lines on stderr.
    #[arg(long, global = true, display_order = 902, value_enum, default_value_t = LogFormat::Text)]
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
    /// Run the whole benchmark against a server.
    Run(Box<RunArgs>),
    /// Recompute actual hit rates from two saved metrics pages; sends nothing.
    Analyze(AnalyzeArgs),
    /// Check scenario, tokenizer, corpus and server without load.
    Doctor(ScenarioArgs),
    /// Report on a run from what is on the disk; sends nothing.
    Report(ReportArgs),
    /// Serve a simulated vLLM with a real block-hash prefix cache.
    Sim(Box<super::sim::SimArgs>),
    /// See the whole benchmark on a simulated server; needs nothing else.
    Demo(DemoArgs),
    /// Find out whether a live server reuses prefixes, and reuses them rightly.
    Probe(Box<ProbeArgs>),
    /// Set two runs or two probe records side by side; sends nothing.
    Compare(CompareArgs),
    /// Measure this client's own error on this machine.
    Calibrate(CalibrateArgs),
    /// Write a prepared set or a run in another tool's form; sends nothing.
    #[command(subcommand)]
    Export(super::export::ExportCommand),
    /// Print a JSON Schema.
    Schema(SchemaArgs),
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for each command.
    Man(ManArgs),
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

/// Options of `run`.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("source").required(true))]
#[command(after_help = "Examples:
  pcload run --scenario scenario.json
  pcload run --scenario scenario.json --concurrency 16 --slo ttft=200ms,tpot=50ms
  pcload run --scenario scenario.json --html report.html
  pcload run --scenario scenario.json --ab http://127.0.0.1:8001 --rounds 4
  pcload run --manifest outputs/x_20260101_120000/result/x_20260101_120000.manifest.json")]
pub struct RunArgs {
    /// Scenario file (JSON); prepared first where that has not been done.
    #[arg(long, value_name = "FILE", group = "source")]
    pub scenario: Option<PathBuf>,
    /// Manifest of a prepared set, whoever prepared it.
    #[arg(long, value_name = "FILE", group = "source")]
    pub manifest: Option<PathBuf>,
    /// Load profile (TOML); wins over the scenario's `pcload.profile`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["concurrency", "rate"])]
    pub profile: Option<PathBuf>,
    /// Closed loop: this many requests in flight.
    #[arg(long, value_name = "N", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrency: Option<u32>,
    /// Open loop: this many requests per second, evenly spaced.
    #[arg(long, value_name = "PER_SECOND", allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// Objectives a request must meet to count as good, such as
    /// `ttft=200ms,tpot=50ms,e2el=5s`. Exit status 1 when any request misses.
    #[arg(long, value_name = "LIST")]
    pub slo: Option<String>,
    /// Exit with 1 when the verdict is `invalid`.
    #[arg(long)]
    pub strict: bool,
    /// Worker threads of the load generator; chosen from the load when absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Option<u32>,
    /// Wait this long for a server that is still starting.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait_ready: Option<Duration>,
    /// Longest silence of a stream before the request fails.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub idle_timeout: Duration,
    /// Longest time one request may take.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1h")]
    pub request_timeout: Duration,
    /// Further header of every request, such as `X-Team=search`; may be given
    /// several times, and replaces a header of ours. Values are never written.
    #[arg(long = "header", value_name = "NAME=VALUE")]
    pub headers: Vec<String>,
    /// HTTP proxy for everything, such as `http://10.0.0.1:3128`; those of the
    /// environment are never used.
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,
    /// Certificates (PEM) to trust besides the public ones.
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Send the measured requests by HTTP/2: negotiated under TLS, by prior
    /// knowledge without. Chunks are then stamped when they are read, not by
    /// the kernel.
    #[arg(long)]
    pub http2: bool,
    /// Measure the client's own error after the run, at the concurrency and
    /// chunk rate that the run had, and put it into the analysis.
    #[arg(long)]
    pub calibrate: bool,
    /// Further percentiles for the latency table, such as `25,99.99`.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub percentiles: Vec<f64>,
    /// Who sends the formal requests.
    #[arg(long, value_enum, default_value_t = Driver::Native)]
    pub driver: Driver,
    /// Template of the AISBench configuration, in place of the scenario's.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Python that AISBench is installed in; else that of the active virtual
    /// environment.
    #[arg(long, value_name = "FILE", env = "PCLOAD_PYTHON")]
    pub python: Option<PathBuf>,
    /// Whose definitions the latencies are also reported by.
    #[arg(long, value_enum, default_value_t = Definitions::Pcload)]
    pub definitions: Definitions,
    /// Truth log of `pcload sim` on this machine: with `--driver both` it says
    /// which driver is nearer to what the server did.
    #[arg(long, value_name = "FILE")]
    pub truth_log: Option<PathBuf>,
    /// Write the report (with --ab, the comparison) as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Run against this server too, in turns, and compare: the scenario's
    /// addresses are A, the same paths at this base are B.
    #[arg(long, value_name = "BASE_URL_B", conflicts_with = "driver")]
    pub ab: Option<String>,
    /// Runs against each server.
    #[arg(long, value_name = "N", requires = "ab", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
}

/// Who sends the formal requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// This program.
    #[default]
    Native,
    /// AISBench, as a child process.
    Aisbench,
    /// One after the other, with a parity table.
    Both,
}

/// Whose definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Definitions {
    /// This program's.
    #[default]
    Pcload,
    /// AISBench's tables besides.
    Aisbench,
}

/// Options of `analyze`.
#[derive(Clone, Debug, Args)]
pub struct AnalyzeArgs {
    /// Manifest of the set.
    #[arg(long, value_name = "FILE")]
    pub manifest: PathBuf,
    /// Metrics page saved before the formal requests.
    #[arg(long, value_name = "FILE")]
    pub baseline: PathBuf,
    /// Metrics page saved after them.
    #[arg(long, value_name = "FILE")]
    pub after: PathBuf,
}

/// Options of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Where to write; a fresh temporary directory when absent.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Open the report in the browser.
    #[arg(long)]
    pub open: bool,
}

/// Options of `calibrate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  pcload calibrate --concurrency 256 --itl-ms 10
  pcload calibrate --concurrency 8 --itl-ms 30 --seconds 20

It streams from a server in this process and states bias and 99th percentile of
the errors of TTFT and ITL against what that server really sent. Run it on an
idle machine, and again on one as busy as it is during your runs.")]
pub struct CalibrateArgs {
    /// Streams side by side.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub concurrency: u32,
    /// Time from chunk to chunk of a stream, milliseconds.
    #[arg(long, value_name = "X", default_value_t = 10.0)]
    pub itl_ms: f64,
    /// About how long to stream.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    pub seconds: f64,
    /// Worker threads of the load generator.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
}

/// Options of `schema`.
#[derive(Clone, Debug, Args)]
pub struct SchemaArgs {
    /// Of what.
    #[arg(value_enum)]
    pub kind: SchemaKind,
}

/// Options of `man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Write `pcload.1` and a page for each command here.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// What there are schemas of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaKind {
    /// Scenario files.
    Scenario,
    /// Load profiles (TOML).
    Profile,
    /// `manifest.json` of a set.
    Manifest,
    /// A line of `full.jsonl`.
    Row,
    /// A line of `requests.jsonl`.
    Request,
    /// `analysis.json`; also what `run` and `analyze` print.
    Analysis,
    /// A line of `records.jsonl`.
    Record,
    /// A line of `kv.jsonl`.
    Kv,
    /// What `inspect` prints.
    Inspect,
    /// What `prepare` prints.
    Prepare,
    /// What `validate` prints.
    Validate,
    /// What `doctor` prints.
    Doctor,
    /// What `report` prints where files were asked for.
    Report,
    /// What `demo` prints.
    Demo,
    /// What `run --driver both` prints.
    BothDrivers,
    /// What `compare` and `run --ab` print of two runs.
    Comparison,
    /// `parity.json`; also what `compare` prints of a native and an AISBench run.
    Parity,
    /// What `calibrate` prints.
    Calibration,
    /// The record of a probe.
    Probe,
    /// What `probe` prints.
    ProbeSummary,
    /// What `compare` prints of two records of a probe.
    ProbeComparison,
    /// What `export aisbench` prints.
    AisbenchExport,
    /// What `sim` prints when it is ready.
    Sim,
    /// A line of the truth log of `sim`.
    Truth,
    /// A line of the log with `--log-format json`.
    Log,
}
