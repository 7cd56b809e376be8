//! When requests are sent: open loops by the clock, closed loops by slots.

use std::sync::Arc;

use pcload::drive::native::Control;
use pcload::measure::RequestRecord;
use pcload::plan::{ArrivalLaw, LoadPlan, Pace, draw};
use pcload::rng::Seed;

use crate::server::{Reply, Server, millis};
use crate::{config, drive, free_requests};

fn open(rate: f64, count: usize, max_in_flight: Option<u32>) -> LoadPlan {
    let (arrivals_ns, length_ns) = draw(
        ArrivalLaw::Constant,
        rate,
        count,
        None,
        &Seed::from(1),
        "arrivals",
    );
    let pace = Pace::Open {
        arrivals_ns,
        length_ns,
        max_in_flight,
        rate_per_second: Some(rate),
    };
    LoadPlan::one_stage(pace, count)
}

fn queue_delay_ms(record: &RequestRecord) -> u64 {
    millis(record.t_send_ns) - millis(record.t_sched_ns)
}

/// O-LOAD-2: one slot at 10 requests per second, 500 ms of service.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_slot_shows_in_the_queue_delay_and_not_in_the_latency() {
    let server = Arc::new(Server::new(|_| Reply::tokens(&[500])));
    let config = config();
    let requests = free_requests(&config, 8);
    let outcome = drive(
        &server,
        config,
        requests,
        open(10.0, 8, Some(1)),
        Control::default(),
    )
    .await;
    let sends: Vec<u64> = outcome
        .records
        .iter()
        .map(|r| millis(r.t_send_ns))
        .collect();
    assert_eq!(sends, [0, 500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500]);
    let delays: Vec<u64> = outcome.records.iter().map(queue_delay_ms).collect();
    assert_eq!(delays, [0, 400, 800, 1_200, 1_600, 2_000, 2_400, 2_800]);
    let from_schedule: Vec<u64> = outcome
        .records
        .iter()
        .map(|r| millis(r.last_choice_ns.unwrap()) - millis(r.t_sched_ns))
        .collect();
    assert_eq!(
        from_schedule,
        [500, 900, 1_300, 1_700, 2_100, 2_500, 2_900, 3_300]
    );
    assert_eq!(outcome.stages[0].offered_per_second, Some(10.0));
}

/// O-LOAD-1: 200 requests per second do not drift.
#[tokio::test(start_paused = true)]
async fn an_open_loop_keeps_its_schedule() {
    let server = Arc::new(Server::new(|_| Reply::tokens(&[20])));
    let config = config();
    let requests = free_requests(&config, 1_000);
    let outcome = drive(
        &server,
        config,
        requests,
        open(200.0, 1_000, None),
        Control::default(),
    )
    .await;
    for (index, record) in (0..).zip(&outcome.records) {
        assert_eq!(record.t_sched_ns.nanos(), index * 5_000_000);
        assert!(queue_delay_ms(record) <= 1, "{record:?}");
    }
    assert_eq!(millis(outcome.records[999].t_send_ns), 4_995);
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_keeps_its_slots_busy_and_never_more() {
    let server = Arc::new(Server::new(|seen| {
        Reply::tokens(&[10 + 7 * u64::from(seen.number() % 5)])
    }));
    let config = config();
    let requests = free_requests(&config, 50);
    let outcome = drive(
        &server,
        config,
        requests,
        LoadPlan::closed(4, 50),
        Control::default(),
    )
    .await;
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for record in &outcome.records {
        edges.push((record.t_send_ns.nanos(), 1));
        edges.push((record.stream_end_ns.unwrap().nanos(), -1));
    }
    edges.sort_unstable();
    let mut in_flight = 0;
    let peak = edges.iter().map(|(_, step)| {
        in_flight += step;
        in_flight
    });
    assert_eq!(peak.max(), Some(4));
    assert_eq!(outcome.records.len(), 50);
    assert_eq!(outcome.health.connections, 4);
    assert_eq!(server.posts().len(), 50);
}

/// 1,500 streams at once: their descriptors have room before the first one is
/// opened (the kernel makes room at a bad moment else).
#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_load_has_room_for_the_descriptors_of_all_its_streams() {
    let server = Arc::new(Server::new(|_| Reply::tokens(&[20])));
    let config = config();
    let requests = free_requests(&config, 1_500);
    let plan = LoadPlan::closed(1_500, 1_500);
    drive(&server, config, requests, plan, Control::default()).await;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let slots = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    let slots: usize = slots.unwrap().trim().parse().unwrap();
    assert!(slots >= 1_500, "room for {slots}");
}
