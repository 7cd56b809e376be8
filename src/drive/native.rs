//! The native driver: sends the formal requests of a run as its load plan says
//! and hands back a record of each. It knows neither how prompts were made nor
//! what the numbers mean.
//!
//! One dispatcher decides; workers carry out. With one thread they share a
//! runtime; with more, each worker has a runtime and a thread of its own, and
//! streams never move between them. All order is decided in the dispatcher, so
//! it holds across threads.
#![allow(clippy::disallowed_methods, reason = "edge: clock and threads")]

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::config::{LoadRequest, NativeConfig};
use super::crew::{Crew, CrewPlan, Dispatching};
use super::dispatch::{Dispatcher, StageFacts};
use super::health::{ClientHealth, Lag, Took, cpu_seconds};
use super::journal::{Journal, Sink};
use super::pacing::Timer;
use super::progress::Progress;
use super::sequencer::{LaneError, LanePlace, LaneSequencer};
use super::worker::Shared;
use crate::measure::{LiveHistogram, RequestRecord};
use crate::plan::{LoadPlan, Pace, PlannedEnd, PlannedStage};
use crate::secret::Redactor;
use crate::service::client::{Client, ClientCounts};
use crate::service::clock::RunClock;
use crate::service::connect::{ConnectOptions, Connector, ConnectorError, ServiceConnector};
use crate::service::target::{Target, TargetError};
use crate::service::wire::{HeadTemplate, HeaderError, HttpVersion};
use crate::system::descriptors;
use crate::units::RunOffset;

/// How a run is watched and stopped.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// First interrupt: nothing more is sent; what is under way is drained.
    pub stop: CancellationToken,
    /// Second interrupt: everything ends at once.
    pub abort: CancellationToken,
    /// Counters for whoever shows them.
    pub progress: Arc<Progress>,
}

/// What stops the driver before it has sent anything.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// The endpoint.
    #[error("endpoint: {0}")]
    Target(#[from] TargetError),
    /// A header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The address.
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    /// The lanes.
    #[error(transparent)]
    Lanes(#[from] LaneError),
    /// The plan was made for another data set.
    #[error("the load plan is for {planned} requests, the data set has {found}")]
    PlanSize {
        /// Requests of the plan.
        planned: usize,
        /// Requests given.
        found: usize,
    },
    /// Threads or runtimes could not be had.
    #[error("cannot start the driver: {0}")]
    Start(#[source] io::Error),
}

/// What a run has brought. A run with failed requests is a run; what went wrong
/// with each stands in its record.
#[derive(Debug)]
pub struct NativeOutcome {
    /// One record a request that was sent, in send order.
    pub records: Vec<RequestRecord>,
    /// Wall time of the clock's start, nanoseconds since 1970, for people.
    pub clock_start_unix_ns: u64,
    /// When the load began.
    pub started: RunOffset,
    /// When the last request had ended.
    pub ended: RunOffset,
    /// Stages as they went.
    pub stages: Vec<StageOutcome>,
    /// Requests of the data set that were never sent.
    pub unsent: usize,
    /// Whether it was stopped by an interrupt.
    pub interrupted: bool,
    /// What the client can say against its own numbers.
    pub health: ClientHealth,
    /// Whether records could not be written; they are all in `records`.
    pub journal_error: Option<io::Error>,
}

/// A stage as it went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageOutcome {
    /// When it began.
    pub started: RunOffset,
    /// Requests whose time had come.
    pub offered: usize,
    /// Of them sent.
    pub sent: usize,
    /// Arrivals per second as asked for; `None` in a closed loop, for a trace
    /// and for all at once.
    pub offered_per_second: Option<f64>,
    /// Requests in flight that a closed stage keeps, after `ramp_seconds`; the
    /// limit of an open one, where it has any.
    pub concurrency: Option<u32>,
    /// Time in which the concurrency moves there; 0 for at once.
    pub ramp_seconds: f64,
}

impl StageOutcome {
    /// Requests whose time had come and that were never sent.
    pub fn dropped(&self) -> usize {
        self.offered - self.sent
    }
}

/// Runs the load on threads of its own, so that whatever else the caller's
/// runtime does cannot delay it. `clock` is the clock of all offsets; `journal`
/// takes each record as its request ends.
pub async fn run(
    config: NativeConfig,
    requests: Vec<LoadRequest>,
    plan: LoadPlan,
    clock: RunClock,
    control: Control,
    journal: Option<Sink>,
) -> Result<NativeOutcome, NativeError> {
    let (done, outcome) = oneshot::channel();
    let driving = move || {
        let result = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(NativeError::Start)
            .and_then(|runtime| {
                runtime.block_on(run_here(config, requests, plan, clock, control, journal))
            });
        // The caller may have gone; then nobody wants the outcome.
        done.send(result).ok();
    };
    let thread = thread::Builder::new()
        .name("pcload-drive".to_owned())
        .spawn(driving)
        .map_err(NativeError::Start)?;
    match outcome.await {
        Ok(outcome) => outcome,
        Err(_) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the thread answers or panics"),
        },
    }
}

