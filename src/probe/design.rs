//! What a probe is to send, and whether the server's context can hold it. It
//! knows sizes in tokens; who turns them into text comes later.

use serde::{Deserialize, Serialize};

use super::calibration::SIZE_TOLERANCE_RATIO;
use super::record::ProbeKind;

/// Output limit of a conversation's turn. The turns ask for one short sentence.
pub const ANSWER_TOKENS_MAX: u64 = 48;

/// What a turn adds to its conversation at most: the answer before it, its own
/// question, and what a chat template puts around both.
pub const TURN_GROWTH_TOKENS: u64 = ANSWER_TOKENS_MAX + 72;

/// Smallest size that leaves room for a document beside its question.
pub const SIZE_TOKENS_MIN: u64 = 100;

/// Most turns, rounds, doses, depths and requests of noise: far above what
/// anyone has the patience for, and a bound for the record.
const STEPS_MAX: u32 = 10_000;

/// Largest dose of a knee search when nothing tells the context length.
const DOSE_TOKENS_UNTOLD_MAX: u64 = 262_144;

/// One probe, sizes in prompt tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Design {
    /// One conversation, nothing else on the server.
    Single {
        /// Prompt tokens of turn 1.
        tokens: u64,
        /// Turns, at least 2.
        turns: u32,
    },
    /// Two conversations in strict alternation.
    Alternation {
        /// Prompt tokens of turn 1 of each.
        tokens: u64,
        /// Turns of each, at least 2.
        rounds: u32,
        /// Unrelated requests between two turns.
        noise: u32,
        /// Prompt tokens of each of them.
        noise_tokens: u64,
    },
    /// One request of varying size between two turns.
    Dose {
        /// Prompt tokens of turn 1.
        tokens: u64,
        /// Which sizes.
        doses: Doses,
    },
    /// A pass phrase in the reused prefix.
    Needle {
        /// Prompt tokens of turn 1.
        tokens: u64,
        /// Where the phrase stands, 0..=1 of the document.
        depths: Vec<f64>,
        /// Prompt tokens of an unrelated request between the two turns.
        interleave_tokens: Option<u64>,
    },
}

/// Which doses a dose probe tries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doses {
    /// These, in order; 0 is no traffic.
    Listed(Vec<u64>),
    /// Those that a knee search asks for.
    FindKnee {
        /// Width of the interval that is looked for, tokens, at least 1.
        resolution: u64,
        /// Observations on each side of it, at least 1.
        repeats: u32,
    },
}

/// Why a design cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    /// A number out of its range.
    #[error("`{option}` is {value}; {wanted}")]
    Option {
        /// The option.
        option: &'static str,
        /// What it says.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// A request that the server's context cannot hold.
    #[error(
        "`{option}` needs {needed_tokens} tokens (answers included), the server's context is {context_tokens}"
    )]
    TooLong {
        /// The option.
        option: &'static str,
        /// Tokens of the largest request, prompt and answer.
        needed_tokens: u64,
        /// `max_model_len`.
        context_tokens: u64,
    },
}

impl DesignError {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Option { .. } => "PROBE_OPTION_INVALID",
            Self::TooLong { .. } => "SIZE_OVER_CONTEXT",
        }
    }
}

impl Design {
    /// Which probe it is.
    pub const fn kind(&self) -> ProbeKind {
        match self {
            Self::Single { .. } => ProbeKind::Single,
            Self::Alternation { .. } => ProbeKind::Alternation,
            Self::Dose { .. } => ProbeKind::Dose,
            Self::Needle { .. } => ProbeKind::Needle,
        }
    }

    /// Prompt tokens of a conversation's turn 1.
    pub const fn tokens(&self) -> u64 {
        match self {
            Self::Single { tokens, .. }
            | Self::Alternation { tokens, .. }
            | Self::Dose { tokens, .. }
            | Self::Needle { tokens, .. } => *tokens,
        }
    }

    /// The single arm that makes this probe readable: a conversation of the
    /// same size with nothing else on the server.
    #[must_use]
    pub const fn control(&self) -> Self {
        Self::Single {
            tokens: self.tokens(),
            turns: 3,
        }
    }

