//! `pcload sim`: the simulated server in the foreground. Its help text is its
//! manual.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: waits for the signal that ends the server"
)]

mod choices;
mod faults;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use choices::{AnswersArg, CountingArg, PaceArg, ReleaseArg};
use clap::Args;
use faults::FaultArgs;
use tokio::runtime::Builder;

use super::exit::{Exit, Failure};
use super::{demo, output, runtime, signals};
use crate::sim::{
    Answers, Config, CostModel, External, Hybrid, LookupCounting, Pace, Release, Server,
};
use crate::tokenizer::{self, Tokenizer};
use crate::units::BlockSize;

/// Serve a simulated vLLM until interrupted.
///
/// The server speaks vLLM's API (completions, chat, tokenize, models, metrics,
/// reset) and behaves as the recorded servers do: a prefix cache of hashed
/// blocks with LRU eviction per data-parallel rank, continuous batching with
/// chunked prefill and preemption, counters and streams of the same shape. It
/// generates seeded words of its tokenizer's vocabulary.
///
/// On stdout it says one JSON line with its URL, then nothing.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct SimArgs {
    /// Tokenizer: a directory or `tokenizer.json`, or a Hugging Face id in the
    /// local cache; without it, the embedded one of the demo.
    #[arg(long, value_name = "PATH|ID")]
    pub tokenizer: Option<String>,
    /// Address to listen on; anything but loopback is open to your network.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), help_heading = "Server")]
    host: IpAddr,
    /// Port; 0 takes a free one.
    #[arg(long, default_value_t = 8000, help_heading = "Server")]
    port: u16,
    /// Name of the model.
    #[arg(long, default_value = "sim", help_heading = "Server")]
    model: String,
    /// Which vLLM it looks like.
    #[arg(long, value_enum, default_value_t = ReleaseArg::V0_32_0, help_heading = "Server")]
    release: ReleaseArg,
    /// Root of all randomness.
    #[arg(long, default_value_t = 42, help_heading = "Server")]
    seed: u64,
    /// Key that requests under `/v1` must bring (better by the environment).
    #[arg(
        long,
        env = "PCLOAD_SIM_API_KEY",
        hide_env_values = true,
        help_heading = "Server"
    )]
    api_key: Option<String>,
    /// Leave out the development endpoints (`/reset_prefix_cache`, …).
    #[arg(long, help_heading = "Server")]
    no_dev_mode: bool,
    /// Answer with `X-Request-Id`: the request's own, or a new one.
    #[arg(long, help_heading = "Server")]
    enable_request_id_headers: bool,
    /// Seconds after which an idle connection is closed.
    #[arg(long, default_value_t = 5.0, value_name = "S", help_heading = "Server")]
    keep_alive: f64,
    /// Longest prompt and output together, in tokens; by default 131072 or
    /// what one rank's pool holds.
    #[arg(long, value_name = "TOKENS", help_heading = "Server")]
    max_model_len: Option<u64>,
    /// Requests a rank lets wait before it answers 503.
    #[arg(long, value_name = "N", help_heading = "Server")]
    max_num_queued_reqs: Option<usize>,
    /// Write the true times of every stream here, one JSON line each.
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    truth_log: Option<PathBuf>,

    /// Data-parallel ranks, each with its own cache and queue.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Cache")]
    data_parallel_size: u32,
    /// Tokens of a cache block.
    #[arg(
        long,
        default_value_t = 16,
        value_name = "TOKENS",
        help_heading = "Cache"
    )]
    block_size: u64,
    /// Blocks of each rank's pool; one of them is never usable.
    #[arg(
        long,
        default_value_t = 65_536,
        value_name = "N",
        help_heading = "Cache"
    )]
    num_gpu_blocks: u32,
    /// Switch prefix caching off.
    #[arg(long, help_heading = "Cache")]
    no_prefix_caching: bool,
    /// When the cache counters move.
    #[arg(long, value_enum, default_value_t = CountingArg::Release, help_heading = "Cache")]
    counting: CountingArg,
    /// Blocks of a second tier that a local reset does not empty.
    #[arg(long, value_name = "BLOCKS", help_heading = "Cache")]
    external_blocks: Option<usize>,
    /// A hybrid model with attention blocks of so many tokens: it never gives
    /// back the block of a prompt's end.
    #[arg(
        long,
        value_name = "TOKENS",
        conflicts_with = "block_size",
        help_heading = "Cache"
    )]
    hybrid_block: Option<u64>,
    /// Hybrid: tokens between the states a cold pass keeps.
    #[arg(
        long,
        value_name = "TOKENS",
        requires = "hybrid_block",
        help_heading = "Cache"
    )]
    prefix_cache_retention_interval: Option<u64>,
    /// Hybrid, the defect: a conversation is lost when another one speaks.
    #[arg(long, requires = "hybrid_block", help_heading = "Cache")]
    interleaving_loss: bool,

    /// Where the time goes.
    #[arg(long, value_enum, default_value_t = PaceArg::Batched, help_heading = "Time")]
    pace: PaceArg,
    /// Batched: prompt tokens computed per second [default: 20000].
    #[arg(long, value_name = "RATE", help_heading = "Time")]
    prefill_rate: Option<f64>,
    /// Batched: fixed part of a step, in milliseconds [default: 5].
    #[arg(long, value_name = "MS", help_heading = "Time")]
    step_ms: Option<f64>,
    /// Batched: what each sequence adds to a step, in milliseconds [default: 0.05].
    #[arg(long, value_name = "MS", help_heading = "Time")]
    sequence_ms: Option<f64>,
    /// Batched: relative standard deviation of a step's length [default: 0.05].
    #[arg(long, value_name = "RATIO", help_heading = "Time")]
    jitter: Option<f64>,
    /// Batched: tokens one step computes at most.
    #[arg(
        long,
        default_value_t = 2_048,
        value_name = "TOKENS",
        help_heading = "Time"
    )]
    max_num_batched_tokens: u64,
    /// Batched: sequences that run side by side.
    #[arg(long, default_value_t = 128, value_name = "N", help_heading = "Time")]
    max_num_seqs: usize,
    /// Fixed: arrival to first token, in milliseconds [default: 50].
    #[arg(long, value_name = "MS", help_heading = "Time")]
    ttft_ms: Option<f64>,
    /// Fixed: token to token, in milliseconds [default: 10].
    #[arg(long, value_name = "MS", help_heading = "Time")]
    itl_ms: Option<f64>,
    /// Tokens per stream event after the first.
    #[arg(
        long,
        default_value_t = 1,
        value_name = "TOKENS",
        help_heading = "Time"
    )]
    stream_interval: u32,
    /// Comments this often before the first token, in seconds.
    #[arg(long, value_name = "S", help_heading = "Time")]
    sse_keep_alive_interval: Option<f64>,

    /// What the model does when the last user message asks for the pass phrase:
    /// `right` says what follows "the pass phrase is" in its prompt, `stale`
    /// answers from another prompt after a cache hit, `never` does not answer.
    #[arg(long, value_enum, default_value_t = AnswersArg::Right, help_heading = "Model")]
    answers: AnswersArg,
    /// Output of a chat that names no limit, in tokens.
    #[arg(
        long,
        default_value_t = 128,
        value_name = "TOKENS",
        help_heading = "Model"
    )]
    natural_tokens: u64,
    /// System message of chats that bring none.
    #[arg(long, value_name = "TEXT", help_heading = "Model")]
    system: Option<String>,

    /// What is wrong with it.
    #[command(flatten)]
    faults: FaultArgs,
}

