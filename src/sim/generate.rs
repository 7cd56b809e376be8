//! Generation requests: from a read request to a document or a stream. It
//! refuses to know paths and status lines.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: delays, and a thread to tokenize on"
)]

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use tokio::time::{Interval, MissedTickBehavior};

use crate::sim::body::StreamBody;
use crate::sim::config::Pace;
use crate::sim::core::{Shared, Ticket};
use crate::sim::engine::Finish;
use crate::sim::events::Events;
use crate::sim::http::{Answer, Asked};
use crate::sim::line::Line;
use crate::sim::mishap::{Bender, Fate, fate};
use crate::sim::prepare::{Admission, Started, rank_of, start};
use crate::sim::refusal::Refusal;
use crate::sim::reply::DONE;
use crate::sim::stream::{Speech, State, Stream};
use crate::sim::truth::Row;
use crate::sim::wire::{self, Wanted};

/// Bodies above this are tokenized on a thread of their own, in bytes.
const INLINE_BYTES_MAX: usize = 32 << 10;

/// Events whose times have room in a row of the truth log from the start.
const SENDS_RESERVED: usize = 1 << 10;

/// Answers a generation request.
pub(super) async fn generate(
    shared: &Arc<Shared>,
    line: Arc<Line>,
    asked: &Asked,
    chat: bool,
    body: Bytes,
) -> Result<Answer, Refusal> {
    let number = shared.count_request();
    let faults = &shared.config.faults;
    let mut arrived = asked.arrived;
    if let Some(delay) = faults.slow_first_byte {
        tokio::time::sleep(delay).await;
        arrived = shared.now();
    }
    let fate = fate(faults, &shared.seed, number);
    refuse_by_fate(shared, fate)?;
    let is_json = asked
        .header(CONTENT_TYPE.as_str())
        .is_none_or(|kind| kind.to_ascii_lowercase().starts_with("application/json"));
    if !is_json {
        return Err(Refusal::content_type());
    }
    let wanted = wire::read(&body, chat, shared.config.release)?;
    check_model(shared, &wanted)?;
    let rank = if faults.ignore_rank_header {
        None
    } else {
        rank_of(
            asked.header("x-data-parallel-rank"),
            shared.config.ranks as usize,
        )?
    };
    let kind = if chat { "chatcmpl" } else { "cmpl" };
    let id = match asked.header("x-request-id") {
        Some(rid) => format!("{kind}-{rid}"),
        None => format!("{kind}-{:016x}", unique(shared, number)),
    };
    let stream = wanted.stream;
    if stream && fate.busy_stream {
        let event = Refusal::busy().event();
        return Ok(Answer::canned([event, DONE.to_owned()]));
    }
    let large = body.len() > INLINE_BYTES_MAX;
    let admission = Admission { id, rank, arrived };
    let begin = {
        let shared = Arc::clone(shared);
        move || start(&shared, &wanted, admission)
    };
    let started = if large {
        tokio::task::spawn_blocking(begin)
            .await
            .map_err(|error| Refusal::internal(error.to_string()))??
    } else {
        begin()?
    };
    if !stream {
        return Ok(Answer::json(whole(shared, started).await));
    }
    let stream = streamed(shared, asked, started, number, fate);
    Ok(Answer::stream(StreamBody(Speech::new(stream, line))))
}

/// A number that no other request of this server has.
fn unique(shared: &Shared, number: u64) -> u64 {
    shared.seed.stream(&format!("sim/id/{number}")).next_u64()
}

fn refuse_by_fate(shared: &Shared, fate: Fate) -> Result<(), Refusal> {
    let retry_after = shared
        .config
        .faults
        .retry_after
        .map(|after| after.as_secs());
    match fate.refused {
        Some(429) => Err(Refusal::too_many_requests().after(retry_after)),
        Some(_) => Err(Refusal::busy().after(retry_after)),
        None => Ok(()),
    }
}

fn streamed(
    shared: &Arc<Shared>,
    asked: &Asked,
    started: Started,
    number: u64,
    fate: Fate,
) -> Stream {
    let Started {
        ticket,
        shape,
        choices,
    } = started;
    let row = shared.truth.is_some().then(|| Row {
        rid: asked.header("x-request-id").map(str::to_owned),
        id: shape.id.clone(),
        recv_ns: asked.received_ns,
        prompt_tokens: shape.prompt_tokens,
        sends_ns: Vec::with_capacity(choices[0].output.ids.len().min(SENDS_RESERVED)),
        ..Row::default()
    });
    let handler = if shape.chat {
        "/v1/chat/completions"
    } else {
        "/v1/completions"
    };
    let events = Events::new(
        shape,
        Arc::clone(&shared.model),
        Arc::clone(&ticket.mailbox),
        choices,
        shared.config.stream_interval,
        matches!(shared.config.pace, Pace::Batched(_)),
    );
    Stream {
        shared: Arc::clone(shared),
        ticket,
        events,
        breaks: fate.breaks,
        bender: Bender::new(&shared.config.faults, &shared.seed, number),
        keep_alive: keep_alive(shared.config.sse_keep_alive),
        row,
        exchange: asked.exchange(handler, 200),
        began: asked.began,
        chunks: VecDeque::new(),
        buffer: Vec::new(),
        token_events: 0,
        state: State::Speaks,
        lent: false,
    }
}

/// A timer for comments before the first token.
fn keep_alive(every: Option<Duration>) -> Option<Interval> {
    every.filter(|every| !every.is_zero()).map(|every| {
        let mut interval = tokio::time::interval(every);
        // The first tick of an interval is at once.
        interval.reset();
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    })
}

fn check_model(shared: &Shared, wanted: &Wanted) -> Result<(), Refusal> {
    let served = &shared.config.model;
    let second = shared
        .config
        .faults
        .second_model
        .then(|| shared.second_model());
    match &wanted.model {
        Some(name) if name != served && Some(name) != second.as_ref() => {
            Err(Refusal::model(shared.config.release, name, served))
        }
        _ => Ok(()),
    }
}

/// Waits for every choice, and writes the document.
async fn whole(shared: &Shared, started: Started) -> String {
    let Started {
        ticket,
        shape,
        choices,
    } = started;
    let finishes = wait_for_end(&ticket, choices.len()).await;
    let last = choices.len().saturating_sub(1);
    let cached = ticket.mailbox.read(last).cached;
    let ended: Vec<_> = choices
        .into_iter()
        .zip(finishes)
        .map(|(choice, (tokens, finish))| (choice, tokens, finish))
        .collect();
    shape.document(&shared.model, &ended, cached)
}

/// Tokens and end of each choice, once all have ended.
async fn wait_for_end(ticket: &Ticket, choices: usize) -> Vec<(usize, Finish)> {
    let mailbox = &ticket.mailbox;
    poll_fn(|context| {
        mailbox.waker.register(context.waker());
        let ends: Option<Vec<_>> = (0..choices)
            .map(|choice| {
                let reading = mailbox.read(choice);
                reading.finish.map(|finish| (reading.released, finish))
            })
            .collect();
        ends.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
