//! What all connections and the driver share: the engine behind one lock, its
//! mailboxes, and the server's clock. The lock is never held over an await.

#![allow(clippy::disallowed_methods, reason = "edge: the server's own clock")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::rng::Seed;
use crate::sim::config::{Config, Pace, SimError};
use crate::sim::engine::{Account, Engine, Gauges, Key, Submission};
use crate::sim::mail::Mail;
use crate::sim::mailbox::Mailbox;
use crate::sim::model::Model;
use crate::sim::page::{Exchange, Facts, HttpAccount, Page};
use crate::sim::plain::Plain;
use crate::sim::truth::TruthLog;
use crate::tokenizer::Tokenizer;
use crate::units::RunOffset;

/// Phrases remembered for stale answers.
const PHRASES_MAX: usize = 4;

/// Everything one server has.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) tokenizer: Arc<dyn Tokenizer>,
    pub(super) model: Arc<Model>,
    pub(super) seed: Seed,
    pub(super) truth: Option<TruthLog>,
    /// Tells the driver that something may be due earlier.
    pub(super) news: Notify,
    /// Wall time of the start, in seconds since 1970.
    started: f64,
    origin: Instant,
    /// When the engine has something to do next; the greatest number for never.
    next_due: AtomicU64,
    told: AtomicU64,
    /// Ids given to answers so far.
    ids: AtomicU64,
    core: Mutex<Core>,
}

/// What is behind the lock.
pub(super) struct Core {
    pub(super) engine: Engine,
    mail: Mail,
    /// An empty list for the next mailboxes with news.
    spare: Vec<Arc<Mailbox>>,
    http: HttpAccount,
    /// Generation requests so far.
    pub(super) requests: u64,
    rejected: u64,
    /// When the counters began.
    counters_since: f64,
    /// Last known truth of a server whose counters lag.
    lagging: Option<Vec<(Account, Gauges)>>,
    phrases: Vec<String>,
}

impl Shared {
    pub(super) fn new(config: Config, tokenizer: Arc<dyn Tokenizer>) -> Result<Self, SimError> {
        config.check()?;
        let model = Model::new(tokenizer.as_ref(), config.seed)?;
        let truth = config
            .truth_log
            .as_deref()
            .map(TruthLog::create)
            .transpose()?;
        let started = wall_seconds();
        let engine = Engine::new(&config);
        let core = Core {
            mail: Mail::new(engine.ranks()),
            spare: Vec::new(),
            engine,
            http: HttpAccount::default(),
            requests: 0,
            rejected: 0,
            counters_since: started,
            lagging: None,
            phrases: Vec::new(),
        };
        let shared = Self {
            model: Arc::new(model),
            seed: Seed::from(config.seed),
            truth,
            news: Notify::new(),
            started,
            origin: Instant::now(),
            next_due: AtomicU64::new(u64::MAX),
            told: AtomicU64::new(0),
            ids: AtomicU64::new(0),
            core: Mutex::new(core),
            config,
            tokenizer,
        };
        if shared.config.faults.counter_lag.is_some() {
            shared.lock().show_counters();
        }
        Ok(shared)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the start.
    pub(super) fn now(&self) -> RunOffset {
        RunOffset::from_duration(self.origin.elapsed())
    }

    /// The moment `at` after the start.
    pub(super) fn moment(&self, at: RunOffset) -> Instant {
        self.origin + at.duration()
    }

    /// Wall time now, in seconds since 1970, moving with the server's clock.
    pub(super) fn wall(&self) -> f64 {
        self.started + self.now().seconds()
    }

    /// The same in whole seconds.
    pub(super) fn wall_seconds(&self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds since 1970 are positive and fit; the fraction is dropped"
        )]
        let seconds = self.wall() as u64;
        seconds
    }

    /// Does something to the engine, and tells the streams what came of it
    /// once the lock is open again.
    pub(super) fn act<R>(&self, act: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = self.lock();
        let result = act(&mut core);
        let tokens = core.hand_out();
        let due = core.engine.next_due().map_or(u64::MAX, |at| at.0);
        self.next_due.store(due, Ordering::Relaxed);
        self.told.fetch_add(tokens, Ordering::Relaxed);
        while core.mail.say(&self.model) {
            drop(core);
            core = self.lock();
        }
        let spare = std::mem::take(&mut core.spare);
        let mut news = std::mem::replace(&mut core.mail.news, spare);
        drop(core);
        if news.is_empty() {
            return result;
        }
        for mailbox in news.drain(..) {
            mailbox.ring();
        }
        self.lock().spare = news;
        result
    }

    /// Lets everything happen that is due; says when the next thing is.
    pub(super) fn advance(&self) -> Option<RunOffset> {
        let now = self.now();
        self.act(|core| core.engine.advance(now));
        let due = self.next_due.load(Ordering::Relaxed);
        (due < u64::MAX).then_some(RunOffset(due))
    }

    /// Tokens delivered so far.
    pub(super) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// The same where something is due: what takes long on a connection's task
    /// calls this before, so that no token waits for it.
    pub(super) fn catch_up(&self) {
        if self.now().0 >= self.next_due.load(Ordering::Relaxed) {
            self.advance();
        }
    }

    /// Takes in the sequences of a request that was read at `arrived`: one per
    /// choice, on one rank.
    pub(super) fn submit(
        self: &Arc<Self>,
        core: &mut Core,
        arrived: RunOffset,
        submissions: Vec<Submission>,
    ) -> Ticket {
        let now = self.now();
        let mailbox = Arc::new(Mailbox::new(submissions.len()));
        let mut keys = Vec::with_capacity(submissions.len());
        for (choice, submission) in submissions.into_iter().enumerate() {
            let key = core.engine.submit_late(arrived, now, submission);
            core.hand_out();
            core.mail.open(key, Arc::clone(&mailbox), choice);
            keys.push(key);
        }
        if self.config.pace == Pace::Flood {
            core.engine.advance(now);
            core.hand_out();
        }
        self.news.notify_one();
        Ticket {
            shared: Arc::clone(self),
            keys,
            mailbox,
        }
    }

    /// A request of somebody else arrives; nobody reads its answer.
    pub(super) fn submit_foreign(&self, submission: Submission) {
        let now = self.now();
        self.act(|core| core.engine.submit(now, submission));
    }

    pub(super) fn record(&self, exchange: Exchange) {
        self.lock().http.record(exchange);
    }

    /// The metrics page as of now (or of before, where counters lag).
    pub(super) fn page(&self) -> Page {
        let faults = &self.config.faults;
        self.advance();
        let core = self.lock();
        let accounts = core.lagging.clone().unwrap_or_else(|| core.accounts());
        let ranks = accounts.into_iter().enumerate().map(|(rank, account)| {
            let missing = faults
                .missing_rank
                .is_some_and(|gone| gone as usize == rank);
            (!missing).then_some(account)
        });
        Page {
            release: self.config.release,
            model: self.config.model.clone(),
            second_model: faults.second_model.then(|| self.second_model()),
            ranks: ranks.collect(),
            http: core.http.clone(),
            rejected: core.rejected,
            facts: Facts {
                block_tokens: self.config.block.tokens(),
                pool_blocks: self.config.pool_blocks,
                max_model_len: self.config.max_model_len,
                prefix_caching: self.config.prefix_caching,
                retention_interval: self
                    .config
                    .hybrid
                    .and_then(|hybrid| hybrid.retention_interval)
                    .unwrap_or(0),
            },
            created: core.counters_since,
            old_names: faults.duplicate_series,
        }
    }

    /// A number for the id of an answer, from 0.
    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Name of the second model, where there is one.
    pub(super) fn second_model(&self) -> String {
        format!("{}-second", self.config.model)
    }

    /// Counts a generation request; says its number, from 0.
    pub(super) fn count_request(&self) -> u64 {
        let wall = self.wall();
        let mut core = self.lock();
        let number = core.requests;
        core.requests += 1;
        if self.config.faults.restart_counters_after == Some(number) {
            core.engine.restart_counters();
            core.http = HttpAccount::default();
            core.counters_since = wall;
        }
        number
    }
}

