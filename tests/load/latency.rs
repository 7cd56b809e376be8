//! The stamps behind each latency definition; what is derived from them is
//! computed elsewhere.

use std::sync::Arc;

use pcload::measure::{Outcome, RequestRecord};

use crate::server::{DONE, Reply, Server, millis, text, usage};
use crate::{config, one};

fn stamps(record: &RequestRecord) -> Vec<u64> {
    record.content_ns.iter().map(|at| millis(*at)).collect()
}

async fn play(reply: Reply) -> RequestRecord {
    let server = Arc::new(Server::new(move |_| reply.clone()));
    let record = one(&server, config()).await;
    assert_eq!(record.outcome, Outcome::Success);
    record
}

fn delta(delta: &str, finish_reason: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{finish_reason}}}]}}\n\n"
    )
}

/// O-LAT-1: a role is no token, and the chunk that ends a chat belongs to it.
#[tokio::test(start_paused = true)]
async fn the_first_token_is_the_first_with_content() {
    let content = |text: &str| delta(&format!("\"content\":\"{text}\""), "null");
    let record = play(Reply::stream([
        (
            900,
            delta("\"role\":\"assistant\",\"content\":\"\"", "null"),
        ),
        (2_200, content("A")),
        (2_220, content("B")),
        (2_240, content("C")),
        (2_260, delta("\"content\":\"\"", "\"stop\"")),
        (2_261, usage(5, 4, None) + DONE),
    ]))
    .await;
    assert_eq!(stamps(&record), [2_200, 2_220, 2_240]);
    assert_eq!(millis(record.first_choice_ns.unwrap()), 900);
    assert_eq!(millis(record.last_choice_ns.unwrap()), 2_260);
    assert_eq!(record.usage.unwrap().completion_tokens, 4);
    assert_eq!(record.finish_reason.as_deref(), Some("stop"));
}

/// O-LAT-2: several tokens in a chunk are one stamp.
#[tokio::test(start_paused = true)]
async fn a_chunk_of_several_tokens_is_one_stamp() {
    let record = play(Reply::stream([
        (100, text("a b c", "null")),
        (130, text("d e f g", "null")),
        (160, text("h", "null")),
        (190, text("i j k l", "\"length\"")),
        (191, usage(5, 12, None) + DONE),
    ]))
    .await;
    assert_eq!(stamps(&record), [100, 130, 160, 190]);
    assert_eq!(millis(record.last_choice_ns.unwrap()), 190);
    assert_eq!(record.usage.unwrap().completion_tokens, 12);
}

/// O-LAT-3: late usage and `[DONE]` lengthen the stream, not the request.
#[tokio::test(start_paused = true)]
async fn what_comes_after_the_last_choice_is_not_latency() {
    let record = play(Reply::stream([
        (50, text("a", "null")),
        (60, text("b", "null")),
        (70, text("c", "\"length\"")),
        (500, ": wait\n\n".to_owned()),
        (900, usage(5, 3, None)),
        (905, DONE.to_owned()),
    ]))
    .await;
    assert_eq!(stamps(&record), [50, 60, 70]);
    assert_eq!(millis(record.last_choice_ns.unwrap()), 70);
    assert_eq!(millis(record.stream_end_ns.unwrap()), 905);
}

/// O-LAT-4: one chunk gives one stamp, whatever it holds.
#[tokio::test(start_paused = true)]
async fn one_chunk_is_first_and_last() {
    for (at, tokens) in [(850, 16), (40, 1)] {
        let record = play(Reply::stream([
            (at, text("a", "\"length\"")),
            (at + 1, usage(5, tokens, None) + DONE),
        ]))
        .await;
        assert_eq!(stamps(&record), [at]);
        assert_eq!(millis(record.last_choice_ns.unwrap()), at);
        assert_eq!(record.usage.unwrap().completion_tokens, tokens);
    }
}

/// Events of one read share its stamp and are counted.
#[tokio::test(start_paused = true)]
async fn events_of_one_read_are_counted_as_coalesced() {
    let two = text("a", "null") + &text("b", "null");
    let record = play(Reply::stream([
        (10, two),
        (30, text("c", "null")),
        (40, text("d", "\"stop\"") + DONE),
    ]))
    .await;
    assert_eq!(stamps(&record), [10, 10, 30, 40]);
    assert_eq!(record.coalesced_events, 1);
}

/// Without streaming only the end is known.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_streamed_has_no_token_stamps() {
    let body = r#"{"choices":[{"index":0,"text":"abc","finish_reason":"length"}],"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}"#;
    let (half, rest) = body.split_at(60);
    let mut reply = Reply::stream([(700, half), (750, rest)]);
    reply.content_type = "application/json";
    let server = Arc::new(Server::new(move |_| reply.clone()));
    let mut config = config();
    config.stream = false;
    let record = one(&server, config).await;
    assert_eq!(record.outcome, Outcome::Success);
    assert!(!record.streamed);
    assert_eq!(record.content_ns, []);
    assert_eq!(millis(record.last_choice_ns.unwrap()), 750);
    assert_eq!(record.usage.unwrap().cached_tokens, Some(8));
    let sent = &server.posts()[0].body;
    assert_eq!(sent["stream"], false);
    assert_eq!(sent.get("stream_options"), None);
}

/// What is derived starts at the sending, connection set-up included.
#[tokio::test(start_paused = true)]
async fn usage_that_is_missing_keeps_the_text() {
    let record = play(Reply::stream([(5, text("é\\n", "\"stop\"") + DONE)])).await;
    assert_eq!(record.usage, None);
    assert_eq!(record.text.as_deref(), Some("é\n"));
    assert_eq!(millis(record.t_send_ns), 0);
    assert_eq!(record.t_sched_ns, record.t_ready_ns);
}
