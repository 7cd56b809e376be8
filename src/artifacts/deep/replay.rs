//! Replays the rows in send order: names, lanes, layout in numbers, watermarks,
//! uniqueness of seeds. It knows no documents and no tokenizer.

use std::collections::BTreeMap;

use crate::artifacts::deep::Findings;
use crate::artifacts::figures::{CacheSettings, Figures};
use crate::artifacts::{ANSWER, AddedTokens, ArtifactError, FullRow, PreparedSet};
use crate::scenario::CacheMode;
use crate::units::{DpRank, GroupIndex, ratio};

/// The state of the replay between two rows.
pub(super) struct Replay {
    settings: CacheSettings,
    dp_size: u32,
    seed_tokens: u64,
    is_native: bool,
    added: AddedTokens,
    row_count: u64,
    occurrences: BTreeMap<GroupIndex, u32>,
    lanes: BTreeMap<(GroupIndex, Option<DpRank>), Lane>,
    warm: BTreeMap<GroupIndex, u64>,
    prefixes: BTreeMap<GroupIndex, String>,
    seeds: BTreeMap<String, u64>,
    blocks: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Default)]
struct Lane {
    request_count: u32,
    watermark: u64,
}

impl Replay {
    pub(super) fn new(set: &PreparedSet, figures: &Figures) -> Result<Self, ArtifactError> {
        let settings = set.cache_settings()?;
        let seed_blocks: u64 = set.config("prefix_cache.seed_blocks")?;
        let warm = figures
            .groups
            .iter()
            .map(|(group, one)| (*group, one.max_shared_prefix_tokens));
        Ok(Self {
            dp_size: set.config("service.dp_size")?,
            seed_tokens: seed_blocks.saturating_mul(settings.block_size.tokens()),
            is_native: set.is_native(),
            added: set.added_tokens()?,
            row_count: 0,
            occurrences: BTreeMap::new(),
            lanes: BTreeMap::new(),
            warm: match settings.mode {
                CacheMode::Warmup => warm.collect(),
                CacheMode::Cold => BTreeMap::new(),
            },
            prefixes: canonical_digests(set, figures),
            seeds: BTreeMap::new(),
            blocks: BTreeMap::new(),
            settings,
        })
    }

    /// Checks the next row.
    pub(super) fn row(&mut self, row: &FullRow, findings: &mut Findings) {
        self.identity(row, findings);
        self.layout(row, findings);
        self.lane(row, findings);
        self.uniqueness(row, findings);
        self.extension(row, findings);
        self.row_count += 1;
    }

    fn identity(&mut self, row: &FullRow, findings: &mut Findings) {
        let name = format!("request-{:08}", self.row_count);
        findings.check(row.request_id == name, "ROW_IDENTITY", || {
            format!(
                "row {} is named `{}`, not `{name}`",
                self.row_count, row.request_id
            )
        });
        let constants = row.answer == ANSWER
            && row.divergence_unique
            && row.collision_status == "pass"
            && row.divergence_block_sha256 == row.seed_sha256;
        findings.check(constants, "ROW_IDENTITY", || {
            format!("{name}: a field that is the same in all rows is not")
        });
        let prefix = self
            .prefixes
            .entry(row.group_id)
            .or_insert_with(|| row.canonical_prefix_sha256.clone());
        findings.check(
            *prefix == row.canonical_prefix_sha256,
            "CANONICAL_PREFIX",
            || format!("{name}: another canonical prefix than its group's"),
        );
    }

