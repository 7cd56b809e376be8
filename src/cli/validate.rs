//! `pcload validate`: is a prepared set what its manifest says?

use super::args::{Global, ValidateArgs};
use super::exit::{Exit, Failure};
use super::{logging, output};
use crate::artifacts::{self, PreparedSet, pyjson};

/// Runs the command.
pub fn run(args: &ValidateArgs, global: &Global) -> Result<Exit, Failure> {
    let set = PreparedSet::open(&args.manifest)?;
    logging::start(global, set.log_path("validate").as_deref(), Vec::new());
    let summary = artifacts::validate(&args.manifest)?.summary();
    output::print(&(pyjson::line(&summary) + "\n"))?;
    Ok(Exit::Done)
}
