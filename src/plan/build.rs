//! From a scenario to its plan: lengths, groups, order, lanes, prefixes.

use std::collections::BTreeMap;

use crate::rng::Seed;
use crate::scenario::{CacheMode, InputLength, OutputLength, Scenario};
use crate::solver;
use crate::units::{DpRank, GroupIndex};

use super::error::{LengthKind, LengthScope, PlanError};
use super::reach;
use super::{Plan, PlannedGroup, PlannedRequest, groups, lengths, order};

/// Most requests of one data set; each takes some hundred bytes of memory and
/// kilobytes of prompt.
pub const REQUEST_COUNT_MAX: usize = 10_000_000;

/// Lengths and group of each position before ordering.
struct Positions {
    groups: Vec<GroupIndex>,
    input_tokens: Vec<u64>,
    output_tokens: Vec<u64>,
    /// Whose rule gave the input length.
    input_scopes: Vec<LengthScope>,
}

/// The plan of `scenario`. The same scenario gives the same plan on every
/// machine.
pub fn build(scenario: &Scenario) -> Result<Plan, PlanError> {
    let config = &scenario.prefix_cache;
    let seed = &scenario.run.random_seed;
    let positions = positions(scenario)?;
    let order = order::arrange(
        config.order,
        &positions.groups,
        &positions.input_tokens,
        seed,
    );
    let mut requests = in_send_order(&positions, &order, seed);
    if config.mode == CacheMode::Cold {
        route(&mut requests, scenario.service.dp_size);
    }
    let mut plan = Plan {
        mode: config.mode,
        block_size: scenario.tokenizer.block_size,
        dp_size: scenario.service.dp_size,
        seed_tokens: config.seed_tokens(scenario.tokenizer.block_size),
        requests,
        groups: Vec::new(),
        solution: solver::Solution::default(),
    };
    let minimum = config.minimum_non_shared_length;
    let solution = solver::solve(&plan.instance(config.target_hit_rate, minimum))?;
    for (request, blocks) in plan.requests.iter_mut().zip(&solution.prefix_blocks) {
        request.shared_prefix_tokens = blocks * plan.block_size.tokens();
    }
    plan.groups = planned_groups(&plan.requests);
    plan.solution = solution;
    Ok(plan)
}

fn positions(scenario: &Scenario) -> Result<Positions, PlanError> {
    let (count, seed) = (scenario.requests.count, &scenario.run.random_seed);
    if count > REQUEST_COUNT_MAX {
        return Err(PlanError::TooManyRequests { count });
    }
    let all = LengthScope::All;
    let mut positions = Positions {
        groups: groups::deal(&scenario.prefix_cache.groups, count, seed),
        input_tokens: input_lengths(&scenario.requests.input_length, all, count, seed)?,
        output_tokens: output_lengths(&scenario.requests.output_length, all, count, seed)?,
        input_scopes: vec![all; count],
    };
    positions.override_groups(scenario)?;
    positions.check_room(scenario.prefix_cache.minimum_non_shared_length)?;
    Ok(positions)
}

fn input_lengths(
    rule: &InputLength,
    scope: LengthScope,
    requests: usize,
    seed: &Seed,
) -> Result<Vec<u64>, PlanError> {
    let mut stream = seed.stream(&label("lengths/input", scope));
    lengths::input(rule, requests, &mut stream).map_err(|given| PlanError::LengthCount {
        kind: LengthKind::Input,
        scope,
        given,
        requests,
    })
}

fn output_lengths(
    rule: &OutputLength,
    scope: LengthScope,
    requests: usize,
    seed: &Seed,
) -> Result<Vec<u64>, PlanError> {
    let mut stream = seed.stream(&label("lengths/output", scope));
    lengths::output(rule, requests, &mut stream).map_err(|given| PlanError::LengthCount {
        kind: LengthKind::Output,
        scope,
        given,
        requests,
    })
}

fn label(name: &str, scope: LengthScope) -> String {
    match scope {
        LengthScope::All => name.to_owned(),
        LengthScope::Group(group) => format!("{name}/{group}"),
    }
}

