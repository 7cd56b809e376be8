//! How many characters make how many tokens on this server: a line through what
//! its usage said. Hard-coded ratios silently change the arm.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Share of the wanted size by which a first turn may be off, 0..=1.
pub const SIZE_TOLERANCE_RATIO: f64 = 0.01;

/// Share of the expected size within which a measurement fits. It is less than
/// the other, so that no turn of 500 tokens or more, expected to a token, is off
/// and its measurement changes nothing.
const FIT_TOLERANCE_RATIO: f64 = 0.75 * SIZE_TOLERANCE_RATIO;

/// Two measurements give a line only if their lengths differ by this share.
const LINE_DIFFERENCE_RATIO: f64 = 0.2;

/// How characters are turned into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// Characters sent in the newest measurement.
    pub characters: u64,
    /// Prompt tokens the server counted for them.
    pub prompt_tokens: u64,
    /// Tokens that a chat template adds to any message; 0 until two lengths
    /// have been measured.
    #[serde(default)]
    pub overhead_tokens: f64,
    /// How often the ratio had to be corrected by a real turn.
    pub corrections: u32,
}

impl Calibration {
    /// What one sample says; `None` when the server counted nothing.
    pub fn new(characters: u64, prompt_tokens: u64) -> Option<Self> {
        (characters > 0 && prompt_tokens > 0).then_some(Self {
            characters,
            prompt_tokens,
            overhead_tokens: 0.0,
            corrections: 0,
        })
    }

    /// Tokens per character, more than 0.
    pub fn tokens_per_character(&self) -> f64 {
        (self.prompt_tokens as f64 - self.overhead_tokens) / self.characters as f64
    }

    /// Characters for a prompt of `tokens`, rounded up.
    pub fn characters_for(&self, tokens: u64) -> u64 {
        let text_tokens = (tokens as f64 - self.overhead_tokens).max(0.0);
        let characters = (text_tokens / self.tokens_per_character()).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a length; the cast saturates"
        )]
        let characters = characters as u64;
        characters
    }

    /// Tokens that a prompt of `characters` should have.
    fn tokens_for(&self, characters: u64) -> f64 {
        self.overhead_tokens + characters as f64 * self.tokens_per_character()
    }

    /// Takes a further measurement. One that fits is no news: texts differ by
    /// chance, and following each of them would only make sizes wander. One
    /// that does not fit, of another length, gives a line through both, whose
    /// offset is the overhead; of a like length, another ratio.
    pub fn measured(&mut self, characters: u64, prompt_tokens: u64) {
        if characters == 0 || prompt_tokens == 0 {
            return;
        }
        let tokens = prompt_tokens as f64;
        if !differs(self.tokens_for(characters), tokens, FIT_TOLERANCE_RATIO) {
            return;
        }
        let longer = characters.max(self.characters) as f64;
        let length = characters as f64 - self.characters as f64;
        let slope = (tokens - self.prompt_tokens as f64) / length;
        let overhead = tokens - slope * characters as f64;
        let shorter_tokens = prompt_tokens.min(self.prompt_tokens) as f64;
        let is_line = length.abs() >= LINE_DIFFERENCE_RATIO * longer
            && (0.0..=shorter_tokens / 2.0).contains(&overhead);
        if is_line {
            self.overhead_tokens = overhead;
            if characters < self.characters {
                return;
            }
        } else {
            self.overhead_tokens = self.overhead_tokens.min(tokens / 2.0);
        }
        self.characters = characters;
        self.prompt_tokens = prompt_tokens;
    }
}

/// Whether `measured_tokens` is off the wanted size by more than
/// [`SIZE_TOLERANCE_RATIO`].
pub fn is_off(wanted_tokens: u64, measured_tokens: u64) -> bool {
    let (wanted, measured) = (wanted_tokens as f64, measured_tokens as f64);
    differs(wanted, measured, SIZE_TOLERANCE_RATIO)
}

fn differs(wanted: f64, measured: f64, tolerance_ratio: f64) -> bool {
    (wanted - measured).abs() > tolerance_ratio * wanted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_are_rounded_up() {
        let calibration = Calibration::new(20_000, 4_700).unwrap();
        assert_eq!(calibration.characters_for(4_700), 20_000);
        assert_eq!(calibration.characters_for(60_000), 255_320);
        assert_eq!(Calibration::new(20_000, 0), None);
    }

    #[test]
    fn one_percent_is_on_and_more_is_off() {
        for (measured, off) in [
            (55_000, false),
            (54_450, false),
            (55_551, true),
            (48_000, true),
        ] {
            assert_eq!(is_off(55_000, measured), off, "{measured}");
        }
    }

    #[test]
    fn what_fits_is_no_news_and_what_does_not_is() {
        let mut calibration = Calibration::new(20_000, 5_000).unwrap();
        calibration.measured(12_000, 3_020);
        assert_eq!(calibration, Calibration::new(20_000, 5_000).unwrap());
        // 1,000 characters are 250 tokens and a template of 40: a line.
        calibration.measured(1_000, 290);
        assert_eq!(calibration.characters, 20_000);
        assert!((calibration.overhead_tokens - 42.1).abs() < 0.1);
        // A ratio that no line explains is taken as it is.
        let mut calibration = Calibration::new(20_000, 5_000).unwrap();
        calibration.measured(16_000, 5_333);
        assert_eq!(calibration.characters_for(5_333), 16_000);
    }

    /// Sizes its requests by what the server counted, as a probe does.
    fn sized(wanted: u64, count: impl Fn(u64) -> u64) -> (Calibration, u64) {
        let mut calibration = Calibration::new(20_000, count(20_000)).unwrap();
        let mut characters = calibration.characters_for(wanted);
        for _ in 0..3 {
            if !is_off(wanted, count(characters)) {
                break;
            }
            calibration.measured(characters, count(characters));
            characters = calibration.characters_for(wanted);
        }
        (calibration, characters)
    }

    /// 71 tokens off 7,072 is more than one percent, 71 off the 7,072.4 expected
    /// is not.
    #[test]
    fn a_size_that_is_just_off_is_corrected() {
        let count = |characters: u64| 150 + characters * 663 / 1_000;
        let (calibration, characters) = sized(7_072, count);
        assert!(!is_off(7_072, count(characters)), "{calibration:?}");
    }

    proptest! {
        #[test]
        fn two_lengths_give_the_template_and_the_ratio(
            overhead in 0_u64..200,
            per_thousand in 100_u64..900,
            wanted in 500_u64..200_000,
        ) {
            let count = |characters: u64| overhead + characters * per_thousand / 1_000;
            let (calibration, characters) = sized(wanted, count);
            prop_assert!(!is_off(wanted, count(characters)), "{calibration:?} {characters}");
        }
    }
}
