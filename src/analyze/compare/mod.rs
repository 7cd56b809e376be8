//! Two runs side by side: by how much each figure differs, how sure that is, and
//! what about the runs themselves differs. It formats nothing.

mod aisbench;
mod bench_serve;
mod metrics;
mod rounds;
mod sample;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use aisbench::aisbench_samples;
pub use bench_serve::{BenchServe, BenchServeError};
pub use metrics::{Judgment, MetricDifference, Quantity, Statistic};
pub use sample::Sample;

use super::Verdict;
use crate::rng::Seed;
use metrics::{Scene, metrics, pairs};

/// `kind` of the document [`RunComparison`] is.
pub const COMPARISON_KIND: &str = "pcload.comparison";

/// Version of it.
pub const COMPARISON_VERSION: &str = "1";

/// Share of the shorter side's requests that must have a partner.
const PAIRED_SHARE: f64 = 0.9;

/// What is compared about the runs themselves.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    /// Digest of the rows that were sent.
    DataSet,
    /// Kind of engine.
    Engine,
    /// Name of the model.
    Model,
    /// Block size of the prefix cache.
    BlockSize,
    /// The load profile, in words.
    Profile,
    /// Cold or warm-up.
    Mode,
    /// Who sent the requests and took the times.
    Driver,
}

impl Aspect {
    /// Code of the caution when the sides differ in it.
    pub fn code(self) -> &'static str {
        match self {
            Self::DataSet => "DATA_SET_DIFFERS",
            Self::Engine => "ENGINE_DIFFERS",
            Self::Model => "MODEL_DIFFERS",
            Self::BlockSize => "BLOCK_SIZE_DIFFERS",
            Self::Profile => "PROFILE_DIFFERS",
            Self::Mode => "MODE_DIFFERS",
            Self::Driver => "DRIVER_DIFFERS",
        }
    }

    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::DataSet => "data set",
            Self::Engine => "engine",
            Self::Model => "model",
            Self::BlockSize => "block size",
            Self::Profile => "load profile",
            Self::Mode => "cache mode",
            Self::Driver => "driver",
        }
    }
}

/// One side as it is handed in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// What to call it besides A or B, e.g. the run's directory.
    pub name: String,
    /// What is known of it; an aspect that is absent is not known.
    pub aspects: Vec<(Aspect, String)>,
    /// Verdicts of its runs that have one.
    pub verdicts: Vec<Verdict>,
    /// Requests that count, run by run in send order.
    pub samples: Vec<Sample>,
}

/// One aspect of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Which.
    pub aspect: Aspect,
    /// Of the left side; absent when not known.
    pub left: Option<String>,
    /// Of the right side.
    pub right: Option<String>,
    /// Whether they are equal; absent when one is not known.
    pub same: Option<bool>,
}

/// Why the differences may not mean what they seem to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Caution {
    /// Stable code.
    pub code: String,
    /// For people.
    pub message: String,
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunComparison {
    /// [`COMPARISON_KIND`].
    pub kind: String,
    /// [`COMPARISON_VERSION`].
    pub version: String,
    /// Name of the left side, A.
    pub left: String,
    /// Name of the right side, B.
    pub right: String,
    /// Runs of each side. From 3 of both on, the intervals hold what differs from
    /// one round of them to the next.
    pub rounds: [u64; 2],
    /// Requests of each side.
    pub requests: [u64; 2],
    /// Pairs of requests that were compared; absent when they are not paired.
    pub pairs: Option<u64>,
    /// The runs themselves.
    pub settings: Vec<Setting>,
    /// Why not to trust what follows.
    pub cautions: Vec<Caution>,
    /// The figures.
    pub metrics: Vec<MetricDifference>,
}

/// Sides that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Fewer than two successes.
    #[error("{name} has {successes} successful requests, which is too few to compare")]
    TooFew {
        /// Which side.
        name: String,
        /// What it has.
        successes: usize,
    },
}

