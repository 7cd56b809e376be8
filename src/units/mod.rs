//! The small types every room shares: block arithmetic, ranks, groups, and
//! offsets from the start of a run. It refuses to know what they are used for.

mod digest;

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use digest::{hex, id_list_sha256, id_tuple_sha256, sha256_hex};

/// Size of one prefix-cache block, in tokens; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlockSize(NonZeroU64);

impl BlockSize {
    /// A block of `tokens`; `None` for zero.
    pub const fn new(tokens: u64) -> Option<Self> {
        match NonZeroU64::new(tokens) {
            Some(tokens) => Some(Self(tokens)),
            None => None,
        }
    }

    /// Tokens in one block.
    pub const fn tokens(self) -> u64 {
        self.0.get()
    }

    /// Whole blocks that fit in `tokens` (rounds down).
    pub const fn whole_blocks(self, tokens: u64) -> u64 {
        tokens / self.0.get()
    }

    /// `tokens` rounded down to a whole number of blocks.
    pub const fn floor(self, tokens: u64) -> u64 {
        self.whole_blocks(tokens) * self.0.get()
    }

    /// Most tokens of a prompt that a cache can give back, as an exact repeat of
    /// it is: whole blocks of all tokens but the last, which has to be computed
    /// to sample from.
    pub const fn findable_tokens(self, prompt_tokens: u64) -> u64 {
        self.floor(prompt_tokens.saturating_sub(1))
    }
}

/// Index of a data-parallel rank inside one server, from 0.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct DpRank(pub u32);

impl fmt::Display for DpRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of a prefix group, from 0. Its name in scenarios and artifacts is
/// `group-<index>`; its order is numeric, so group-2 comes before group-10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupIndex(pub u32);

impl fmt::Display for GroupIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group-{}", self.0)
    }
}

/// Text that is no `group-<index>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not of the form group-<index>")]
pub struct NotAGroup(pub String);

impl std::str::FromStr for GroupIndex {
    type Err = NotAGroup;

    /// Reads `group-<index>` in its canonical spelling (no sign, no leading
    /// zero).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let index = text
            .strip_prefix("group-")
            .and_then(|digits| digits.parse().ok());
        match index {
            Some(index) if Self(index).to_string() == text => Ok(Self(index)),
            _ => Err(NotAGroup(text.to_owned())),
        }
    }
}

impl Serialize for GroupIndex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GroupIndex {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Time since the start of a run on its monotonic clock, in nanoseconds.
/// Negative times (before the clock was started) do not exist.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct RunOffset(pub u64);

impl RunOffset {
    /// The offset `duration` after the start; saturates at 584 years.
    pub fn from_duration(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Nanoseconds since the start of the run.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds since the start of the run.
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds since the start of the run.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time since the start of the run.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Milliseconds from `earlier` to here; negative when `earlier` is later.
    pub fn millis_since(self, earlier: Self) -> f64 {
        if self.0 >= earlier.0 {
            (self.0 - earlier.0) as f64 / 1e6
        } else {
            -((earlier.0 - self.0) as f64 / 1e6)
        }
    }
}

/// `part / whole`, or `None` where there is no whole. The one place where a
/// hit rate is divided: a ratio in 0..=1, never a percentage.
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded on vLLM 0.24 and 0.32 (blocks of 32), and the values of
    /// vllm-project/vllm-ascend#7965 and vllm-project/vllm#11186.
    #[test]
    fn an_exact_repeat_finds_whole_blocks_short_of_the_last_token() {
        for (block, tokens, found) in [
            (32, 32, 0),
            (32, 33, 32),
            (32, 64, 32),
            (32, 128, 96),
            (32, 129, 128),
            (32, 512, 480),
            (32, 1024, 992),
            (32, 1025, 1024),
            (16, 512, 496),
            (16, 1024, 1008),
            (16, 1025, 1024),
            (128, 128, 0),
            (128, 256, 128),
            (128, 257, 256),
            (1024, 1024, 0),
            (1024, 1025, 1024),
            (1024, 2047, 1024),
            (1024, 4096, 3072),
            (16, 1, 0),
            (16, 0, 0),
        ] {
            let block = BlockSize::new(block).unwrap();
            assert_eq!(block.findable_tokens(tokens), found, "{block:?} {tokens}");
        }
    }

    #[test]
    fn blocks_round_down() {
        let block = BlockSize::new(16).unwrap();
        assert_eq!(
            (block.floor(0), block.floor(15), block.floor(33)),
            (0, 0, 32)
        );
        assert_eq!(BlockSize::new(0), None);
    }

    #[test]
    fn groups_read_only_their_canonical_spelling() {
        assert_eq!("group-10".parse(), Ok(GroupIndex(10)));
        for wrong in ["group-", "group-01", "group-+1", "Group-1", "1", "group--1"] {
            assert_eq!(
                wrong.parse::<GroupIndex>(),
                Err(NotAGroup(wrong.to_owned()))
            );
        }
        assert!(GroupIndex(2) < GroupIndex(10));
    }

    #[test]
    fn a_ratio_of_nothing_is_absent() {
        assert_eq!(ratio(0, 0), None);
        assert_eq!(ratio(61440, 102_400), Some(0.6));
    }
}
