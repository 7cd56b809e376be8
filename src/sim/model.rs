//! The model: which tokens it says, and their text. Words are drawn from the
//! tokenizer's own vocabulary, seeded by the prompt, so that the same prompt
//! always gets the same answer. It refuses to know when a token is sent.

use std::sync::Arc;

use crate::rng::Seed;
use crate::sim::config::SimError;
use crate::sim::stop::{Reason, Stops};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// Words the model knows; more add nothing but memory.
const WORDS_MAX: usize = 512;
/// Vocabulary entries looked at to find them.
const CANDIDATES_MAX: u64 = 20_000;
/// Longest word, in bytes.
const WORD_BYTES_MAX: usize = 16;

/// What the model's vocabulary is: ids and texts. The texts lie behind each
/// other, so that all of them together stay in a near cache.
#[derive(Debug, Default)]
struct Words {
    ids: Vec<u32>,
    /// Texts as they stand behind other text, inside a JSON string.
    texts: String,
    /// Where each text ends.
    ends: Vec<u16>,
}

impl Words {
    fn len(&self) -> usize {
        self.ids.len()
    }

    fn push(&mut self, id: u32, json: &str) {
        self.ids.push(id);
        self.texts.push_str(json);
        let end = u16::try_from(self.texts.len()).expect("few and short words");
        self.ends.push(end);
    }

    fn text(&self, pick: u16) -> &str {
        let at = usize::from(pick);
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[usize::from(from)..usize::from(self.ends[at])]
    }
}

/// Everything the model can say.
#[derive(Debug)]
pub(super) struct Model {
    words: Words,
    end: u32,
    seed: Seed,
}

/// What a sequence says.
#[derive(Clone, Debug)]
pub(super) struct Output {
    /// Token ids, the end token included where it stops by itself.
    pub(super) ids: Arc<[u32]>,
    /// Whether it ends before its limit: by the end token, which is the last id
    /// and has no text, or by a stop of the request.
    pub(super) stops: bool,
    texts: Texts,
    /// What each token lets out, where it is not the token's own text: a stop
    /// string might begin in it. Inside a JSON string.
    shown: Option<Vec<Box<str>>>,
    /// What ended it, if the request named it: a JSON value.
    pub(super) stop_reason: Option<Box<str>>,
    /// Text that comes out with the first token (an echo of the prompt).
    pub(super) lead: Option<Box<str>>,
}

/// Places in the model's list of words.
pub(super) type Picks = Box<[u16]>;

#[derive(Clone, Debug)]
enum Texts {
    /// Words of the model.
    Words(Picks),
    /// An answer's own tokens, inside a JSON string.
    Own(Vec<Box<str>>),
}

impl Output {
    /// Lends its words, where each token lets out just its own.
    pub(super) fn lend_words(&mut self) -> Option<Picks> {
        match &mut self.texts {
            Texts::Words(picks) if self.shown.is_none() => Some(std::mem::take(picks)),
            _ => None,
        }
    }

    /// Takes them back.
    pub(super) fn take_back_words(&mut self, picks: Picks) {
        self.texts = Texts::Words(picks);
    }
}

/// `text` as it stands between the quotes of a JSON string.
pub(super) fn json_text(text: &str) -> Box<str> {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].into()
}

/// The text behind what stands inside a JSON string.
pub(super) fn plain_text(json: &str) -> String {
    serde_json::from_str(&format!("\"{json}\"")).unwrap_or_default()
}

impl Model {
    /// Finds usable words in the tokenizer's vocabulary.
    pub(super) fn new(tokenizer: &dyn Tokenizer, seed: u64) -> Result<Self, SimError> {
        let seed = Seed::from(seed);
        let words = find_words(tokenizer, &seed);
        if words.len() == 0 {
            return Err(SimError::Tokenizer(
                "no vocabulary entry decodes to text of its own".to_owned(),
            ));
        }
        Ok(Self {
            words,
            end: end_token(tokenizer),
            seed,
        })
    }