const EXAMPLES: &str = "Examples:
  A healthy server on a free port:
    pcload sim --port 0
  Two ranks with your model's tokenizer:
    pcload sim --data-parallel-size 2 --tokenizer Qwen/Qwen2.5-7B-Instruct
  A pool of 60,000 tokens, to watch eviction:
    pcload sim --block-size 16 --num-gpu-blocks 3751
  A hybrid model that loses interleaved conversations, for `pcload probe alternation`:
    pcload sim --hybrid-block 480 --num-gpu-blocks 2000 --interleaving-loss
  A model that answers from the wrong prefix, for `pcload probe needle`:
    pcload sim --answers stale
  Exact times, to measure a client's own error:
    pcload sim --pace fixed --ttft-ms 50 --itl-ms 20 --truth-log truth.jsonl
  A bad day, the same every time:
    pcload sim --seed 7 --fault-stall 0.01 --fault-503 0.05 --fault-retry-after 1";

/// Default of `--max-model-len`, where the pool holds as much.
const MODEL_LEN: u64 = 131_072;

impl SimArgs {
    /// The configuration these arguments mean.
    pub fn config(&self) -> anyhow::Result<Config> {
        let block = BlockSize::new(self.hybrid_block.unwrap_or(self.block_size))
            .context("--block-size and --hybrid-block must be at least 1")?;
        let usable = u64::from(self.num_gpu_blocks.saturating_sub(1)) * block.tokens();
        let config = Config {
            listen: Some(SocketAddr::new(self.host, self.port)),
            release: match self.release {
                ReleaseArg::V0_24_0 => Release::V0_24,
                ReleaseArg::V0_32_0 => Release::V0_32,
            },
            model: self.model.clone(),
            seed: self.seed,
            ranks: self.data_parallel_size,
            block,
            pool_blocks: self.num_gpu_blocks,
            max_model_len: self.max_model_len.unwrap_or(usable.min(MODEL_LEN)),
            max_sequences: self.max_num_seqs,
            step_tokens: self.max_num_batched_tokens,
            max_queued_requests: self.max_num_queued_reqs,
            pace: self.pace()?,
            hybrid: self.hybrid_block.map(|_| Hybrid {
                retention_interval: self.prefix_cache_retention_interval,
                interleaving_loss: self.interleaving_loss,
            }),
            external: self.external_blocks.map(|blocks| External { blocks }),
            prefix_caching: !self.no_prefix_caching,
            counting: match self.counting {
                CountingArg::Release => LookupCounting::Release,
                CountingArg::Admission => LookupCounting::Admission,
                CountingArg::EveryLookup => LookupCounting::EveryLookup,
            },
            prompt_tokens_details: !self.faults.no_usage_details,
            dev_mode: !self.no_dev_mode,
            request_id_headers: self.enable_request_id_headers,
            stream_interval: self.stream_interval,
            sse_keep_alive: self.sse_keep_alive_interval.map(seconds).transpose()?,
            api_key: self.api_key.clone(),
            keep_alive: seconds(self.keep_alive)?,
            natural_tokens: self.natural_tokens,
            default_system: self.system.clone(),
            answers: match self.answers {
                AnswersArg::Right => Answers::Right,
                AnswersArg::Stale => Answers::Stale,
                AnswersArg::Never => Answers::Never,
            },
            precise_timers: true,
            truth_log: self.truth_log.clone(),
            faults: self.faults.faults()?,
            ..Config::default()
        };
        config.check()?;
        Ok(config)
    }

