//! The hit-rate account: theory as planned, theory as executed, usage and
//! counters, beside each other for the whole run and for each rank, group, lane
//! and stage. Nothing is averaged away: each column is its own ratio of sums.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::capacity::{Capacity, CapacityTheory};
use super::counters::{CounterRates, Counters, Regression};
use super::executed::Executed;
use super::inputs::{Inputs, Lane};
use super::rows::Row;
use super::traffic::Traffic;
use crate::rng::Seed;
use crate::stats::{INDICATIVE_BELOW, Interval, sums_interval};
use crate::theory::ServerView;
use crate::units::{DpRank, GroupIndex, ratio};

/// Tokens looked up and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HitLine {
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Of them served from the cache.
    pub hit_tokens: u64,
    /// Their ratio, 0..=1; absent without prompt tokens.
    pub hit_rate: Option<f64>,
}

impl HitLine {
    /// A line with its rate.
    pub fn new(input_tokens: u64, hit_tokens: u64) -> Self {
        Self {
            input_tokens,
            hit_tokens,
            hit_rate: ratio(hit_tokens, input_tokens),
        }
    }

    fn add(&mut self, input_tokens: u64, hit_tokens: u64) {
        *self = Self::new(
            self.input_tokens + input_tokens,
            self.hit_tokens + hit_tokens,
        );
    }
}

/// One row of the account. A column is absent where it does not exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountRow {
    /// Group, when the row is one group's.
    pub group: Option<String>,
    /// Rank, when the row is one rank's.
    pub rank: Option<u32>,
    /// Stage of the profile, when the row is one stage's.
    pub stage: Option<u32>,
    /// Planned requests.
    pub requests: u64,
    /// Of them served.
    pub served: u64,
    /// Theory as planned, tokens as the plan counts them.
    pub planned: Option<HitLine>,
    /// Theory as planned, tokens and blocks as the server counts them.
    pub planned_server: Option<HitLine>,
    /// Theory over what was served, in the server's view.
    pub executed: Option<HitLine>,
    /// By `usage` of the requests that report cached tokens.
    pub usage: Option<HitLine>,
    /// Requests that do.
    pub usage_requests: u64,
    /// By the counters of the local cache.
    pub counters: Option<HitLine>,
}

/// Which source the actual rate is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateSource {
    /// Δhits / Δqueries.
    Counters,
    /// Δ`prompt_tokens_cached` / Δ`prompt_tokens`.
    PromptCounters,
    /// Σ `cached_tokens` / Σ `prompt_tokens`.
    Usage,
}

/// The rate the theory is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActualRate {
    /// Where it comes from.
    pub source: RateSource,
    /// Tokens and rate.
    #[serde(flatten)]
    pub line: HitLine,
}

/// What concurrency can cost: the least and the most that the executed order
/// gives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overlap {
    /// Nothing is shared before its first token is out.
    pub low: HitLine,
    /// Everything sent before is shared.
    pub high: HitLine,
}

/// The whole account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HitAccounts {
    /// Block size of the server's view, tokens.
    pub block_size_tokens: u64,
    /// Tokens the server puts in front of each prompt.
    pub server_prefix_tokens: u64,
    /// The rate the verdict rests on; absent when there is none.
    pub actual: Option<ActualRate>,
    /// Actual − executed theory, percentage points.
    pub actual_minus_executed_pp: Option<f64>,
    /// Actual − planned theory as the plan counts it, percentage points.
    pub actual_minus_planned_pp: Option<f64>,
    /// 95 % interval of the rate by usage.
    pub usage_hit_rate_interval: Option<Interval>,
    /// The interval rests on few requests.
    pub usage_interval_indicative: bool,
    /// What concurrency can cost; absent when nothing was served.
    pub overlap: Option<Overlap>,
    /// The executed theory under eviction; absent where the pool's size or the
    /// rank of a request is not known.
    pub capacity: Option<CapacityTheory>,
    /// Everything.
    pub overall: AccountRow,
    /// By rank.
    pub ranks: Vec<AccountRow>,
    /// By group.
    pub groups: Vec<AccountRow>,
    /// By group and rank: the lanes of a cold run.
    pub lanes: Vec<AccountRow>,
    /// By stage of the profile.
    pub stages: Vec<AccountRow>,
    /// All counters, summed over ranks; absent when one rank has none.
    pub counters: Option<CounterRates>,
    /// All counters by rank.
    pub counters_by_rank: BTreeMap<u32, CounterRates>,
    /// Counters that went backwards.
    pub regressions: Vec<Regression>,
}

