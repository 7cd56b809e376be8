//! The AISBench process: started in a process group of its own, watched,
//! interrupted, and ended with everything it has started.
//!
//! AISBench is four processes deep, and a signal to the first leaves the load
//! running, so signals go to the group. A group in the background that changes
//! the terminal's settings (its monitor does) would be stopped by the system;
//! the shell that starts it turns that off, and what the terminal was set to is
//! put back at the end.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: a child process and timers"
)]

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Between two looks at the files that must grow.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long an interrupted child may take to sum up.
const GRACE: Duration = Duration::from_secs(30);
/// Most files looked at for growth.
const FILES_MAX: usize = 10_000;
/// Starts the interpreter where terminal settings may be changed from the
/// background.
const SHELL: [&str; 4] = ["/bin/sh", "-c", "trap '' TTOU TTIN; exec \"$@\"", "sh"];

/// What is to be started.
#[derive(Debug)]
pub(super) struct ChildPlan {
    /// Interpreter.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables besides the inherited ones. They may hold secrets.
    pub variables: Vec<(&'static str, String)>,
    /// Working folder, a path without blanks.
    pub folder: PathBuf,
    /// Folders in which something must grow.
    pub watched: Vec<PathBuf>,
    /// Longest time without growth.
    pub silence: Duration,
    /// Where its output goes; the terminal when absent.
    pub output: Option<PathBuf>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChildEnd {
    /// Exit status; absent when a signal ended it.
    pub status: Option<i32>,
    /// The signal.
    pub signal: Option<i32>,
    /// Whether the user ended it.
    pub interrupted: bool,
    /// Whether it was ended because nothing happened any more.
    pub stalled: bool,
}

/// Starts the child and waits for its end, however it comes.
pub(super) async fn watch(
    plan: &ChildPlan,
    stop: &CancellationToken,
    abort: &CancellationToken,
) -> io::Result<ChildEnd> {
    let terminal = Terminal::remember();
    let mut child = start(plan)?;
    let group = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .map(Pid::from_raw);
    let mut end = ChildEnd::default();
    let status = until_ended(&mut child, group, plan, (stop, abort), &mut end).await;
    // Whatever the first process left running would go on sending.
    signal(group, Signal::SIGKILL);
    terminal.restore();
    let status = status?;
    end.status = status.code();
    end.signal = std::os::unix::process::ExitStatusExt::signal(&status);
    Ok(end)
}

fn start(plan: &ChildPlan) -> io::Result<Child> {
    let (out, err) = if let Some(path) = &plan.output {
        let file = fs::File::create(path)?;
        (Stdio::from(file.try_clone()?), Stdio::from(file))
    } else {
        // stdout is for the result alone.
        let terminal = io::stderr().as_fd().try_clone_to_owned()?;
        (Stdio::from(terminal), Stdio::inherit())
    };
    let [shell, flag, script, name] = SHELL;
    Command::new(shell)
        .args([flag, script, name])
        .arg(&plan.program)
        .args(&plan.args)
        .envs(plan.variables.iter().map(|(name, value)| (name, value)))
        .current_dir(&plan.folder)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn until_ended(
    child: &mut Child,
    group: Option<Pid>,
    plan: &ChildPlan,
    (stop, abort): (&CancellationToken, &CancellationToken),
    end: &mut ChildEnd,
) -> io::Result<ExitStatus> {
    let mut grown = (size(&plan.watched), Instant::now());
    let mut deadline: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status,
            () = abort.cancelled() => {
                end.interrupted = true;
                signal(group, Signal::SIGKILL);
                return child.wait().await;
            }
            () = stop.cancelled(), if deadline.is_none() => {
                end.interrupted = true;
                signal(group, Signal::SIGINT);
                deadline = Some(Instant::now() + GRACE);
            }
            () = tokio::time::sleep(LOOK_INTERVAL) => {
                let size = size(&plan.watched);
                if size != grown.0 {
                    grown = (size, Instant::now());
                }
            }
        }
        let now = Instant::now();
        end.stalled |= !end.interrupted && now.duration_since(grown.1) > plan.silence;
        if end.stalled || deadline.is_some_and(|deadline| now > deadline) {
            signal(group, Signal::SIGKILL);
            return child.wait().await;
        }
    }
}

/// A group that has gone already is none to signal.
fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        killpg(group, signal).ok();
    }
}

/// Bytes of all files in `folders`: growth means life.
fn size(folders: &[PathBuf]) -> u64 {
    let mut left: Vec<PathBuf> = folders.to_vec();
    let (mut bytes, mut seen) = (0, 0);
    while let Some(folder) = left.pop() {
        for (path, length) in entries(&folder) {
            seen += 1;
            if seen > FILES_MAX {
                return bytes;
            }
            match length {
                Some(length) => bytes += length,
                None => left.push(path),
            }
        }
    }
    bytes
}

/// Files with their lengths, folders without.
fn entries(folder: &Path) -> Vec<(PathBuf, Option<u64>)> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            // Links are not followed.
            let facts = entry.metadata().ok()?;
            Some((entry.path(), facts.is_file().then_some(facts.len())))
        })
        .filter(|(path, length)| length.is_some() || path.is_dir())
        .collect()
}

/// The terminal's settings.
struct Terminal(Option<Termios>);

impl Terminal {
    /// Those of now; none where stderr is no terminal.
    fn remember() -> Self {
        Self(tcgetattr(io::stderr().as_fd()).ok())
    }

    fn restore(self) {
        if let Some(settings) = self.0 {
            tcsetattr(io::stderr().as_fd(), SetArg::TCSADRAIN, &settings).ok();
        }
    }
}
