//! The phases against a real server, named by `PCLOAD_REAL_VLLM` (its base URL;
//! `PCLOAD_REAL_DP` and `PCLOAD_REAL_BLOCK` where they are not 1 and 32). The
//! server must serve the model `tiny` and answer `/reset_prefix_cache`.

use std::time::Duration;

use pcload::drive::phases::{PhaseOptions, Proof, Session, WarmupItem};
use pcload::engine::difference;
use pcload::service::{ControlPrompt, ControlSettings, KvPoller};
use pcload::units::{BlockSize, DpRank, GroupIndex};
use tokio::time::Instant;

fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A session with the real server, as if it had `dp_size` ranks.
fn session(dp_size: u32, model: &str, block: u64) -> Option<Session> {
    let Ok(url) = std::env::var("PCLOAD_REAL_VLLM") else {
        eprintln!("skipped: PCLOAD_REAL_VLLM names no server");
        return None;
    };
    let settings = ControlSettings {
        reset_url: Some(format!("{url}/reset_prefix_cache")),
        dp_size,
        ..ControlSettings::new(
            format!("{url}/v1/completions"),
            format!("{url}/metrics"),
            model,
        )
    };
    let options = PhaseOptions::new(BlockSize::new(block).unwrap(), 1_000, 16);
    Some(Session::new(settings, options).unwrap())
}

#[tokio::test]
async fn a_real_server_is_refused_for_what_it_is_not() {
    let dp_size = number("PCLOAD_REAL_DP", 1);
    let Some(mut more) = session(dp_size + 1, "tiny", 32) else {
        return;
    };
    let error = more.precheck().await.unwrap_err();
    eprintln!("{error}");
    assert_eq!(error.code, "DP_SIZE_MISMATCH");
    assert!(error.message.contains(&format!("DP rank {dp_size}")));
    if dp_size > 1 {
        let mut fewer = session(dp_size - 1, "tiny", 32).unwrap();
        let error = fewer.precheck().await.unwrap_err();
        assert_eq!(error.code, "DP_SIZE_MISMATCH", "{error}");
    }
    let mut other = session(dp_size, "nope", 32).unwrap();
    let error = other.precheck().await.unwrap_err();
    assert_eq!(error.code, "MODEL_NOT_FOUND");
    assert!(error.message.contains("`tiny`"), "{error}");
    let mut block = session(dp_size, "tiny", 16).unwrap();
    let found = block.precheck().await.unwrap();
    assert_eq!(crate::codes(&found.warnings), ["BLOCK_SIZE_MISMATCH"]);
    eprintln!("{}", found.warnings[0].message);
}

#[tokio::test]
async fn a_real_server_goes_through_all_phases() {
    let dp_size = number("PCLOAD_REAL_DP", 1);
    let block = u64::from(number("PCLOAD_REAL_BLOCK", 32));
    let Some(mut session) = session(dp_size, "tiny", block) else {
        return;
    };

    let precheck = session.precheck().await.unwrap();
    eprintln!("{}", serde_json::to_string_pretty(&precheck).unwrap());
    assert!(precheck.warnings.is_empty(), "{:?}", precheck.warnings);
    assert_eq!(precheck.block.measured_tokens, Some(block));
    assert!(
        precheck
            .routing
            .iter()
            .all(|probe| probe.moved == [probe.dp_rank])
    );

    let reset = session.reset().await.unwrap();
    eprintln!("{}", serde_json::to_string_pretty(&reset).unwrap());
    assert_eq!(reset.proof, Proof::Cold);

    let items: Vec<WarmupItem> = (0..dp_size)
        .flat_map(|rank| (0..3).map(move |group| (rank, group)))
        .map(|(rank, group)| WarmupItem {
            group_id: GroupIndex(group),
            dp_rank: DpRank(rank),
            prompt: ControlPrompt::TokenIds((0..300).map(|id| 1_000 + group * 997 + id).collect()),
            shared_prefix_tokens: 256,
        })
        .collect();
    let warmup = session.warm_up(&items).await.unwrap();
    eprintln!("{}", serde_json::to_string_pretty(&warmup).unwrap());
    assert!(warmup.results.iter().all(|one| one.verified == Some(true)));

    let baseline = session.baseline().await.unwrap();
    assert!(baseline.settle.settled);
    let client = session.client().clone();
    let poller = KvPoller::start(client.clone(), Duration::from_millis(200), Instant::now());
    let mut sent = 0;
    for item in &items {
        let answer = client
            .complete(&item.prompt, Some(item.dp_rank))
            .await
            .unwrap();
        sent += answer.usage.unwrap().prompt_tokens;
    }
    let samples = poller.stop().await;
    assert_eq!(samples.poll_failures, 0);
    let after = session.after(Some(sent)).await.unwrap();
    eprintln!("{}", serde_json::to_string_pretty(&after.settle).unwrap());
    assert!(after.settle.settled);
    let total = difference(&baseline.snapshot, &after.snapshot)
        .unwrap()
        .total();
    assert_eq!(total.prompt_tokens, Some(sent));
    assert_eq!(total.queries, sent);
    let found = items.len() as u64 * (299 / block) * block;
    assert_eq!(total.hits, found);
}
