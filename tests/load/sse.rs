//! What servers and proxies do to a stream, and how a stream may end.

use std::sync::Arc;

use pcload::measure::{Failure, FailureKind, Outcome};
use pcload::service::chunk::EmptyText;
use pcload::service::socket::ReadStamp;
use pcload::service::stream::{AnswerFacts, AnswerReader, Defect};
use pcload::units::RunOffset;

use crate::server::{DONE, End, Reply, Server, millis, text, usage};
use crate::{config, one};

fn read(reads: &[&[u8]]) -> (AnswerFacts, Result<(), Defect>) {
    let mut reader = AnswerReader::stream(EmptyText::NoToken, true, 0);
    let mut stamp = ReadStamp {
        at: RunOffset(0),
        read_index: 0,
    };
    for (index, bytes) in (1..).zip(reads) {
        stamp = ReadStamp {
            at: RunOffset(index),
            read_index: index,
        };
        reader.feed(bytes, stamp);
    }
    let end = reader.finish(stamp);
    (reader.into_facts(), end)
}

/// O-SSE-1: characters and borders cut anywhere.
#[test]
fn a_cut_character_stays_whole_and_the_completing_read_is_the_stamp() {
    let hex = "646174613a207b2263686f69636573223a5b7b22696e646578223a302c2274657874223a22c3a9e282acf09f9880227d5d7d0a0a";
    let digits = hex.as_bytes().chunks(2);
    let event: Vec<u8> = digits
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect();
    assert_eq!(event.len(), 52);
    let done = DONE.as_bytes();
    for cut in 0..=52 {
        let (facts, end) = read(&[&event[..cut], &event[cut..], done]);
        assert_eq!(facts.text, "é€😀".as_bytes(), "cut at {cut}");
        let completing = if cut == 52 { 1 } else { 2 };
        assert_eq!(facts.content, [RunOffset(completing)], "cut at {cut}");
        assert_eq!(end, Ok(()));
        let glued = [&event[cut..], done].concat();
        let (facts, end) = read(&[&event[..cut], &glued]);
        assert_eq!(
            (facts.content.len(), end),
            (1, Ok(())),
            "glued, cut at {cut}"
        );
    }
    let single: Vec<&[u8]> = event.chunks(1).chain(done.chunks(1)).collect();
    let (facts, end) = read(&single);
    assert_eq!(facts.content, [RunOffset(52)]);
    assert_eq!((facts.text.as_slice(), end), ("é€😀".as_bytes(), Ok(())));
}

/// O-SSE-2: CRLF, lone CR, `data:` without a space.
#[test]
fn any_line_end_gives_the_same_events() {
    let stream = "data:{\"choices\":[{\"index\":0,\"text\":\"A\"}]}\r\n\r\ndata: {\"choices\":[{\"index\":0,\"text\":\"B\"}]}\r\n\r\ndata:[DONE]\r\n\r\n";
    assert_eq!(stream.len(), 106);
    for stream in [stream.to_owned(), stream.replace("\r\n", "\r")] {
        for cut in 0..=stream.len() {
            let (one, two) = stream.as_bytes().split_at(cut);
            let (facts, end) = read(&[one, two]);
            assert_eq!(facts.text, b"AB", "cut at {cut}");
            assert_eq!((facts.content.len(), facts.done, end), (2, true, Ok(())));
        }
    }
}

/// O-SSE-3: comments keep the connection, and are neither bytes nor tokens.
#[tokio::test(start_paused = true)]
async fn heartbeats_are_activity_and_nothing_else() {
    let reply = Reply::stream([
        (400, ": ping\n\n".to_owned()),
        (800, ":\n\n".to_owned()),
        (1_500, format!("id: 1\n{}", text("Hi", "null"))),
        (1_700, ": keep\n\n".to_owned()),
        (1_800, text("!", "\"length\"")),
        (1_801, usage(5, 2, None) + DONE),
    ]);
    let server = Arc::new(Server::new(move |_| reply.clone()));
    let mut config = config();
    // Shorter than the way to the first token, longer than between comments.
    config.timeouts.idle = std::time::Duration::from_millis(900);
    let record = one(&server, config).await;
    assert_eq!(record.outcome, Outcome::Success);
    let stamps: Vec<u64> = record.content_ns.iter().map(|at| millis(*at)).collect();
    assert_eq!(stamps, [1_500, 1_800]);
    assert_eq!(millis(record.first_event_ns.unwrap()), 1_500);
    assert_eq!(millis(record.last_choice_ns.unwrap()), 1_800);
    assert_eq!(record.usage.unwrap().completion_tokens, 2);
}

async fn outcome_of(reply: Reply) -> (Outcome, usize) {
    let server = Arc::new(Server::new(move |_| reply.clone()));
    let record = one(&server, config()).await;
    assert_eq!(server.posts().len(), 1, "never a second POST");
    assert_eq!(record.attempts.len(), 1);
    (record.outcome, record.content_ns.len())
}

