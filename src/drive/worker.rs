//! Carrying out requests: attempts, limits of time, the record of each. It is
//! told what to send and refuses to know why it is sent now.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::config::LoadRequest;
use super::dispatch::Dispatch;

use crate::measure::{
    Attempt, Failure, FailureKind, LiveHistogram, Outcome, RequestRecord, StatsPhase,
};
use crate::secret::Redactor;
use crate::service::bounded;
use crate::service::chunk::EmptyText;
use crate::service::client::{Client, may_be_sent_again};
use crate::service::clock::RunClock;
use crate::service::connect::Connector;
use crate::service::connection::{Answer, AttemptFailure};
use crate::service::quiet::Quiet;
use crate::service::stream::AnswerReader;
use crate::units::RunOffset;

/// Room for stamps that a stream gets at once; more grow by doubling.
const STAMPS_AT_ONCE_MAX: u64 = 1 << 12;

/// What all requests of a run have in common.
pub(super) struct Shared {
    pub(super) requests: Vec<LoadRequest>,
    pub(super) clock: RunClock,
    pub(super) retry: u32,
    pub(super) request_limit: RunOffset,
    pub(super) stream: bool,
    pub(super) keep_text: bool,
    pub(super) name_requests: bool,
    pub(super) empty_text: EmptyText,
    pub(super) redactor: Redactor,
    pub(super) warmup_end: usize,
    pub(super) cooldown_start: usize,
    /// Ends requests under way at once.
    pub(super) abort: CancellationToken,
    pub(super) send_lag: LiveHistogram,
}

/// What a worker tells the dispatcher.
pub(super) enum Event {
    /// A request has ended.
    Ended {
        index: usize,
        at: RunOffset,
        record: Box<RequestRecord>,
    },
    /// A task has panicked, which only a bug can cause.
    Broken(JoinError),
}

/// Carries out what it is given until the queue is closed.
pub(super) async fn work<C: Connector>(
    client: Arc<Client<C>>,
    shared: Arc<Shared>,
    mut orders: UnboundedReceiver<Dispatch>,
    events: UnboundedSender<Event>,
) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some(order) => {
                    let carried_out = carry_out(Arc::clone(&client), Arc::clone(&shared), order, events.clone());
                    tasks.spawn(carried_out);
                }
                None => break,
            },
            Some(ended) = tasks.join_next() => report(ended, &events),
        }
    }
    while let Some(ended) = tasks.join_next().await {
        report(ended, &events);
    }
}

fn report(ended: Result<(), JoinError>, events: &UnboundedSender<Event>) {
    if let Err(error) = ended {
        // Nobody listens only when the run has been given up already.
        events.send(Event::Broken(error)).ok();
    }
}

async fn carry_out<C: Connector>(
    client: Arc<Client<C>>,
    shared: Arc<Shared>,
    order: Dispatch,
    events: UnboundedSender<Event>,
) {
    let record = attempt_all(&client, &shared, &order).await;
    let at = record
        .attempts
        .last()
        .map_or_else(|| shared.clock.now(), |attempt| attempt.t_end_ns);
    let ended = Event::Ended {
        index: order.index,
        at,
        record: Box::new(record),
    };
    events.send(ended).ok();
}

