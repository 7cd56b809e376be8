//! The online sequence in time: each phase, what it said, and what stopped it.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: files of the run, and the clock that the poller starts from"
)]

use std::fs::{self, File};
use std::future::Future;
use std::path::Path;

use tokio::time::Instant;

use super::aisbench;
use super::interrupt::Interrupts;
use super::live::Live;
use super::requests;
use super::settings::Settings;
use crate::artifacts::{FullRow, PreparedSet, RunDirectory};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::Voice;
use crate::drive::aisbench::{AisbenchOutcome, Ready};
use crate::drive::native::{self, Control, NativeOutcome};
use crate::drive::phases::{PhaseError, Precheck, Reading, ResetReport, Session, WarmupReport};
use crate::measure::RequestRecord;
use crate::scenario::{CacheMode, Scenario};
use crate::service::clock::RunClock;
use crate::service::{KvPoller, KvSamples};
use crate::units::RunOffset;

/// Code of what an interrupt has cut short.
pub(super) const INTERRUPTED: &str = "INTERRUPTED";

/// One run to be told.
pub(super) struct Sequence<'a> {
    /// The set.
    pub set: &'a PreparedSet,
    /// Its scenario.
    pub scenario: &'a Scenario,
    /// What follows from both.
    pub settings: &'a Settings,
    /// Its rows.
    pub rows: &'a [FullRow],
    /// How to talk.
    pub voice: Voice,
    /// AISBench, where it sends the formal requests.
    pub aisbench: Option<Ready<'a>>,
}

/// What happened.
pub(super) struct Told {
    /// Where the run's files are.
    pub directory: RunDirectory,
    /// Phases that were begun, in order.
    pub phases: Vec<&'static str>,
    /// The server's word about itself.
    pub precheck: Precheck,
    /// How the cache was emptied.
    pub reset: ResetReport,
    /// How it was filled; `None` from a cold start.
    pub warmup: Option<WarmupReport>,
    /// Counters before.
    pub baseline: Reading,
    /// The formal phase.
    pub outcome: NativeOutcome,
    /// Start of the run's clock on the system's monotonic clock, ns.
    pub monotonic_start_ns: u64,
    /// What AISBench said of it, where it was the driver.
    pub aisbench: Option<AisbenchOutcome>,
    /// KV usage beside it.
    pub kv: KvSamples,
    /// When polling began, on the run's clock.
    pub kv_origin: RunOffset,
    /// Counters after, or why they are missing.
    pub after: Result<Reading, PhaseError>,
    /// Whether an interrupt has cut anything short.
    pub interrupted: bool,
}

/// The formal phase and what went on beside it.
struct Formal {
    outcome: NativeOutcome,
    monotonic_start_ns: u64,
    aisbench: Option<AisbenchOutcome>,
    kv: KvSamples,
    kv_origin: RunOffset,
}

impl From<PhaseError> for Failure {
    fn from(error: PhaseError) -> Self {
        let failure = Self::world(error.code, error.message);
        match error.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl Sequence<'_> {
    /// Runs every phase. Until the formal phase has begun an error or an
    /// interrupt ends the run; from then on everything is told.
    pub(super) async fn tell(&self) -> Result<Told, Failure> {
        let interrupts = Interrupts::listen(self.voice);
        let mut phases = Vec::new();
        let mut begin = |phase: &'static str, words: &str| {
            tracing::info!(phase, "begin");
            self.voice.say(words);
            phases.push(phase);
        };
        let mut session =
            Session::new(self.settings.control.clone(), self.settings.phases.clone())?;
        if let Some(limit) = self.settings.wait_ready {
            begin("ready", "ready: wait for the server");
            or_interrupted(&interrupts, session.ready(limit)).await?;
        }
        begin(
            "precheck",
            "precheck: every rank, metrics, model, block size",
        );
        let precheck = or_interrupted(&interrupts, session.precheck()).await?;
        begin("reset", "reset: empty the prefix cache and prove it");
        let reset = or_interrupted(&interrupts, session.reset()).await?;
        let warmup = match self.scenario.prefix_cache.mode {
            CacheMode::Cold => None,
            CacheMode::Warmup => {
                let format = self.scenario.pcload.prompt_format;
                let items = requests::warmup_items(self.set, format)?;
                begin("warmup", "warm-up: every group on every rank");
                Some(or_interrupted(&interrupts, session.warm_up(&items)).await?)
            }
        };
        begin("baseline", "baseline: counters before");
        let baseline = or_interrupted(&interrupts, session.baseline()).await?;
        let directory = RunDirectory::create(self.set)?;
        write_page(&directory.metrics_baseline(), &baseline)?;
        begin("formal", "formal: the measured requests");
        let formal = self.formal(&session, &interrupts, &directory).await?;
        begin("after", "after: counters that agree with what was sent");
        let after = self.after(&mut session, &interrupts, &formal.outcome).await;
        if let Ok(reading) = &after {
            write_page(&directory.metrics_after(), reading)?;
        }
        Ok(Told {
            directory,
            phases,
            precheck,
            reset,
            warmup,
            baseline,
            interrupted: formal.outcome.interrupted || is_interrupt(&after),
            outcome: formal.outcome,
            monotonic_start_ns: formal.monotonic_start_ns,
            aisbench: formal.aisbench,
            kv: formal.kv,
            kv_origin: formal.kv_origin,
            after,
        })
    }

