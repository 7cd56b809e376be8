//! Everything a server answers besides generating: metrics, models, reset,
//! tokenizing. It refuses to know connections.

use http::header::HeaderValue;

use crate::sim::config::Release;
use crate::sim::core::Shared;
use crate::sim::http::Answer;
use crate::sim::page::render;
use crate::sim::prepare::{encode, internal, template};
use crate::sim::refusal::Refusal;
use crate::sim::wire;

/// The metrics page.
pub(super) fn metrics(shared: &Shared, content_type: &'static str) -> Answer {
    let page = render(&shared.page());
    Answer::whole(200, Some(HeaderValue::from_static(content_type)), page)
}

/// The list of models.
pub(super) fn models(shared: &Shared) -> String {
    let created = shared.wall_seconds();
    let card = |name: &str| {
        let name = serde_json::Value::from(name);
        format!(
            "{{\"id\":{name},\"object\":\"model\",\"created\":{created},\"owned_by\":\"vllm\",\"root\":{name},\"parent\":null,\"max_model_len\":{},\"permission\":[{{\"id\":\"modelperm-0000000000000000\",\"object\":\"model_permission\",\"created\":{created},\"allow_create_engine\":false,\"allow_sampling\":true,\"allow_logprobs\":true,\"allow_search_indices\":false,\"allow_view\":true,\"allow_fine_tuning\":false,\"organization\":\"*\",\"group\":null,\"is_blocking\":false}}]}}",
            shared.config.max_model_len,
        )
    };
    let mut cards = vec![card(&shared.config.model)];
    if shared.config.faults.second_model {
        cards.push(card(&shared.second_model()));
    }
    format!("{{\"object\":\"list\",\"data\":[{}]}}", cards.join(","))
}

/// Empties the caches, as far as the options and the query say.
pub(super) fn reset(shared: &Shared, query: &str) -> Answer {
    let asks = |name: &str| {
        query.split('&').any(|pair| {
            pair.split_once('=').is_some_and(|(key, value)| {
                key == name && matches!(value.to_ascii_lowercase().as_str(), "true" | "1")
            })
        })
    };
    let faults = &shared.config.faults;
    let done = if faults.refuse_reset {
        false
    } else if faults.ignore_reset {
        true
    } else {
        let now = shared.now();
        let external = asks("reset_external") && !faults.keep_external;
        let done = shared.act(|core| {
            core.engine.advance(now);
            core.engine.reset(asks("reset_running_requests"), external)
        });
        shared.news.notify_one();
        done
    };
    match shared.config.release {
        Release::V0_24 => Answer::empty(),
        Release::V0_32 => Answer::json(format!("{{\"success\":{done}}}")),
    }
}

/// Ids of a text or a chat.
pub(super) fn tokenize(shared: &Shared, body: &[u8]) -> Result<Answer, Refusal> {
    let asked = wire::read_tokenize(body, shared.config.release)?;
    let ids = match (&asked.messages, &asked.prompt) {
        (Some(messages), _) => {
            let text = template(messages, shared.config.default_system.as_deref());
            encode(shared, &text, false)?
        }
        (None, prompt) => encode(
            shared,
            prompt.as_deref().unwrap_or(""),
            asked.add_special_tokens,
        )?,
    };
    let list: Vec<String> = ids.iter().map(u32::to_string).collect();
    Ok(Answer::json(format!(
        "{{\"count\":{},\"max_model_len\":{},\"tokens\":[{}],\"token_strs\":null}}",
        ids.len(),
        shared.config.max_model_len,
        list.join(","),
    )))
}

/// Text of ids.
pub(super) fn detokenize(shared: &Shared, body: &[u8]) -> Result<Answer, Refusal> {
    let ids = wire::read_detokenize(body, shared.config.release)?;
    let text = shared
        .tokenizer
        .decode(&ids)
        .map_err(|error| internal(&error))?;
    let text = serde_json::Value::from(text);
    Ok(Answer::json(format!("{{\"prompt\":{text}}}")))
}
