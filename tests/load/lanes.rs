//! Lanes, failures, re-sends, limits of time, interrupts.

use std::sync::Arc;
use std::time::Duration;

use pcload::drive::native::{Control, NativeOutcome};
use pcload::measure::{FailureKind, Outcome, RequestRecord};
use pcload::plan::LoadPlan;

use crate::server::{End, Reply, Seen, Server, millis, text};
use crate::{config, drive, free_requests, in_lanes, one};

fn kind(record: &RequestRecord) -> Option<FailureKind> {
    match &record.outcome {
        Outcome::Success => None,
        Outcome::Failure(failure) => Some(failure.kind),
    }
}

async fn lanes(
    server: Server,
    lanes: u32,
    count: u32,
    concurrency: u32,
) -> (NativeOutcome, Vec<Seen>) {
    let server = Arc::new(server);
    let config = config();
    let requests = in_lanes(free_requests(&config, count), lanes);
    let plan = LoadPlan::closed(concurrency, count as usize);
    let outcome = drive(&server, config, requests, plan, Control::default()).await;
    (outcome, server.posts())
}

/// Each request of a lane arrives after its predecessor's answer was written.
fn assert_in_order(seen: &[Seen], lanes: u32) {
    for lane in 0..lanes {
        let own: Vec<&Seen> = seen.iter().filter(|s| s.number() % lanes == lane).collect();
        for pair in own.windows(2) {
            assert!(pair[0].number() < pair[1].number());
            assert!(pair[0].answered_ms.unwrap() <= pair[1].at_ms);
        }
    }
}

/// O-LANE-1: one lane with three slots; two lanes with one slot.
#[tokio::test(start_paused = true)]
async fn a_lane_is_served_strictly_in_order() {
    let server = || Server::new(|_| Reply::tokens(&[50, 100]));
    let (outcome, seen) = lanes(server(), 1, 6, 3).await;
    assert_in_order(&seen, 1);
    let sends: Vec<u64> = outcome
        .records
        .iter()
        .map(|r| millis(r.t_send_ns))
        .collect();
    assert_eq!(sends, [0, 100, 200, 300, 400, 500]);
    // Three slots name three requests at once; their lane holds two of them.
    let scheds: Vec<u64> = outcome
        .records
        .iter()
        .map(|r| millis(r.t_sched_ns))
        .collect();
    assert_eq!(scheds, [0, 0, 0, 100, 200, 300]);
    for record in &outcome.records {
        assert_eq!(record.t_ready_ns, record.t_send_ns);
    }

    let (outcome, seen) = lanes(server(), 2, 12, 1).await;
    assert_in_order(&seen, 2);
    assert_eq!(millis(outcome.ended), 1_200);

    let (outcome, seen) = lanes(server(), 2, 12, 2).await;
    assert_in_order(&seen, 2);
    assert_eq!(millis(outcome.ended), 600, "independent lanes overlap");
}

/// O-LANE-2: a failed request lets its lane go on.
#[tokio::test(start_paused = true)]
async fn a_failed_request_advances_its_lane() {
    let server = Server::new(|seen| match seen.number() {
        1 => Reply::status(500, 5, "{\"error\":{\"message\":\"boom\"}}"),
        _ => Reply::tokens(&[10]),
    });
    let (outcome, seen) = lanes(server, 1, 3, 2).await;
    let kinds: Vec<_> = outcome.records.iter().map(kind).collect();
    assert_eq!(kinds, [None, Some(FailureKind::HttpStatus), None]);
    assert_eq!(seen.len(), 3);

    let mut server = Server::new(|_| Reply::tokens(&[10]));
    server.refused = vec![1];
    let (outcome, seen) = lanes(server, 1, 3, 2).await;
    let kinds: Vec<_> = outcome.records.iter().map(kind).collect();
    assert_eq!(kinds, [Some(FailureKind::Connect), None, None]);
    assert_eq!(seen.len(), 2);
}

