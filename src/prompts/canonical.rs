//! The text every request of a group begins with. It refuses to know what
//! requests add to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::plan::Plan;
use crate::prompts::context::Place;
use crate::prompts::passage::{Materials, Order, Passage, compose, compose_words};
use crate::prompts::pool::Pool;
use crate::prompts::seeds::Registry;
use crate::prompts::{CanonicalPrefix, PromptError, tokens};
use crate::rng::Seed;
use crate::scenario::Selection;
use crate::units::{GroupIndex, id_list_sha256};

/// Places of the pool that a prefix is tried from.
const ROTATIONS_MAX: usize = 64;

/// What the requests of a group share.
pub(super) struct Group {
    pub(super) pool: Pool,
    pub(super) canonical: Canonical,
}

/// Pool and prefix of every group; the prefixes' blocks are entered into
/// `registry`.
pub(super) fn make_groups<'a>(
    materials: Materials<'_>,
    plan: &Plan,
    selection: &dyn Fn(GroupIndex) -> &'a Selection,
    registry: &mut Registry,
    seed: &Seed,
) -> Result<BTreeMap<GroupIndex, Group>, PromptError> {
    let mut groups = BTreeMap::new();
    let mut taken = Vec::new();
    for (planned, stops) in plan.groups.iter().zip(stops(plan)) {
        let group = planned.group;
        let pool = Pool::new(materials, planned, selection(group), seed)?;
        let demand = Demand {
            group,
            stops: &stops,
            head_tokens: registry.head_tokens(),
        };
        let canonical = Canonical::new(materials, &pool, &demand, &mut taken, seed)?;
        registry.add_canonical(&canonical.prefix.ids);
        groups.insert(group, Group { pool, canonical });
    }
    Ok(groups)
}

/// Where each group's prefix is cut, ascending; the last place is its length:
/// the longest shared prefix, and at least one block.
fn stops(plan: &Plan) -> impl Iterator<Item = Vec<usize>> {
    let mut cuts: BTreeMap<GroupIndex, BTreeSet<u64>> = BTreeMap::new();
    for request in &plan.requests {
        let group = cuts.entry(request.group).or_default();
        group.insert(request.shared_prefix_tokens);
    }
    plan.groups.iter().map(move |planned| {
        let longest = planned.max_shared_prefix_tokens;
        let mut own = cuts.remove(&planned.group).unwrap_or_default();
        own.extend([longest, longest.max(plan.block_size.tokens())]);
        own.into_iter().filter(|cut| *cut > 0).map(tokens).collect()
    })
}

/// A group's prefix and where it can be cut.
pub(super) struct Canonical {
    pub(super) prefix: CanonicalPrefix,
    pub(super) passage: Passage,
}

/// What is asked of a group's prefix.
pub(super) struct Demand<'a> {
    pub(super) group: GroupIndex,
    /// Tokens after which requests continue with their own text, ascending and
    /// not empty; the last is the length.
    pub(super) stops: &'a [usize],
    /// Tokens in which it must differ from every other group's.
    pub(super) head_tokens: usize,
}

impl Canonical {
    /// Makes the prefix from the pool's records: from its first place, else from
    /// the next whose beginning is not `taken` by another group, else behind
    /// random words. Its whole text is proved.
    pub(super) fn new(
        materials: Materials<'_>,
        pool: &Pool,
        demand: &Demand<'_>,
        taken: &mut Vec<Vec<u32>>,
        seed: &Seed,
    ) -> Result<Self, PromptError> {
        let group = demand.group;
        let mut stream = seed.stream(&format!("canonical/{group}"));
        let rotations = pool.len().min(ROTATIONS_MAX);
        let mut position = 0;
        for attempt in 0..2 * ROTATIONS_MAX + rotations {
            let order = Order {
                place: Place::Start,
                stops: demand.stops,
                followed: true,
                lead_words: if attempt < rotations {
                    0
                } else {
                    demand.head_tokens
                },
            };
            let passage = if attempt < rotations + ROTATIONS_MAX {
                compose(materials, pool.rotated(attempt), order, &mut stream)?
            } else {
                compose_words(materials.words, Place::Start, demand.stops, &mut stream)
            };
            let head = &passage.ids[..demand.head_tokens];
            if taken.iter().any(|other| other == head) {
                continue;
            }
            match materials.context.prove(&passage.text, &passage.ids)? {
                Ok(()) => {
                    taken.push(head.to_vec());
                    return Ok(Self::of(materials, group, passage));
                }
                Err(mismatch) => position = mismatch.position,
            }
        }
        Err(PromptError::NoRoundTrip {
            name: format!("the prefix of {group}"),
            attempts: 2 * ROTATIONS_MAX + rotations,
            position,
        })
    }

    fn of(materials: Materials<'_>, group: GroupIndex, passage: Passage) -> Self {
        let (source_indices, source_sha256) = sources(materials, &passage.records);
        let prefix = CanonicalPrefix {
            group,
            sha256: Arc::from(id_list_sha256(&passage.ids)),
            ids: passage.ids.clone(),
            source_indices,
            source_sha256,
        };
        Self { prefix, passage }
    }
}

/// Indices and digests of records.
pub(super) fn sources(materials: Materials<'_>, records: &[usize]) -> (Vec<u64>, Vec<String>) {
    let corpus = materials.library.corpus();
    records
        .iter()
        .map(|record| (*record as u64, corpus.text_sha256(*record)))
        .unzip()
}
