//! `pcload man`: manual pages, made of the same text as `--help`.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: writes the pages where the user wants them"
)]

use std::fs;
use std::io;

use clap::CommandFactory as _;
use clap_mangen::Man;

use super::args::{Cli, ManArgs};
use super::exit::{Exit, Failure};
use super::output;

/// Runs the command: the page of the program to stdout, or one page for it and
/// each command into a folder.
pub(super) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    let command = Cli::command();
    let failed = |error: io::Error| Failure::world("FILE_UNWRITABLE", error.to_string());
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).map_err(failed)?;
        clap_mangen::generate_to(command, folder).map_err(failed)?;
    } else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page).map_err(failed)?;
        output::print(&String::from_utf8_lossy(&page))?;
    }
    Ok(Exit::Done)
}