async fn with_retry(
    retry: u32,
    script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
) -> (RequestRecord, usize) {
    let server = Arc::new(Server::new(script));
    let mut config = config();
    config.retry = retry;
    let record = one(&server, config).await;
    (record, server.posts().len())
}

/// O-LANE-3: what a re-send is.
#[tokio::test(start_paused = true)]
async fn a_request_is_sent_again_only_before_its_answer_began() {
    let unavailable = || Reply::status(503, 2_000, "{}");
    let (record, posts) = with_retry(0, move |_| unavailable()).await;
    assert_eq!((kind(&record), posts), (Some(FailureKind::HttpStatus), 1));

    let (record, posts) = with_retry(2, move |seen| match seen.post {
        0 => unavailable(),
        _ => Reply::tokens(&[100, 500]),
    })
    .await;
    assert_eq!((kind(&record), posts), (None, 2));
    assert_eq!(record.attempts.len(), 2);
    assert_eq!(millis(record.attempts[0].t_end_ns), 2_000);
    assert_eq!(millis(record.t_send_ns), 2_000);
    assert_eq!(millis(record.content_ns[0]), 2_100);
    assert_eq!(millis(record.last_choice_ns.unwrap()), 2_500);
    assert_eq!(millis(record.t_sched_ns), 0);

    let (record, posts) = with_retry(2, |_| {
        let token = |at| (at, text("a", "null"));
        Reply::stream([token(1), token(2), token(3)]).ending(End::Cut)
    })
    .await;
    assert_eq!(
        (kind(&record), posts),
        (Some(FailureKind::ConnectionError), 1)
    );
    assert!(record.attempts[0].body_started);

    let (record, posts) = with_retry(2, |_| Reply::status(400, 1, "{\"detail\":\"no\"}")).await;
    assert_eq!((kind(&record), posts), (Some(FailureKind::HttpStatus), 1));

    for status in [408, 425, 429, 500] {
        let (record, posts) = with_retry(2, move |_| Reply::status(status, 1, "")).await;
        assert_eq!((record.attempts.len(), posts), (3, 3), "{status}");
    }
}

/// O-LANE-4: a deadline is not an idle timeout.
#[tokio::test(start_paused = true)]
async fn silence_and_length_are_bounded_apart() {
    let mut limits = config();
    limits.timeouts.idle = Duration::from_secs(1);
    limits.timeouts.request = Duration::from_secs(20);
    let run = |reply: Reply| {
        let limits = limits.clone();
        let server = Arc::new(Server::new(move |_| reply.clone()));
        async move { one(&server, limits).await }
    };
    let every_half_second: Vec<u64> = (1..=20).map(|step| step * 500).collect();
    assert_eq!(kind(&run(Reply::tokens(&every_half_second)).await), None);

    let token = |at| (at, text("a", "null"));
    let silent = Reply::stream([token(100), token(200), token(300)]).ending(End::Silent);
    let record = run(silent).await;
    assert_eq!(kind(&record), Some(FailureKind::IdleTimeout));
    let end = millis(record.attempts[0].t_end_ns);
    assert!((1_300..=1_302).contains(&end), "{end}");

    let comments = (1..=100).map(|step| (step * 500, ": wait\n\n"));
    let record = run(Reply::stream(comments)).await;
    assert_eq!(kind(&record), Some(FailureKind::RequestTimeout));
    let end = millis(record.attempts[0].t_end_ns);
    assert!((20_000..=20_001).contains(&end), "{end}");
}

/// A server that closes idle connections gets each POST once.
#[tokio::test(start_paused = true)]
async fn a_stale_connection_is_replaced_before_anything_is_sent() {
    let mut server = Server::new(|_| Reply::tokens(&[10]));
    server.keep_alive = Some(Duration::from_secs(5));
    let server = Arc::new(server);
    let config = config();
    let requests = free_requests(&config, 3);
    // Arrivals 6 s apart: each connection has been closed when it is wanted.
    let pace = pcload::plan::Pace::Open {
        arrivals_ns: vec![0, 6_000_000_000, 12_000_000_000],
        length_ns: 12_000_000_000,
        max_in_flight: None,
        rate_per_second: None,
    };
    let plan = LoadPlan::one_stage(pace, 3);
    let outcome = drive(&server, config, requests, plan, Control::default()).await;
    assert!(outcome.records.iter().all(|record| kind(record).is_none()));
    assert!(
        outcome
            .records
            .iter()
            .all(|record| record.attempts.len() == 1)
    );
    assert_eq!(server.posts().len(), 3);
    assert_eq!(outcome.health.connections, 3);
    assert_eq!(outcome.health.stale_connections, 2);
    assert_eq!(outcome.health.posts, 3);
}

