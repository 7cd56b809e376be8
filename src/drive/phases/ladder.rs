//! The block size, measured: one text is cached, then beginnings of it are sent
//! again, and what comes back leaves fewer and fewer block sizes possible. The
//! engine's own word is not enough: on hybrid models it names a block that is
//! not what is shared (vllm-project/vllm#42966: 16 for 528).

use serde::Serialize;

use crate::drive::phases::settle::CachedSource;
use crate::drive::phases::{PhaseError, PhaseWarning, Session, unique_text};
use crate::service::{ControlPrompt, MeasuredBlock, Replay};
use crate::units::{BlockSize, DpRank};

/// Most replays of one text.
const REPLAYS_MAX: usize = 6;

/// Fewest replays, even where the first two leave no choice.
const REPLAYS_MIN: usize = 3;

/// Longest text in words; hybrid models with blocks beyond it stay unmeasured.
const WORDS_MAX: u64 = 8_192;

/// What is known of the block size, in tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockReport {
    /// What the scenario says.
    pub configured_tokens: u64,
    /// What the engine says.
    pub metric_tokens: Option<u64>,
    /// What replays show: the size that explains them all. Where several do,
    /// the scenario's or else the engine's if it is one of them, otherwise the
    /// largest.
    pub measured_tokens: Option<u64>,
    /// Every size that explains them; one means certainty.
    pub candidates: Vec<u64>,
    /// They show that the last whole block is held back (hybrid models).
    pub last_block_withheld: bool,
    /// The replays.
    pub replays: Vec<Replay>,
    /// Whether usage tells the cached tokens; `None` if nothing was cached.
    pub cached_tokens_in_usage: Option<bool>,
}

impl Session {
    /// Caches a text and replays beginnings of it. Few requests: a cached text
    /// of some three blocks and two to six replays.
    pub(super) async fn measure_block(
        &mut self,
        context_tokens: Option<u64>,
        warnings: &mut Vec<PhaseWarning>,
    ) -> Result<(), PhaseError> {
        // A word is at least one token, and rarely more than four.
        let words_max = context_tokens.map_or(WORDS_MAX, |tokens| (tokens / 5).min(WORDS_MAX));
        let mut words = (self.safe_block().tokens() * 3).max(96).min(words_max);
        let mut measured = self.ladder(words).await?;
        // Blocks longer than the text show as nothing cached.
        while measured.largest().is_none() && words < words_max && found_nothing(&measured) {
            words = (words * 8).min(words_max);
            measured = self.ladder(words).await?;
        }
        self.block.measured_tokens = self.most_plausible(&measured);
        self.judge(&measured, warnings);
        self.block.candidates = measured.candidates;
        self.block.last_block_withheld = measured.last_block_withheld;
        self.block.replays = measured.replays;
        Ok(())
    }

    /// Caches a text of `words` words, replays it and its first half (which
    /// tells how words become tokens), then the lengths that tell most.
    async fn ladder(&mut self, words: u64) -> Result<MeasuredBlock, PhaseError> {
        let label = format!("ladder-{words}");
        if self.replay(&label, words).await?.is_none() {
            return Ok(MeasuredBlock::default());
        }
        let mut rungs: Vec<Rung> = Vec::new();
        let mut measured = MeasuredBlock::default();
        let mut next = Some(words);
        while let Some(words) = next {
            let Some(replay) = self.replay(&label, words).await? else {
                break;
            };
            rungs.push(Rung { words, replay });
            measured = MeasuredBlock::of(rungs.iter().map(|rung| rung.replay).collect());
            next = next_rung(&rungs, &measured);
        }
        Ok(measured)
    }

