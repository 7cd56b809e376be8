//! AISBench's stable stage: the requests that ran while the concurrency was at
//! its maximum, and the window they ran in (`StablePerfMetricCalculator` of
//! 3.1.20260630).

use super::Timed;

/// Share of the maximum at which the level still counts as reached.
const LEVEL_KEPT: f64 = 1.0 - 0.02;

/// Longest dip below that level that does not end the stage, in seconds.
const DIP_SECONDS_MAX: f64 = 0.001;

/// The stable stage.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StableStage {
    /// Places of its requests.
    pub members: Vec<usize>,
    /// Its length in seconds.
    pub seconds: f64,
}

/// A start or an end of a request.
#[derive(Clone, Copy)]
struct Event {
    at: f64,
    index: usize,
    is_start: bool,
}

/// Finds the stage among successes; `None` when `slots` were never reached.
pub(super) fn stable_stage(requests: &[Timed], slots: u32) -> Option<StableStage> {
    let slots = i64::from(slots);
    #[expect(clippy::cast_possible_truncation, reason = "a small positive number")]
    let threshold = (slots as f64 * LEVEL_KEPT) as i64;
    let events = events(requests);
    let mut taken: Vec<usize> = Vec::new();
    let (mut level, mut started) = (0_i64, 0);
    let (mut begin, mut end) = (0.0, 0.0);
    for (place, event) in events.iter().enumerate() {
        level += if event.is_start { 1 } else { -1 };
        started += usize::from(event.is_start);
        if event.is_start && level == slots {
            taken.push(event.index);
            if taken.len() == 2 {
                begin = event.at;
            }
        } else if event.is_start && level >= threshold && taken.len() > 2 {
            taken.push(event.index);
        } else if !event.is_start {
            let all_started = started == requests.len();
            let is_dip = taken.len() > 1
                && level < threshold
                && !recovers(&events[place + 1..], event.at, level, threshold);
            if all_started || is_dip {
                end = event.at;
                break;
            }
        }
    }
    (taken.len() > 1 && end > begin).then(|| StableStage {
        // The first one brought the level up; it is not part of the stage.
        members: taken.split_off(1),
        seconds: end - begin,
    })
}

fn events(requests: &[Timed]) -> Vec<Event> {
    let event = |is_start: bool| {
        move |(index, request): (usize, &Timed)| Event {
            at: if is_start {
                request.start()
            } else {
                request.end()
            },
            index,
            is_start,
        }
    };
    let starts = requests.iter().enumerate().map(event(true));
    let ends = requests.iter().enumerate().map(event(false));
    let mut events: Vec<Event> = starts.chain(ends).collect();
    // Stable: at equal times starts come first.
    events.sort_by(|a, b| a.at.total_cmp(&b.at));
    events
}

/// Whether a start soon after a dip brings the level back.
fn recovers(later: &[Event], at: f64, mut level: i64, threshold: i64) -> bool {
    later
        .iter()
        .take_while(|event| event.at - at <= DIP_SECONDS_MAX)
        .any(|event| {
            level += if event.is_start { 1 } else { -1 };
            event.is_start && level >= threshold
        })
}