/// Sends a request until it succeeds, may not be sent again, or its re-sends
/// are used up.
async fn attempt_all<C: Connector>(
    client: &Client<C>,
    shared: &Shared,
    order: &Dispatch,
) -> RequestRecord {
    let request = &shared.requests[order.index];
    let mut attempts: Vec<Attempt> = Vec::with_capacity(1);
    let began = shared.clock.now();
    shared
        .send_lag
        .record(began.nanos().saturating_sub(order.t_free.nanos()));
    let limit = shared.request_limit.nanos();
    let request_end = RunOffset(began.nanos().saturating_add(limit));
    let mut t_send = began;
    // A run is aborted once if ever; asking with every chunk takes two locks.
    let aborted = std::pin::pin!(shared.abort.cancelled());
    let mut aborted = Quiet::new(aborted);
    loop {
        let mut answer = new_answer(shared, request);
        if shared.abort.is_cancelled() {
            let failure = cancelled("before it was sent");
            return record(shared, order, &attempts, t_send, answer, Some(failure));
        }
        let body = request.body.clone();
        let name = shared.name_requests.then_some(request.request_id.as_str());
        let ended = tokio::select! {
            biased;
            ended = client.attempt(body, request.dp_rank, name, request_end, &mut answer) => ended,
            () = &mut aborted => Err(cancelled("while under way")),
        };
        let failure = ended.err();
        attempts.push(Attempt {
            t_send_ns: t_send,
            t_end_ns: shared.clock.now(),
            body_started: answer.body_started,
            failure: failure.as_ref().map(|failure| stored(shared, failure)),
        });
        let resent = u32::try_from(attempts.len() - 1).unwrap_or(u32::MAX);
        let again = failure
            .as_ref()
            .is_some_and(|failure| may_be_sent_again(failure, answer.body_started));
        t_send = shared.clock.now();
        if !again || resent >= shared.retry || t_send >= request_end {
            let t_send = attempts.last().map_or(t_send, |attempt| attempt.t_send_ns);
            return record(shared, order, &attempts, t_send, answer, failure);
        }
    }
}

fn new_answer(shared: &Shared, request: &LoadRequest) -> Answer {
    let chunks = usize::try_from(request.max_tokens.min(STAMPS_AT_ONCE_MAX)).unwrap_or(0);
    let chunks = if shared.stream { chunks + 1 } else { 0 };
    let mut reader = AnswerReader::stream(shared.empty_text, shared.keep_text, chunks);
    if !shared.stream {
        reader.expect_whole();
    }
    Answer::new(reader)
}

fn cancelled(when: &str) -> AttemptFailure {
    AttemptFailure::new(FailureKind::Cancelled, format!("interrupted {when}"))
}

fn stored(shared: &Shared, failure: &AttemptFailure) -> Failure {
    Failure {
        kind: failure.kind,
        code: failure.code,
        message: bounded(&shared.redactor.clean(&failure.message)),
    }
}

fn record(
    shared: &Shared,
    order: &Dispatch,
    attempts: &[Attempt],
    t_send: RunOffset,
    answer: Answer,
    failure: Option<AttemptFailure>,
) -> RequestRecord {
    let request = &shared.requests[order.index];
    let streamed = !answer.reader.is_whole() && shared.stream;
    let stream_end = answer.stream_end;
    let Answer {
        reader,
        first_byte,
        source,
        ..
    } = answer;
    let facts = reader.into_facts();
    let wanted = !facts.text.is_empty() && (failure.is_some() || facts.usage.is_none());
    let text = wanted.then(|| String::from_utf8_lossy(&facts.text).into_owned());
    let phase = if order.index < shared.warmup_end {
        StatsPhase::Warmup
    } else if order.index >= shared.cooldown_start {
        StatsPhase::Cooldown
    } else {
        StatsPhase::Measure
    };
    RequestRecord {
        sequence_index: request.sequence_index,
        request_id: request.request_id.clone(),
        group_id: request.group,
        dp_rank: request.dp_rank,
        lane_sequence: request.lane_sequence,
        stage: order.stage,
        phase,
        t_sched_ns: order.t_sched,
        t_ready_ns: order.t_ready,
        t_send_ns: t_send,
        first_byte_ns: first_byte,
        first_event_ns: facts.first_event,
        last_event_ns: facts.last_event,
        events: facts.events,
        first_choice_ns: facts.first_choice,
        last_choice_ns: facts.last_choice,
        stream_end_ns: stream_end,
        content_ns: facts.content,
        coalesced_events: facts.coalesced,
        timestamp_source: source,
        streamed,
        usage: facts.usage,
        counted_output_tokens: None,
        text: text.map(|text| shared.redactor.clean(&text).into_owned()),
        planned_prompt_tokens: request.planned_prompt_tokens,
        max_tokens: request.max_tokens,
        finish_reason: facts.finish_reason,
        outcome: failure.map_or(Outcome::Success, |failure| {
            Outcome::Failure(stored(shared, &failure))
        }),
        attempts: attempts.to_vec(),
    }
}
