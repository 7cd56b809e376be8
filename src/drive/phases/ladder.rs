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
    /// What replays show: the largest size that explains them all.
    pub measured_tokens: Option<u64>,
    /// Every size that explains them; one means certainty.
    pub candidates: Vec<u64>,
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
        self.block.measured_tokens = measured.largest();
        self.judge(&measured, warnings);
        self.block.candidates = measured.candidates;
        self.block.replays = measured.replays;
        Ok(())
    }

    async fn ladder(&mut self, words: u64) -> Result<MeasuredBlock, PhaseError> {
        let label = format!("ladder-{words}");
        let mut measured = MeasuredBlock::default();
        let Some(first) = self.replay(&label, words).await? else {
            return Ok(measured);
        };
        let tokens_per_word = first.prompt_tokens as f64 / words as f64;
        let mut next = words;
        while measured.replays.len() < REPLAYS_MAX {
            let Some(replay) = self.replay(&label, next).await? else {
                return Ok(measured);
            };
            let mut replays = measured.replays;
            replays.push(replay);
            measured = MeasuredBlock::of(replays);
            let Some(block) = measured.largest() else {
                return Ok(measured);
            };
            match next_words(block, first.prompt_tokens, tokens_per_word, &measured) {
                Some(more)
                    if measured.certain().is_none() || measured.replays.len() < REPLAYS_MIN =>
                {
                    next = more;
                }
                _ => return Ok(measured),
            }
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
        match (measured.largest(), measured.fits(configured)) {
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

/// Words of the next replay: just short of a multiple of the largest block that
/// still fits, where a smaller block would give more back. `None` when that
/// length has been tried.
fn next_words(
    block: u64,
    longest_tokens: u64,
    tokens_per_word: f64,
    measured: &MeasuredBlock,
) -> Option<u64> {
    let block = BlockSize::new(block)?;
    let tried = measured.replays.len() as u64;
    let blocks = block.whole_blocks(longest_tokens).checked_sub(tried)?;
    let tokens = (blocks + 1) * block.tokens();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of words, smaller than the text's"
    )]
    let words = (tokens as f64 / tokens_per_word).floor() as u64;
    (words > 0).then_some(words)
}
