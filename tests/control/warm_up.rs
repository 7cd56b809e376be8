//! The warm-up: every prefix on every rank, and a second look at each.

use pcload::drive::phases::{Session, WarmupItem, WarmupReport};
use pcload::service::ControlPrompt;
use pcload::units::{DpRank, GroupIndex};

use crate::server::{Server, State};
use crate::{codes, session};

/// Two groups of 40 and 64 words on each rank; 16-token blocks.
fn items(ranks: u32) -> Vec<WarmupItem> {
    let mut items = Vec::new();
    for rank in (0..ranks).map(DpRank) {
        for (group, words) in [(1, 64), (0, 40)] {
            let text: Vec<String> = (0..words).map(|word| format!("g{group}w{word}")).collect();
            items.push(WarmupItem {
                group_id: GroupIndex(group),
                dp_rank: rank,
                prompt: ControlPrompt::Text(text.join(" ")),
                shared_prefix_tokens: words,
            });
        }
    }
    items
}

async fn warm_up(ranks: u32, turn: impl FnOnce(&mut State)) -> (WarmupReport, Session, Server) {
    let server = Server::start(ranks as usize).await;
    let mut session = session(&server, ranks);
    session.precheck().await.unwrap();
    turn(&mut server.state());
    let report = session.warm_up(&items(ranks)).await.unwrap();
    (report, session, server)
}

#[tokio::test]
async fn every_prefix_is_sent_to_its_rank_and_seen_again() {
    let (report, mut session, server) = warm_up(2, |state| state.seen.clear()).await;
    let order: Vec<(u32, u32)> = report
        .results
        .iter()
        .map(|one| (one.group_id.0, one.dp_rank.0))
        .collect();
    assert_eq!(order, [(0, 0), (0, 1), (1, 0), (1, 1)]);
    for one in &report.results {
        // The last token is never found: 40 → 32, 64 → 48.
        let expected = if one.group_id.0 == 0 { 32 } else { 48 };
        assert_eq!(one.expected_cached_tokens, expected);
        assert_eq!(one.cached_tokens, Some(expected));
        assert_eq!(one.verified, Some(true));
    }
    assert!(report.warnings.is_empty());
    for rank in ["0", "1"] {
        let state = server.state();
        let lane: Vec<bool> = state
            .seen
            .iter()
            .filter(|seen| {
                seen.headers
                    .get("x-data-parallel-rank")
                    .is_some_and(|at| at == rank)
            })
            .map(|seen| seen.body.contains("g0w0"))
            .collect();
        assert_eq!(lane, [true, false, true, false], "rank {rank}");
    }
    let baseline = session.baseline().await.unwrap();
    assert!(baseline.settle.settled);
    // Both looks: 2 ranks × 2 × (40 + 64), read after the first of them.
    assert_eq!(baseline.settle.expected_prompt_tokens, Some(0));
}

#[tokio::test]
async fn prefixes_that_are_gone_at_the_second_look_are_named() {
    let (report, _session, _server) = warm_up(1, |state| state.caches = false).await;
    assert_eq!(codes(&report.warnings), ["WARMUP_NOT_CACHED"]);
    assert!(report.warnings[0].message.contains("2 of 2"));
    assert!(report.warnings[0].message.contains("group-0 on rank 0"));
}

#[tokio::test]
async fn counters_verify_where_usage_does_not_tell() {
    let (report, _session, _server) = warm_up(2, |state| state.reports_cached = false).await;
    assert!(report.results.iter().all(|one| one.verified == Some(true)));
    let silent = |state: &mut State| {
        state.reports_usage = false;
        state.caches = false;
    };
    let (report, _session, _server) = warm_up(2, silent).await;
    assert!(report.results.iter().all(|one| one.verified == Some(false)));
    assert_eq!(codes(&report.warnings), ["WARMUP_NOT_CACHED"]);
}

#[tokio::test]
async fn a_failed_item_ends_the_warm_up_with_its_name() {
    let server = Server::start(1).await;
    let mut session = session(&server, 1);
    session.precheck().await.unwrap();
    server.state().refuses_completions = Some(503);
    let error = session.warm_up(&items(1)).await.unwrap_err();
    assert_eq!(error.code, "WARMUP_FAILED");
    assert!(error.message.contains("group-0 on DP rank 0"), "{error}");
    assert!(
        error.message.contains("503: no (SERVICE_REFUSED)"),
        "{error}"
    );
}

#[tokio::test]
async fn no_items_are_no_work() {
    let server = Server::start(1).await;
    let mut session = session(&server, 1);
    session.precheck().await.unwrap();
    let report = session.warm_up(&[]).await.unwrap();
    assert!(report.results.is_empty() && report.warnings.is_empty());
}