    /// Sends the beginning of a text; `None` where the cached tokens cannot be
    /// told.
    async fn replay(&mut self, label: &str, words: u64) -> Result<Option<Replay>, PhaseError> {
        let text = unique_text(label, &self.options.nonce, words);
        let salt = self.client.settings().cache_salt.clone();
        let look = self
            .look(&ControlPrompt::Text(text), Some(DpRank(0)), salt.as_deref())
            .await
            .map_err(|error| error.during("measuring the block size"))?;
        let (cached, source) = look.cached();
        if cached.is_some_and(|tokens| tokens > 0) {
            self.block.cached_tokens_in_usage = Some(source == CachedSource::Usage);
        }
        Ok(cached.map(|cached_tokens| Replay {
            prompt_tokens: look.prompt_tokens(),
            cached_tokens,
        }))
    }

    fn most_plausible(&self, measured: &MeasuredBlock) -> Option<u64> {
        let known = [
            Some(self.options.block_size.tokens()),
            self.block.metric_tokens,
        ];
        known
            .into_iter()
            .flatten()
            .find(|tokens| measured.candidates.contains(tokens))
            .or(measured.largest())
    }

    fn judge(&self, measured: &MeasuredBlock, warnings: &mut Vec<PhaseWarning>) {
        let configured = self.options.block_size;
        let said = match self.block.metric_tokens {
            Some(metric) => format!("the engine says {metric}"),
            None => "the engine does not say".to_owned(),
        };
        if measured.replays.is_empty() {
            warnings.push(PhaseWarning::new(
                "BLOCK_SIZE_UNMEASURED",
                format!("neither usage nor the counters tell what a replay found; {said}"),
            ));
            return;
        }
        match (self.block.measured_tokens, measured.fits(configured)) {
            (_, Some(true)) => {}
            (Some(block), _) => warnings.push(PhaseWarning::new(
                "BLOCK_SIZE_MISMATCH",
                format!(
                    "replays show blocks of {block} tokens, the scenario says {} ({said})",
                    configured.tokens()
                ),
            )),
            (None, _) => {
                let longest = measured.replays.iter().map(|one| one.prompt_tokens).max();
                warnings.push(PhaseWarning::new(
                    "NO_REUSE_SEEN",
                    format!(
                        "a replay of {} tokens found nothing in the cache, or nothing that one \
                         block size explains; the scenario's block is {} tokens ({said})",
                        longest.unwrap_or(0),
                        configured.tokens()
                    ),
                ));
            }
        }
    }

    /// The engine's word against the scenario's, where nothing was measured.
    pub(super) fn compare_metric_block(&self, warnings: &mut Vec<PhaseWarning>) {
        let configured = self.options.block_size.tokens();
        if self.block.measured_tokens.is_some() {
            return;
        }
        if let Some(metric) = self.block.metric_tokens.filter(|one| *one != configured) {
            warnings.push(PhaseWarning::new(
                "BLOCK_SIZE_MISMATCH",
                format!("the engine says {metric} tokens a block, the scenario {configured}"),
            ));
        }
    }
}

/// Whether replays were made and gave nothing back, which a longer text may
/// change.
fn found_nothing(measured: &MeasuredBlock) -> bool {
    let replays = &measured.replays;
    !replays.is_empty() && replays.iter().all(|replay| replay.cached_tokens == 0)
}

/// One replay, and how many words it had.
#[derive(Clone, Copy, Debug)]
struct Rung {
    words: u64,
    replay: Replay,
}

/// Words of the next replay; `None` when there is nothing more to learn.
fn next_rung(rungs: &[Rung], measured: &MeasuredBlock) -> Option<u64> {
    let certain = rungs.len() >= REPLAYS_MIN && measured.certain().is_some();
    let block = measured.largest()?;
    match rungs {
        [only] => Some(only.words / 2),
        _ if rungs.len() >= REPLAYS_MAX => None,
        // A little above a whole multiple, all of the multiple comes back
        // unless its last block is held back.
        _ if certain && !measured.rivals.is_empty() => next_words(block, block / 4, rungs),
        _ if certain => None,
        _ => next_words(block, 0, rungs),
    }
}