    fn pace(&self) -> anyhow::Result<Pace> {
        self.check_pace_options()?;
        Ok(match self.pace {
            PaceArg::Batched => {
                let usual = CostModel::default();
                let time = |given: Option<f64>, usual| given.map_or(Ok(usual), millis);
                Pace::Batched(CostModel {
                    prefill_tokens_per_second: self
                        .prefill_rate
                        .unwrap_or(usual.prefill_tokens_per_second),
                    step: time(self.step_ms, usual.step)?,
                    per_sequence: time(self.sequence_ms, usual.per_sequence)?,
                    jitter_ratio: self.jitter.unwrap_or(usual.jitter_ratio),
                })
            }
            PaceArg::Fixed => Pace::Fixed {
                ttft: millis(self.ttft_ms.unwrap_or(50.0))?,
                itl: millis(self.itl_ms.unwrap_or(10.0))?,
            },
            PaceArg::Flood => Pace::Flood,
        })
    }

    /// An option of another pace would be ignored without a word.
    fn check_pace_options(&self) -> anyhow::Result<()> {
        let options = [
            ("--prefill-rate", self.prefill_rate, PaceArg::Batched),
            ("--step-ms", self.step_ms, PaceArg::Batched),
            ("--sequence-ms", self.sequence_ms, PaceArg::Batched),
            ("--jitter", self.jitter, PaceArg::Batched),
            ("--ttft-ms", self.ttft_ms, PaceArg::Fixed),
            ("--itl-ms", self.itl_ms, PaceArg::Fixed),
        ];
        for (name, value, pace) in options {
            if value.is_some() && pace != self.pace {
                bail!(
                    "{name} means something with `--pace {pace}` alone; the pace is `{}`",
                    self.pace
                );
            }
        }
        Ok(())
    }
}

