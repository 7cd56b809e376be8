//! The choices that `pcload sim` offers, as typed.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;

/// `--release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReleaseArg {
    /// Empty reset answers; lookups counted at every step.
    #[value(name = "0.24.0")]
    V0_24_0,
    /// The newer of the recorded servers.
    #[value(name = "0.32.0")]
    V0_32_0,
}

/// `--counting`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CountingArg {
    /// As the release does.
    Release,
    /// Once, at admission (from vLLM 0.27).
    Admission,
    /// At every lookup, also of requests that go on waiting (up to 0.26).
    EveryLookup,
}

/// `--pace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PaceArg {
    /// Continuous batching by a cost model.
    Batched,
    /// `--ttft-ms` and `--itl-ms`, whatever else runs.
    Fixed,
    /// Everything at once, as fast as the client reads.
    Flood,
}

impl fmt::Display for PaceArg {
    /// As on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", PossibleValue::get_name))
    }
}

/// `--answers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AnswersArg {
    /// The truth.
    Right,
    /// Another prompt's truth, after a cache hit.
    Stale,
    /// Nothing.
    Never,
}
