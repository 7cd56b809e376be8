//! Which request goes next, and when: lanes, slots and arrivals of all stages
//! in one state machine, fed with the time and with ends of requests. It
//! refuses to know clocks and sockets.

use std::collections::BTreeSet;
use std::time::Duration;

use super::concurrency::{SlotTarget, Slots};
use super::sequencer::LaneSequencer;
use crate::plan::{LoadPlan, Pace, PlannedEnd, PlannedStage};
use crate::units::RunOffset;

/// A request that goes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Position in the send order.
    pub index: usize,
    /// Stage it belongs to.
    pub stage: u32,
    /// When the profile wanted it sent.
    pub t_sched: RunOffset,
    /// When its lane let it go, not before `t_sched`.
    pub t_ready: RunOffset,
    /// When nothing held it any more, a slot included: what comes after is the
    /// client's own delay.
    pub t_free: RunOffset,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this request.
    Send(Dispatch),
    /// Nothing before this time, unless a request ends.
    WaitUntil(RunOffset),
    /// Nothing until a request ends.
    WaitForEnd,
    /// Everything has been sent and has ended.
    Finished,
}

/// Facts about a stage, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageFacts {
    /// When it began.
    pub started: RunOffset,
    /// Requests that became its own: arrivals that were due, or requests that a
    /// slot was given to.
    pub offered: usize,
    /// Of them sent.
    pub sent: usize,
}

/// The state machine.
#[derive(Debug)]
pub struct Dispatcher {
    plan: LoadPlan,
    lanes: LaneSequencer,
    slots: Slots,
    stages: Vec<StageFacts>,
    /// Requests that may be sent as soon as a slot is free, in send order.
    ready: BTreeSet<usize>,
    requests: Vec<RequestState>,
    /// Everything before has been sent.
    first_unsent: usize,
    /// Requests that belong to a stage and have not been sent.
    claimed: usize,
    current: Current,
    stopped: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct RequestState {
    sent: bool,
    /// Stage it belongs to, once known.
    stage: Option<u32>,
    /// When the profile wanted it, once known.
    sched: Option<RunOffset>,
}

/// The stage that is under way.
#[derive(Debug, Default)]
struct Current {
    index: usize,
    start: RunOffset,
    /// Its requests in send order; an open stage claims them one by one.
    members: Vec<usize>,
    /// Members that have been given a time: arrivals that have come (open) or
    /// requests for which a slot was free (closed).
    timed: usize,
    /// Of the timed ones, those not sent.
    timed_unsent: usize,
}

impl Dispatcher {
    /// A run of `plan` that begins at `start`.
    pub fn new(plan: LoadPlan, lanes: LaneSequencer, start: RunOffset) -> Self {
        assert_eq!(plan.request_count, lanes.len(), "one lane place a request");
        assert!(!plan.stages.is_empty(), "a plan has a stage");
        let mut dispatcher = Self {
            stages: vec![StageFacts::default(); plan.stages.len()],
            ready: BTreeSet::new(),
            requests: vec![RequestState::default(); plan.request_count],
            first_unsent: 0,
            claimed: 0,
            current: Current::default(),
            slots: Slots::default(),
            stopped: false,
            plan,
            lanes,
        };
        dispatcher.begin_stage(0, start);
        dispatcher
    }

    /// Facts about all stages.
    pub fn stages(&self) -> &[StageFacts] {
        &self.stages
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.slots.in_flight()
    }

    /// Requests that have not been sent.
    pub fn unsent(&self) -> usize {
        self.requests.iter().filter(|state| !state.sent).count()
    }

    /// Nothing is sent from now on.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// What to do at `now`, which never goes back.
    pub fn next(&mut self, now: RunOffset) -> Next {
        if self.stopped || self.first_unsent == self.requests.len() {
            return self.wait(None);
        }
        while let Some(end) = self.stage_end(now) {
            self.release_unsent();
            if self.current.index + 1 == self.plan.stages.len() {
                // Arrivals that were due stay due; of a closed stage nothing is
                // left.
                if self.claimed == 0 {
                    return self.wait(None);
                }
                break;
            }
            self.begin_stage(self.current.index + 1, end);
        }
        let wake = self.advance_stage(now);
        if self.slots.free() > 0
            && let Some(index) = self.ready.pop_first()
        {
            return Next::Send(self.send(index, now));
        }
        self.wait(wake)
    }