    /// Checks every number by itself.
    pub fn check(&self) -> Result<(), DesignError> {
        at_least("--tokens", self.tokens(), SIZE_TOKENS_MIN)?;
        match self {
            Self::Single { turns, .. } => steps("--turns", *turns, 2),
            Self::Alternation {
                rounds,
                noise,
                noise_tokens,
                ..
            } => {
                steps("--rounds", *rounds, 2)?;
                steps("--noise", *noise, 0)?;
                match noise {
                    0 => Ok(()),
                    _ => at_least("--noise-tokens", *noise_tokens, SIZE_TOKENS_MIN),
                }
            }
            Self::Dose { doses, .. } => doses.check(),
            Self::Needle {
                depths,
                interleave_tokens,
                ..
            } => {
                count("--depths", depths.len())?;
                if let Some(depth) = depths.iter().find(|depth| !(0.0..=1.0).contains(*depth)) {
                    return Err(wrong("--depths", &depth, "a depth is a share from 0 to 1"));
                }
                match interleave_tokens {
                    Some(tokens) => at_least("--interleave", *tokens, SIZE_TOKENS_MIN),
                    None => Ok(()),
                }
            }
        }
    }

    /// Checks that the largest request and its answer fit into `context_tokens`.
    pub fn check_context(&self, context_tokens: u64) -> Result<(), DesignError> {
        let fits = |option, prompt_tokens: u64| {
            let needed_tokens = prompt_tokens.saturating_add(ANSWER_TOKENS_MAX);
            if needed_tokens <= context_tokens {
                return Ok(());
            }
            Err(DesignError::TooLong {
                option,
                needed_tokens,
                context_tokens,
            })
        };
        let grown = self.later_turns() * TURN_GROWTH_TOKENS;
        fits("--tokens", self.tokens().saturating_add(grown))?;
        match self {
            Self::Alternation {
                noise: 1..,
                noise_tokens,
                ..
            } => fits("--noise-tokens", *noise_tokens),
            Self::Dose {
                doses: Doses::Listed(doses),
                ..
            } => fits("--doses", doses.iter().copied().max().unwrap_or(0)),
            Self::Needle {
                interleave_tokens: Some(tokens),
                ..
            } => fits("--interleave", *tokens),
            _ => Ok(()),
        }
    }

    /// Turns of a conversation after its first.
    fn later_turns(&self) -> u64 {
        let turns = match self {
            Self::Single { turns, .. } => *turns,
            Self::Alternation { rounds, .. } => *rounds,
            Self::Dose { .. } | Self::Needle { .. } => 2,
        };
        u64::from(turns.saturating_sub(1))
    }
}

/// Largest dose that a knee search may ask for. A text may turn out larger than
/// it was asked for, by [`SIZE_TOLERANCE_RATIO`]; it still has to fit.
pub fn dose_limit(context_tokens: Option<u64>) -> u64 {
    context_tokens.map_or(DOSE_TOKENS_UNTOLD_MAX, |context| {
        let room = context.saturating_sub(ANSWER_TOKENS_MAX) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a length of tokens, not negative; the fraction is dropped"
        )]
        let limit = (room / (1.0 + SIZE_TOLERANCE_RATIO)) as u64;
        limit.max(1)
    })
}

impl Doses {
    fn check(&self) -> Result<(), DesignError> {
        match self {
            Self::Listed(doses) => {
                count("--doses", doses.len())?;
                let small = |dose: &&u64| (1..SIZE_TOKENS_MIN).contains(*dose);
                match doses.iter().find(small) {
                    Some(dose) => {
                        let wanted = format!("0 or at least {SIZE_TOKENS_MIN} tokens are needed");
                        Err(wrong("--doses", &dose, wanted))
                    }
                    None => Ok(()),
                }
            }
            Self::FindKnee {
                resolution,
                repeats,
            } => {
                at_least("--resolution", *resolution, 1)?;
                steps("--repeats", *repeats, 1)
            }
        }
    }
}