impl Positions {
    /// Puts the lengths of groups with rules of their own in place of the
    /// general ones. Groups without requests have no say.
    fn override_groups(&mut self, scenario: &Scenario) -> Result<(), PlanError> {
        let overrides = &scenario.prefix_cache.groups.overrides;
        if overrides.is_empty() {
            return Ok(());
        }
        let seed = &scenario.run.random_seed;
        for (group, members) in order::by_group(&self.groups) {
            let Some(rules) = overrides.get(&group) else {
                continue;
            };
            let scope = LengthScope::Group(group);
            if let Some(rule) = &rules.input_length {
                let values = input_lengths(rule, scope, members.len(), seed)?;
                for (&at, value) in members.iter().zip(values) {
                    self.input_tokens[at] = value;
                    self.input_scopes[at] = scope;
                }
            }
            if let Some(rule) = &rules.output_length {
                let values = output_lengths(rule, scope, members.len(), seed)?;
                for (&at, value) in members.iter().zip(values) {
                    self.output_tokens[at] = value;
                }
            }
        }
        Ok(())
    }

    /// Each prompt must have room for what may not be shared.
    fn check_room(&self, minimum_tokens: u64) -> Result<(), PlanError> {
        let too_short = |&(_, &tokens): &(usize, &u64)| tokens < minimum_tokens;
        match self.input_tokens.iter().enumerate().find(too_short) {
            None => Ok(()),
            Some((at, &input_tokens)) => Err(PlanError::PromptTooShort {
                scope: self.input_scopes[at],
                input_tokens,
                minimum_tokens,
            }),
        }
    }
}

fn in_send_order(positions: &Positions, order: &[usize], seed: &Seed) -> Vec<PlannedRequest> {
    let mut occurrences: BTreeMap<GroupIndex, u32> = BTreeMap::new();
    let request = |(index, &at): (usize, &usize)| {
        let group = positions.groups[at];
        let occurrence = occurrences.entry(group).or_insert(0);
        let request_id = format!("request-{index:08}");
        let random_seed = seed.stream(&format!("request/{request_id}")).next_u64();
        let request = PlannedRequest {
            request_id,
            group,
            occurrence: *occurrence,
            dp_rank: None,
            lane_sequence: None,
            input_tokens: positions.input_tokens[at],
            output_tokens: positions.output_tokens[at],
            shared_prefix_tokens: 0,
            random_seed,
        };
        *occurrence += 1;
        request
    };
    order.iter().enumerate().map(request).collect()
}

/// A group's requests go to the ranks in turn.
fn route(requests: &mut [PlannedRequest], dp_size: u32) {
    for request in requests {
        request.dp_rank = Some(DpRank(request.occurrence % dp_size));
        request.lane_sequence = Some(request.occurrence / dp_size);
    }
}

fn planned_groups(requests: &[PlannedRequest]) -> Vec<PlannedGroup> {
    let mut groups: BTreeMap<GroupIndex, PlannedGroup> = BTreeMap::new();
    for request in requests {
        let group = groups.entry(request.group).or_insert(PlannedGroup {
            group: request.group,
            request_count: 0,
            max_shared_prefix_tokens: 0,
        });
        group.request_count += 1;
        group.max_shared_prefix_tokens = group
            .max_shared_prefix_tokens
            .max(request.shared_prefix_tokens);
    }
    groups.into_values().collect()
}

impl Plan {
    /// The solver's problem that this plan answers, also where the plan was
    /// read from files. `minimum_non_shared_tokens` of each prompt cannot be
    /// shared.
    pub fn instance(&self, target_rate: f64, minimum_non_shared_tokens: u64) -> solver::Instance {
        let lanes = self.lanes();
        let lane = |request: &PlannedRequest| lanes[&(request.group, request.dp_rank)];
        let requests = self.requests.iter().map(|request| solver::Request {
            input_tokens: request.input_tokens,
            capacity_blocks: reach::capacity_blocks(
                self.block_size,
                request.input_tokens,
                minimum_non_shared_tokens,
            ),
            lane: lane(request),
        });
        solver::Instance {
            start: match self.mode {
                CacheMode::Cold => solver::Start::Empty,
                CacheMode::Warmup => solver::Start::Warm,
            },
            block_size: self.block_size,
            target_rate,
            requests: requests.collect(),
        }
    }

    /// Lane indexes as the solver has them: lanes (group, rank) in ascending
    /// order; in warm-up mode one lane a group.
    pub fn lanes(&self) -> BTreeMap<(GroupIndex, Option<DpRank>), u32> {
        let mut lanes: BTreeMap<_, u32> = self
            .requests
            .iter()
            .map(|request| ((request.group, request.dp_rank), 0))
            .collect();
        for (index, lane) in (0..).zip(lanes.values_mut()) {
            *lane = index;
        }
        lanes
    }
}
