//! The full parse of one payload: the OpenAI shapes of completions and chat,
//! streamed or whole, and the error shapes of vLLM, SGLang and their kin. It is
//! lenient towards unknown members and strict about what it counts.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::chunk::EmptyText;
use crate::measure::Usage;

/// What one chunk (or one whole answer) says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkFacts {
    /// The `choices` array is there and not empty.
    pub has_choice: bool,
    /// Some choice carries generated output.
    pub content: bool,
    /// The last `finish_reason` that is not null.
    pub finish_reason: Option<String>,
    /// Token counts.
    pub usage: Option<Usage>,
}

/// An error that a server reports inside an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamError {
    /// Its `code`, where it is a number that fits.
    pub code: Option<u16>,
    /// Its message, or the whole object where there is none.
    pub message: String,
}

impl StreamError {
    /// An error of which only its text is known.
    pub fn of_text(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let message = serde_json::from_str::<RawError<'_>>(&text)
            .ok()
            .and_then(|error| error.message)
            .and_then(string)
            .unwrap_or_else(|| text.trim().to_owned());
        Self {
            code: None,
            message,
        }
    }
}

/// What a parsed payload is.
#[derive(Debug)]
pub(super) enum Found {
    /// A chunk; its texts in order; where its only text lies if nothing but
    /// that text decides what it means.
    Chunk {
        facts: ChunkFacts,
        texts: Vec<String>,
        plain: Option<PlainText>,
    },
    /// An error object.
    Error(StreamError),
    /// Some other JSON.
    Other,
}

/// The one text of a chunk: its place without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlainText {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether an empty text in this place is content.
    pub(super) empty_is_content: bool,
}

#[derive(Deserialize)]
struct RawChunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<RawChoice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawChoice<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<RawDelta<'a>>,
    #[serde(borrow, default)]
    message: Option<RawDelta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawDelta<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<RawToolCall<'a>>>,
    #[serde(borrow, default)]
    function_call: Option<RawFunction<'a>>,
}

#[derive(Deserialize)]
struct RawToolCall<'a> {
    #[serde(borrow, default)]
    function: Option<RawFunction<'a>>,
}

#[derive(Deserialize)]
struct RawFunction<'a> {
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<RawDetails>,
}

#[derive(Deserialize)]
struct RawDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct RawError<'a> {
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    code: Option<&'a RawValue>,
}

/// Parses one payload; `None` when it is not JSON of a shape that can be read.
pub(super) fn parse(data: &[u8], empty_text: EmptyText) -> Option<Found> {
    // A document is UTF-8 or it is not JSON.
    let text = std::str::from_utf8(data).ok()?;
    let Ok(chunk) = serde_json::from_str::<RawChunk<'_>>(text) else {
        // Any other JSON (a number, a list) is not ours to judge.
        return serde_json::from_str::<&RawValue>(text)
            .is_ok_and(|value| !value.get().starts_with('{'))
            .then_some(Found::Other);
    };
    if let Some(error) = chunk.error.filter(|error| error.get() != "null") {
        return Some(Found::Error(error_object(error)));
    }
    if chunk
        .object
        .is_some_and(|object| object.get() == r#""error""#)
    {
        let whole = serde_json::from_str::<&RawValue>(text).ok()?;
        return Some(Found::Error(error_object(whole)));
    }
    let usage = chunk.usage.and_then(usage);
    let Some(choices) = chunk.choices else {
        return Some(if usage.is_some() {
            Found::Chunk {
                facts: ChunkFacts {
                    usage,
                    ..ChunkFacts::default()
                },
                texts: Vec::new(),
                plain: None,
            }
        } else {
            Found::Other
        });
    };
    let mut facts = ChunkFacts {
        has_choice: !choices.is_empty(),
        usage,
        ..ChunkFacts::default()
    };
    let mut texts = Vec::new();
    for choice in &choices {
        let finish_reason = choice.finish_reason.and_then(string);
        facts.content |= choice.is_content(empty_text, finish_reason.is_none());
        texts.extend(choice.texts());
        facts.finish_reason = finish_reason.or(facts.finish_reason);
    }
    let plain = match choices.as_slice() {
        [choice] if facts.usage.is_none() && facts.finish_reason.is_none() => {
            choice.plain_text(text, empty_text)
        }
        _ => None,
    };
    Some(Found::Chunk {
        facts,
        texts,
        plain,
    })
}

