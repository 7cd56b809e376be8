//! Requests as they come over the wire: shape, defaults, and the refusals a
//! real server would give, word for word. It refuses to know tokens, ranks
//! and caches.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::sim::config::Release;
use crate::sim::refusal::Refusal;
use crate::sim::stop::Stops;

/// Output tokens of a completion that names no limit.
const COMPLETION_TOKENS: u64 = 16;
/// Choices of one prompt.
const CHOICES_MAX: u64 = 64;
/// A bias from here on makes a token certain.
const BIAS_CERTAIN: f64 = 100.0;

/// One prompt of a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// To be tokenized, with the tokenizer's special tokens unless told not to.
    Text(String),
    /// Token ids, taken as they are.
    Ids(Vec<u32>),
}

/// What is wanted, whichever API asked for it.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a wish of the request"
)]
pub(super) struct Wanted {
    /// Model named in the request.
    pub(super) model: Option<String>,
    /// Prompts (completions) or nothing (chat).
    pub(super) prompts: Vec<Prompt>,
    /// Roles and texts (chat) or nothing (completions).
    pub(super) messages: Vec<(String, String)>,
    /// Whether the chat API asked.
    pub(super) chat: bool,
    /// Output limit; `None`: the rest of the context (chat).
    pub(super) max_tokens: Option<u64>,
    /// Whether the request named a limit itself.
    pub(super) limited: bool,
    pub(super) min_tokens: u64,
    pub(super) choices: u64,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
    pub(super) ignore_eos: bool,
    /// What ends the output besides.
    pub(super) stops: Stops,
    /// The end token is certain as soon as it is allowed.
    pub(super) ends_at_once: bool,
    pub(super) echo: bool,
    /// Alternatives per token; `None`: no log-probabilities.
    pub(super) logprobs: Option<u64>,
    /// The prompt's own log-probabilities, which only a full pass gives.
    pub(super) prompt_logprobs: bool,
    pub(super) return_token_ids: bool,
    pub(super) salt: Option<String>,
    /// `None`: the API's own default.
    pub(super) add_special_tokens: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
}

/// Fields of both APIs that change anything here; others are ignored, as the
/// real server does.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Raw<'a> {
    model: Option<String>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    messages: Option<Vec<Message>>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    min_tokens: Option<i64>,
    n: Option<i64>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    ignore_eos: Option<bool>,
    #[serde(borrow)]
    stop: Option<&'a RawValue>,
    stop_token_ids: Option<Vec<u32>>,
    include_stop_str_in_output: Option<bool>,
    logit_bias: Option<std::collections::BTreeMap<String, f64>>,
    echo: Option<bool>,
    logprobs: Option<Value>,
    top_logprobs: Option<u64>,
    prompt_logprobs: Option<i64>,
    return_token_ids: Option<bool>,
    cache_salt: Option<String>,
    add_special_tokens: Option<bool>,
}

/// Reads a completions or chat request.
pub(super) fn read(body: &[u8], chat: bool, release: Release) -> Result<Wanted, Refusal> {
    wanted(body, chat, release).map_err(|refusal| refusal.traced(release, chat))
}

fn wanted(body: &[u8], chat: bool, release: Release) -> Result<Wanted, Refusal> {
    let mut raw: Raw<'_> =
        serde_json::from_slice(body).map_err(|error| Refusal::json(&error, body, release))?;
    let stream = raw.stream.unwrap_or(false);
    let prompts = match (chat, raw.prompt) {
        (true, _) => Vec::new(),
        (false, prompt) => read_prompts(prompt, release, body)?,
    };
    let messages = match (chat, raw.messages.take()) {
        (false, _) => Vec::new(),
        (true, None) => return Err(Refusal::missing("messages")),
        (true, Some(messages)) => messages.into_iter().map(message).collect(),
    };
    if raw.stream_options.is_some() && !stream {
        return Err(Refusal::invalid(
            release,
            "stream_options",
            "Stream options can only be defined when `stream=True`.",
            body,
        ));
    }
    let limits = Limits::of(&raw, chat)?;
    let logprobs = match &raw.logprobs {
        Some(Value::Bool(true)) => Some(raw.top_logprobs.unwrap_or(0)),
        Some(Value::Number(count)) => count.as_u64(),
        _ => None,
    };
    let stops = Stops {
        strings: read_stop(raw.stop)?,
        tokens: raw.stop_token_ids.unwrap_or_default(),
        included: raw.include_stop_str_in_output.unwrap_or(false),
        min_tokens: usize::try_from(limits.min_tokens).unwrap_or(usize::MAX),
    };
    let options = raw.stream_options.unwrap_or_default();
    let echo = raw.echo.unwrap_or(false);
    Ok(Wanted {
        model: raw.model,
        prompts,
        messages,
        chat,
        max_tokens: limits.max_tokens,
        limited: limits.limited,
        min_tokens: limits.min_tokens,
        choices: limits.choices,
        stream,
        include_usage: options.include_usage.unwrap_or(false),
        continuous_usage: options.continuous_usage_stats.unwrap_or(false),
        ignore_eos: raw.ignore_eos.unwrap_or(false),
        stops,
        ends_at_once: raw
            .logit_bias
            .is_some_and(|biases| biases.values().any(|&bias| bias >= BIAS_CERTAIN)),
        echo,
        logprobs,
        prompt_logprobs: raw.prompt_logprobs.is_some() || (echo && logprobs.is_some()),
        return_token_ids: raw.return_token_ids.unwrap_or(false),
        salt: raw.cache_salt,
        add_special_tokens: raw.add_special_tokens,
    })
}

