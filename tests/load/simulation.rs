//! The dispatcher under random loads, without a clock or a network: many
//! seeds; a failure prints its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pcload::drive::dispatch::{Dispatch, Dispatcher, Next};
use pcload::drive::sequencer::{LanePlace, LaneSequencer};
use pcload::plan::{ArrivalLaw, LoadPlan, Pace, PlannedEnd, PlannedStage, draw};
use pcload::rng::{Seed, Stream};
use pcload::units::{DpRank, GroupIndex, RunOffset};

/// What a simulated run has shown.
struct Played {
    /// In the order of sending: the order and when it ended.
    sent: Vec<(Dispatch, RunOffset, RunOffset)>,
    peak: u32,
    now: RunOffset,
}

/// Plays a plan. Service times are random, some 0; every request ends.
fn play(
    plan: LoadPlan,
    places: &[LanePlace],
    stream: &mut Stream,
    stop_at: Option<RunOffset>,
) -> Played {
    let lanes = LaneSequencer::new(places).unwrap();
    let mut dispatcher = Dispatcher::new(plan, lanes, RunOffset(0));
    let mut now = RunOffset(0);
    let mut running: BTreeSet<(RunOffset, usize)> = BTreeSet::new();
    let mut sent: Vec<(Dispatch, RunOffset, RunOffset)> = Vec::new();
    let mut peak = 0;
    let steps_max = places.len() * 20 + 10_000;
    for _ in 0..steps_max {
        if stop_at.is_some_and(|at| now >= at) {
            dispatcher.stop();
        }
        let first_end = running.first().copied();
        match dispatcher.next(now) {
            Next::Send(dispatch) => {
                let service = stream.below(4) * stream.below(1_000_000);
                let end = RunOffset(now.nanos() + service);
                running.insert((end, dispatch.index));
                sent.push((dispatch, now, end));
                peak = peak.max(dispatcher.in_flight());
                continue;
            }
            Next::Finished => {
                assert!(running.is_empty(), "finished while requests run");
                return Played { sent, peak, now };
            }
            Next::WaitUntil(at) if first_end.is_none_or(|(end, _)| at < end) => {
                assert!(at > now, "a wait for the past");
                now = at;
                continue;
            }
            Next::WaitUntil(_) | Next::WaitForEnd => {}
        }
        let (end, index) = first_end.expect("something runs, or the dispatcher waits for nothing");
        running.remove(&(end, index));
        now = now.max(end);
        dispatcher.ended(index, now);
    }
    panic!("the run does not end");
}

fn places(count: usize, lanes: u64, stream: &mut Stream) -> Vec<LanePlace> {
    let mut next = BTreeMap::new();
    let place = |_| {
        let lane = u32::try_from(stream.below(lanes)).unwrap();
        let free = stream.below(10) == 0;
        let sequence = (!free).then(|| {
            let sequence = next.entry(lane).or_insert(0_u32);
            *sequence += 1;
            *sequence - 1
        });
        LanePlace {
            group: GroupIndex(lane / 2),
            dp_rank: Some(DpRank(lane % 2)),
            sequence,
        }
    };
    (0..count).map(place).collect()
}

/// Each request at most once, lanes in order, times in order.
fn check(played: &Played, places: &[LanePlace], seed: u64) {
    let mut ends: BTreeMap<(GroupIndex, Option<DpRank>), (u32, RunOffset)> = BTreeMap::new();
    let mut was_sent = vec![false; places.len()];
    for (dispatch, at, end) in &played.sent {
        assert!(
            !std::mem::replace(&mut was_sent[dispatch.index], true),
            "seed {seed}: twice"
        );
        assert!(
            dispatch.t_sched <= dispatch.t_ready,
            "seed {seed}: {dispatch:?}"
        );
        assert!(
            dispatch.t_ready <= dispatch.t_free,
            "seed {seed}: {dispatch:?}"
        );
        assert!(
            dispatch.t_free <= *at,
            "seed {seed}: {dispatch:?} at {at:?}"
        );
        let place = places[dispatch.index];
        if let Some(sequence) = place.sequence {
            let lane = (place.group, place.dp_rank);
            let expected = ends.get(&lane).map_or(0, |(before, _)| before + 1);
            assert_eq!(sequence, expected, "seed {seed}: lane order");
            if let Some((_, before)) = ends.insert(lane, (sequence, *end)) {
                assert!(before <= *at, "seed {seed}: the predecessor still ran");
            }
        }
    }
}

/// 16 lanes, concurrency 1 to 64, 1,000 seeds: every run ends.
#[test]
fn closed_loops_always_end() {
    for seed in 0..1_000 {
        let mut stream = Seed::from(seed).stream("simulation");
        let places = places(120, 16, &mut stream);
        let concurrency = u32::try_from(stream.between(1, 64)).unwrap();
        let plan = LoadPlan::closed(concurrency, places.len());
        let played = play(plan, &places, &mut stream, None);
        check(&played, &places, seed);
        assert_eq!(played.sent.len(), places.len(), "seed {seed}");
        assert!(played.peak <= concurrency, "seed {seed}");
        for (dispatch, at, _) in &played.sent {
            // Nothing but slot and lane can hold a request of a closed loop.
            assert_eq!(dispatch.t_free, *at, "seed {seed}: {dispatch:?}");
        }
    }
}

