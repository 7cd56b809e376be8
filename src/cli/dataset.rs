//! From a scenario to a set on disk: what `inspect`, `prepare`, `run` and
//! `demo` have in common.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: the wall clock names the set's directory"
)]

use std::sync::Arc;

use super::exit::Failure;
use super::inputs::Materials;
use super::output::Voice;
use super::progress::Progress;
use super::signals;
use crate::artifacts::{
    self, AddedTokens, Claim, DataSet, Decision, Inputs, Purpose, SetFiles, SetWriter, Stamp,
    TokenizerFacts,
};
use crate::plan::{self, Plan};
use crate::prompts::{Builder, Options};
use crate::scenario::Selection;
use crate::theory::{self, Theory};
use crate::tokenizer::Tokenizer;
use crate::units::GroupIndex;

/// A scenario's plan and theory, beside what they were made of.
pub(super) struct Planned {
    /// Scenario, corpus, tokenizer.
    pub materials: Materials,
    /// The plan.
    pub plan: Plan,
    /// Its theory.
    pub theory: Theory,
}

impl Planned {
    /// Plans the scenario of `materials`.
    pub(super) fn new(materials: Materials) -> Result<Self, Failure> {
        let plan = plan::build(&materials.scenario)?;
        let theory = theory::play(&plan);
        Ok(Self {
            materials,
            plan,
            theory,
        })
    }

    /// Where `purpose` finds or makes its set.
    pub(super) fn decide(&self, purpose: Purpose) -> Result<Decision, Failure> {
        let facts = TokenizerFacts::from(self.tokenizer().as_ref());
        let inputs = Inputs {
            corpus_sha256: self.materials.corpus.sha256(),
            tokenizer: &facts,
        };
        let now = Stamp::new(jiff::ZonedDateTime::now().datetime());
        Ok(artifacts::decide(
            &self.materials.scenario,
            inputs,
            purpose,
            now,
        )?)
    }

    /// The data set as the documents describe it.
    pub(super) fn data_set(&self) -> DataSet<'_> {
        DataSet::new(
            &self.materials.scenario,
            &self.plan,
            &self.theory,
            self.tokenizer().as_ref(),
            self.materials.corpus.sha256(),
        )
    }

    /// The builder of its prompts.
    pub(super) fn builder(&self) -> Result<Builder<'_>, Failure> {
        let scenario = &self.materials.scenario;
        let selection = |group: GroupIndex| -> &Selection {
            let overrides = &scenario.prefix_cache.groups.overrides;
            overrides
                .get(&group)
                .and_then(|one| one.corpus_selection.as_ref())
                .unwrap_or(&scenario.corpus.selection)
        };
        let tokenizer = self.tokenizer();
        let options = Options {
            server_prefix_tokens: AddedTokens::new(&scenario.pcload, tokenizer.as_ref())
                .front
                .len(),
        };
        Ok(Builder::new(
            &self.plan,
            &self.materials.corpus,
            &selection,
            tokenizer,
            &scenario.run.random_seed,
            options,
        )?)
    }

    /// Builds every prompt with `builder` and writes the set into `claim`.
    pub(super) fn write(
        &self,
        builder: &Builder<'_>,
        claim: Claim,
        voice: Voice,
    ) -> Result<SetFiles, Failure> {
        let data = self.data_set();
        let location = claim.location().clone();
        let incomplete = data.incomplete_manifest(&location);
        let output_key = self.materials.scenario.output_key;
        warn_skipped(builder, voice);
        signals::check()?;
        let mut writer = SetWriter::begin(claim, incomplete, output_key)?;
        let progress = Progress::new(voice, "prompts", self.plan.requests.len() as u64);
        builder.build_all(|prompt| -> Result<(), Failure> {
            signals::check()?;
            writer.push(&data.row(&prompt))?;
            progress.advance(1);
            Ok(())
        })?;
        progress.finish();
        let prefixes: Vec<_> = builder.canonical_prefixes().cloned().collect();
        let manifest = data.manifest(&location, &prefixes, builder.warmup());
        let files = writer.finish(manifest, &data.analysis(&location))?;
        artifacts::validate(&files.manifest)?;
        tracing::info!(
            requests = self.plan.requests.len(),
            manifest = %files.manifest.display(),
            "prepared"
        );
        Ok(files)
    }

    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.materials.tokenizer.clone()
    }
}

/// Records with the text of a special token would change what the server
/// counts; a random selection leaves them out, and says so.
fn warn_skipped(builder: &Builder<'_>, voice: Voice) {
    let skipped = builder.skipped_records();
    if !skipped.is_empty() {
        voice.say(&format!(
            "warning: {} corpus records hold special-token text and are left out",
            skipped.len()
        ));
    }
}