fn failure(outcome: &Outcome) -> &Failure {
    match outcome {
        Outcome::Failure(failure) => failure,
        Outcome::Success => panic!("a success"),
    }
}

/// O-SSE-4: an error object inside a 200 stream.
#[tokio::test(start_paused = true)]
async fn an_error_in_the_stream_is_a_failure_with_its_code_and_text() {
    let tokens = || vec![(100, text("a", "null")), (120, text("b", "null"))];
    let error = "data: {\"error\":{\"message\":\"engine stopped\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\n";
    let mut steps = tokens();
    steps.push((130, format!("{error}{DONE}")));
    let server = Arc::new(Server::new(move |_| Reply::stream(steps.clone())));
    let record = one(&server, config()).await;
    let found = failure(&record.outcome);
    assert_eq!(
        (found.kind, found.code, found.message.as_str()),
        (FailureKind::ServerErrorEvent, Some(500), "engine stopped")
    );
    assert_eq!(record.text.as_deref(), Some("ab"), "kept for audit");

    for (event, message) in [
        ("data: {\"error\":\"out of memory\"}\n\n", "out of memory"),
        ("event: error\ndata: {\"message\":\"x\"}\n\n", "x"),
    ] {
        for mut steps in [tokens(), Vec::new()] {
            steps.push((130, format!("{event}{DONE}")));
            let (outcome, _) = outcome_of(Reply::stream(steps)).await;
            let found = failure(&outcome);
            assert_eq!(found.kind, FailureKind::ServerErrorEvent);
            assert_eq!(found.message, message);
        }
    }
    let mut whole = Reply::stream([(
        10,
        "{\"error\":{\"message\":\"engine stopped\",\"code\":500}}",
    )]);
    whole.content_type = "application/json";
    let (outcome, _) = outcome_of(whole).await;
    assert_eq!(failure(&outcome).kind, FailureKind::ServerErrorEvent);
    assert_eq!(failure(&outcome).code, Some(500));
}

/// O-SSE-5: how a stream may end.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_decides() {
    let reply = |tail: &str, end| {
        let steps = [
            (10, text("a", "null")),
            (20, text("b", "null")),
            (30, tail.to_owned()),
        ];
        Reply::stream(steps).ending(end)
    };
    let finish = |reason: &str| text("c", &format!("\"{reason}\""));
    let cases = [
        (
            "a",
            reply(&(finish("length") + DONE), End::CleanThenClose),
            None,
        ),
        ("b", reply(&finish("stop"), End::CleanThenClose), None),
        ("c", reply(DONE, End::CleanThenClose), None),
        (
            "d",
            reply(":\n\n", End::CleanThenClose),
            Some(FailureKind::TruncatedStream),
        ),
        (
            "e",
            reply(":\n\n", End::Cut),
            Some(FailureKind::ConnectionError),
        ),
        (
            "f",
            reply("data: {\"choices\":[{\"ind", End::CleanThenClose),
            Some(FailureKind::TruncatedStream),
        ),
    ];
    for (name, reply, expected) in cases {
        let (outcome, _) = outcome_of(reply).await;
        let kind = match &outcome {
            Outcome::Success => None,
            Outcome::Failure(failure) => Some(failure.kind),
        };
        assert_eq!(kind, expected, "{name}: {outcome:?}");
    }
}

/// O-SSE-6: a closed stream never re-sends the POST.
#[tokio::test(start_paused = true)]
async fn a_closed_stream_is_not_sent_again() {
    let three = Reply::tokens(&[1, 2, 3]).ending(End::CleanThenClose);
    let cut = Reply::stream([(1, text("a", "null"))]).ending(End::Cut);
    let retry = Reply::stream([(1, format!("retry: 10\n{}", text("a", "\"stop\"")))])
        .ending(End::CleanThenClose);
    for reply in [three, cut, retry] {
        let server = Arc::new(Server::new(move |_| reply.clone()));
        one(&server, config()).await;
        let posts = server.posts();
        assert_eq!(posts.len(), 1);
        assert!(!posts[0].head.contains("last-event-id"));
    }
}

/// Small pipes cut the whole answer anywhere.
#[tokio::test(start_paused = true)]
async fn an_answer_in_tiny_reads_is_the_same_answer() {
    for pipe_bytes in [1, 2, 3, 17] {
        let mut server = Server::new(|_| Reply::tokens(&[10, 20, 30]));
        server.pipe_bytes = pipe_bytes;
        let record = one(&Arc::new(server), config()).await;
        assert_eq!(record.outcome, Outcome::Success);
        let stamps: Vec<u64> = record.content_ns.iter().map(|at| millis(*at)).collect();
        assert_eq!(stamps, [10, 20, 30]);
    }
}