/// Numbers that bound the output.
struct Limits {
    max_tokens: Option<u64>,
    /// Whether the request named a limit itself.
    limited: bool,
    min_tokens: u64,
    choices: u64,
}

impl Limits {
    fn of(raw: &Raw<'_>, chat: bool) -> Result<Self, Refusal> {
        let limit = if chat {
            raw.max_completion_tokens.or(raw.max_tokens)
        } else {
            raw.max_tokens
        };
        let max_tokens = limit
            .map(|limit| at_least("max_tokens", limit, 1))
            .transpose()?;
        let choices = at_least("n", raw.n.unwrap_or(1), 1)?;
        if choices > CHOICES_MAX {
            return Err(Refusal::bad_request(
                format!("n must be at most {CHOICES_MAX}, got {choices}."),
                Some("n"),
            ));
        }
        let min_tokens = at_least("min_tokens", raw.min_tokens.unwrap_or(0), 0)?;
        let max_tokens = max_tokens.or((!chat).then_some(COMPLETION_TOKENS));
        if let Some(most) = max_tokens.filter(|&most| min_tokens > most) {
            return Err(Refusal::bad_request(
                format!(
                    "min_tokens must be less than or equal to max_tokens={most}, got {min_tokens}."
                ),
                None,
            ));
        }
        Ok(Self {
            max_tokens,
            limited: limit.is_some(),
            min_tokens,
            choices,
        })
    }
}

/// A stop string, or a list of them.
fn read_stop(stop: Option<&RawValue>) -> Result<Vec<String>, Refusal> {
    let text = stop.map_or("null", |raw| raw.get().trim());
    let strings = match serde_json::from_str(text) {
        Ok(Value::Null) => Some(Vec::new()),
        Ok(Value::String(one)) => Some(vec![one]),
        _ => serde_json::from_str::<Vec<String>>(text).ok(),
    };
    let strings = strings.ok_or_else(|| Refusal::stop_type(text))?;
    if strings.iter().any(String::is_empty) {
        return Err(Refusal::bad_request(
            "stop cannot contain an empty string.".to_owned(),
            None,
        ));
    }
    Ok(strings)
}

fn at_least(name: &'static str, value: i64, least: i64) -> Result<u64, Refusal> {
    if value < least {
        return Err(Refusal::too_small(name, least, value));
    }
    Ok(u64::try_from(value).unwrap_or(0))
}

/// A message's text; parts that are no text have none.
fn message(message: Message) -> (String, String) {
    let text = match message.content {
        Value::String(text) => text,
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    };
    (message.role, text)
}