    /// `count` words for this prompt, at least 1; with `stops`, the last of
    /// them is the end token. `choice` tells the choices of one request apart.
    pub(super) fn babble(&self, prompt: u64, choice: u64, count: usize, stops: bool) -> Output {
        let mut stream = self
            .seed
            .stream(&format!("sim/output/{prompt:016x}/{choice}"));
        let said = count.max(1) - usize::from(stops);
        let picks: Picks = (0..said)
            .map(|_| {
                let pick = stream.below(self.words.len() as u64);
                u16::try_from(pick).expect("fewer words than 65536")
            })
            .collect();
        let ids = picks.iter().map(|&pick| self.words.ids[usize::from(pick)]);
        Output {
            ids: ids.chain(stops.then_some(self.end)).collect(),
            stops,
            texts: Texts::Words(picks),
            shown: None,
            stop_reason: None,
            lead: None,
        }
    }

    /// An answer of its own words and the end token, cut at `most` tokens.
    pub(super) fn say(
        &self,
        tokenizer: &dyn Tokenizer,
        text: &str,
        most: usize,
    ) -> Result<Output, TokenizerError> {
        let mut ids = tokenizer.encode(text)?;
        let stops = ids.len() < most;
        ids.truncate(most);
        let mut texts = Vec::with_capacity(ids.len());
        let mut before = String::new();
        for end in 1..=ids.len() {
            let now = tokenizer.decode(&ids[..end])?;
            // Half a character is held back until its other half comes.
            let whole = now.trim_end_matches('\u{fffd}');
            let fresh = whole.strip_prefix(before.as_str()).unwrap_or("");
            texts.push(json_text(fresh));
            if !fresh.is_empty() {
                whole.clone_into(&mut before);
            }
        }
        ids.extend(stops.then_some(self.end));
        Ok(Output {
            ids: ids.into(),
            stops,
            texts: Texts::Own(texts),
            shown: None,
            stop_reason: None,
            lead: None,
        })
    }

    /// Ends an output where the request wants it ended.
    pub(super) fn stop(&self, mut output: Output, stops: &Stops) -> Output {
        if stops.is_empty() {
            return output;
        }
        let texts: Vec<String> = (0..output.ids.len())
            .map(|at| plain_text(self.text(&output, at)))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let stopped = stops.apply(&output.ids, &texts);
        output.shown = Some(stopped.texts.iter().map(|text| json_text(text)).collect());
        if let Some(reason) = stopped.reason {
            output.ids = output.ids[..stopped.texts.len()].into();
            output.stops = true;
            output.stop_reason = Some(match reason {
                Reason::Text(text) => format!("\"{}\"", json_text(&text)).into(),
                Reason::Token(id) => id.to_string().into(),
            });
        }
        output
    }

    /// What the token at `at` lets out, as it stands inside a JSON string.
    pub(super) fn shown<'a>(&'a self, output: &'a Output, at: usize) -> &'a str {
        match &output.shown {
            None => self.text(output, at),
            Some(texts) => texts.get(at).map_or("", |text| text),
        }
    }

    /// The word picked for the token at `at`, as it stands inside a JSON string.
    pub(super) fn picked(&self, picks: &[u16], at: usize) -> &str {
        picks.get(at).map_or("", |&pick| self.word(pick))
    }

    /// A word picked, as it stands inside a JSON string.
    pub(super) fn word(&self, pick: u16) -> &str {
        self.words.text(pick)
    }

    /// Text of the token at `at`, as it stands inside a JSON string.
    pub(super) fn text<'a>(&'a self, output: &'a Output, at: usize) -> &'a str {
        match &output.texts {
            Texts::Words(picks) => self.picked(picks, at),
            Texts::Own(texts) => texts.get(at).map_or("", |text| text),
        }
    }
}