    /// The counters after; the next interrupt ends the wait for them.
    async fn after(
        &self,
        session: &mut Session,
        interrupts: &Interrupts,
        outcome: &NativeOutcome,
    ) -> Result<Reading, PhaseError> {
        let expected = expected_prompt_tokens(&outcome.records);
        let tokens = [&interrupts.first, &interrupts.second];
        let Some(next) = tokens.into_iter().find(|token| !token.is_cancelled()) else {
            return session.after(expected).await;
        };
        tokio::select! {
            biased;
            () = next.cancelled() => Err(PhaseError {
                code: INTERRUPTED,
                message: "interrupted before the counters were read".to_owned(),
                hint: None,
            }),
            after = session.after(expected) => after,
        }
    }

    async fn formal(
        &self,
        session: &Session,
        interrupts: &Interrupts,
        directory: &RunDirectory,
    ) -> Result<Formal, Failure> {
        let clock = RunClock::start();
        let kv_origin = clock.now();
        let monotonic_start_ns = clock.monotonic_start_ns();
        let poller = KvPoller::start(
            session.client().clone(),
            self.settings.poll_interval,
            Instant::now(),
        );
        let driven = match &self.aisbench {
            None => self.native(interrupts, directory, clock).await,
            Some(ready) => aisbench::drive(ready, interrupts, directory, &clock).await,
        };
        let kv = poller.stop().await;
        let (outcome, aisbench) = driven?;
        Ok(Formal {
            outcome,
            monotonic_start_ns,
            aisbench,
            kv,
            kv_origin,
        })
    }

    async fn native(
        &self,
        interrupts: &Interrupts,
        directory: &RunDirectory,
        clock: RunClock,
    ) -> Result<(NativeOutcome, Option<AisbenchOutcome>), Failure> {
        let requests = requests::load_requests(self.scenario, self.settings, self.rows)?;
        let path = directory.records();
        let journal = File::create(&path).map_err(|error| cannot_write(&path, &error))?;
        let control = Control {
            stop: interrupts.first.clone(),
            abort: interrupts.second.clone(),
            ..Control::default()
        };
        let live = Live::start(self.voice, control.progress.clone());
        let outcome = native::run(
            self.settings.native.clone(),
            requests,
            self.settings.load.clone(),
            clock,
            control,
            Some(Box::new(journal)),
        )
        .await;
        live.stop().await;
        let outcome =
            outcome.map_err(|error| Failure::world("DRIVER_FAILED", error.to_string()))?;
        Ok((outcome, None))
    }
}

fn is_interrupt(after: &Result<Reading, PhaseError>) -> bool {
    matches!(after, Err(error) if error.code == INTERRUPTED)
}

/// Runs one phase; the first interrupt ends it, and with it the run.
async fn or_interrupted<T>(
    interrupts: &Interrupts,
    phase: impl Future<Output = Result<T, PhaseError>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = interrupts.first.cancelled() => Err(Failure::new(
            Exit::Interrupted,
            INTERRUPTED,
            "interrupted before the formal phase; nothing was measured",
        )),
        result = phase => Ok(result?),
    }
}

/// The sum of what every attempt that reached the server reported; `None` when
/// one did not report. Without it the counters can only be waited for until
/// they stop.
fn expected_prompt_tokens(records: &[RequestRecord]) -> Option<u64> {
    let complete = records
        .iter()
        .all(|record| record.attempts.len() == 1 && record.usage.is_some());
    let sum = || records.iter().filter_map(|record| record.usage);
    complete.then(|| sum().map(|usage| usage.prompt_tokens).sum())
}

fn write_page(path: &Path, reading: &Reading) -> Result<(), Failure> {
    fs::write(path, &reading.raw_prometheus).map_err(|error| cannot_write(path, &error))
}

pub(super) fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::world(
        "FILE_UNWRITABLE",
        format!("cannot write `{}`: {error}", path.display()),
    )
}