fn random_stage(stream: &mut Stream, count: usize) -> PlannedStage {
    let requests = usize::try_from(stream.between(1, 40)).unwrap().min(count);
    if stream.below(2) == 0 {
        let concurrency = u32::try_from(stream.between(1, 20)).unwrap();
        let from = u32::try_from(stream.between(1, 20)).unwrap();
        let ramp = Duration::from_nanos(stream.below(3) * 1_000_000);
        let end = if stream.below(2) == 0 {
            PlannedEnd::Requests(requests)
        } else {
            PlannedEnd::Duration(Duration::from_nanos(stream.between(1, 20_000_000)))
        };
        let from = if ramp.is_zero() { concurrency } else { from };
        let pace = Pace::Closed {
            from,
            concurrency,
            ramp,
        };
        return PlannedStage { pace, end };
    }
    let label = format!("stage {}", stream.next_u64());
    let seed = Seed::from(stream.next_u64());
    let rate = 1e3 + stream.unit() * 1e5;
    let (arrivals_ns, length_ns) = draw(ArrivalLaw::Poisson, rate, requests, None, &seed, &label);
    let capped = stream.below(2) == 0;
    let max_in_flight = capped.then(|| u32::try_from(stream.between(1, 8)).unwrap());
    PlannedStage {
        pace: Pace::Open {
            arrivals_ns,
            length_ns,
            max_in_flight,
            rate_per_second: Some(rate),
        },
        end: PlannedEnd::Requests(requests),
    }
}

/// Any sequence of stages that ends with the rest sends everything.
#[test]
fn any_stages_end_and_lose_nothing() {
    for seed in 0..1_000 {
        let mut stream = Seed::from(seed).stream("stages");
        let places = places(150, 16, &mut stream);
        let mut plan = LoadPlan::closed(3, places.len());
        let stages = usize::try_from(stream.below(6)).unwrap();
        let mut random: Vec<PlannedStage> = (0..stages)
            .map(|_| random_stage(&mut stream, 150))
            .collect();
        random.append(&mut plan.stages);
        plan.stages = random;
        let played = play(plan, &places, &mut stream, None);
        check(&played, &places, seed);
        assert_eq!(played.sent.len(), places.len(), "seed {seed}");
    }
}

/// Stopped at any moment, a run ends with what it has sent.
#[test]
fn a_stopped_run_ends() {
    for seed in 0..300 {
        let mut stream = Seed::from(seed).stream("stop");
        let places = places(80, 4, &mut stream);
        let stop = RunOffset(stream.below(20_000_000));
        let played = play(LoadPlan::closed(5, 80), &places, &mut stream, Some(stop));
        check(&played, &places, seed);
        assert!(
            played
                .sent
                .iter()
                .all(|(_, at, _)| *at <= stop || stop >= played.now)
        );
    }
}

/// Stages take their requests by send order, and a stage by time ends on time.
#[test]
fn stages_take_what_they_say() {
    let free = LanePlace {
        group: GroupIndex(0),
        dp_rank: None,
        sequence: None,
    };
    let places = vec![free; 60];
    let closed = |concurrency, end| PlannedStage {
        pace: Pace::Closed {
            from: concurrency,
            concurrency,
            ramp: Duration::ZERO,
        },
        end,
    };
    let open = PlannedStage {
        pace: Pace::Open {
            arrivals_ns: vec![0, 1_000, 2_000],
            length_ns: 50_000_000,
            max_in_flight: None,
            rate_per_second: None,
        },
        end: PlannedEnd::Requests(3),
    };
    let mut plan = LoadPlan::closed(2, 60);
    let tail = plan.stages.pop().unwrap();
    plan.stages = vec![
        closed(1, PlannedEnd::Requests(10)),
        open,
        closed(4, PlannedEnd::Requests(7)),
        tail,
    ];
    let mut stream = Seed::from(1).stream("x");
    let played = play(plan, &places, &mut stream, None);
    let stage_of = |stage| {
        let own = played.sent.iter().filter(move |(d, _, _)| d.stage == stage);
        own.map(|(d, at, _)| (d.index, *at)).collect::<Vec<_>>()
    };
    let indexes = |stage| stage_of(stage).iter().map(|(i, _)| *i).collect::<Vec<_>>();
    assert_eq!(indexes(0), (0..10).collect::<Vec<_>>());
    assert_eq!(indexes(1), [10, 11, 12]);
    assert_eq!(indexes(2), (13..20).collect::<Vec<_>>());
    assert_eq!(indexes(3), (20..60).collect::<Vec<_>>());
    let opened = stage_of(1)[0].1.nanos();
    assert_eq!(stage_of(1)[2].1.nanos(), opened + 2_000);
    assert_eq!(stage_of(2)[0].1.nanos(), opened + 50_000_000);
}
