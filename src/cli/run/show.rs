//! The result for people: tables on stderr, and where the files are.

use crate::cli::exit::Failure;
use crate::cli::output::{self, Voice};
use crate::cli::report::terminal_options;
use crate::report;

use super::Finished;

/// Shows a finished run.
pub(super) fn show(finished: &Finished, voice: Voice) -> Result<(), Failure> {
    if voice.quiet {
        return Ok(());
    }
    let mut tables = Vec::new();
    report::terminal(&finished.analysis, terminal_options(), &mut tables)
        .map_err(|error| Failure::world("REPORT_FAILED", error.to_string()))?;
    if let Some(results) = &finished.by_aisbench {
        report::aisbench(results, terminal_options(), &mut tables)
            .map_err(|error| Failure::world("REPORT_FAILED", error.to_string()))?;
    }
    output::complain(&String::from_utf8_lossy(&tables));
    voice.say(&format!("files: {}", finished.directory.path().display()));
    Ok(())
}
