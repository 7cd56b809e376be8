//! The workers of a run and the loop that gives them orders. It refuses to know
//! how requests are carried out and which goes next.
#![allow(clippy::disallowed_methods, reason = "edge: threads")]

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::dispatch::{Dispatch, Dispatcher, Next};
use super::health::watch_runtime;
use super::journal::Journal;
use super::native::Control;
use super::pacing::{Timer, TimerKind};
use super::worker::{Event, Shared, work};
use crate::measure::LiveHistogram;
use crate::service::client::Client;
use crate::service::connect::Connector;
use crate::units::RunOffset;

/// Connections that one worker opens at the same time ahead of the load.
const OPENING_AT_ONCE_MAX: usize = 64;

/// What every worker is given.
pub(super) struct CrewPlan {
    /// Workers, at least 1. A single one shares the dispatcher's runtime.
    pub(super) workers: usize,
    /// Connections to open ahead, all workers together.
    pub(super) ahead: usize,
    /// Which timers the tickers use.
    pub(super) timers: TimerKind,
    /// Where the tickers count.
    pub(super) runtime_lag: Arc<LiveHistogram>,
}

/// The workers. Queues are bounded by the requests of the run.
pub(super) struct Crew {
    orders: Vec<UnboundedSender<Dispatch>>,
    events: UnboundedReceiver<Event>,
    here: JoinSet<()>,
    threads: Vec<JoinHandle<()>>,
    turn: usize,
}

impl Crew {
    /// Starts all workers and waits until they have opened their connections.
    pub(super) async fn start<C: Connector>(
        plan: &CrewPlan,
        shared: &Arc<Shared>,
        client: impl Fn() -> Client<C>,
    ) -> io::Result<Self> {
        let (event_sender, events) = unbounded_channel();
        let mut crew = Self {
            orders: Vec::new(),
            events,
            here: JoinSet::new(),
            threads: Vec::new(),
            turn: 0,
        };
        let mut ready = Vec::new();
        for number in 0..plan.workers {
            let (order_sender, orders) = unbounded_channel();
            let (ready_sender, is_ready) = oneshot::channel();
            crew.orders.push(order_sender);
            ready.push(is_ready);
            let share = plan.ahead / plan.workers + usize::from(number < plan.ahead % plan.workers);
            let worker = Worker {
                client: Arc::new(client()),
                shared: Arc::clone(shared),
                orders,
                events: event_sender.clone(),
                ahead: share,
                ready: ready_sender,
                timers: plan.timers,
                runtime_lag: Arc::clone(&plan.runtime_lag),
            };
            if plan.workers == 1 {
                crew.here.spawn(worker.run());
            } else {
                crew.threads.push(on_its_own_thread(number, worker)?);
            }
        }
        for is_ready in ready {
            is_ready
                .await
                .map_err(|_| io::Error::other("a worker did not start"))?;
        }
        Ok(crew)
    }

    /// Gives an order to the next worker in turn.
    fn order(&mut self, dispatch: Dispatch) {
        let worker = self.turn % self.orders.len();
        self.turn = worker + 1;
        self.orders[worker]
            .send(dispatch)
            .unwrap_or_else(|_| unreachable!("a worker lives until it is dismissed"));
    }

    /// Closes the queues and waits for all workers.
    pub(super) async fn dismiss(mut self) {
        self.orders.clear();
        while let Some(ended) = self.here.join_next().await {
            if let Err(error) = ended {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

struct Worker<C: Connector> {
    client: Arc<Client<C>>,
    shared: Arc<Shared>,
    orders: UnboundedReceiver<Dispatch>,
    events: UnboundedSender<Event>,
    ahead: usize,
    ready: oneshot::Sender<()>,
    timers: TimerKind,
    runtime_lag: Arc<LiveHistogram>,
}

impl<C: Connector> Worker<C> {
    async fn run(self) {
        open_ahead(&self.client, self.ahead).await;
        // The starter waits for this, or has given up.
        self.ready.send(()).ok();
        let clock = self.shared.clock.clone();
        let timer = Timer::new(self.timers);
        tokio::select! {
            biased;
            () = work(self.client, self.shared, self.orders, self.events) => {}
            () = watch_runtime(clock, timer, self.runtime_lag) => {}
        }
    }
}

async fn open_ahead<C: Connector>(client: &Arc<Client<C>>, count: usize) {
    let mut opening = JoinSet::new();
    for _ in 0..count {
        if opening.len() >= OPENING_AT_ONCE_MAX {
            opening.join_next().await;
        }
        let client = Arc::clone(client);
        opening.spawn(async move { client.open_ahead().await });
    }
    opening.join_all().await;
}

fn on_its_own_thread<C: Connector>(number: usize, worker: Worker<C>) -> io::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new()
        .name(format!("pcload-worker-{number}"))
        .spawn(move || runtime.block_on(worker.run()))
}

/// Gives orders until everything has ended.
pub(super) struct Dispatching<'a> {
    pub(super) dispatcher: &'a mut Dispatcher,
    pub(super) crew: &'a mut Crew,
    pub(super) journal: &'a Journal,
    pub(super) shared: &'a Shared,
    pub(super) control: &'a Control,
    /// How long an interrupted run waits for requests under way.
    pub(super) drain: Duration,
    pub(super) timer: Timer,
}

impl Dispatching<'_> {
    /// Whether it was interrupted.
    pub(super) async fn until_finished(mut self) -> bool {
        let mut drain_end: Option<RunOffset> = None;
        loop {
            let now = self.shared.clock.now();
            if drain_end.is_some_and(|end| now >= end) {
                self.shared.abort.cancel();
            }
            let wake = match self.dispatcher.next(now) {
                Next::Send(dispatch) => {
                    self.control.progress.sent();
                    self.crew.order(dispatch);
                    continue;
                }
                Next::WaitUntil(at) => Some(at),
                Next::WaitForEnd => None,
                Next::Finished => return drain_end.is_some(),
            };
            let pending_drain = drain_end.filter(|_| !self.shared.abort.is_cancelled());
            let wake = wake.or(pending_drain);
            let clock = &self.shared.clock;
            tokio::select! {
                biased;
                event = self.crew.events.recv() => self.take(event),
                () = self.control.abort.cancelled(), if drain_end.is_none_or(|end| now < end) => {
                    self.dispatcher.stop();
                    drain_end = Some(now);
                }
                () = self.control.stop.cancelled(), if drain_end.is_none() => {
                    self.dispatcher.stop();
                    let drain = RunOffset::from_duration(self.drain).nanos();
                    let stopped = clock.now().nanos();
                    drain_end = Some(RunOffset(stopped.saturating_add(drain)));
                }
                () = self.timer.until(clock, wake.unwrap_or_default()), if wake.is_some() => {}
            }
        }
    }

    fn take(&mut self, event: Option<Event>) {
        match event {
            Some(Event::Ended { index, at, record }) => {
                self.dispatcher.ended(index, at);
                self.control.progress.ended(&record);
                self.journal.push(*record);
            }
            Some(Event::Broken(error)) => std::panic::resume_unwind(error.into_panic()),
            None => unreachable!("workers keep their senders until they are dismissed"),
        }
    }
}
