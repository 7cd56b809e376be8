//! The driver: the one task that lets the engine's time pass. It sleeps until
//! the next thing is due, or until it hears of something new.

#![allow(clippy::disallowed_methods, reason = "edge: sleeps")]

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::kvcache::ChainHasher;
use crate::sim::alarm::Alarm;
use crate::sim::core::Shared;
use crate::sim::engine::Submission;
use crate::units::RunOffset;

/// Rounds in a row, while tokens fall due faster than they leave, before
/// connections get a turn.
const ROUNDS: u32 = 8;
/// Tokens between two rounds from which on they come close after each other.
const CROWD: u64 = 4;
/// Length of somebody else's prompts and outputs, in tokens.
const FOREIGN_PROMPT: u32 = 200;
const FOREIGN_OUTPUT: u32 = 8;

/// Runs until cancelled.
pub(super) async fn drive(shared: Arc<Shared>, cancel: CancellationToken) {
    let mut alarm = Alarm::new(shared.config.precise_timers);
    let mut chores = Chores::new(&shared);
    let mut told = 0;
    let mut rounds = 0_u32;
    loop {
        let due = shared.advance();
        chores.run(&shared);
        let next = [due, chores.next()].into_iter().flatten().min();
        let until = next.map(|at| shared.moment(at));
        let crowd = shared.told() - told >= CROWD;
        told = shared.told();
        if next.is_some_and(|at| at <= shared.now()) {
            // Something is due already; still let others run now and then.
            rounds += 1;
            if rounds.is_multiple_of(ROUNDS) {
                tokio::task::yield_now().await;
            }
            if cancel.is_cancelled() {
                return;
            }
            continue;
        }
        rounds = 0;
        tokio::select! {
            () = cancel.cancelled() => return,
            () = shared.news.notified() => {}
            () = wait(&mut alarm, until, crowd) => {}
        }
    }
}

async fn wait(alarm: &mut Alarm, until: Option<Instant>, crowd: bool) {
    match until {
        Some(until) => alarm.until(until, crowd).await,
        None => std::future::pending().await,
    }
}

/// What happens by the clock, whatever the engine does.
struct Chores {
    next_foreign: Option<RunOffset>,
    foreign: u32,
    next_show: Option<RunOffset>,
}

impl Chores {
    fn new(shared: &Shared) -> Self {
        let faults = &shared.config.faults;
        let first = |every: Option<_>| every.map(RunOffset::from_duration);
        Self {
            next_foreign: first(faults.foreign_every),
            foreign: 0,
            next_show: first(faults.counter_lag),
        }
    }

    fn next(&self) -> Option<RunOffset> {
        [self.next_foreign, self.next_show]
            .into_iter()
            .flatten()
            .min()
    }

    fn run(&mut self, shared: &Shared) {
        let now = shared.now();
        let faults = &shared.config.faults;
        if let (Some(at), Some(every)) = (self.next_foreign, faults.foreign_every)
            && at <= now
        {
            shared.submit_foreign(foreign(shared, self.foreign));
            self.foreign = self.foreign.wrapping_add(1);
            self.next_foreign = Some(RunOffset(now.0 + RunOffset::from_duration(every).0));
        }
        if let (Some(at), Some(every)) = (self.next_show, faults.counter_lag)
            && at <= now
        {
            shared.lock().show_counters();
            self.next_show = Some(RunOffset(now.0 + RunOffset::from_duration(every).0));
        }
    }
}

/// A prompt of nobody we know, new each time.
fn foreign(shared: &Shared, number: u32) -> Submission {
    let most = u32::try_from(shared.config.max_model_len).unwrap_or(u32::MAX);
    let output = FOREIGN_OUTPUT.min(most - 1).max(1);
    let prompt = FOREIGN_PROMPT.min(most - output).max(1);
    let mut chain = ChainHasher::new(shared.config.block, Some("somebody else"));
    let hashes = (0..prompt)
        .filter_map(|at| chain.push(number.wrapping_mul(FOREIGN_PROMPT).wrapping_add(at)))
        .collect();
    Submission {
        prompt_tokens: u64::from(prompt),
        hashes,
        chain,
        output: (0..output).collect(),
        stops: false,
        skip_cache: false,
        max_tokens: u64::from(output),
        choices: 1,
        rank: None,
    }
}
