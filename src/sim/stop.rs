//! Where a request's own stop strings and stop tokens end an output, and how
//! its text is held back until it cannot be the beginning of one: as the
//! recorded servers' detokenizer does, token by token. It knows text only.

/// What a request names as ends of its output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stops {
    /// Texts, none of them empty.
    pub(super) strings: Vec<String>,
    /// Tokens.
    pub(super) tokens: Vec<u32>,
    /// Whether what ended the output stays in its text.
    pub(super) included: bool,
    /// Tokens before which nothing ends it.
    pub(super) min_tokens: usize,
}

/// What ended an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// This text.
    Text(String),
    /// This token.
    Token(u32),
}

/// An output after its stops were looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stopped {
    /// Text that each token lets out.
    pub(super) texts: Vec<String>,
    /// What ended it; `None` if nothing did.
    pub(super) reason: Option<Reason>,
}

impl Stops {
    /// Whether the request names any.
    pub(super) fn is_empty(&self) -> bool {
        self.strings.is_empty() && self.tokens.is_empty()
    }

    /// Goes through an output's tokens and their texts.
    pub(super) fn apply(&self, ids: &[u32], texts: &[&str]) -> Stopped {
        let mut said: Vec<char> = Vec::new();
        let mut out = 0;
        let mut let_out = Vec::with_capacity(texts.len());
        for (at, (&id, text)) in ids.iter().zip(texts).enumerate() {
            let may_end = at >= self.min_tokens;
            let is_stop = may_end && self.tokens.contains(&id);
            if !is_stop || self.included {
                said.extend(text.chars());
            }
            let fresh = if is_stop && !self.included {
                0
            } else {
                text.chars().count()
            };
            let found = may_end.then(|| self.found(&said, fresh)).flatten();
            let reason = match found {
                Some((string, length)) => {
                    said.truncate(length);
                    Some(Reason::Text(string))
                }
                None => is_stop.then_some(Reason::Token(id)),
            };
            let last = reason.is_some() || at + 1 == ids.len();
            let until = if last {
                said.len()
            } else {
                said.len().saturating_sub(self.held_back())
            };
            let_out.push(said.iter().take(until).skip(out).collect());
            out = out.max(until);
            if reason.is_some() {
                return Stopped {
                    texts: let_out,
                    reason,
                };
            }
        }
        Stopped {
            texts: let_out,
            reason: None,
        }
    }

    /// Characters that wait because they might begin a stop string.
    fn held_back(&self) -> usize {
        if self.included {
            return 0;
        }
        let longest = self
            .strings
            .iter()
            .map(|string| string.chars().count())
            .max();
        longest.unwrap_or(1) - 1
    }

    /// The stop string that is complete first within the last `fresh`
    /// characters, and the length that the text keeps.
    fn found(&self, said: &[char], fresh: usize) -> Option<(String, usize)> {
        if fresh == 0 {
            return None;
        }
        let mut best: Option<(usize, usize, &String)> = None;
        for string in &self.strings {
            let wanted: Vec<char> = string.chars().collect();
            let from = (said.len() + 1).saturating_sub(fresh + wanted.len());
            let Some(at) = said[from..]
                .windows(wanted.len())
                .position(|window| window == wanted)
            else {
                continue;
            };
            let (start, end) = (from + at, from + at + wanted.len());
            if best.is_none_or(|(_, known, _)| end < known) {
                best = Some((start, end, string));
            }
        }
        best.map(|(start, end, string)| (string.clone(), if self.included { end } else { start }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded output of vLLM 0.32.0 that the recordings in
    /// `tests/data/vllm-0.32.0/stop.*` were made with.
    const TEXTS: [&str; 12] = [
        "eled",
        "蛀",
        " Sketch",
        "管网",
        "เดียวกัน",
        "BIND",
        " Ideal",
        " בעיקר",
        "뎌",
        "\u{fffd}",
        "Mbps",
        "':",
    ];

    fn apply(stops: &Stops, count: usize) -> Stopped {
        let ids: Vec<u32> = (0..).take(count).collect();
        stops.apply(&ids, &TEXTS[..count])
    }

    fn strings(strings: &[&str]) -> Stops {
        Stops {
            strings: strings.iter().map(|&string| string.to_owned()).collect(),
            ..Stops::default()
        }
    }

    #[test]
    fn text_is_held_back_and_cut_as_recorded() {
        let stopped = apply(&strings(&[" Ideal"]), 12);
        assert_eq!(stopped.reason, Some(Reason::Text(" Ideal".to_owned())));
        let recorded = ["", "", "eled蛀 S", "ke", "tch管网เดี", "ยวกั", "นBIND"];
        assert_eq!(stopped.texts, recorded);
    }

    #[test]
    fn a_stop_string_may_lie_across_tokens() {
        let stopped = apply(&strings(&["never said", "l ב"]), 12);
        assert_eq!(stopped.reason, Some(Reason::Text("l ב".to_owned())));
        assert_eq!(stopped.texts.concat(), "eled蛀 Sketch管网เดียวกันBIND Idea");
        assert_eq!(stopped.texts.len(), 8);
        let whole = Stops {
            included: true,
            ..strings(&["never said", "l ב"])
        };
        let stopped = apply(&whole, 12);
        assert_eq!(stopped.texts[..7], TEXTS[..7]);
        assert_eq!(stopped.texts[7], " ב");
    }

    #[test]
    fn what_was_held_back_comes_with_the_last_token() {
        let stopped = apply(&strings(&["a string that is never said"]), 8);
        assert_eq!(stopped.reason, None);
        let recorded = [
            "",
            "",
            "",
            "",
            "",
            "",
            "eled蛀 ",
            "Sketch管网เดียวกันBIND Ideal בעיקר",
        ];
        assert_eq!(stopped.texts, recorded);
    }

    #[test]
    fn nothing_ends_it_before_its_least_length() {
        let stops = Stops {
            min_tokens: 9,
            ..strings(&[" Ideal"])
        };
        let stopped = apply(&stops, 12);
        assert_eq!(stopped.reason, None);
        assert_eq!(
            stopped.texts[6..9],
            ["นBIND ", "Ideal ", "ב"].map(str::to_owned)[..]
        );
        assert_eq!(stopped.texts.concat(), TEXTS.concat());
    }

    #[test]
    fn a_stop_token_ends_it_without_its_text() {
        let stops = Stops {
            tokens: vec![6],
            ..Stops::default()
        };
        let stopped = apply(&stops, 12);
        assert_eq!(stopped.reason, Some(Reason::Token(6)));
        assert_eq!(stopped.texts[..6], TEXTS[..6]);
        assert_eq!(stopped.texts[6..], [String::new()]);
    }
}