fn read_prompts(
    prompt: Option<&RawValue>,
    release: Release,
    body: &[u8],
) -> Result<Vec<Prompt>, Refusal> {
    let text = prompt.map_or("null", |raw| raw.get().trim());
    let parsed = if text.starts_with('"') {
        serde_json::from_str(text).map(|text| vec![Prompt::Text(text)])
    } else if !text.starts_with('[') {
        return Err(Refusal::empty_prompt(release, body));
    } else {
        match text[1..].trim_start().chars().next() {
            Some('"') => serde_json::from_str::<Vec<String>>(text)
                .map(|texts| texts.into_iter().map(Prompt::Text).collect()),
            Some('[') => serde_json::from_str::<Vec<Vec<u32>>>(text)
                .map(|lists| lists.into_iter().map(Prompt::Ids).collect()),
            Some(']') => return Err(Refusal::empty_prompt(release, body)),
            _ => serde_json::from_str(text).map(|ids| vec![Prompt::Ids(ids)]),
        }
    };
    let prompts = parsed.map_err(|error| {
        Refusal::validation(
            "prompt",
            &format!("Input should be a valid prompt ({error})"),
        )
    })?;
    let empty = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => text.is_empty(),
        Prompt::Ids(ids) => ids.is_empty(),
    };
    if prompts.iter().any(empty) {
        return Err(Refusal::empty_prompt(release, body));
    }
    Ok(prompts)
}

/// A request to `/tokenize`.
#[derive(Debug, PartialEq)]
pub(super) struct Tokenize {
    /// Text to tokenize, unless messages are given.
    pub(super) prompt: Option<String>,
    /// Roles and texts.
    pub(super) messages: Option<Vec<(String, String)>>,
    /// Whether a text gets the tokenizer's special tokens.
    pub(super) add_special_tokens: bool,
}

/// Reads a tokenize request.
pub(super) fn read_tokenize(body: &[u8], release: Release) -> Result<Tokenize, Refusal> {
    #[derive(Deserialize)]
    struct RawTokenize {
        prompt: Option<String>,
        messages: Option<Vec<Message>>,
        add_special_tokens: Option<bool>,
    }
    let raw: RawTokenize =
        serde_json::from_slice(body).map_err(|error| Refusal::json(&error, body, release))?;
    if raw.prompt.is_none() && raw.messages.is_none() {
        return Err(Refusal::missing("prompt"));
    }
    Ok(Tokenize {
        prompt: raw.prompt,
        messages: raw
            .messages
            .map(|messages| messages.into_iter().map(message).collect()),
        add_special_tokens: raw.add_special_tokens.unwrap_or(true),
    })
}

/// Reads the ids of a detokenize request.
pub(super) fn read_detokenize(body: &[u8], release: Release) -> Result<Vec<u32>, Refusal> {
    #[derive(Deserialize)]
    struct RawDetokenize {
        tokens: Vec<u32>,
    }
    serde_json::from_slice::<RawDetokenize>(body)
        .map(|raw| raw.tokens)
        .map_err(|error| Refusal::json(&error, body, release))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(body: &str) -> Result<Wanted, Refusal> {
        read(body.as_bytes(), false, Release::V0_32)
    }

    fn message_of(body: &str) -> String {
        completion(body).unwrap_err().body()
    }

    #[test]
    fn prompts_come_in_four_shapes() {
        let prompts = |body: &str| completion(body).unwrap().prompts;
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(prompts(r#"{"prompt":"hi"}"#), [text("hi")]);
        assert_eq!(prompts(r#"{"prompt": [ 1, 2]}"#), [Prompt::Ids(vec![1, 2])]);
        assert_eq!(prompts(r#"{"prompt":["a","b"]}"#), [text("a"), text("b")]);
        assert_eq!(
            prompts(r#"{"prompt":[[1],[2,3]]}"#),
            [Prompt::Ids(vec![1]), Prompt::Ids(vec![2, 3])]
        );
    }

    #[test]
    fn defaults_are_the_apis_own() {
        let wanted = completion(r#"{"prompt":"hi","unknown":1}"#).unwrap();
        assert_eq!(wanted.max_tokens, Some(16));
        assert!(!wanted.limited && !wanted.stream && wanted.logprobs.is_none());
        let chat = br#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}"#;
        let wanted = read(chat, true, Release::V0_32).unwrap();
        assert_eq!(wanted.max_tokens, None);
        assert_eq!(wanted.messages, [("user".to_owned(), "a".to_owned())]);
    }

    #[test]
    fn refusals_name_the_parameter() {
        assert!(message_of(r#"{"prompt":""}"#).contains(r#""param":"prompt","code":400"#));
        assert!(message_of(r#"{"prompt":[]}"#).contains("must be provided and non-empty"));
        assert!(message_of(r#"{"prompt":"a","max_tokens":0}"#).contains("got 0"));
        assert!(message_of(r#"{"prompt":"a","min_tokens":20}"#).contains("max_tokens=16"));
        assert!(message_of(r#"{"prompt":[1,-2]}"#).contains("valid prompt"));
    }
}
