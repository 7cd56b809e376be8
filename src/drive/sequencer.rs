//! The order inside lanes: the next request of a (group, rank) lane is released
//! when its predecessor has ended, however it ended. A state machine fed with
//! events; it refuses to know clocks, slots and sockets, so waiting can hold no
//! slot.

use std::collections::BTreeMap;

use crate::units::{DpRank, GroupIndex, RunOffset};

/// What a request's place in its lane is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePlace {
    /// Prefix group.
    pub group: GroupIndex,
    /// Rank; `None` where the server balances.
    pub dp_rank: Option<DpRank>,
    /// Place in the lane; `None` for a request without a lane.
    pub sequence: Option<u32>,
}

/// Why requests do not form lanes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "lane ({group}, rank {rank}) has sequence {found} at request {index}, where {expected} belongs",
    rank = dp_rank.map_or_else(|| "any".to_owned(), |rank| rank.to_string())
)]
pub struct LaneError {
    /// Prefix group of the lane.
    pub group: GroupIndex,
    /// Rank of the lane.
    pub dp_rank: Option<DpRank>,
    /// Position in the send order.
    pub index: usize,
    /// Sequence that stands there.
    pub found: u32,
    /// Sequence that would be right.
    pub expected: u32,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Released,
    Started,
    Ended,
}

/// Releases requests in lane order. Requests are known by their position in
/// the send order.
#[derive(Debug)]
pub struct LaneSequencer {
    states: Vec<State>,
    /// The request that is released when this one ends.
    successors: Vec<Option<usize>>,
    /// When each was released; the start of the run for the first of a lane.
    released_at: Vec<RunOffset>,
}

impl LaneSequencer {
    /// Lanes of requests in send order. Within a lane the sequence must count
    /// 0, 1, 2… in send order: then a held request always waits for one before
    /// it, and no set of the first requests can wait for one outside.
    pub fn new(places: &[LanePlace]) -> Result<Self, LaneError> {
        let mut states = vec![State::Released; places.len()];
        let mut successors = vec![None; places.len()];
        let mut lanes: BTreeMap<(GroupIndex, Option<DpRank>), (u32, usize)> = BTreeMap::new();
        for (index, place) in places.iter().enumerate() {
            let Some(found) = place.sequence else {
                continue;
            };
            let lane = (place.group, place.dp_rank);
            let expected = lanes.get(&lane).map_or(0, |(sequence, _)| sequence + 1);
            if found != expected {
                return Err(LaneError {
                    group: place.group,
                    dp_rank: place.dp_rank,
                    index,
                    found,
                    expected,
                });
            }
            if let Some((_, before)) = lanes.insert(lane, (found, index)) {
                successors[before] = Some(index);
                states[index] = State::Held;
            }
        }
        Ok(Self {
            states,
            successors,
            released_at: vec![RunOffset(0); places.len()],
        })
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Whether `index` may be started.
    pub fn is_released(&self, index: usize) -> bool {
        self.states[index] == State::Released
    }

    /// When `index` was released.
    pub fn released_at(&self, index: usize) -> RunOffset {
        self.released_at[index]
    }

    /// `index` is sent now.
    pub fn start(&mut self, index: usize) {
        assert_eq!(
            self.states[index],
            State::Released,
            "request {index} starts out of its lane's order"
        );
        self.states[index] = State::Started;
    }

    /// `index` has ended at `now`, well or not: which request that releases.
    pub fn end(&mut self, index: usize, now: RunOffset) -> Option<usize> {
        assert_eq!(
            self.states[index],
            State::Started,
            "request {index} ends without having started"
        );
        self.states[index] = State::Ended;
        let next = self.successors[index]?;
        assert_eq!(self.states[next], State::Held, "request {next} was free");
        self.states[next] = State::Released;
        self.released_at[next] = now;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(group: u32, rank: Option<u32>, sequence: Option<u32>) -> LanePlace {
        LanePlace {
            group: GroupIndex(group),
            dp_rank: rank.map(DpRank),
            sequence,
        }
    }

    #[test]
    fn a_lane_is_released_one_by_one_and_lanes_side_by_side() {
        let mut lanes = LaneSequencer::new(&[
            place(0, Some(0), Some(0)),
            place(0, Some(0), Some(1)),
            place(0, Some(1), Some(0)),
            place(1, Some(0), Some(0)),
            place(0, Some(0), Some(2)),
            place(7, None, None),
        ])
        .unwrap();
        let released = |lanes: &LaneSequencer| -> Vec<usize> {
            (0..lanes.len()).filter(|i| lanes.is_released(*i)).collect()
        };
        assert_eq!(released(&lanes), [0, 2, 3, 5]);
        lanes.start(0);
        lanes.start(2);
        assert_eq!(lanes.end(2, RunOffset(4)), None);
        assert_eq!(lanes.end(0, RunOffset(5)), Some(1));
        assert_eq!(released(&lanes), [1, 3, 5]);
        assert_eq!(
            (lanes.released_at(1), lanes.released_at(3)),
            (RunOffset(5), RunOffset(0))
        );
        lanes.start(1);
        assert_eq!(lanes.end(1, RunOffset(9)), Some(4));
    }

    #[test]
    fn a_gap_or_a_repetition_is_refused() {
        for (sequences, expected) in [([0, 2], 1), ([0, 0], 1), ([1, 0], 0)] {
            let places = sequences.map(|sequence| place(3, Some(1), Some(sequence)));
            let error = LaneSequencer::new(&places).unwrap_err();
            assert_eq!(error.expected, expected, "{error}");
        }
        let error = LaneSequencer::new(&[place(3, Some(1), Some(4))]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "lane (group-3, rank 1) has sequence 4 at request 0, where 0 belongs"
        );
    }
}
