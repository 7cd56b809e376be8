//! Wrong usage in the program's own form: one `ERROR: USAGE:` line and hints.
//! Help and version are results and go to stdout.

use clap::error::ErrorKind;

use super::exit::{Exit, Failure};
use super::output;

/// Ends the program on what clap did not take for a command.
pub(super) fn end(error: &clap::Error) -> std::process::ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match output::result(&error.render().to_string()) {
                Ok(()) => Exit::Done.into(),
                Err(_) => Exit::World.into(),
            }
        }
        kind => {
            let failure = match kind {
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => no_command(),
                _ => failure(&error.render().to_string()),
            };
            output::complain(&failure.render());
            failure.exit.into()
        }
    }
}

/// What to say instead of the whole help where a command is missing.
fn no_command() -> Failure {
    Failure::input("USAGE", "no command given")
        .hint("`pcload --help` lists the commands")
        .hint("`pcload demo` shows a whole benchmark and needs nothing else")
}

/// Turns clap's text (`error: …`, then paragraphs) into one line and hints.
fn failure(rendered: &str) -> Failure {
    let mut paragraphs = rendered
        .split("\n\n")
        .map(str::trim)
        .filter(|paragraph| !paragraph.is_empty());
    let first = paragraphs.next().unwrap_or("no command given");
    let message = first.strip_prefix("error: ").unwrap_or(first);
    let mut failure = Failure::input("USAGE", message);
    for paragraph in paragraphs {
        for line in paragraph.lines().map(str::trim) {
            let line = line.strip_prefix("tip: ").unwrap_or(line);
            failure = failure.hint(line);
        }
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_one_error_line_with_clap_s_tips_as_hints() {
        let text = "error: unexpected argument '--scen' found\n\n  tip: a similar argument exists: \
                    '--scenario'\n\nUsage: pcload inspect --scenario <FILE>\n\nFor more \
                    information, try '--help'.\n";
        assert_eq!(
            failure(text).render(),
            "ERROR: USAGE: unexpected argument '--scen' found\nhint: a similar argument exists: \
             '--scenario'\nhint: Usage: pcload inspect --scenario <FILE>\nhint: For more \
             information, try '--help'.\n"
        );
    }
}