/// Runs the load on the caller's thread and runtime.
async fn run_here(
    config: NativeConfig,
    requests: Vec<LoadRequest>,
    plan: LoadPlan,
    clock: RunClock,
    control: Control,
    journal: Option<Sink>,
) -> Result<NativeOutcome, NativeError> {
    let target = Target::parse(&config.url)?;
    let options = ConnectOptions {
        version: config.version,
        proxy: config.proxy.as_deref().map(Target::parse).transpose()?,
        roots_pem: config.roots_pem.clone(),
    };
    let own_lag = Arc::new(LiveHistogram::default());
    let connector =
        ServiceConnector::resolve(&target, &options, clock.clone(), Arc::clone(&own_lag)).await?;
    let setup = Setup {
        connector: Arc::new(connector),
        own_lag,
        clock,
        control,
        journal,
    };
    run_with(setup, config, requests, plan).await
}

/// What a run needs besides its configuration.
pub struct Setup<C> {
    /// Opens connections.
    pub connector: Arc<C>,
    /// Where the connector counts its lag.
    pub own_lag: Arc<LiveHistogram>,
    /// The clock of all offsets.
    pub clock: RunClock,
    /// How the run is watched and stopped.
    pub control: Control,
    /// Takes each record as its request ends.
    pub journal: Option<Sink>,
}

/// Runs the load over any connector, on the caller's runtime. Workers beyond
/// the first get threads of their own.
pub async fn run_with<C: Connector>(
    mut setup: Setup<C>,
    config: NativeConfig,
    requests: Vec<LoadRequest>,
    plan: LoadPlan,
) -> Result<NativeOutcome, NativeError> {
    if plan.request_count != requests.len() {
        return Err(NativeError::PlanSize {
            planned: plan.request_count,
            found: requests.len(),
        });
    }
    let places: Vec<LanePlace> = requests.iter().map(lane_place).collect();
    let lanes = LaneSequencer::new(&places)?;
    let target = Target::parse(&config.url)?;
    let head = head(&config, &target)?;
    let journal = Journal::start(setup.journal.take()).map_err(NativeError::Start)?;
    descriptors::make_room(plan.most_in_flight() as u64);
    let abort = setup.control.abort.child_token();
    let shared = Arc::new(shared(&setup, &config, requests, &plan, abort));
    let counts = Arc::new(ClientCounts::default());
    let client = || {
        Client::new(
            Arc::clone(&setup.connector),
            head.clone(),
            config.timeouts,
            setup.clock.clone(),
            Arc::clone(&counts),
        )
    };
    let crew_plan = CrewPlan {
        workers: config.threads.max(1),
        ahead: connections_ahead(&config, &plan),
        timers: config.timers,
        runtime_lag: Arc::new(LiveHistogram::default()),
    };
    let mut crew = Crew::start(&crew_plan, &shared, client)
        .await
        .map_err(NativeError::Start)?;

    let cpu_before = cpu_seconds();
    let started = setup.clock.now();
    setup.control.progress.begin(shared.requests.len());
    let mut dispatcher = Dispatcher::new(plan.clone(), lanes, started);
    let interrupted = Dispatching {
        dispatcher: &mut dispatcher,
        crew: &mut crew,
        journal: &journal,
        shared: &shared,
        control: &setup.control,
        drain: config.drain,
        timer: Timer::new(config.timers),
    }
    .until_finished()
    .await;
    let ended = setup.clock.now();
    let cpu_after = cpu_seconds();
    crew.dismiss().await;

    let (mut records, written) = journal.finish();
    records.sort_by_key(|record| record.sequence_index);
    let took = Took {
        wall_seconds: (ended.nanos() - started.nanos()) as f64 / 1e9,
        cpu_seconds: (cpu_after.0 - cpu_before.0, cpu_after.1 - cpu_before.1),
        threads: config.threads.max(1),
    };
    let lags = [&shared.send_lag, &*crew_plan.runtime_lag, &*setup.own_lag].map(Lag::of);
    let health = ClientHealth::of(&records, took, lags, &counts);
    Ok(NativeOutcome {
        records,
        clock_start_unix_ns: setup.clock.wall_start_unix_ns(),
        started,
        ended,
        stages: stage_outcomes(&plan, dispatcher.stages()),
        unsent: dispatcher.unsent(),
        interrupted,
        health,
        journal_error: written.err(),
    })
}

