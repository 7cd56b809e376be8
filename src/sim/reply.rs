//! Answers as they go over the wire: members, their order and their nulls are
//! those of the recorded servers. It refuses to know when anything is sent.
//!
//! Cost of a plain stream event: three copies into a reused buffer (what
//! stands before the text, the text, what stands behind it); no JSON is built.

use std::fmt::Write as _;

use crate::sim::config::Release;
use crate::sim::engine::Finish;
use crate::sim::model::{Model, Output, json_text, plain_text};

/// What all events of one response share.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a wish of the request"
)]
pub(super) struct Shape {
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) release: Release,
    pub(super) chat: bool,
    pub(super) stream_usage: bool,
    pub(super) continuous_usage: bool,
    /// Whether usage says what was cached.
    pub(super) details: bool,
    pub(super) return_token_ids: bool,
    pub(super) logprobs: Option<u64>,
    /// Prompt tokens of all prompts together.
    pub(super) prompt_tokens: u64,
    /// Whole-block tokens of the prompt (chat usage of 0.32.0).
    pub(super) whole_tokens: u64,
}

/// One choice of a response.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) index: usize,
    pub(super) output: Output,
    /// Ids of its prompt, kept only where they are sent back.
    pub(super) prompt_ids: Option<Vec<u32>>,
}

/// A stretch of a choice's tokens that goes out in one event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) from: usize,
    pub(super) until: usize,
    pub(super) finish: Option<Finish>,
    /// Output tokens of all choices so far, for continuous usage.
    pub(super) completion_tokens: u64,
}

/// What stands behind the text of an ordinary event.
const COMPLETION_TAIL: &str = "\",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null,\"prompt_token_ids\":null,\"token_ids\":null}]}\n\n";
const CHAT_TAIL: &str = "\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n";
/// Why writing to a string cannot fail.
const STRING: &str = "a string takes any text";
/// The last event of a stream.
pub(super) const DONE: &str = "data: [DONE]\n\n";

impl Shape {
    /// What stands before the text in each event of a choice.
    pub(super) fn opening(&self, index: usize) -> Box<str> {
        let (object, member) = if self.chat {
            ("chat.completion.chunk", "\"delta\":{\"content\":\"")
        } else {
            ("text_completion", "\"text\":\"")
        };
        format!(
            "data: {}{{\"index\":{index},{member}",
            self.head(object, "\"choices\":[")
        )
        .into()
    }

    /// The object up to its choices.
    fn head(&self, object: &str, choices: &str) -> String {
        format!(
            "{{\"id\":\"{}\",\"object\":\"{object}\",\"created\":{},\"model\":\"{}\",{choices}",
            json_text(&self.id),
            self.created,
            json_text(&self.model),
        )
    }

    /// The opening event of a chat choice: the role.
    pub(super) fn role(&self, choice: &Choice) -> String {
        let ids = ids_or_null(choice.prompt_ids.as_deref());
        let usage = self.running_usage(0);
        format!(
            "data: {}{{\"index\":{},\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}],\"prompt_token_ids\":{ids},\"prompt_text\":null{usage}}}\n\n",
            self.head("chat.completion.chunk", "\"choices\":["),
            choice.index,
        )
    }

    /// One event with a stretch of tokens, appended to `into`.
    pub(super) fn event(
        &self,
        into: &mut Vec<u8>,
        opening: &str,
        model: &Model,
        choice: &Choice,
        stretch: Stretch,
    ) {
        into.extend_from_slice(opening.as_bytes());
        let first = stretch.from == 0;
        if first && let Some(lead) = &choice.output.lead {
            into.extend_from_slice(lead.as_bytes());
        }
        for at in stretch.from..stretch.until {
            into.extend_from_slice(model.shown(&choice.output, at).as_bytes());
        }
        let sends_ids = self.return_token_ids && !self.chat && first;
        if let Some(tail) = self.plain_tail().filter(|_| stretch.finish.is_none()) {
            into.extend_from_slice(tail.as_bytes());
            return;
        }
        let prompt_ids = choice.prompt_ids.as_deref().filter(|_| sends_ids);
        let tail = self.tail(model, choice, stretch, prompt_ids);
        into.extend_from_slice(tail.as_bytes());
    }