impl<'a> RawChoice<'a> {
    fn is_content(&self, empty_text: EmptyText, unfinished: bool) -> bool {
        let by_text = match self.text {
            Some(text) if text.get() == r#""""# => empty_text == EmptyText::Token && unfinished,
            text => non_empty(text),
        };
        by_text || self.parts().any(RawDelta::is_content)
    }

    fn parts(&self) -> impl Iterator<Item = &RawDelta<'a>> {
        self.delta.iter().chain(&self.message)
    }

    fn texts(&self) -> impl Iterator<Item = String> {
        let of_parts = self
            .parts()
            .flat_map(|part| [part.reasoning_content.or(part.reasoning), part.content]);
        std::iter::once(self.text)
            .chain(of_parts)
            .flatten()
            .filter_map(string)
    }

    /// Where the text of this choice lies in `document`, if nothing else in
    /// the choice could be content and it has no escapes.
    fn plain_text(&self, document: &str, empty_text: EmptyText) -> Option<PlainText> {
        let (value, empty_is_content) = match (self.text, &self.delta, &self.message) {
            (Some(text), None, None) => (text, empty_text == EmptyText::Token),
            (None, Some(delta), None) if delta.has_only_content() => (delta.content?, false),
            _ => return None,
        };
        let inside = value.get().strip_prefix('"')?.strip_suffix('"')?;
        if inside.contains('\\') {
            return None;
        }
        let start = inside.as_ptr().addr() - document.as_ptr().addr();
        Some(PlainText {
            start,
            end: start + inside.len(),
            empty_is_content,
        })
    }
}

impl RawDelta<'_> {
    fn is_content(&self) -> bool {
        let arguments = self
            .tool_calls
            .iter()
            .flatten()
            .filter_map(|call| call.function.as_ref())
            .chain(&self.function_call)
            .any(|function| non_empty(function.arguments));
        arguments
            || non_empty(self.content)
            || non_empty(self.reasoning_content)
            || non_empty(self.reasoning)
    }

    fn has_only_content(&self) -> bool {
        self.reasoning_content.is_none()
            && self.reasoning.is_none()
            && self.tool_calls.is_none()
            && self.function_call.is_none()
    }
}

/// Whether a value is a string with something in it.
fn non_empty(value: Option<&RawValue>) -> bool {
    value.is_some_and(|value| value.get().starts_with('"') && value.get().len() > 2)
}

fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn usage(value: &RawValue) -> Option<Usage> {
    let raw: RawUsage = serde_json::from_str(value.get()).ok()?;
    Some(Usage {
        prompt_tokens: raw.prompt_tokens?,
        completion_tokens: raw.completion_tokens.unwrap_or(0),
        cached_tokens: raw
            .prompt_tokens_details
            .and_then(|details| details.cached_tokens),
    })
}

fn error_object(value: &RawValue) -> StreamError {
    if let Some(message) = string(value) {
        return StreamError {
            code: None,
            message,
        };
    }
    let raw = serde_json::from_str::<RawError<'_>>(value.get()).ok();
    let code = raw.as_ref().and_then(|raw| raw.code).and_then(|code| {
        let digits = code.get().trim_matches('"');
        digits.parse().ok()
    });
    let message = raw.and_then(|raw| raw.message).and_then(string);
    StreamError {
        code,
        message: message.unwrap_or_else(|| value.get().to_owned()),
    }
}