/// Compares two sides: B against A. The resamples are drawn from a fixed seed:
/// equal sides give equal documents.
pub fn compare(left: &Side, right: &Side) -> Result<RunComparison, CompareError> {
    for side in [left, right] {
        let successes = side.samples.iter().filter(|sample| sample.ok).count();
        if successes < 2 {
            let name = side.name.clone();
            return Err(CompareError::TooFew { name, successes });
        }
    }
    let settings = settings(left, right);
    let pairs = paired(left, right, &settings);
    let cautions = cautions([left, right], &settings, pairs.is_some());
    let scene = Scene {
        left: &left.samples,
        right: &right.samples,
        pairs,
        seed: Seed::from(0),
    };
    Ok(RunComparison {
        kind: COMPARISON_KIND.to_owned(),
        version: COMPARISON_VERSION.to_owned(),
        left: left.name.clone(),
        right: right.name.clone(),
        rounds: [left, right].map(rounds),
        requests: [left, right].map(|side| side.samples.len() as u64),
        pairs: scene.pairs.as_ref().map(|pairs| pairs.len() as u64),
        settings,
        cautions,
        metrics: metrics(&scene),
    })
}

/// Runs that sent something.
fn rounds(side: &Side) -> u64 {
    let runs = side.samples.chunk_by(|one, next| one.run == next.run);
    runs.count() as u64
}

fn settings(left: &Side, right: &Side) -> Vec<Setting> {
    let of = |side: &Side, aspect: Aspect| {
        let found = side.aspects.iter().find(|(one, _)| *one == aspect);
        found.map(|(_, value)| value.clone())
    };
    let mut known: Vec<Aspect> = [left, right]
        .iter()
        .flat_map(|side| side.aspects.iter().map(|(aspect, _)| *aspect))
        .collect();
    known.sort_unstable();
    known.dedup();
    known
        .into_iter()
        .map(|aspect| {
            let (left, right) = (of(left, aspect), of(right, aspect));
            Setting {
                aspect,
                same: left
                    .as_ref()
                    .zip(right.as_ref())
                    .map(|(left, right)| left == right),
                left,
                right,
            }
        })
        .collect()
}

/// The pairs, where both sides sent the same rows and enough of them.
fn paired<'a>(
    left: &'a Side,
    right: &'a Side,
    settings: &[Setting],
) -> Option<Vec<[&'a Sample; 2]>> {
    let same = |setting: &Setting| setting.aspect == Aspect::DataSet && setting.same == Some(true);
    settings.iter().any(same).then_some(())?;
    let pairs = pairs(&left.samples, &right.samples);
    let shorter = left.samples.len().min(right.samples.len());
    (pairs.len() as f64 >= PAIRED_SHARE * shorter as f64).then_some(pairs)
}

fn cautions(sides: [&Side; 2], settings: &[Setting], is_paired: bool) -> Vec<Caution> {
    let caution = |code: &str, message: String| Caution {
        code: code.to_owned(),
        message,
    };
    let differing = settings
        .iter()
        .filter(|setting| setting.same == Some(false));
    let mut all: Vec<Caution> = differing
        .map(|setting| {
            let message = format!(
                "the {} differs: `{}` and `{}`; what is found may come from it",
                setting.aspect.name(),
                setting.left.as_deref().unwrap_or_default(),
                setting.right.as_deref().unwrap_or_default(),
            );
            caution(setting.aspect.code(), message)
        })
        .collect();
    for (letter, side) in ["A", "B"].into_iter().zip(sides) {
        if side.verdicts.contains(&Verdict::Invalid) {
            let message = format!("a run of {letter} was judged invalid; see its findings");
            all.push(caution("RUN_INVALID", message));
        }
        let failed = side.samples.iter().filter(|sample| !sample.ok).count();
        if failed > 0 {
            let message = format!(
                "{failed} of {} requests of {letter} failed; latencies are of the others alone",
                side.samples.len()
            );
            all.push(caution("REQUESTS_FAILED", message));
        }
    }
    if !is_paired {
        let message = "requests are not paired, so the spread between them hides more";
        all.push(caution("NOT_PAIRED", message.to_owned()));
    }
    all
}