    /// What stands behind the text of events that carry text alone, if that is
    /// what the request's are.
    pub(super) fn plain_tail(&self) -> Option<&'static str> {
        let plain = self.logprobs.is_none() && !self.continuous_usage && !self.return_token_ids;
        let tail = if self.chat {
            CHAT_TAIL
        } else {
            COMPLETION_TAIL
        };
        plain.then_some(tail)
    }

    fn tail(
        &self,
        model: &Model,
        choice: &Choice,
        stretch: Stretch,
        prompt_ids: Option<&[u32]>,
    ) -> String {
        let logprobs = self.logprobs(model, choice, stretch.from, stretch.until);
        let said = &choice.output.ids[stretch.from..stretch.until];
        let ids = ids_or_null(self.return_token_ids.then_some(said));
        let reason = reason_or_null(stretch.finish);
        let stop = stop_reason(choice, stretch.finish);
        let mut tail = if self.chat {
            let stop = match stretch.finish {
                Some(_) => format!("\"stop_reason\":{stop},"),
                None => String::new(),
            };
            format!(
                "\"}},\"logprobs\":{logprobs},\"finish_reason\":{reason},{stop}\"token_ids\":{ids}}}]"
            )
        } else {
            format!(
                "\",\"logprobs\":{logprobs},\"finish_reason\":{reason},\"stop_reason\":{stop},\"prompt_token_ids\":{},\"token_ids\":{ids}}}]",
                ids_or_null(prompt_ids),
            )
        };
        tail += &self.running_usage(stretch.completion_tokens);
        if stretch.finish.is_some() && !self.stream_usage {
            tail += &self.fingerprint();
        }
        tail + "}\n\n"
    }

    fn fingerprint(&self) -> String {
        format!(",\"system_fingerprint\":\"{}\"", self.release.fingerprint())
    }

    /// Usage in every event, if it is wanted.
    fn running_usage(&self, completion_tokens: u64) -> String {
        if !self.continuous_usage {
            return String::new();
        }
        format!(",\"usage\":{{{}}}", self.counts(completion_tokens))
    }

    fn counts(&self, completion_tokens: u64) -> String {
        format!(
            "\"prompt_tokens\":{},\"total_tokens\":{},\"completion_tokens\":{completion_tokens}",
            self.prompt_tokens,
            self.prompt_tokens + completion_tokens,
        )
    }

    /// Tokens newly cached, which 0.32.0 says in chat answers.
    fn created_cache_tokens(&self, cached: u64) -> Option<u64> {
        let says = self.chat && self.release == Release::V0_32;
        says.then(|| self.whole_tokens.saturating_sub(cached))
    }

    /// The usage event that ends a stream.
    pub(super) fn usage_event(&self, completion_tokens: u64, cached: u64) -> String {
        let object = if self.chat {
            "chat.completion.chunk"
        } else {
            "text_completion"
        };
        let mut usage = self.counts(completion_tokens);
        if self.details {
            let created = self
                .created_cache_tokens(cached)
                .map_or_else(String::new, |created| {
                    format!(",\"created_cache_tokens\":{created}")
                });
            write!(
                usage,
                ",\"prompt_tokens_details\":{{\"cached_tokens\":{cached}{created}}}"
            )
            .expect(STRING);
        }
        format!(
            "data: {}],\"usage\":{{{usage}}}{}}}\n\n",
            self.head(object, "\"choices\":["),
            self.fingerprint(),
        )
    }

    /// The whole answer as one document.
    pub(super) fn document(
        &self,
        model: &Model,
        choices: &[(Choice, usize, Finish)],
        cached: u64,
    ) -> String {
        let object = if self.chat {
            "chat.completion"
        } else {
            "text_completion"
        };
        let bodies: Vec<String> = choices
            .iter()
            .map(|(choice, tokens, finish)| self.choice(model, choice, *tokens, *finish))
            .collect();
        let completion_tokens = choices.iter().map(|(_, tokens, _)| *tokens as u64).sum();
        let mut document = format!(
            "{}{}],\"service_tier\":null{},\"usage\":{{{}}}",
            self.head(object, "\"choices\":["),
            bodies.join(","),
            self.fingerprint(),
            self.document_usage(completion_tokens, cached),
        );
        if self.chat {
            let ids = choices
                .first()
                .and_then(|(choice, ..)| choice.prompt_ids.as_deref());
            write!(
                document,
                ",\"prompt_logprobs\":null,\"prompt_token_ids\":{},\"prompt_text\":null",
                ids_or_null(ids)
            )
            .expect(STRING);
        }
        document += ",\"kv_transfer_params\":null";
        if self.release == Release::V0_32 {
            document += ",\"ec_transfer_params\":null,\"metrics\":null";
        }
        document + "}"
    }

    fn document_usage(&self, completion_tokens: u64, cached: u64) -> String {
        let mut usage = self.counts(completion_tokens);
        usage += ",\"prompt_tokens_details\":";
        if self.details {
            let created = match (self.release, self.created_cache_tokens(cached)) {
                (Release::V0_24, _) => String::new(),
                (Release::V0_32, None) => ",\"created_cache_tokens\":null".to_owned(),
                (Release::V0_32, Some(created)) => format!(",\"created_cache_tokens\":{created}"),
            };
            write!(
                usage,
                "{{\"cached_tokens\":{cached}{created},\"multimodal_tokens\":null}}"
            )
            .expect(STRING);
        } else {
            usage += "null";
        }
        if self.release == Release::V0_32 {
            usage += ",\"completion_tokens_details\":null";
        }
        usage
    }

    fn choice(&self, model: &Model, choice: &Choice, tokens: usize, finish: Finish) -> String {
        let mut text = choice.output.lead.as_deref().unwrap_or("").to_owned();
        for at in 0..tokens {
            text += model.shown(&choice.output, at);
        }
        let logprobs = self.logprobs(model, choice, 0, tokens);
        let ids = ids_or_null(
            self.return_token_ids
                .then_some(&choice.output.ids[..tokens]),
        );
        let reason = reason_or_null(Some(finish));
        let stop = stop_reason(choice, Some(finish));
        let index = choice.index;
        if self.chat {
            return format!(
                "{{\"index\":{index},\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\",\"refusal\":null,\"annotations\":null,\"audio\":null,\"function_call\":null,\"reasoning\":null}},\"logprobs\":{logprobs},\"finish_reason\":{reason},\"stop_reason\":{stop},\"token_ids\":{ids},\"routed_experts\":null}}"
            );
        }
        format!(
            "{{\"index\":{index},\"text\":\"{text}\",\"logprobs\":{logprobs},\"finish_reason\":{reason},\"stop_reason\":{stop},\"token_ids\":{ids},\"prompt_logprobs\":null,\"prompt_token_ids\":{},\"routed_experts\":null}}",
            ids_or_null(choice.prompt_ids.as_deref()),
        )
    }

    /// Made-up log-probabilities of a stretch; null where none are wanted.
    fn logprobs(&self, model: &Model, choice: &Choice, from: usize, until: usize) -> String {
        let Some(most) = self.logprobs else {
            return "null".to_owned();
        };
        let texts = |range: std::ops::Range<usize>| {
            range
                .map(|at| model.text(&choice.output, at))
                .collect::<Vec<_>>()
        };
        let said = texts(from..until);
        let chances: Vec<f64> = choice.output.ids[from..until]
            .iter()
            .copied()
            .map(chance)
            .collect();
        if self.chat {
            let items: Vec<String> = said
                .iter()
                .zip(&chances)
                .map(|(text, &chance)| chat_logprob(text, chance, most))
                .collect();
            return format!("{{\"content\":[{}]}}", items.join(","));
        }
        let mut offset = texts(0..from)
            .iter()
            .map(|text| plain_text(text).chars().count())
            .sum();
        let mut offsets = Vec::new();
        for text in &said {
            offsets.push(usize::to_string(&offset));
            offset += plain_text(text).chars().count();
        }
        let join = |items: Vec<String>| items.join(",");
        let top = |(text, &chance): (&&str, &f64)| {
            let others = alternatives(chance, most);
            let others = others.map(|(name, chance)| format!(",\"{name}\":{chance}"));
            format!("{{\"{text}\":{chance}{}}}", others.collect::<String>())
        };
        format!(
            "{{\"text_offset\":[{}],\"token_logprobs\":[{}],\"tokens\":[{}],\"top_logprobs\":[{}]}}",
            join(offsets),
            join(chances.iter().map(f64::to_string).collect()),
            join(said.iter().map(|text| format!("\"{text}\"")).collect()),
            join(said.iter().zip(&chances).map(top).collect()),
        )
    }
}

