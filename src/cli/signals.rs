//! Ctrl-C and SIGTERM. By default the command ends with its status and one line,
//! and leaves nothing half-written. A run, a probe and a server have their own
//! way to stop, in order: meanwhile signals are handed to them.

#![allow(
    clippy::disallowed_methods,
    clippy::exit,
    reason = "edge: a signal ends the process, whatever the main thread is at"
)]

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::exit::{Exit, Failure};
use super::output;

/// Nothing is at stake: the process ends at once.
const IDLE: u8 = 0;
/// Files are being written: the writer is told, and cleans up.
const WRITING: u8 = 1;
/// Somebody else listens.
const HEARD_ELSEWHERE: u8 = 2;

static STAGE: AtomicU8 = AtomicU8::new(IDLE);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static LISTENER: Mutex<Option<UnboundedSender<()>>> = Mutex::new(None);

/// Begins to listen, in a thread of its own. Where the system refuses, the
/// signals keep their default effect.
///
/// A file that grows beyond the shell's limit is an error like a full disk, not
/// the end of the process.
pub(super) fn watch() {
    let mut too_large = SigSet::empty();
    too_large.add(Signal::SIGXFSZ);
    too_large.thread_block().ok();
    let listener = thread::Builder::new().name("pcload-signals".to_owned());
    listener.spawn(listen).ok();
}

fn listen() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        let interrupt = signal(SignalKind::interrupt());
        let terminate = signal(SignalKind::terminate());
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
            return;
        };
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            heard();
        }
    });
}

fn heard() {
    let again = match STAGE.load(Ordering::SeqCst) {
        // Handed on from here, so that no signal is taken twice: by the one
        // who stops for it, and by this thread when that has ended.
        HEARD_ELSEWHERE => {
            let listener = listener();
            // Nobody receives only between the stage's end and the next.
            if listener
                .as_ref()
                .is_some_and(|heard| heard.send(()).is_ok())
            {
                return;
            }
            true
        }
        WRITING => INTERRUPTED.swap(true, Ordering::SeqCst),
        _ => true,
    };
    if again {
        output::complain(&failure().render());
        std::process::exit(Exit::Interrupted.status().into());
    }
}

fn failure() -> Failure {
    Failure::new(
        Exit::Interrupted,
        "INTERRUPTED",
        "interrupted before it was done",
    )
}

/// As long as it lives, an interrupt is not acted upon but kept for [`check`].
/// A second one ends the process all the same.
pub(super) fn writing() -> Stage {
    Stage::begin(WRITING)
}

/// As long as the stage lives, interrupts go to the other half.
pub(super) fn heard_elsewhere() -> (Stage, Interrupts) {
    let (sender, heard) = unbounded_channel();
    *listener() = Some(sender);
    (Stage::begin(HEARD_ELSEWHERE), Interrupts(heard))
}

/// Interrupts for who stops in order.
#[derive(Debug)]
pub(super) struct Interrupts(UnboundedReceiver<()>);

impl Interrupts {
    /// Returns with the next interrupt. None is lost between two calls.
    pub(super) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            // Others listen by now.
            std::future::pending::<()>().await;
        }
    }
}

fn listener() -> MutexGuard<'static, Option<UnboundedSender<()>>> {
    LISTENER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error when an interrupt came while [`writing`].
pub(super) fn check() -> Result<(), Failure> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        return Err(failure());
    }
    Ok(())
}

/// What interrupts mean, until it is dropped.
#[must_use]
#[derive(Debug)]
pub(super) struct Stage {
    before: u8,
}

impl Stage {
    fn begin(stage: u8) -> Self {
        Self {
            before: STAGE.swap(stage, Ordering::SeqCst),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        STAGE.store(self.before, Ordering::SeqCst);
    }
}
