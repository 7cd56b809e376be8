//! Where log lines go: the command's own log file, and stderr as far as `-v`
//! asks for it.

use std::path::Path;

use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use super::args::{Global, LogFormat};
use super::exit::Failure;
use super::{output, secrets};
use crate::artifacts::log::LogLayer;

/// Target of events that stderr shows in another form.
const FILE_ONLY: &str = "pcload::cli";

/// Starts logging: everything from `info` on into `file`, and onto stderr what
/// the options ask for, neither with credentials. The first call of the process
/// wins.
pub(super) fn start(global: &Global, file: Option<&Path>) {
    let (log, refused) = LogLayer::open(file, secrets::without);
    let log = file.is_some().then(|| log.with_filter(LevelFilter::INFO));
    let level = match (global.quiet, global.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, 2) => LevelFilter::DEBUG,
        (false, _) => LevelFilter::TRACE,
    };
    let shown = filter_fn(move |event| event.target() != FILE_ONLY && *event.level() <= level);
    // Never in color: escape codes have no place in what people grep.
    let stderr = fmt::layer()
        .with_writer(|| output::Stderr)
        .with_ansi(false)
        .with_target(false);
    let stderr = match global.log_format {
        LogFormat::Text => stderr.without_time().with_filter(shown).boxed(),
        LogFormat::Json => stderr.json().with_filter(shown).boxed(),
    };
    // A second call in one process finds the first one's subscriber in place.
    drop(
        tracing_subscriber::registry()
            .with(log)
            .with(stderr)
            .try_init(),
    );
    if let Some(error) = refused {
        tracing::warn!("no log file, logging to stderr: {error}");
    }
    tracing::info!("pcload {}", env!("CARGO_PKG_VERSION"));
}

/// Writes why the command failed into its log file. Before [`start`] there is
/// none.
pub(super) fn failed(failure: &Failure) {
    for line in &failure.lines {
        tracing::error!(target: FILE_ONLY, "{}: {}", line.code, line.message);
    }
}
