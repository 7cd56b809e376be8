//! From a request as it was read to sequences the engine can take: tokens,
//! limits, the rank, and what the model will say.

use std::sync::Arc;

use crate::kvcache::{BlockHash, ChainHasher};
use crate::sim::answers;
use crate::sim::config::{Answers, Release};
use crate::sim::core::{Core, Shared, Ticket};
use crate::sim::engine::Submission;
use crate::sim::model::{Output, json_text};
use crate::sim::refusal::Refusal;
use crate::sim::reply::{Choice, Shape};
use crate::sim::wire::{Prompt, Wanted};
use crate::tokenizer::TokenizerError;
use crate::units::RunOffset;

/// Ids at the end of a prompt that may hold half a character.
const CHARACTER_IDS_MAX: usize = 6;

/// A request the engine has taken.
pub(super) struct Started {
    pub(super) ticket: Ticket,
    pub(super) shape: Shape,
    pub(super) choices: Vec<Choice>,
}

/// What is known of a request besides its body.
pub(super) struct Admission {
    /// Of the answer.
    pub(super) id: String,
    /// The rank its header asks for.
    pub(super) rank: Option<usize>,
    /// When its last byte was read.
    pub(super) arrived: RunOffset,
}

/// A prompt as the engine sees it.
struct Encoded {
    ids: Vec<u32>,
    /// Its text, where the request has it as text.
    text: Option<String>,
    hashes: Vec<BlockHash>,
    chain: ChainHasher,
    /// Output tokens it may have.
    limit: u64,
}

/// What a choice will say; the second, if the model's state is stale.
struct Saying {
    right: Output,
    stale: Option<Output>,
}

/// The chat template: `ChatML`, as the recorded servers' model has it.
pub(super) fn template(messages: &[(String, String)], default_system: Option<&str>) -> String {
    let mut text = String::new();
    let turn = |role: &str, content: &str| format!("<|im_start|>{role}\n{content}<|im_end|>\n");
    let has_system = messages.first().is_some_and(|(role, _)| role == "system");
    if let Some(system) = default_system.filter(|_| !has_system) {
        text += &turn("system", system);
    }
    for (role, content) in messages {
        text += &turn(role, content);
    }
    text + "<|im_start|>assistant\n"
}

/// Ids of a text, with the tokenizer's special tokens around it if wanted.
pub(super) fn encode(shared: &Shared, text: &str, special: bool) -> Result<Vec<u32>, Refusal> {
    let tokenizer = &shared.tokenizer;
    let middle = tokenizer.encode(text).map_err(|error| internal(&error))?;
    if !special {
        return Ok(middle);
    }
    Ok([tokenizer.prefix_ids(), &middle, tokenizer.suffix_ids()].concat())
}

pub(super) fn internal(error: &TokenizerError) -> Refusal {
    Refusal::internal(error.to_string())
}

/// The rank a header asks for. What is no whole number is ignored, as the
/// real server does; one out of range is refused.
pub(super) fn rank_of(header: Option<&str>, ranks: usize) -> Result<Option<usize>, Refusal> {
    let Some(asked) = header.and_then(|text| text.trim().parse::<i64>().ok()) else {
        return Ok(None);
    };
    match usize::try_from(asked) {
        Ok(rank) if rank < ranks => Ok(Some(rank)),
        _ => Err(Refusal::rank(&asked.to_string(), ranks)),
    }
}

/// Turns a request into running sequences.
pub(super) fn start(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    asked: Admission,
) -> Result<Started, Refusal> {
    let prompts = encode_prompts(shared, wanted)?;
    let mut sayings = Vec::new();
    for prompt in &prompts {
        for choice in 0..wanted.choices {
            sayings.push(saying(shared, wanted, prompt, choice)?);
        }
    }
    let block = shared.config.block;
    let shape = Shape {
        id: asked.id,
        created: shared.wall_seconds(),
        model: wanted
            .model
            .clone()
            .unwrap_or_else(|| shared.config.model.clone()),
        release: shared.config.release,
        chat: wanted.chat,
        stream_usage: wanted.include_usage,
        continuous_usage: wanted.continuous_usage,
        details: shared.config.prompt_tokens_details,
        return_token_ids: wanted.return_token_ids,
        logprobs: wanted.logprobs,
        prompt_tokens: prompts.iter().map(|prompt| prompt.ids.len() as u64).sum(),
        whole_tokens: prompts
            .iter()
            .map(|prompt| block.floor(prompt.ids.len() as u64))
            .sum(),
    };
    let (ticket, outputs) = submit(shared, wanted, &prompts, sayings, asked.rank, asked.arrived)?;
    let choices = outputs
        .into_iter()
        .enumerate()
        .map(|(index, output)| Choice {
            prompt_ids: wanted
                .return_token_ids
                .then(|| prompts[index / count(wanted)].ids.clone()),
            index,
            output,
        })
        .collect();
    Ok(Started {
        ticket,
        shape,
        choices,
    })
}

