//! The figures of a data set: hit totals, rates, the reachable interval, and
//! what the documents say of them. Pure arithmetic over numbers of requests;
//! where the numbers come from is for others to know.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::scenario::CacheMode;
use crate::theory::HitAccount;
use crate::units::{BlockSize, DpRank, GroupIndex, ratio};

/// What the arithmetic wants to know of one request; lengths in tokens,
/// special tokens not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// Prefix group.
    pub group: GroupIndex,
    /// Rank; absent in warm-up mode.
    pub dp_rank: Option<DpRank>,
    /// Length of the prompt.
    pub input_tokens: u64,
    /// Output limit.
    pub output_tokens: u64,
    /// Leading tokens shared with the group.
    pub shared_prefix_tokens: u64,
    /// Expected hit.
    pub hit_tokens: u64,
}

/// What the scenario says about the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSettings {
    /// Cold or warm start.
    pub mode: CacheMode,
    /// Block of the server.
    pub block_size: BlockSize,
    /// Tokens of each request that are never shared.
    pub minimum_non_shared_tokens: u64,
    /// Requested hit rate as written.
    pub requested: serde_json::Number,
    /// Deviation of the theory from the request that is worth a warning, in
    /// percentage points.
    pub target_warning_pp: f64,
}

/// The figures of a whole data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    settings: CacheSettings,
    /// All requests.
    pub total: HitAccount,
    /// By group, ascending.
    pub groups: BTreeMap<GroupIndex, GroupFigures>,
    /// By rank; empty in warm-up mode.
    pub ranks: BTreeMap<DpRank, HitAccount>,
    /// By lane; in warm-up mode a lane is a group.
    pub lanes: BTreeMap<(GroupIndex, Option<DpRank>), LaneCapacity>,
    /// Largest reachable hit total, in tokens; the smallest is 0.
    pub reachable_tokens: u64,
}

/// The figures of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupFigures {
    /// Its requests.
    pub request_count: u64,
    /// Tokens looked up and expected to be found.
    pub account: HitAccount,
    /// The longest prefix any of its requests shares.
    pub max_shared_prefix_tokens: u64,
    /// Largest reachable hit total of the group alone.
    pub reachable_tokens: u64,
}

/// How much a lane can share, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCapacity {
    /// Sum of what each request can share at most.
    pub total_blocks: u64,
    /// The largest of them.
    pub largest_blocks: u64,
    /// Expected hits.
    pub hit_blocks: u64,
}

impl LaneCapacity {
    /// Largest reachable hit total. From a cold start the first request that
    /// reaches a length pays for it, so a lane's hits are the sum of its shared
    /// prefixes less the longest of them, whatever the order.
    fn reachable_blocks(self, mode: CacheMode) -> u64 {
        match mode {
            CacheMode::Warmup => self.total_blocks,
            CacheMode::Cold => self.total_blocks - self.largest_blocks,
        }
    }
}

impl Figures {
    /// Adds up `requests`.
    pub fn new(settings: CacheSettings, requests: &[RequestFacts]) -> Self {
        let block_size = settings.block_size;
        let mut figures = Self {
            settings,
            total: HitAccount::default(),
            groups: BTreeMap::new(),
            ranks: BTreeMap::new(),
            lanes: BTreeMap::new(),
            reachable_tokens: 0,
        };
        for request in requests {
            figures.add(request);
        }
        for (&(group, _), lane) in &figures.lanes {
            let tokens = lane.reachable_blocks(figures.settings.mode) * block_size.tokens();
            figures.reachable_tokens += tokens;
            let group = figures.groups.get_mut(&group).expect("each lane has one");
            group.reachable_tokens += tokens;
        }
        figures
    }

    fn add(&mut self, request: &RequestFacts) {
        let block_size = self.settings.block_size;
        let group = self.groups.entry(request.group).or_default();
        group.request_count += 1;
        group.max_shared_prefix_tokens = group
            .max_shared_prefix_tokens
            .max(request.shared_prefix_tokens);
        let accounts = [&mut self.total, &mut group.account].into_iter().chain(
            request
                .dp_rank
                .map(|rank| self.ranks.entry(rank).or_default()),
        );
        for account in accounts {
            account.input_tokens += request.input_tokens;
            account.hit_tokens += request.hit_tokens;
        }
        let shareable = request
            .input_tokens
            .saturating_sub(self.settings.minimum_non_shared_tokens);
        let capacity = block_size.whole_blocks(shareable);
        let lane = self
            .lanes
            .entry((request.group, request.dp_rank))
            .or_default();
        lane.total_blocks += capacity;
        lane.largest_blocks = lane.largest_blocks.max(capacity);
        lane.hit_blocks += block_size.whole_blocks(request.hit_tokens);
    }