    /// Request `index` has ended at `now`, well or not.
    pub fn ended(&mut self, index: usize, now: RunOffset) {
        self.slots.give_back(now);
        if let Some(next) = self.lanes.end(index, now)
            && self.requests[next].stage.is_some()
            && self.may_go(next)
        {
            self.ready.insert(next);
        }
    }

    fn wait(&self, wake: Option<RunOffset>) -> Next {
        match wake {
            Some(at) => Next::WaitUntil(at),
            None if self.slots.in_flight() > 0 => Next::WaitForEnd,
            None => Next::Finished,
        }
    }

    fn stage(&self) -> &PlannedStage {
        &self.plan.stages[self.current.index]
    }

    /// Whether the current stage is over, and since when.
    fn stage_end(&mut self, now: RunOffset) -> Option<RunOffset> {
        // However late this is, arrivals that have come belong to their stage.
        self.time_open(now);
        let after = |ns: u64| RunOffset(self.current.start.nanos().saturating_add(ns));
        let all_sent = self.current.timed == self.current.members.len() && self.claimed == 0;
        let last = self.current.index + 1 == self.plan.stages.len();
        match (&self.stage().pace, self.stage().end) {
            (Pace::Open { length_ns, .. }, _) => {
                let over = now >= after(*length_ns) || (last && all_sent);
                over.then(|| after(*length_ns))
            }
            (Pace::Closed { .. }, PlannedEnd::Duration(duration)) => {
                let end = after(nanos(duration));
                (now >= end || (self.claimed == 0)).then_some(end.min(now))
            }
            (Pace::Closed { .. }, PlannedEnd::Requests(_) | PlannedEnd::Rest) => {
                (self.claimed == 0).then_some(now)
            }
        }
    }

    /// Gives requests of a closed stage that has run out of time back, for the
    /// next stage to take.
    fn release_unsent(&mut self) {
        if matches!(self.stage().pace, Pace::Open { .. }) {
            return;
        }
        let members = std::mem::take(&mut self.current.members);
        for index in members {
            let request = &mut self.requests[index];
            if !request.sent && request.stage.is_some() {
                *request = RequestState::default();
                self.claimed -= 1;
                self.ready.remove(&index);
            }
        }
        self.current.timed = 0;
        self.current.timed_unsent = 0;
    }

    fn begin_stage(&mut self, index: usize, start: RunOffset) {
        self.stages[index].started = start;
        let stage = &self.plan.stages[index];
        let wanted = match (&stage.pace, stage.end) {
            (Pace::Open { arrivals_ns, .. }, _) => arrivals_ns.len(),
            (Pace::Closed { .. }, PlannedEnd::Requests(count)) => count,
            (Pace::Closed { .. }, PlannedEnd::Duration(_) | PlannedEnd::Rest) => usize::MAX,
        };
        let free = |index: &usize| {
            let request = self.requests[*index];
            !request.sent && request.stage.is_none()
        };
        let members: Vec<usize> = (self.first_unsent..self.requests.len())
            .filter(free)
            .take(wanted)
            .collect();
        let is_closed = matches!(stage.pace, Pace::Closed { .. });
        self.current = Current {
            index,
            start,
            members,
            timed: 0,
            timed_unsent: 0,
        };
        if is_closed {
            for place in 0..self.current.members.len() {
                self.claim(self.current.members[place], None);
            }
        }
    }

    /// `index` belongs to the current stage from now on.
    fn claim(&mut self, index: usize, sched: Option<RunOffset>) {
        let stage = u32::try_from(self.current.index).expect("few stages");
        self.requests[index].stage = Some(stage);
        self.requests[index].sched = sched;
        self.claimed += 1;
        if self.may_go(index) {
            self.ready.insert(index);
        }
    }