fn wrong(option: &'static str, value: &impl ToString, wanted: impl Into<String>) -> DesignError {
    DesignError::Option {
        option,
        value: value.to_string(),
        wanted: wanted.into(),
    }
}

fn at_least(option: &'static str, value: u64, least: u64) -> Result<(), DesignError> {
    if value >= least {
        return Ok(());
    }
    Err(wrong(option, &value, format!("at least {least} is needed")))
}

fn steps(option: &'static str, value: u32, least: u32) -> Result<(), DesignError> {
    if (least..=STEPS_MAX).contains(&value) {
        return Ok(());
    }
    let wanted = format!("a number from {least} to {STEPS_MAX} is needed");
    Err(wrong(option, &value, wanted))
}

fn count(option: &'static str, entries: usize) -> Result<(), DesignError> {
    if (1..=STEPS_MAX as usize).contains(&entries) {
        return Ok(());
    }
    let value = format!("a list of {entries}");
    let wanted = format!("1 to {STEPS_MAX} entries are needed");
    Err(wrong(option, &value, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option_of(design: &Design) -> Option<&'static str> {
        match design.check() {
            Err(DesignError::Option { option, .. }) => Some(option),
            _ => None,
        }
    }

    #[test]
    fn every_number_has_its_range() {
        let single = |tokens, turns| Design::Single { tokens, turns };
        assert_eq!(single(130_000, 3).check(), Ok(()));
        assert_eq!(option_of(&single(99, 3)), Some("--tokens"));
        assert_eq!(option_of(&single(130_000, 1)), Some("--turns"));
        let doses = |doses| Design::Dose {
            tokens: 1_000,
            doses,
        };
        assert_eq!(option_of(&doses(Doses::Listed(vec![]))), Some("--doses"));
        assert_eq!(
            option_of(&doses(Doses::Listed(vec![0, 7]))),
            Some("--doses")
        );
        let search = |resolution, repeats| {
            doses(Doses::FindKnee {
                resolution,
                repeats,
            })
        };
        assert_eq!(option_of(&search(0, 3)), Some("--resolution"));
        assert_eq!(option_of(&search(1, 0)), Some("--repeats"));
        let needle = |depth| Design::Needle {
            tokens: 1_000,
            depths: vec![0.5, depth],
            interleave_tokens: None,
        };
        assert_eq!(needle(1.0).check(), Ok(()));
        for depth in [-0.1, 1.1, f64::NAN] {
            assert_eq!(option_of(&needle(depth)), Some("--depths"));
        }
    }

    #[test]
    fn the_largest_request_must_fit_with_its_answer() {
        let single = Design::Single {
            tokens: 32_768,
            turns: 3,
        };
        let error = single.check_context(32_768).unwrap_err();
        assert_eq!(error.code(), "SIZE_OVER_CONTEXT");
        // Two more turns of 120 tokens, and the last answer of 48.
        assert_eq!(single.check_context(32_768 + 2 * 120 + 48), Ok(()));
        let dose = Design::Dose {
            tokens: 1_000,
            doses: Doses::Listed(vec![0, 40_000]),
        };
        assert!(matches!(
            dose.check_context(32_768),
            Err(DesignError::TooLong {
                option: "--doses",
                ..
            })
        ));
    }

    #[test]
    fn the_largest_dose_fits_though_it_turns_out_larger() {
        for context in [1, 100, 4_096, 32_768, 120_000, 131_072, 10_000_000] {
            let dose = dose_limit(Some(context));
            // One percent above, in whole numbers, and the answer.
            let fits = dose * 101 / 100 + ANSWER_TOKENS_MAX <= context;
            assert!(fits || context < 100, "{dose} of {context}");
            let larger = (dose + 2) * 101 / 100 + ANSWER_TOKENS_MAX;
            assert!(larger > context, "{dose} of {context} is too small");
        }
    }

    #[test]
    fn noise_that_is_not_sent_needs_no_size() {
        let design = Design::Alternation {
            tokens: 1_000,
            rounds: 8,
            noise: 0,
            noise_tokens: 1_000_000,
        };
        assert_eq!(design.check(), Ok(()));
        assert_eq!(design.check_context(4_096), Ok(()));
    }
}
