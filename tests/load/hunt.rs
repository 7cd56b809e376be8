//! A hunt for deadlocks through the whole driver: lanes, failures of all kinds,
//! re-sends, interrupts, worker threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pcload::drive::native::Control;
use pcload::measure::Outcome;
use pcload::plan::LoadPlan;
use pcload::rng::Seed;

use crate::server::{End, Reply, Seen, Server, text};
use crate::{config, drive, free_requests, in_lanes};

/// An answer, good or bad, that depends on the seed and the POST alone.
fn any_reply(seed: u64, request: &Seen) -> Reply {
    let mut stream = Seed::from(seed).stream(&format!("reply {}", request.post));
    let at = stream.below(40);
    let token = || Reply::stream([(at, text("a", "null"))]);
    match stream.below(12) {
        0 => Reply::status(500, at, "{}"),
        1 => Reply::status(400, at, "no"),
        2 => token().ending(End::Cut),
        3 => token().ending(End::CleanThenClose),
        4 => token().ending(End::Silent),
        5 => Reply::stream([(at, "data: {\"error\":\"x\"}\n\n")]),
        6 => Reply::stream([(at, "data: nonsense\n\n")]),
        7 => Reply::tokens(&[at]).ending(End::CleanThenClose),
        _ => Reply::tokens(&[at, at + 5]),
    }
}

async fn hunt(seed: u64) {
    let mut stream = Seed::from(seed).stream("hunt");
    let mut server = Server::new(move |seen| any_reply(seed, seen));
    server.refused = (0..3).map(|_| stream.between(1, 60)).collect();
    server.keep_alive = (stream.below(2) == 0).then(|| Duration::from_millis(3));
    let server = Arc::new(server);
    let mut config = config();
    config.retry = u32::try_from(stream.below(3)).unwrap();
    config.timeouts.idle = Duration::from_millis(100);
    config.open_ahead = stream.below(2) == 0;
    let retry = config.retry as usize;
    let requests = in_lanes(free_requests(&config, 64), 16);
    let concurrency = u32::try_from(stream.between(1, 64)).unwrap();
    let control = Control::default();
    let (stop, abort) = (control.stop.clone(), control.abort.clone());
    let interrupts = stream.below(4);
    let after = Duration::from_millis(stream.below(600));
    let interrupt = async move {
        if interrupts > 1 {
            tokio::time::sleep(after).await;
            stop.cancel();
        }
        if interrupts > 2 {
            abort.cancel();
        }
    };
    let running = drive(
        &server,
        config,
        requests,
        LoadPlan::closed(concurrency, 64),
        control,
    );
    let (outcome, ()) = tokio::join!(running, interrupt);

    assert_eq!(outcome.records.len() + outcome.unsent, 64, "seed {seed}");
    assert!(outcome.interrupted || outcome.unsent == 0, "seed {seed}");
    let mut posts: BTreeMap<u32, usize> = BTreeMap::new();
    for seen in server.posts() {
        *posts.entry(seen.number()).or_default() += 1;
    }
    let mut lane_ends = BTreeMap::new();
    for record in &outcome.records {
        let sent = posts.remove(&record.sequence_index).unwrap_or(0);
        assert!(
            sent <= record.attempts.len(),
            "seed {seed}: a POST too many"
        );
        assert!(record.attempts.len() <= retry + 1, "seed {seed}");
        if record.outcome == Outcome::Success {
            assert!(sent >= 1, "seed {seed}: a success that was never sent");
        }
        let lane = (record.group_id, record.dp_rank);
        let end = record.attempts.last().map(|attempt| attempt.t_end_ns);
        if let Some(Some(before)) = lane_ends.insert(lane, end) {
            assert!(before <= record.t_send_ns, "seed {seed}: lane order");
        }
    }
    assert!(
        posts.is_empty(),
        "seed {seed}: the server saw more than was recorded"
    );
}

#[tokio::test(start_paused = true)]
async fn every_run_ends_and_accounts_for_each_request() {
    for seed in 0..1_000 {
        hunt(seed).await;
    }
}

/// O-LANE-1 with worker threads: order holds across them.
#[test]
fn lanes_hold_across_worker_threads() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for (lanes, concurrency) in [(1, 3), (2, 1), (5, 4), (3, 16)] {
            let server = Arc::new(Server::new(|_| Reply::tokens(&[0, 0])));
            let mut config = config();
            config.threads = 3;
            config.timers = pcload::drive::pacing::TimerKind::Kernel;
            let requests = in_lanes(free_requests(&config, 60), lanes);
            let plan = LoadPlan::closed(concurrency, 60);
            let outcome = drive(&server, config, requests, plan, Control::default()).await;
            assert_eq!(outcome.records.len(), 60);
            assert!(
                outcome
                    .records
                    .iter()
                    .all(|r| r.outcome == Outcome::Success)
            );
            let posts = server.posts();
            for lane in 0..lanes {
                let own = posts.iter().filter(|seen| seen.number() % lanes == lane);
                let own: Vec<u32> = own.map(Seen::number).collect();
                assert!(
                    own.is_sorted(),
                    "{lanes} lanes, concurrency {concurrency}: {own:?}"
                );
            }
            let ends: BTreeMap<u32, _> = outcome
                .records
                .iter()
                .map(|record| (record.sequence_index, record.attempts[0].t_end_ns))
                .collect();
            for record in &outcome.records {
                if let Some(before) = record.sequence_index.checked_sub(lanes) {
                    assert!(ends[&before] <= record.t_send_ns);
                }
            }
        }
    });
}
