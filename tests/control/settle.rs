//! The readings before and after the load, and the samples beside it.

use std::time::Duration;

use pcload::drive::phases::Session;
use pcload::engine::{Snapshot, difference};
use pcload::service::{ControlClient, KvPoller, METRICS_BYTES_MAX};
use tokio::time::Instant;

use crate::server::{Server, State};
use crate::{impatient_session, session, settings};

/// A session after its baseline, and its server.
async fn ready() -> (Session, Snapshot, Server) {
    let server = Server::start(2).await;
    let session = session(&server, 2);
    after_baseline(session, server).await
}

/// The same, soon tired of waiting.
async fn ready_and_impatient() -> (Session, Snapshot, Server) {
    let server = Server::start(2).await;
    let session = impatient_session(&server, 2);
    after_baseline(session, server).await
}

async fn after_baseline(mut session: Session, server: Server) -> (Session, Snapshot, Server) {
    session.precheck().await.unwrap();
    let baseline = session.baseline().await.unwrap();
    assert!(baseline.settle.settled);
    assert!(
        baseline
            .raw_prometheus
            .contains("vllm:prefix_cache_queries_total")
    );
    (session, baseline.snapshot, server)
}

/// A load of `tokens` on rank 1, half of them found.
fn load(state: &mut State, tokens: u64) {
    let rank = &mut state.ranks[1];
    rank.prompt_tokens += tokens;
    rank.queries += tokens;
    rank.hits += tokens / 2;
}

#[tokio::test]
async fn a_first_reading_that_agrees_is_enough() {
    let (mut session, before, server) = ready().await;
    load(&mut server.state(), 1_000);
    let after = session.after(Some(1_000)).await.unwrap();
    assert!(after.settle.settled);
    assert_eq!(
        (after.settle.polls, after.settle.observed_prompt_tokens),
        (1, 1_000)
    );
    let total = difference(&before, &after.snapshot).unwrap().total();
    assert_eq!(total.hit_rate(), Some(0.5));
}

#[tokio::test]
async fn counters_that_come_late_are_waited_for() {
    let (mut session, _, server) = ready().await;
    {
        let mut state = server.state();
        // Unavailable twice, then a page of before, then what was sent.
        load(&mut state, 1_000);
        state.metrics_fail = [503, 500].into();
    }
    let after = session.after(Some(1_000)).await.unwrap();
    assert!(after.settle.settled);
    assert_eq!(after.settle.polls, 3);
}

#[tokio::test]
async fn counters_that_never_agree_are_reported_as_unsettled() {
    let (mut session, _, server) = ready_and_impatient().await;
    load(&mut server.state(), 900);
    let after = session.after(Some(1_000)).await.unwrap();
    assert!(!after.settle.settled);
    assert!(after.settle.polls > 1);
    assert_eq!(after.settle.observed_prompt_tokens, 900);
    // More than was sent is other traffic: nothing to wait for.
    load(&mut server.state(), 200);
    let after = session.after(Some(1_000)).await.unwrap();
    assert!(after.settle.settled);
    assert_eq!(after.settle.observed_prompt_tokens, 1_100);
}

#[tokio::test]
async fn without_usage_two_readings_alike_are_the_end() {
    let (mut session, _, server) = ready().await;
    load(&mut server.state(), 500);
    let after = session.after(None).await.unwrap();
    assert!(after.settle.settled);
    assert_eq!(
        (after.settle.polls, after.settle.expected_prompt_tokens),
        (2, None)
    );
}

#[tokio::test]
async fn a_restarted_engine_is_reported_at_once_and_keeps_the_page() {
    let (mut session, before, server) = ready().await;
    server.state().ranks[0].prompt_tokens = 0;
    server.state().ranks[0].queries = 0;
    server.state().ranks[0].hits = 0;
    let after = session.after(Some(1_000)).await.unwrap();
    assert!(!after.settle.settled);
    assert_eq!(after.settle.polls, 1);
    let error = difference(&before, &after.snapshot).unwrap_err();
    assert_eq!(error.code(), "COUNTER_REGRESSED");
    assert!(error.to_string().contains("DP rank 0"));
}

#[tokio::test]
async fn a_page_that_stays_away_is_an_error_with_a_code() {
    let (mut session, _, server) = ready_and_impatient().await;
    server.state().metrics_fail = [500; 1_000].into();
    let error = session.after(Some(1)).await.unwrap_err();
    assert_eq!(error.code, "METRICS_UNAVAILABLE");
}

#[tokio::test]
async fn a_page_without_end_is_refused() {
    let server = Server::start(1).await;
    let client = ControlClient::new(settings(&server, 1)).unwrap();
    server.state().page = Some("x".repeat(METRICS_BYTES_MAX + 1));
    let error = client.scrape().await.unwrap_err();
    assert_eq!(error.code(), "SERVICE_ANSWER_TOO_LARGE");
}

#[tokio::test]
async fn samples_are_taken_beside_the_load_and_none_without_an_interval() {
    let server = Server::start(2).await;
    let client = ControlClient::new(settings(&server, 2)).unwrap();
    let poller = KvPoller::start(client.clone(), Duration::from_millis(1), Instant::now());
    while server.state().seen.len() < 5 {
        tokio::task::yield_now().await;
    }
    let samples = poller.stop().await;
    assert!(samples.samples.len() >= 3, "{}", samples.samples.len());
    let summary = samples.summary();
    assert_eq!(summary.global.global_peak, Some(0.25));
    assert_eq!(summary.by_dp.len(), 2);
    let before = server.state().seen.len();
    let none = KvPoller::start(client, Duration::ZERO, Instant::now());
    tokio::task::yield_now().await;
    let samples = none.stop().await;
    assert!(samples.samples.is_empty());
    assert_eq!(server.state().seen.len(), before);
}