    /// Hit rate of the theory.
    pub fn theoretical_hit_rate(&self) -> f64 {
        ratio(self.total.hit_tokens, self.total.input_tokens).unwrap_or(0.0)
    }

    /// Largest reachable hit rate; the smallest is 0.
    pub fn reachable_max(&self) -> f64 {
        ratio(self.reachable_tokens, self.total.input_tokens).unwrap_or(0.0)
    }

    /// Requested hit rate.
    pub fn target(&self) -> f64 {
        self.settings.requested.as_f64().unwrap_or(0.0)
    }

    /// Whether the requested rate lies in the reachable interval.
    pub fn target_reachable(&self) -> bool {
        (0.0..=self.reachable_max()).contains(&self.target())
    }

    /// Theory less request, in percentage points.
    pub fn signed_difference_pp(&self) -> f64 {
        (self.theoretical_hit_rate() - self.target()) * 100.0
    }

    /// Whether the chosen total is another than the request rounded to a token.
    pub fn adjusted(&self) -> bool {
        let wanted = (self.total.input_tokens as f64 * self.target() + 0.5).floor();
        (self.total.hit_tokens as f64 - wanted).abs() > 0.0
    }

    fn reason(&self) -> Value {
        if self.target() > self.reachable_max() {
            "target exceeds maximum reachable hit rate".into()
        } else if self.adjusted() {
            "block alignment prevents an exact target hit count".into()
        } else {
            Value::Null
        }
    }

    /// How far the total is from the nearest reachable one, in tokens; 0 when
    /// it is the nearest.
    pub fn distance_from_nearest(&self) -> f64 {
        let block = self.settings.block_size.tokens();
        let wanted = self.total.input_tokens as f64 * self.target();
        let distance = |tokens: u64| (tokens as f64 - wanted).abs();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a token count is a token count"
        )]
        let below = ((wanted / block as f64).floor() as u64).saturating_mul(block);
        let nearest = [below, below.saturating_add(block)]
            .map(|tokens| distance(tokens.min(self.reachable_tokens)))
            .into_iter()
            .fold(f64::INFINITY, f64::min);
        distance(self.total.hit_tokens) - nearest
    }

    /// Warnings about the target, in the order in which they are listed.
    pub fn target_warnings(&self) -> Vec<Value> {
        let mut warnings = Vec::new();
        if !self.target_reachable() {
            warnings.push(json!({
                "code": "TARGET_UNREACHABLE",
                "requested_target_hit_rate": self.settings.requested,
                "reachable_min": 0.0,
                "reachable_max": self.reachable_max(),
            }));
        }
        let difference_pp = self.signed_difference_pp().abs();
        if difference_pp > self.settings.target_warning_pp {
            warnings.push(json!({"code": "TARGET_DEVIATION", "difference_pp": difference_pp}));
        }
        warnings
    }

    /// `PASS` without warnings.
    pub fn validation_status(&self) -> &'static str {
        status(&self.target_warnings())
    }

    /// `manifest.prefix_cache`.
    pub fn prefix_cache(&self) -> Value {
        json!({
            "mode": self.settings.mode,
            "requested_target_hit_rate": self.settings.requested,
            "effective_target_hit_rate": self.theoretical_hit_rate(),
            "theoretical_hit_rate": self.theoretical_hit_rate(),
            "reachable_min": 0.0,
            "reachable_max": self.reachable_max(),
            "target_reachable": self.target_reachable(),
            "minimum_non_shared_length": self.settings.minimum_non_shared_tokens,
            "adjusted": self.adjusted(),
            "reason": self.reason(),
            "validation_status": self.validation_status(),
            "target_signed_difference_pp": self.signed_difference_pp(),
            "target_absolute_difference_pp": self.signed_difference_pp().abs(),
        })
    }

    /// `analysis.theory`.
    pub fn theory(&self) -> Value {
        let groups: Map<String, Value> = self
            .groups
            .iter()
            .map(|(group, figures)| (group.to_string(), account(figures.account)))
            .collect();
        let ranks: Map<String, Value> = self
            .ranks
            .iter()
            .map(|(rank, figures)| (rank.to_string(), account(*figures)))
            .collect();
        json!({
            "input_tokens": self.total.input_tokens,
            "hit_tokens": self.total.hit_tokens,
            "groups": groups,
            "dp": ranks,
        })
    }

    /// The solver's answer as the data set itself shows it: what
    /// `validate --deep` checks again.
    pub fn certificate(&self) -> Value {
        let block_size = self.settings.block_size;
        let lanes: Vec<Value> = self
            .lanes
            .iter()
            .map(|((group, rank), lane)| {
                json!({
                    "group_id": group,
                    "dp_rank": rank,
                    "capacity_blocks": lane.total_blocks,
                    "largest_capacity_blocks": lane.largest_blocks,
                    "hit_blocks": lane.hit_blocks,
                })
            })
            .collect();
        json!({
            "total_blocks": block_size.whole_blocks(self.total.hit_tokens),
            "reachable_max_blocks": block_size.whole_blocks(self.reachable_tokens),
            "lanes": lanes,
        })
    }
}