/// A log-probability in −1..0 that depends on the token alone.
fn chance(id: u32) -> f64 {
    -(f64::from(id % 997) + 1.0) / 1_000.0
}

/// Less likely tokens that were not said.
fn alternatives(chance: f64, most: u64) -> impl Iterator<Item = (String, f64)> {
    (1..most.max(1)).map(move |at| (format!(" other{at}"), chance - at as f64))
}

fn chat_logprob(text: &str, chance: f64, most: u64) -> String {
    let item = |text: &str, chance: f64, rest: &str| {
        let bytes: Vec<String> = plain_text(text)
            .bytes()
            .map(|byte| byte.to_string())
            .collect();
        format!(
            "{{\"token\":\"{text}\",\"logprob\":{chance},\"bytes\":[{}]{rest}}}",
            bytes.join(",")
        )
    };
    let mut top = Vec::new();
    if most > 0 {
        top.push(item(text, chance, ""));
    }
    top.extend(alternatives(chance, most).map(|(name, chance)| item(&name, chance, "")));
    item(
        text,
        chance,
        &format!(",\"top_logprobs\":[{}]", top.join(",")),
    )
}

/// What ended a choice, where its request named it.
fn stop_reason(choice: &Choice, finish: Option<Finish>) -> &str {
    match (finish, &choice.output.stop_reason) {
        (Some(Finish::Stop), Some(reason)) => reason,
        _ => "null",
    }
}

fn reason_or_null(finish: Option<Finish>) -> String {
    finish.map_or_else(
        || "null".to_owned(),
        |finish| format!("\"{}\"", finish.reason()),
    )
}

fn ids_or_null(ids: Option<&[u32]>) -> String {
    let Some(ids) = ids else {
        return "null".to_owned();
    };
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    format!("[{}]", ids.join(","))
}
