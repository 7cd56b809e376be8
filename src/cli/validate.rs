//! `pcload validate`: is a prepared set what its manifest says?

use std::sync::Arc;

use super::args::{Global, ValidateArgs};
use super::exit::{Exit, Failure};
use super::run::scenario_of;
use super::{inputs, logging, output};
use crate::artifacts::{self, PreparedSet, pyjson};
use crate::scenario::ManifestPurpose;
use crate::tokenizer::{HfTokenizer, Tokenizer, TokenizerError};

/// Runs the command.
pub(super) fn run(args: &ValidateArgs, global: &Global) -> Result<Exit, Failure> {
    let set = PreparedSet::open(&args.manifest)?;
    logging::start(global, set.log_path("validate").as_deref());
    let summary = if args.deep {
        let tokenizer = tokenizer_at_hand(&set, global)?;
        let tokenizer = tokenizer.as_deref().map(|one| one as &dyn Tokenizer);
        artifacts::validate_deep(&args.manifest, tokenizer)?.summary()
    } else {
        artifacts::validate(&args.manifest)?.summary()
    };
    output::print(&(pyjson::line(&summary) + "\n"))?;
    Ok(Exit::Done)
}

/// The set's tokenizer. A set may be checked where its tokenizer is not; the
/// prompts' layout then stays unproved, which is said. One that is there and
/// cannot be used is an error.
fn tokenizer_at_hand(
    set: &PreparedSet,
    global: &Global,
) -> Result<Option<Arc<HfTokenizer>>, Failure> {
    let scenario = scenario_of(set, ManifestPurpose::Analyze)?;
    match inputs::load_tokenizer(&scenario) {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(error @ (TokenizerError::NotFound { .. } | TokenizerError::NoTokenizerJson { .. })) => {
            let words = format!("warning: the layout of the prompts is not checked: {error}");
            global.voice().say(&words);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