    fn layout(&self, row: &FullRow, findings: &mut Findings) {
        let block = self.settings.block_size;
        let parts = [
            row.shared_prefix_tokens,
            row.seed_tokens,
            row.natural_suffix_tokens,
        ];
        let sum = parts
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(*one));
        let unshared = row
            .actual_input_tokens
            .saturating_sub(row.shared_prefix_tokens);
        let holds = row.actual_input_tokens == row.target_input_tokens
            && sum == row.actual_input_tokens
            && row.seed_tokens == self.seed_tokens
            && block.floor(row.shared_prefix_tokens) == row.shared_prefix_tokens
            && unshared >= self.settings.minimum_non_shared_tokens
            && row.max_tokens > 0;
        findings.check(holds, "ROW_LAYOUT", || {
            format!(
                "{}: {parts:?} tokens (shared, seed, suffix) do not make {} of {}",
                row.request_id, row.actual_input_tokens, row.target_input_tokens
            )
        });
        // A suffix of words alone has no sources; the reference makes none such.
        let has_sources = !row.gsm_indices.is_empty();
        let has_suffix = row.natural_suffix_tokens > 0;
        let sources = row.gsm_indices.len() == row.gsm_hashes.len()
            && (has_sources == has_suffix || self.is_native && has_suffix);
        findings.check(sources, "ROW_LAYOUT", || {
            format!("{}: its sources do not fit its suffix", row.request_id)
        });
    }

    fn lane(&mut self, row: &FullRow, findings: &mut Findings) {
        let occurrence = self.occurrences.entry(row.group_id).or_default();
        let rank = match self.settings.mode {
            CacheMode::Cold => Some(DpRank(*occurrence % self.dp_size.max(1))),
            CacheMode::Warmup => None,
        };
        let lane = self.lanes.entry((row.group_id, rank)).or_insert(Lane {
            request_count: 0,
            watermark: self.warm.get(&row.group_id).copied().unwrap_or(0),
        });
        let expected = (*occurrence, rank, rank.map(|_| lane.request_count));
        let found = (
            row.occurrence_index_within_group,
            row.dp_rank,
            row.lane_sequence,
        );
        findings.check(found == expected, "LANE_ORDER", || {
            format!(
                "{}: occurrence, rank and lane sequence are {found:?}, expected {expected:?}",
                row.request_id
            )
        });
        let before = lane.watermark;
        let hit = row.shared_prefix_tokens.min(before);
        let after = row.shared_prefix_tokens.max(before);
        *occurrence += 1;
        *lane = Lane {
            request_count: lane.request_count + 1,
            watermark: after,
        };
        let expected = (before, hit, after);
        let found = (
            row.watermark_before,
            row.theoretical_hit_tokens,
            row.watermark_after,
        );
        findings.check(found == expected, "THEORY_MISMATCH", || {
            format!(
                "{}: watermark, hit and watermark after are {found:?}, replay gives {expected:?}",
                row.request_id
            )
        });
        let rate = ratio(hit, row.actual_input_tokens).unwrap_or(0.0);
        let rate_holds = row.theoretical_hit_rate.to_bits() == rate.to_bits();
        findings.check(rate_holds, "THEORY_MISMATCH", || {
            format!(
                "{}: hit rate {}, replay gives {rate}",
                row.request_id, row.theoretical_hit_rate
            )
        });
    }

    fn uniqueness(&mut self, row: &FullRow, findings: &mut Findings) {
        let block = row
            .pcload
            .as_ref()
            .map(|extension| &extension.first_divergent_block_sha256);
        let seen = [
            self.seeds.insert(row.seed_sha256.clone(), self.row_count),
            block.and_then(|block| self.blocks.insert(block.clone(), self.row_count)),
        ];
        if let Some(other) = seen.into_iter().flatten().next() {
            let message = format!(
                "{} and row {other} have the same seed or first block ({})",
                row.request_id, row.seed_sha256
            );
            findings.add("SEED_COLLISION", message);
        }
    }

    fn extension(&self, row: &FullRow, findings: &mut Findings) {
        let Some(extension) = &row.pcload else {
            findings.check(!self.is_native, "SERVER_VIEW", || {
                format!("{}: `pcload` is missing", row.request_id)
            });
            return;
        };
        let expected = self.added.account(
            self.settings.block_size,
            row.actual_input_tokens,
            row.theoretical_hit_tokens,
        );
        let found = (extension.server_input_tokens, extension.server_hit_tokens);
        let expected = (expected.input_tokens, expected.hit_tokens);
        findings.check(found == expected, "SERVER_VIEW", || {
            format!(
                "{}: the server's tokens and hit are {found:?}, expected {expected:?}",
                row.request_id
            )
        });
    }
}

/// `canonical_prefix_sha256` of each group, as the manifest has it.
fn canonical_digests(set: &PreparedSet, figures: &Figures) -> BTreeMap<GroupIndex, String> {
    let groups = &set.manifest()["groups"];
    let digest = |group: &GroupIndex| {
        let digest = groups[group.to_string()]["canonical_prefix_sha256"].as_str()?;
        Some((*group, digest.to_owned()))
    };
    figures.groups.keys().filter_map(digest).collect()
}