fn seconds(value: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("{value} is no time in seconds"))
}

fn millis(value: f64) -> anyhow::Result<Duration> {
    seconds(value / 1_000.0).with_context(|| format!("{value} is no time in milliseconds"))
}

/// Serves until SIGINT or SIGTERM.
pub(super) fn run(args: &SimArgs) -> Result<Exit, Failure> {
    let config = args
        .config()
        .map_err(|error| Failure::input("SIM_OPTION", format!("{error:#}")))?;
    let tokenizer: Arc<dyn Tokenizer> = match &args.tokenizer {
        Some(name) => Arc::new(tokenizer::load(name, Path::new("."), None)?),
        None => demo::embedded_tokenizer()?,
    };
    let runtime = runtime::build(&mut Builder::new_multi_thread())?;
    runtime.block_on(serve(args, config, tokenizer))
}

async fn serve(
    args: &SimArgs,
    config: Config,
    tokenizer: Arc<dyn Tokenizer>,
) -> Result<Exit, Failure> {
    let (_elsewhere, mut interrupts) = signals::heard_elsewhere();
    let server = Server::start(config, tokenizer).await?;
    announce(&args.model, &server.base_url())?;
    interrupts.next().await;
    server.shutdown().await;
    Ok(Exit::Done)
}

/// One JSON line on stdout, so that a script finds a free port's number.
fn announce(model: &str, url: &str) -> Result<(), Failure> {
    let line = serde_json::json!({ "url": url, "model": model, "simulated": true });
    output::print(&format!("{line}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Faults;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: SimArgs,
    }

    fn config(line: &str) -> anyhow::Result<Config> {
        let command = Command::try_parse_from(std::iter::once("sim").chain(line.split(' ')))?;
        command.args.config()
    }

    #[test]
    fn arguments_become_a_configuration() {
        let config = config(
            "--port 0 --release 0.24.0 --hybrid-block 480 --num-gpu-blocks 101 \
             --prefix-cache-retention-interval 960 --pace fixed --ttft-ms 2.5 --fault-429 0.5",
        )
        .unwrap();
        assert_eq!(config.release, Release::V0_24);
        assert_eq!(config.max_model_len, 48_000);
        assert_eq!(config.hybrid.unwrap().retention_interval, Some(960));
        let ttft = Duration::from_micros(2_500);
        assert!(matches!(config.pace, Pace::Fixed { ttft: time, .. } if time == ttft));
        assert!((config.faults.too_many_requests - 0.5).abs() < 1e-12);
    }

    #[test]
    fn the_defaults_are_a_healthy_server_on_loopback() {
        let config = config("--seed 42").unwrap();
        assert!(config.listen.unwrap().ip().is_loopback());
        assert_eq!(config.faults, Faults::default());
        assert_eq!(config.pace, Pace::default());
    }

    #[test]
    fn an_option_of_another_pace_is_refused() {
        for line in [
            "--itl-ms 20",
            "--ttft-ms 20 --pace flood",
            "--pace fixed --step-ms 5",
            "--pace fixed --prefill-rate 1",
            "--pace fixed --sequence-ms 1",
            "--pace flood --jitter 0",
        ] {
            let error = config(line).unwrap_err().to_string();
            let option = line
                .split(' ')
                .rfind(|word| word.starts_with("--") && *word != "--pace");
            assert!(error.starts_with(option.unwrap()), "{line}: {error}");
        }
    }

    /// The manual; review its difference, never edit it by hand.
    #[test]
    fn the_help_is_the_manual() {
        use clap::CommandFactory as _;
        let mut command = Command::command().name("pcload sim").term_width(100);
        insta::assert_snapshot!(command.render_long_help());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, problem) in [
            ("--fault-stall 2", "`stall` is 2"),
            ("--keep-alive=-1", "no time in seconds"),
            ("--interleaving-loss", "--hybrid-block"),
            ("--block-size 0", "must be at least 1"),
        ] {
            let error = format!("{:#}", config(line).unwrap_err());
            assert!(error.contains(problem), "{error}");
        }
    }
}