/// Up to [`WORDS_MAX`] entries that are whole text wherever they stand.
fn find_words(tokenizer: &dyn Tokenizer, seed: &Seed) -> Words {
    let mut stream = seed.stream("sim/words");
    let entries = tokenizer.vocab_size() as u64;
    let mut words = Words::default();
    let mut anchor: Option<(u32, String)> = None;
    if entries == 0 {
        return words;
    }
    let tries = CANDIDATES_MAX.max(4 * entries.min(CANDIDATES_MAX));
    for _ in 0..tries {
        if words.len() == WORDS_MAX {
            break;
        }
        let Ok(id) = u32::try_from(stream.below(entries)) else {
            continue;
        };
        if tokenizer.special_ids().binary_search(&id).is_ok() {
            continue;
        }
        let Some((first, before)) = &anchor else {
            anchor = usable(tokenizer, &[id], "").map(|text| (id, text));
            continue;
        };
        if let Some(text) = usable(tokenizer, &[*first, id], before) {
            let json = json_text(&text);
            if !words.ids.contains(&id) {
                words.push(id, &json);
            }
        }
    }
    words
}

/// What `ids` say behind `before`, if that is a plain short word.
fn usable(tokenizer: &dyn Tokenizer, ids: &[u32], before: &str) -> Option<String> {
    let text = tokenizer.decode(ids).ok()?;
    let word = text.strip_prefix(before)?;
    let plain = !word.is_empty()
        && word.len() <= WORD_BYTES_MAX
        && word
            .chars()
            .all(|char| char.is_alphanumeric() || char == ' ')
        && !word.contains('\u{fffd}');
    plain.then(|| word.to_owned())
}

/// The token chat models end with, as far as it can be told.
fn end_token(tokenizer: &dyn Tokenizer) -> u32 {
    const NAMES: [&str; 6] = [
        "<|im_end|>",
        "<|eot_id|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<eos>",
        "</s>",
    ];
    let special = tokenizer.special_ids();
    let named = NAMES.iter().find_map(|name| {
        special
            .iter()
            .copied()
            .find(|&id| tokenizer.decode(&[id]).is_ok_and(|text| text == *name))
    });
    named
        .or_else(|| special.last().copied())
        .unwrap_or_else(|| u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::toy::Toy;

    fn spoken(model: &Model, output: &Output) -> String {
        (0..output.ids.len())
            .map(|at| model.text(output, at))
            .collect()
    }

    #[test]
    fn the_text_is_what_the_ids_decode_to() {
        let toy = Toy::default();
        let model = Model::new(&toy, 42).unwrap();
        let output = model.babble(7, 0, 50, false);
        assert_eq!(output.ids.len(), 50);
        assert_eq!(spoken(&model, &output), toy.decode(&output.ids).unwrap());
    }

    #[test]
    fn the_same_prompt_gets_the_same_answer() {
        let model = Model::new(&Toy::default(), 42).unwrap();
        let ids = |prompt, choice| model.babble(prompt, choice, 20, false).ids;
        assert_eq!(ids(7, 0), ids(7, 0));
        assert_ne!(ids(7, 0), ids(8, 0));
        assert_ne!(ids(7, 0), ids(7, 1));
    }

    #[test]
    fn an_answer_ends_by_itself_unless_it_is_cut() {
        let toy = Toy::default();
        let model = Model::new(&toy, 42).unwrap();
        let whole = model.say(&toy, "red fox", 100).unwrap();
        assert!(whole.stops);
        assert_eq!(whole.ids.last(), Some(&model.end));
        assert_eq!(spoken(&model, &whole), "red fox");
        let cut = model.say(&toy, "red fox", 1).unwrap();
        assert!(!cut.stops);
        assert_eq!((cut.ids.len(), spoken(&model, &cut).as_str()), (1, "red"));
    }

    #[test]
    fn json_text_is_escaped_without_quotes() {
        assert_eq!(&*json_text("a\"b\n"), "a\\\"b\\n");
        assert_eq!(&*json_text("\""), "\\\"");
        assert_eq!(&*json_text(""), "");
    }
}