fn count(wanted: &Wanted) -> usize {
    usize::try_from(wanted.choices).unwrap_or(1)
}

fn encode_prompts(shared: &Shared, wanted: &Wanted) -> Result<Vec<Encoded>, Refusal> {
    let one = |ids: Vec<u32>, text: Option<String>| {
        let limit = limit(shared, wanted, ids.len() as u64)?;
        let mut chain = ChainHasher::new(shared.config.block, wanted.salt.as_deref());
        let hashes = ids.iter().filter_map(|&id| chain.push(id)).collect();
        Ok(Encoded {
            ids,
            text,
            hashes,
            chain,
            limit,
        })
    };
    if wanted.chat {
        let text = template(&wanted.messages, shared.config.default_system.as_deref());
        let special = wanted.add_special_tokens.unwrap_or(false);
        let ids = encode(shared, &text, special)?;
        return Ok(vec![one(ids, Some(text))?]);
    }
    let entries = shared.tokenizer.vocab_size();
    wanted
        .prompts
        .iter()
        .map(|prompt| match prompt {
            Prompt::Text(text) => {
                let special = wanted.add_special_tokens.unwrap_or(true);
                one(encode(shared, text, special)?, Some(text.clone()))
            }
            Prompt::Ids(ids) => match ids.iter().find(|&&id| id as usize >= entries) {
                Some(&id) => Err(Refusal::token(id)),
                None => one(ids.clone(), None),
            },
        })
        .collect()
}

/// Output tokens a prompt of this length may have, at least 1.
fn limit(shared: &Shared, wanted: &Wanted, tokens: u64) -> Result<u64, Refusal> {
    let context = shared.config.max_model_len;
    if tokens == 0 {
        return Err(Refusal::empty_prompt(shared.config.release, b""));
    }
    match shared.config.release {
        Release::V0_32 => {
            if tokens > context {
                return Err(Refusal::too_long(context));
            }
            let rest = context - tokens;
            if rest == 0 {
                return Err(Refusal::too_small("max_tokens", 1, 0));
            }
            Ok(wanted.max_tokens.unwrap_or(rest).min(rest))
        }
        Release::V0_24 => {
            let output = wanted.max_tokens.unwrap_or(1);
            if tokens + output > context {
                return Err(Refusal::too_long_together(context, output));
            }
            Ok(wanted.max_tokens.unwrap_or(context - tokens))
        }
    }
}

/// What one choice says to a prompt.
fn saying(
    shared: &Shared,
    wanted: &Wanted,
    prompt: &Encoded,
    choice: u64,
) -> Result<Saying, Refusal> {
    let most = usize::try_from(prompt.limit).unwrap_or(usize::MAX);
    let phrase = phrase_asked(shared, wanted, prompt);
    let mut said = match &phrase {
        Some(phrase) => {
            let say = |text: &str| {
                shared
                    .model
                    .say(shared.tokenizer.as_ref(), text, most)
                    .map_err(|error| internal(&error))
            };
            let stale = match shared.config.answers {
                Answers::Stale => {
                    let other = shared.lock().other_phrase(phrase);
                    Some(say(&answers::stale(phrase, other.as_deref()))?)
                }
                Answers::Right | Answers::Never => None,
            };
            Saying {
                right: say(phrase)?,
                stale,
            }
        }
        None => Saying {
            right: babble(shared, wanted, prompt, choice),
            stale: None,
        },
    };
    said.right = shared.model.stop(said.right, &wanted.stops);
    said.stale = said
        .stale
        .map(|stale| shared.model.stop(stale, &wanted.stops));
    said.right.lead = lead(shared, wanted, prompt)?;
    Ok(said)
}

/// The pass phrase, if it is asked for and the model can answer.
fn phrase_asked(shared: &Shared, wanted: &Wanted, prompt: &Encoded) -> Option<String> {
    if shared.config.answers == Answers::Never || wanted.ignore_eos {
        return None;
    }
    if wanted.chat {
        answers::asked(&wanted.messages)
    } else {
        let text = prompt.text.clone()?;
        answers::asked(&[("user".to_owned(), text)])
    }
}