impl GroupFigures {
    /// Largest reachable rate of the group.
    pub fn reachable_max(&self) -> f64 {
        ratio(self.reachable_tokens, self.account.input_tokens).unwrap_or(0.0)
    }

    /// Its rate in the theory.
    pub fn theoretical_hit_rate(&self) -> f64 {
        ratio(self.account.hit_tokens, self.account.input_tokens).unwrap_or(0.0)
    }
}

/// `PASS`, or `PASS_WITH_WARNING` when there are any.
pub(crate) fn status(warnings: &[Value]) -> &'static str {
    if warnings.is_empty() {
        "PASS"
    } else {
        "PASS_WITH_WARNING"
    }
}

pub(crate) fn account(account: HitAccount) -> Value {
    json!({
        "input_tokens": account.input_tokens,
        "hit_tokens": account.hit_tokens,
        "hit_rate": ratio(account.hit_tokens, account.input_tokens),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(input_tokens: u64, hit_tokens: u64) -> RequestFacts {
        RequestFacts {
            group: GroupIndex(0),
            dp_rank: None,
            input_tokens,
            output_tokens: 1,
            shared_prefix_tokens: hit_tokens,
            hit_tokens,
        }
    }

    fn settings(target: f64) -> CacheSettings {
        CacheSettings {
            mode: CacheMode::Warmup,
            block_size: BlockSize::new(16).unwrap(),
            minimum_non_shared_tokens: 16,
            requested: serde_json::Number::from_f64(target).unwrap(),
            target_warning_pp: 1.0,
        }
    }

    /// 42 tokens at 0.2 are 8.4 tokens: one block (7.6 away) is nearer than
    /// none (8.4 away), although the request rounds to 8.
    #[test]
    fn the_nearest_total_is_measured_from_the_real_target() {
        let none = Figures::new(settings(0.2), &[facts(42, 0)]);
        let one = Figures::new(settings(0.2), &[facts(42, 16)]);
        assert!((none.distance_from_nearest() - 0.8).abs() < 1e-9);
        assert!(one.distance_from_nearest().abs() < 1e-9);
        assert!(none.adjusted() && one.adjusted());
    }

    #[test]
    fn an_unreachable_target_has_both_warnings() {
        let figures = Figures::new(settings(1.0), &[facts(80, 64)]);
        let codes: Vec<Value> = figures
            .target_warnings()
            .iter()
            .map(|warning| warning["code"].clone())
            .collect();
        assert_eq!(codes, ["TARGET_UNREACHABLE", "TARGET_DEVIATION"]);
        assert_eq!(figures.validation_status(), "PASS_WITH_WARNING");
        assert!((figures.reachable_max() - 0.8).abs() < 1e-15);
        assert!(figures.distance_from_nearest().abs() < 1e-9);
    }

    /// 32 of 128 tokens are 25 points below a half.
    #[test]
    fn a_deviation_equal_to_the_threshold_is_no_warning() {
        for (threshold, expected) in [(25.0, "PASS"), (24.9, "PASS_WITH_WARNING")] {
            let mut half = settings(0.5);
            half.target_warning_pp = threshold;
            let figures = Figures::new(half, &[facts(128, 32)]);
            assert_eq!(figures.validation_status(), expected);
        }
    }
}
