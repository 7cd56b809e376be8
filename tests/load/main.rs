//! The native driver against a scripted server, on paused time: every stamp is
//! exact to the timers' millisecond.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::case_sensitive_file_extension_comparisons,
    unreachable_pub,
    missing_docs,
    reason = "edge: a test's own server and timers; a test crate has no readers"
)]

mod ahead;
mod compared;
mod fixtures;
mod hunt;
mod lanes;
mod latency;
mod profiles;
mod schedule;
mod secure;
mod server;
mod simulation;
mod sse;
mod tcp;

use std::sync::Arc;

use pcload::drive::native::{Control, NativeOutcome, Setup, run_with};
use pcload::drive::pacing::TimerKind;
use pcload::drive::{LoadRequest, NativeConfig};
use pcload::measure::{LiveHistogram, RequestRecord};
use pcload::plan::LoadPlan;
use pcload::service::wire::Prompt;
use pcload::units::{DpRank, GroupIndex};
use server::Server;

/// A driver configuration for paused time.
pub fn config() -> NativeConfig {
    let mut config = NativeConfig::new("http://server/v1/completions");
    config.timers = TimerKind::Tokio;
    config.open_ahead = false;
    config
}

/// `count` requests without lanes; the prompt of request i is `p<i>`.
pub fn free_requests(config: &NativeConfig, count: u32) -> Vec<LoadRequest> {
    let template = config.body_template("m", &[]);
    let request = |index: u32| LoadRequest {
        sequence_index: index,
        request_id: format!("request-{index:08}"),
        group: GroupIndex(0),
        dp_rank: None,
        lane_sequence: None,
        body: template.build(&Prompt::Text(format!("p{index}")), 16),
        planned_prompt_tokens: 10,
        max_tokens: 16,
    };
    (0..count).map(request).collect()
}

/// Puts requests into `lanes` lanes, in turn.
pub fn in_lanes(mut requests: Vec<LoadRequest>, lanes: u32) -> Vec<LoadRequest> {
    for (index, request) in (0..).zip(&mut requests) {
        request.group = GroupIndex(index % lanes);
        request.dp_rank = Some(DpRank(index % lanes % 2));
        request.lane_sequence = Some(index / lanes);
    }
    requests
}

/// Runs `requests` against `server`.
pub async fn drive(
    server: &Arc<Server>,
    config: NativeConfig,
    requests: Vec<LoadRequest>,
    plan: LoadPlan,
    control: Control,
) -> NativeOutcome {
    let setup = Setup {
        connector: Arc::clone(server),
        own_lag: Arc::new(LiveHistogram::default()),
        clock: server.clock.clone(),
        control,
        journal: None,
    };
    run_with(setup, config, requests, plan).await.unwrap()
}

/// Runs one request and gives its record.
pub async fn one(server: &Arc<Server>, config: NativeConfig) -> RequestRecord {
    let requests = free_requests(&config, 1);
    let plan = LoadPlan::closed(1, 1);
    let outcome = drive(server, config, requests, plan, Control::default()).await;
    let [record] = outcome.records.try_into().unwrap();
    record
}