/// Words of the replay that tells most: a whole multiple of the largest block
/// that still fits. That block would leave all but one token of the last
/// multiple unfound; any smaller one gives more back. `above` tokens are added.
/// The longest multiple not tried yet; `None` when there is none.
fn next_words(block: u64, above: u64, rungs: &[Rung]) -> Option<u64> {
    let block = BlockSize::new(block)?;
    let (first, second) = (rungs.first()?, rungs.get(1)?);
    let tokens = |rung: &Rung| rung.replay.prompt_tokens as f64;
    // The text's beginning (nonce, label) is a constant, each word a share.
    let per_word = (tokens(first) - tokens(second)) / (first.words - second.words) as f64;
    let constant = tokens(first) - per_word * first.words as f64;
    if per_word <= 0.0 {
        return None;
    }
    (1..=block.whole_blocks(first.replay.prompt_tokens))
        .rev()
        .map(|blocks| ((blocks * block.tokens() + above) as f64 - constant) / per_word)
        .map(whole_words)
        .find(|words| {
            let tried = rungs.iter().any(|rung| rung.words == *words);
            *words > 0 && *words <= first.words && !tried
        })
}

fn whole_words(words: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounds down; what is below 0 becomes 0"
    )]
    let whole = words as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Climbs as a session does, on a server whose block is `block` and whose
    /// tokenizer makes `constant + per_mille · words / 1000` tokens.
    fn climb(block: u64, words: u64, constant: u64, per_mille: u64) -> MeasuredBlock {
        climb_holding_back(0, block, words, constant, per_mille)
    }

    /// The same with `held_back` blocks held back.
    fn climb_holding_back(
        held_back: u64,
        block: u64,
        words: u64,
        constant: u64,
        per_mille: u64,
    ) -> MeasuredBlock {
        let held_back = held_back * block;
        let block = BlockSize::new(block).unwrap();
        let replay = |words: u64| {
            let prompt_tokens = constant + per_mille * words / 1_000;
            let cached_tokens = block
                .findable_tokens(prompt_tokens)
                .saturating_sub(held_back);
            Replay {
                prompt_tokens,
                cached_tokens,
            }
        };
        let mut rungs: Vec<Rung> = Vec::new();
        let mut measured = MeasuredBlock::default();
        let mut next = Some(words);
        while let Some(words) = next {
            let replay = replay(words);
            rungs.push(Rung { words, replay });
            measured = MeasuredBlock::of(rungs.iter().map(|rung| rung.replay).collect());
            next = next_rung(&rungs, &measured);
        }
        measured
    }

    #[test]
    fn a_few_replays_find_the_block() {
        for block in [8, 16, 32, 48, 64, 128, 256] {
            for (constant, per_mille) in [(2, 1_000), (19, 1_000), (23, 1_300), (40, 2_500)] {
                let measured = climb(block, (block * 3).max(96), constant, per_mille);
                let shown = format!("{block} {constant} {per_mille}: {measured:?}");
                assert_eq!(measured.largest(), Some(block), "{shown}");
            }
        }
    }

    #[test]
    fn a_few_more_tell_a_block_held_back_from_a_block_twice_as_long() {
        for block in [16, 32, 64, 128, 256] {
            for (constant, per_mille) in [(2, 1_000), (19, 1_000), (23, 1_300), (40, 2_500)] {
                for held_back in [0, 1] {
                    let words = (block * 3).max(96);
                    let measured = climb_holding_back(held_back, block, words, constant, per_mille);
                    let shown = format!("{block} {constant} {per_mille}: {measured:?}");
                    assert_eq!(measured.largest(), Some(block), "{shown}");
                    assert_eq!(measured.last_block_withheld, held_back == 1, "{shown}");
                }
            }
        }
    }

    #[test]
    fn a_text_that_does_not_grow_with_its_words_ends_the_ladder() {
        let measured = climb(16, 96, 100, 0);
        assert!(measured.replays.len() <= REPLAYS_MAX);
    }
}