fn head(config: &NativeConfig, target: &Target) -> Result<HeadTemplate, HeaderError> {
    let key = config.api_key.expose();
    let head = HeadTemplate::new(target, config.stream, key, &config.headers)?;
    match config.version {
        HttpVersion::Http1 => Ok(head),
        HttpVersion::Http2 => head.for_http2(target),
    }
}

fn lane_place(request: &LoadRequest) -> LanePlace {
    LanePlace {
        group: request.group,
        dp_rank: request.dp_rank,
        sequence: request.lane_sequence,
    }
}

fn shared<C>(
    setup: &Setup<C>,
    config: &NativeConfig,
    requests: Vec<LoadRequest>,
    plan: &LoadPlan,
    abort: CancellationToken,
) -> Shared {
    let urls = [Some(&config.url), config.proxy.as_ref()];
    let urls = urls.into_iter().flatten().map(String::as_str);
    let mut redactor = Redactor::new(&config.api_key, urls);
    for (name, value) in &config.headers {
        redactor.add_named(name, value);
    }
    Shared {
        clock: setup.clock.clone(),
        retry: config.retry,
        request_limit: RunOffset::from_duration(config.timeouts.request),
        stream: config.stream,
        keep_text: config.keep_text,
        name_requests: config.name_requests,
        empty_text: config.empty_text,
        redactor,
        warmup_end: plan.warmup_requests,
        cooldown_start: plan.planned_requests.saturating_sub(plan.cooldown_requests),
        abort,
        send_lag: LiveHistogram::default(),
        requests,
    }
}

/// How many connections the first moment of the plan needs.
fn connections_ahead(config: &NativeConfig, plan: &LoadPlan) -> usize {
    match plan.stages.first().map(|stage| (&stage.pace, stage.end)) {
        Some((Pace::Closed { from, .. }, end)) if config.open_ahead => {
            let limit = match end {
                PlannedEnd::Requests(count) => count,
                PlannedEnd::Duration(_) | PlannedEnd::Rest => plan.request_count,
            };
            (*from as usize).min(limit)
        }
        _ => 0,
    }
}

fn stage_outcomes(plan: &LoadPlan, facts: &[StageFacts]) -> Vec<StageOutcome> {
    let outcome = |(stage, facts): (&PlannedStage, &StageFacts)| {
        let (offered_per_second, concurrency, ramp) = match stage.pace {
            Pace::Open {
                rate_per_second,
                max_in_flight,
                ..
            } => (rate_per_second, max_in_flight, Duration::ZERO),
            Pace::Closed {
                concurrency, ramp, ..
            } => (None, Some(concurrency), ramp),
        };
        StageOutcome {
            started: facts.started,
            offered: facts.offered,
            sent: facts.sent,
            offered_per_second,
            concurrency,
            ramp_seconds: ramp.as_secs_f64(),
        }
    };
    plan.stages.iter().zip(facts).map(outcome).collect()
}