fn babble(shared: &Shared, wanted: &Wanted, prompt: &Encoded, choice: u64) -> Output {
    let limit = prompt.limit;
    let (tokens, stops) = if wanted.ignore_eos {
        (limit, false)
    } else if wanted.ends_at_once {
        (
            (wanted.min_tokens + 1).min(limit),
            wanted.min_tokens < limit,
        )
    } else if !wanted.limited && wanted.chat {
        let natural = shared.config.natural_tokens.max(wanted.min_tokens + 1);
        (natural.min(limit), natural <= limit)
    } else {
        (limit, false)
    };
    let digest = prompt.ids.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &id| {
        (hash ^ u64::from(id)).wrapping_mul(0x0100_0000_01b3)
    });
    let tokens = usize::try_from(tokens).unwrap_or(usize::MAX);
    shared.model.babble(digest, choice, tokens, stops)
}

/// Text that comes out before the first token's own: the prompt, if it is to
/// be echoed, or if it ends in half a character (the real server's
/// incremental decoder then starts at the prompt's beginning).
fn lead(shared: &Shared, wanted: &Wanted, prompt: &Encoded) -> Result<Option<Box<str>>, Refusal> {
    let decode = |ids: &[u32]| {
        shared
            .tokenizer
            .decode(ids)
            .map_err(|error| internal(&error))
    };
    if wanted.echo {
        let text = prompt
            .text
            .clone()
            .map_or_else(|| decode(&prompt.ids), Ok)?;
        return Ok(Some(json_text(&text)));
    }
    if prompt.text.is_some() {
        return Ok(None);
    }
    // Nearly always the last id alone shows that no character is open.
    let ids = &prompt.ids;
    let last = decode(&ids[ids.len() - 1..])?;
    if !last.is_empty() && !last.ends_with('\u{fffd}') {
        return Ok(None);
    }
    if !decode(&ids[ids.len().saturating_sub(CHARACTER_IDS_MAX)..])?.ends_with('\u{fffd}') {
        return Ok(None);
    }
    Ok(Some(json_text(&decode(&prompt.ids)?)))
}

fn submit(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    prompts: &[Encoded],
    sayings: Vec<Saying>,
    rank: Option<usize>,
    arrived: RunOffset,
) -> Result<(Ticket, Vec<Output>), Refusal> {
    shared.act(|core| submit_to(core, shared, wanted, prompts, sayings, rank, arrived))
}

fn submit_to(
    core: &mut Core,
    shared: &Arc<Shared>,
    wanted: &Wanted,
    prompts: &[Encoded],
    sayings: Vec<Saying>,
    rank: Option<usize>,
    arrived: RunOffset,
) -> Result<(Ticket, Vec<Output>), Refusal> {
    let rank = rank.unwrap_or_else(|| core.engine.route());
    if let Some(most) = shared.config.max_queued_requests
        && core.engine.waiting(rank) >= most
    {
        core.reject();
        return Err(Refusal::busy());
    }
    let mut submissions = Vec::with_capacity(sayings.len());
    let mut outputs = Vec::with_capacity(sayings.len());
    for (index, saying) in sayings.into_iter().enumerate() {
        let prompt = &prompts[index / count(wanted)];
        let tokens = prompt.ids.len() as u64;
        let output = match saying.stale {
            Some(stale) if core.engine.peek(rank, &prompt.hashes, tokens) > 0 => stale,
            _ => saying.right,
        };
        if let Some(phrase) = phrase_asked(shared, wanted, prompt) {
            core.remember(&phrase);
        }
        submissions.push(Submission {
            prompt_tokens: tokens,
            hashes: prompt.hashes.clone(),
            chain: prompt.chain.clone(),
            output: Arc::clone(&output.ids),
            stops: output.stops,
            skip_cache: wanted.prompt_logprobs,
            max_tokens: prompt.limit,
            choices: wanted.choices,
            rank: Some(rank),
        });
        outputs.push(output);
    }
    Ok((shared.submit(core, arrived, submissions), outputs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_read_as_the_real_server_reads_them() {
        assert_eq!(rank_of(None, 2), Ok(None));
        assert_eq!(rank_of(Some("1"), 2), Ok(Some(1)));
        assert_eq!(rank_of(Some("one"), 2), Ok(None));
        for (text, named) in [("7", "7"), ("-1", "-1"), (" 2 ", "2")] {
            assert_eq!(rank_of(Some(text), 2), Err(Refusal::rank(named, 2)));
        }
    }

    #[test]
    fn a_chat_becomes_chatml() {
        let messages = [("user".to_owned(), "Hi".to_owned())];
        assert_eq!(
            template(&messages, None),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        );
        assert!(
            template(&messages, Some("Be brief.")).starts_with("<|im_start|>system\nBe brief.")
        );
    }
}