/// Theory of each row, aligned with the rows.
pub(super) struct RowTheory {
    pub(super) planned_server: Vec<u64>,
    pub(super) executed: Vec<Option<u64>>,
    /// Sum of the executed hits, had no request gained from one in flight.
    pub(super) executed_least: u64,
    pub(super) capacity: Option<Capacity>,
}

impl RowTheory {
    pub(super) fn of(view: ServerView, inputs: &Inputs<'_>, rows: &[Row<'_>]) -> Self {
        let executed = Executed::new(inputs, view);
        Self {
            planned_server: executed.planned_hits(inputs.planned),
            executed: executed.hits(rows),
            executed_least: executed.hits_without_overlap(rows),
            capacity: Capacity::of(inputs, view, rows),
        }
    }
}

pub(super) fn account(
    inputs: &Inputs<'_>,
    view: ServerView,
    rows: &[Row<'_>],
    theory: &RowTheory,
    traffic: &Traffic,
) -> HitAccounts {
    let by = Tables::fill(view, rows, theory);
    let mut accounts = HitAccounts {
        block_size_tokens: view.block_size.tokens(),
        server_prefix_tokens: view.special_prefix_tokens,
        overlap: overlap(theory, by.overall.executed),
        capacity: theory.capacity.as_ref().map(|capacity| capacity.theory),
        ..HitAccounts::default()
    };
    accounts.overall = by.overall;
    accounts.ranks = by.ranks.into_values().collect();
    accounts.groups = by.groups.into_values().collect();
    accounts.lanes = by.lanes.into_values().collect();
    accounts.stages = by.stages.into_values().collect();
    enter_counters(&mut accounts, inputs.counters);
    accounts.actual = actual(&accounts, traffic);
    let actual = accounts.actual.and_then(|actual| actual.line.hit_rate);
    let against = |theory: Option<HitLine>| {
        let theory = theory.and_then(|line| line.hit_rate);
        Some((actual? - theory?) * 100.0)
    };
    accounts.actual_minus_executed_pp = against(accounts.overall.executed);
    accounts.actual_minus_planned_pp = against(accounts.overall.planned);
    accounts.usage_hit_rate_interval = usage_interval(rows, inputs.seed);
    accounts.usage_interval_indicative = accounts.overall.usage_requests < INDICATIVE_BELOW as u64;
    accounts
}

struct Tables {
    overall: AccountRow,
    ranks: BTreeMap<DpRank, AccountRow>,
    groups: BTreeMap<GroupIndex, AccountRow>,
    lanes: BTreeMap<Lane, AccountRow>,
    stages: BTreeMap<u32, AccountRow>,
}

impl Tables {
    fn fill(view: ServerView, rows: &[Row<'_>], theory: &RowTheory) -> Self {
        let mut tables = Self {
            overall: AccountRow::default(),
            ranks: BTreeMap::new(),
            groups: BTreeMap::new(),
            lanes: BTreeMap::new(),
            stages: BTreeMap::new(),
        };
        for (index, row) in rows.iter().enumerate() {
            let (group, rank) = (row.planned.group, row.planned.dp_rank);
            let entry = Entry::of(view, row, theory, index);
            entry.enter(&mut tables.overall);
            if let Some(rank) = rank {
                let line = tables.ranks.entry(rank).or_default();
                line.rank = Some(rank.0);
                entry.enter(line);
            }
            let line = tables.groups.entry(group).or_default();
            line.group.get_or_insert_with(|| group.to_string());
            entry.enter(line);
            let line = tables.lanes.entry(row.planned.lane()).or_default();
            line.group.get_or_insert_with(|| group.to_string());
            line.rank = rank.map(|rank| rank.0);
            entry.enter(line);
            if let Some(record) = row.record {
                let line = tables.stages.entry(record.stage).or_default();
                line.stage = Some(record.stage);
                entry.enter(line);
            }
        }
        tables
    }
}

/// What one request adds to a row, `(input, hit)` tokens by column.
struct Entry {
    planned: (u64, u64),
    planned_server: (u64, u64),
    executed: Option<(u64, u64)>,
    usage: Option<(u64, u64)>,
}

impl Entry {
    fn of(view: ServerView, row: &Row<'_>, theory: &RowTheory, index: usize) -> Self {
        let planned = row.planned;
        let prompt_tokens = planned.prompt_tokens(view);
        let usage = row.record.and_then(|record| record.usage);
        Self {
            planned: (planned.input_tokens, planned.theory_hit_tokens),
            planned_server: (prompt_tokens, theory.planned_server[index]),
            executed: theory.executed[index].map(|hit| (prompt_tokens, hit)),
            usage: usage.and_then(|usage| Some((usage.prompt_tokens, usage.cached_tokens?))),
        }
    }

    fn enter(&self, row: &mut AccountRow) {
        let add = |line: &mut Option<HitLine>, (input, hit): (u64, u64)| {
            line.get_or_insert_default().add(input, hit);
        };
        row.requests += 1;
        add(&mut row.planned, self.planned);
        add(&mut row.planned_server, self.planned_server);
        if let Some(executed) = self.executed {
            row.served += 1;
            add(&mut row.executed, executed);
        }
        if let Some(usage) = self.usage {
            row.usage_requests += 1;
            add(&mut row.usage, usage);
        }
    }
}

fn overlap(theory: &RowTheory, executed: Option<HitLine>) -> Option<Overlap> {
    let high = executed?;
    Some(Overlap {
        low: HitLine::new(high.input_tokens, theory.executed_least),
        high,
    })
}

/// Ranks that only the counters know (a balanced run) get rows of their own.
fn enter_counters(accounts: &mut HitAccounts, counters: &Counters) {
    for (rank, delta) in counters.ranks().into_iter().flatten() {
        let rates = CounterRates::of(delta);
        let known = accounts
            .ranks
            .iter_mut()
            .find(|row| row.rank == Some(rank.0));
        match known {
            Some(row) => row.counters = Some(rates.local),
            None => accounts.ranks.push(AccountRow {
                rank: Some(rank.0),
                counters: Some(rates.local),
                ..AccountRow::default()
            }),
        }
        accounts.counters_by_rank.insert(rank.0, rates);
    }
    accounts.ranks.sort_by_key(|row| row.rank);
    accounts.counters = counters.total().as_ref().map(CounterRates::of);
    accounts.overall.counters = accounts.counters.as_ref().map(|rates| rates.local);
    if let Counters::Delta { regressions, .. } = counters {
        accounts.regressions.clone_from(regressions);
    }
}

/// The counters, unless they counted something else than the requests; then the
/// prompt counters, if those agree; then usage, if every served request has it.
fn actual(accounts: &HitAccounts, traffic: &Traffic) -> Option<ActualRate> {
    let counters = accounts.counters.as_ref();
    let by_counters = counters.map(|rates| (RateSource::Counters, rates.local));
    let by_prompt = counters.and_then(|rates| {
        // The prompt counters include external tiers, theory does not.
        let local = rates.external_hit_tokens.unwrap_or(0) == 0;
        let agree = local && traffic.prompt_tokens_agree;
        let line = HitLine::new(rates.prompt_tokens?, rates.prompt_tokens_cached?);
        agree.then_some((RateSource::PromptCounters, line))
    });
    let overall = &accounts.overall;
    let complete = overall.usage_requests > 0 && overall.usage_requests == overall.served;
    let by_usage = overall
        .usage
        .filter(|_| complete)
        .map(|line| (RateSource::Usage, line));
    let trusted = by_counters.filter(|_| traffic.queries_agree);
    let (source, line) = trusted.or(by_prompt).or(by_usage).or(by_counters)?;
    Some(ActualRate { source, line })
}

fn usage_interval(rows: &[Row<'_>], seed: &Seed) -> Option<Interval> {
    let sums: Vec<[f64; 2]> = super::executed::send_order(rows)
        .into_iter()
        .filter_map(|index| rows[index].record?.usage)
        .filter_map(|usage| Some([usage.cached_tokens? as f64, usage.prompt_tokens as f64]))
        .collect();
    let rate = |[hit, all]: [f64; 2]| (all > 0.0).then(|| hit / all);
    sums_interval(&sums, rate, &mut seed.stream("bootstrap/hit_rate"))
}