impl Core {
    /// Leaves word of what was delivered; says of how many tokens.
    fn hand_out(&mut self) -> u64 {
        let deliveries = self.engine.take_deliveries();
        self.mail.deliver(&deliveries);
        let tokens = deliveries.len() as u64;
        self.engine.recycle(deliveries);
        tokens
    }

    fn accounts(&self) -> Vec<(Account, Gauges)> {
        self.engine
            .accounts()
            .map(|(account, gauges)| (account.clone(), gauges))
            .collect()
    }

    /// Counters that lag show what is true now.
    pub(super) fn show_counters(&mut self) {
        self.lagging = Some(self.accounts());
    }

    /// A request was refused for a full queue.
    pub(super) fn reject(&mut self) {
        self.rejected += 1;
    }

    /// Remembers a phrase that some prompt held.
    pub(super) fn remember(&mut self, phrase: &str) {
        self.phrases.retain(|known| known != phrase);
        self.phrases.push(phrase.to_owned());
        if self.phrases.len() > PHRASES_MAX {
            self.phrases.remove(0);
        }
    }

    /// The last phrase of another prompt.
    pub(super) fn other_phrase(&self, own: &str) -> Option<String> {
        self.phrases
            .iter()
            .rev()
            .find(|known| *known != own)
            .cloned()
    }
}

/// A request's sequences; dropping it ends those that still run, as a client
/// that leaves does.
pub(super) struct Ticket {
    shared: Arc<Shared>,
    keys: Vec<Key>,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Ticket {
    /// Rank of the first sequence.
    pub(super) fn rank(&self) -> usize {
        self.keys.first().map_or(0, |key| key.rank)
    }

    /// Lends the plain part of the only choice's stream; gives it back where
    /// that has ended.
    pub(super) fn lend(&self, plain: Plain) -> Option<Plain> {
        match self.keys.first() {
            None => Some(plain),
            Some(&key) => self.shared.lock().mail.lend(key, &self.mailbox, plain),
        }
    }

    /// What was lent.
    pub(super) fn take_back(&self) -> Option<Plain> {
        let key = *self.keys.first()?;
        self.shared.lock().mail.take_back(key, &self.mailbox)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let ended = |choice| self.mailbox.read(choice).finish.is_some();
        if (0..self.keys.len()).all(ended) {
            return;
        }
        let mut core = self.shared.lock();
        for (choice, key) in self.keys.iter().enumerate() {
            if !ended(choice) {
                core.engine.drop_sequence(*key);
                core.mail.close(*key);
            }
        }
        drop(core);
        self.shared.news.notify_one();
    }
}

fn wall_seconds() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