    fn may_go(&self, index: usize) -> bool {
        !self.requests[index].sent && self.lanes.is_released(index)
    }

    /// Brings slots and arrivals up to `now`; when that has to be done again.
    fn advance_stage(&mut self, now: RunOffset) -> Option<RunOffset> {
        let last = self.current.index + 1 == self.plan.stages.len();
        match &self.stage().pace {
            Pace::Closed {
                from,
                concurrency,
                ramp,
            } => {
                let target = SlotTarget {
                    from: *from,
                    to: *concurrency,
                    start: self.current.start,
                    ramp_ns: nanos(*ramp),
                };
                let end = match self.stage().end {
                    PlannedEnd::Duration(duration) => {
                        let start = self.current.start.nanos();
                        Some(RunOffset(start.saturating_add(nanos(duration))))
                    }
                    PlannedEnd::Requests(_) | PlannedEnd::Rest => None,
                };
                self.slots.set_target(Some(target.at(now)), now);
                self.time_closed();
                target.next_change(now).into_iter().chain(end).min()
            }
            Pace::Open {
                length_ns,
                max_in_flight,
                ..
            } => {
                let (limit, length_ns) = (*max_in_flight, *length_ns);
                self.slots.set_target(limit, now);
                let next = self.time_open(now);
                let end = RunOffset(self.current.start.nanos().saturating_add(length_ns));
                next.or((!last).then_some(end))
            }
        }
    }

    /// Each free slot names the next request of the send order that has no
    /// time yet: since then the profile wants it sent. A request that its lane
    /// holds keeps its time while others use the slot.
    fn time_closed(&mut self) {
        while self.current.timed < self.current.members.len() {
            let index = self.current.members[self.current.timed];
            if self.requests[index].sent {
                // It went ahead of its turn, and took its time with it.
                self.current.timed += 1;
                continue;
            }
            let Some(since) = self.slots.free_since(self.current.timed_unsent) else {
                return;
            };
            self.requests[index].sched = Some(since.max(self.current.start));
            self.stages[self.current.index].offered += 1;
            self.current.timed += 1;
            self.current.timed_unsent += 1;
        }
    }

    /// Claims the arrivals that have come: when the next one comes.
    fn time_open(&mut self, now: RunOffset) -> Option<RunOffset> {
        loop {
            let Pace::Open { arrivals_ns, .. } = &self.stage().pace else {
                return None;
            };
            let index = *self.current.members.get(self.current.timed)?;
            let arrival = arrivals_ns[self.current.timed];
            let at = RunOffset(self.current.start.nanos().saturating_add(arrival));
            if at > now {
                return Some(at);
            }
            self.current.timed += 1;
            self.stages[self.current.index].offered += 1;
            self.claim(index, Some(at));
        }
    }

    fn send(&mut self, index: usize, now: RunOffset) -> Dispatch {
        let slot = self.slots.take();
        self.lanes.start(index);
        let request = &mut self.requests[index];
        request.sent = true;
        let stage = request.stage.expect("a request that goes has a stage");
        let facts = &mut self.stages[stage as usize];
        facts.sent += 1;
        let t_sched = if let Some(sched) = request.sched {
            if self.current.index == stage as usize {
                self.current.timed_unsent = self.current.timed_unsent.saturating_sub(1);
            }
            sched
        } else {
            facts.offered += 1;
            slot.unwrap_or(now).max(self.current.start)
        };
        self.claimed -= 1;
        while self
            .requests
            .get(self.first_unsent)
            .is_some_and(|request| request.sent)
        {
            self.first_unsent += 1;
        }
        let t_ready = t_sched.max(self.lanes.released_at(index)).min(now);
        Dispatch {
            index,
            stage,
            t_sched,
            t_ready,
            t_free: t_ready.max(slot.unwrap_or(t_ready)).min(now),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
