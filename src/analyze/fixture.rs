//! Small plans, records and facts for this room's tests.

use std::collections::BTreeMap;

use super::counters::Counters;
use super::inputs::{
    BlockFacts, ClientHealth, ControlFacts, Inputs, KvFacts, Limits, PlannedRow, ProfileFacts,
};
use super::rows::Row;
use super::{Analysis, Code, analyze};
use crate::engine::{EngineFacts, RankDelta};
use crate::measure::sample::{at, stream};
use crate::measure::{RequestRecord, derive};
use crate::rng::Seed;
use crate::scenario::CacheMode;
use crate::units::{BlockSize, DpRank, GroupIndex};

/// Request `index` of group 0 on rank 0, without theory of its own.
pub(crate) fn planned(index: u32, input_tokens: u64, shared_prefix_tokens: u64) -> PlannedRow {
    PlannedRow {
        sequence_index: index,
        request_id: format!("request-{index:08}"),
        group: GroupIndex(0),
        dp_rank: Some(DpRank(0)),
        lane_sequence: Some(index),
        input_tokens,
        shared_prefix_tokens,
        max_tokens: 2,
        theory_hit_tokens: 0,
    }
}

/// Plan and records side by side.
pub(super) fn rows_of<'a>(plan: &'a [PlannedRow], records: &'a [RequestRecord]) -> Vec<Row<'a>> {
    plan.iter()
        .zip(records)
        .map(|(planned, record)| Row {
            planned,
            record: Some(record),
            derived: Some(derive(record)),
        })
        .collect()
}

/// The record of a served request: sent at `sent` ms, first token 50 ms later,
/// the second and last after another 10.
pub(crate) fn served(planned: &PlannedRow, sent: f64, cached: Option<u64>) -> RequestRecord {
    let mut record = stream(&[sent + 50.0, sent + 60.0], planned.max_tokens);
    record.sequence_index = planned.sequence_index;
    record.request_id.clone_from(&planned.request_id);
    record.group_id = planned.group;
    record.dp_rank = planned.dp_rank;
    record.lane_sequence = planned.lane_sequence;
    record.t_sched_ns = at(sent);
    record.t_ready_ns = at(sent);
    record.t_send_ns = at(sent);
    record.planned_prompt_tokens = planned.input_tokens;
    let usage = record.usage.as_mut().expect("a stream has usage");
    usage.prompt_tokens = planned.input_tokens;
    usage.cached_tokens = cached;
    record
}

/// A cold run of one rank with blocks of 16, to be bent into any other.
pub(crate) struct Run {
    pub(crate) mode: CacheMode,
    pub(crate) block: BlockFacts,
    pub(crate) server_prefix_tokens: u64,
    pub(crate) server_suffix_tokens: u64,
    pub(crate) planned: Vec<PlannedRow>,
    pub(crate) records: Vec<RequestRecord>,
    pub(crate) counters: Counters,
    pub(crate) engine: EngineFacts,
    pub(crate) control: ControlFacts,
    pub(crate) kv: KvFacts,
    pub(crate) profile: ProfileFacts,
    pub(crate) client: ClientHealth,
    pub(crate) slo: BTreeMap<String, f64>,
}

impl Run {
    pub(crate) fn new(planned: Vec<PlannedRow>, records: Vec<RequestRecord>) -> Self {
        Self {
            mode: CacheMode::Cold,
            block: BlockFacts::configured(BlockSize::new(16).expect("16 is no zero")),
            server_prefix_tokens: 0,
            server_suffix_tokens: 0,
            planned,
            records,
            counters: Counters::Unavailable("not scraped".to_owned()),
            engine: EngineFacts::default(),
            control: ControlFacts::default(),
            kv: KvFacts::default(),
            profile: ProfileFacts::default(),
            client: ClientHealth::default(),
            slo: BTreeMap::new(),
        }
    }

    /// One request after the other in the lane, 100 ms apart, all served, with
    /// these cached tokens.
    pub(crate) fn served(planned: Vec<PlannedRow>, cached: &[Option<u64>]) -> Self {
        let records = planned
            .iter()
            .zip(cached)
            .map(|(row, cached)| served(row, f64::from(row.sequence_index) * 100.0, *cached))
            .collect();
        Self::new(planned, records)
    }

    /// The counters of one rank.
    pub(crate) fn counted(mut self, delta: RankDelta) -> Self {
        self.counters = Counters::Delta {
            ranks: BTreeMap::from([(DpRank(0), delta)]),
            regressions: vec![],
        };
        self
    }

    pub(crate) fn analyze(&self) -> Analysis {
        let seed = Seed::from(42);
        analyze(&Inputs {
            mode: self.mode,
            block: self.block,
            server_prefix_tokens: self.server_prefix_tokens,
            server_suffix_tokens: self.server_suffix_tokens,
            planned: &self.planned,
            records: &self.records,
            counters: &self.counters,
            engine: &self.engine,
            control: &self.control,
            kv: &self.kv,
            profile: &self.profile,
            client: &self.client,
            limits: Limits::default(),
            slo: &self.slo,
            percentiles: &[],
            seed: &seed,
        })
        .expect("plan and records belong together")
    }

    /// The codes of all findings, without the one about few samples.
    pub(crate) fn codes(&self) -> Vec<Code> {
        let analysis = self.analyze();
        let codes = analysis.findings.iter().map(|finding| finding.code);
        codes.filter(|code| *code != Code::FewSamples).collect()
    }
}

/// Counters that moved by queries and hits alone.
pub(crate) fn moved(queries: u64, hits: u64) -> RankDelta {
    RankDelta {
        queries,
        hits,
        ..RankDelta::default()
    }
}
