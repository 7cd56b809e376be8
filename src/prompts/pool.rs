//! Which records a group draws its text from, and in which order. It refuses to
//! know what is made of them.

use rayon::prelude::*;

use crate::plan::PlannedGroup;
use crate::prompts::PromptError;
use crate::prompts::context::Context;
use crate::prompts::passage::Materials;
use crate::prompts::pieces::{Library, Reading};
use crate::rng::Seed;
use crate::scenario::Selection;
use crate::units::GroupIndex;

/// Records of one group: at least two places, or one for each request.
pub(super) struct Pool {
    records: Vec<usize>,
    /// Records that random drawing passed over, because their text holds a
    /// special token.
    pub(super) skipped: Vec<usize>,
}

impl Pool {
    /// Draws the records of `group`. Every record of the pool is usable.
    pub(super) fn new(
        materials: Materials<'_>,
        group: &PlannedGroup,
        selection: &Selection,
        seed: &Seed,
    ) -> Result<Self, PromptError> {
        let Materials {
            context, library, ..
        } = materials;
        let wanted = group.request_count.max(2);
        let pool = match selection {
            Selection::Random => random(library, context, group.group, wanted, seed)?,
            Selection::Indices(indices) => {
                let chosen = by_index(library, group.group, indices)?;
                repeated(library, context, group.group, &chosen, wanted)?
            }
            Selection::QuestionSha256(digests) => {
                let chosen = by_digest(library, group.group, digests)?;
                repeated(library, context, group.group, &chosen, wanted)?
            }
            Selection::Mixed {
                indices,
                question_sha256,
            } => {
                let mut chosen = by_index(library, group.group, indices)?;
                chosen.extend(by_digest(library, group.group, question_sha256)?);
                repeated(library, context, group.group, &chosen, wanted)?
            }
        };
        assert!(!pool.records.is_empty(), "a pool holds a usable record");
        Ok(pool)
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The records without end, from place `rotation` on.
    pub(super) fn rotated(&self, rotation: usize) -> impl Iterator<Item = usize> {
        let first = rotation % self.records.len();
        self.records.iter().copied().cycle().skip(first)
    }
}

/// Shuffles of the whole corpus, one behind the other, unusable records left
/// out.
fn random(
    library: &Library<'_>,
    context: &Context,
    group: GroupIndex,
    wanted: usize,
    seed: &Seed,
) -> Result<Pool, PromptError> {
    let mut stream = seed.stream(&format!("corpus/{group}"));
    let mut order: Vec<usize> = (0..library.corpus().len()).collect();
    let mut pool = Pool {
        records: Vec::new(),
        skipped: Vec::new(),
    };
    for round in 0.. {
        stream.shuffle(&mut order);
        for batch in order.chunks(wanted) {
            batch
                .par_iter()
                .try_for_each(|record| library.read(context, *record).map(|_| ()))?;
            for &record in batch {
                match library.read(context, record)? {
                    Reading::Usable(_) => pool.records.push(record),
                    Reading::Special(_) if round == 0 => pool.skipped.push(record),
                    Reading::Special(_) | Reading::Empty => {}
                }
                if pool.records.len() == wanted {
                    return Ok(pool);
                }
            }
        }
        if pool.records.is_empty() {
            break;
        }
    }
    Err(PromptError::NoUsableRecord { group })
}

fn by_index(
    library: &Library<'_>,
    group: GroupIndex,
    indices: &[u64],
) -> Result<Vec<usize>, PromptError> {
    let record_count = library.corpus().len();
    let place = |&index: &u64| {
        usize::try_from(index)
            .ok()
            .filter(|place| *place < record_count)
            .ok_or(PromptError::NoSuchRecord {
                group,
                index,
                record_count,
            })
    };
    indices.iter().map(place).collect()
}

fn by_digest(
    library: &Library<'_>,
    group: GroupIndex,
    digests: &[String],
) -> Result<Vec<usize>, PromptError> {
    if digests.is_empty() {
        return Ok(Vec::new());
    }
    let corpus = library.corpus();
    let all: Vec<String> = (0..corpus.len())
        .into_par_iter()
        .map(|record| corpus.text_sha256(record))
        .collect();
    let place = |digest: &String| {
        let mut matches = (0..all.len()).filter(|record| all[*record] == *digest);
        match (matches.next(), matches.count()) {
            (Some(record), 0) => Ok(record),
            (first, more) => Err(PromptError::DigestNotUnique {
                group,
                sha256: digest.clone(),
                match_count: usize::from(first.is_some()) + more,
            }),
        }
    };
    digests.iter().map(place).collect()
}

/// The chosen records again and again. One that holds a special token is
/// refused, one without tokens left out.
fn repeated(
    library: &Library<'_>,
    context: &Context,
    group: GroupIndex,
    chosen: &[usize],
    wanted: usize,
) -> Result<Pool, PromptError> {
    let mut usable = Vec::new();
    for &record in chosen {
        match library.read(context, record)? {
            Reading::Usable(_) => usable.push(record),
            Reading::Empty => {}
            Reading::Special(id) => {
                return Err(PromptError::SpecialToken {
                    group,
                    index: record as u64,
                    token: context.tokenizer().decode(&[*id])?,
                });
            }
        }
    }
    if usable.is_empty() {
        return Err(PromptError::NoUsableRecord { group });
    }
    let length = wanted.max(usable.len());
    Ok(Pool {
        records: usable.into_iter().cycle().take(length).collect(),
        skipped: Vec::new(),
    })
}