/// First interrupt: nothing more is sent, what runs is drained.
#[tokio::test(start_paused = true)]
async fn an_interrupt_drains_and_a_second_one_ends_at_once() {
    for abort in [false, true] {
        let server = Arc::new(Server::new(|_| Reply::tokens(&[400, 1_000])));
        let config = config();
        let requests = free_requests(&config, 10);
        let control = Control::default();
        let (stop, now) = (control.stop.clone(), control.abort.clone());
        let interrupt = async move {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            stop.cancel();
            if abort {
                tokio::time::sleep(Duration::from_millis(100)).await;
                now.cancel();
            }
        };
        let running = drive(&server, config, requests, LoadPlan::closed(2, 10), control);
        let (outcome, ()) = tokio::join!(running, interrupt);
        assert!(outcome.interrupted);
        assert_eq!((outcome.records.len(), outcome.unsent), (4, 6));
        let kinds: Vec<_> = outcome.records.iter().map(kind).collect();
        if abort {
            let cancelled = Some(FailureKind::Cancelled);
            assert_eq!(kinds, [None, None, cancelled, cancelled]);
            assert_eq!(millis(outcome.ended), 1_600);
            // What had been measured is kept.
            assert_eq!(millis(outcome.records[2].content_ns[0]), 1_400);
        } else {
            assert_eq!(kinds, [None; 4]);
            assert_eq!(millis(outcome.ended), 2_000);
        }
    }
}

/// A drain that takes too long ends at its deadline.
#[tokio::test(start_paused = true)]
async fn a_drain_has_a_deadline() {
    let server = Arc::new(Server::new(|_| Reply::tokens(&[60_000])));
    let mut config = config();
    config.drain = Duration::from_secs(2);
    let requests = free_requests(&config, 3);
    let control = Control::default();
    let stop = control.stop.clone();
    let interrupt = async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    };
    let running = drive(&server, config, requests, LoadPlan::closed(1, 3), control);
    let (outcome, ()) = tokio::join!(running, interrupt);
    assert_eq!(outcome.records.len(), 1);
    assert_eq!(kind(&outcome.records[0]), Some(FailureKind::Cancelled));
    assert!((3_000..=3_001).contains(&millis(outcome.ended)));
}

/// O-ART-2: a server that echoes credentials does not get them stored.
#[tokio::test(start_paused = true)]
async fn credentials_never_reach_a_record() {
    let server = Arc::new(Server::new(|seen| {
        let authorization = seen.head.split("authorization: ").nth(1).unwrap();
        let authorization = authorization.split("\r\n").next().unwrap();
        let body = format!("{{\"error\":{{\"message\":\"bad key {authorization} qk-0123\"}}}}");
        Reply::status(401, 1, &body)
    }));
    let mut config = config();
    config.url = "http://user:pw-0123@server/v1/completions?key=qk-0123".to_owned();
    config.api_key = pcload::secret::Secret::new("sk-test-0123456789abcdef");
    let record = one(&server, config).await;
    let written = serde_json::to_string(&record).unwrap();
    assert!(
        written.contains("bad key bearer [redacted] [redacted]"),
        "{written}"
    );
    for secret in ["sk-test-0123456789abcdef", "pw-0123", "qk-0123"] {
        assert!(!written.contains(secret), "{written}");
    }
    let head = &server.posts()[0].head;
    assert!(
        head.starts_with("post /v1/completions?key=qk-0123 http/1.1"),
        "{head}"
    );
}
