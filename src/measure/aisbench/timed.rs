//! One request as AISBench times it: a time point at the send and one at each
//! event, the final usage event included.

use crate::measure::{FailureKind, Outcome, RequestRecord};
use crate::units::RunOffset;

/// Which requests a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageRule {
    /// All successes (`DefaultPerfMetricCalculator`).
    Total,
    /// Those that ran at full concurrency (`StablePerfMetricCalculator`).
    Stable,
}

/// One request that AISBench counts as a success.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Time points in seconds on one clock: the send, then each event in order;
    /// at least two.
    pub points: Vec<f64>,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
}

impl Timed {
    /// A request that has an answer; `None` below two time points.
    pub fn new(points: Vec<f64>, input_tokens: u64, output_tokens: u64) -> Option<Self> {
        (points.len() >= 2).then_some(Self {
            points,
            input_tokens,
            output_tokens,
        })
    }

    /// `record` as AISBench would have timed it; `None` where AISBench would
    /// call it a failure.
    pub fn of(record: &RequestRecord) -> Option<Self> {
        if !counts_as_success(record) {
            return None;
        }
        let points = points(record);
        let usage = record.usage;
        let output = usage
            .map(|usage| usage.completion_tokens)
            .or(record.counted_output_tokens)
            .unwrap_or(record.content_ns.len() as u64);
        let input = usage.map_or(record.planned_prompt_tokens, |usage| usage.prompt_tokens);
        Self::new(points, input, output)
    }

    /// The send, in seconds.
    pub fn start(&self) -> f64 {
        self.points[0]
    }

    /// The last event, in seconds.
    pub fn end(&self) -> f64 {
        self.points[self.points.len() - 1]
    }

    /// E2EL in seconds: send to the last event of any kind.
    pub fn latency(&self) -> f64 {
        self.end() - self.start()
    }

    /// TTFT in seconds: send to the first event of any kind, an empty one too.
    pub fn first_event(&self) -> f64 {
        self.points[1] - self.points[0]
    }

    /// TPOT in seconds: (E2EL − TTFT) / (output tokens − 1), and 0 below two
    /// output tokens.
    pub fn per_token(&self) -> f64 {
        match self.output_tokens {
            0 | 1 => 0.0,
            tokens => (self.latency() - self.first_event()) / (tokens - 1) as f64,
        }
    }

    /// ITL samples in seconds: gaps between successive events.
    pub fn gaps(&self) -> impl Iterator<Item = f64> + '_ {
        self.points[1..].windows(2).map(|pair| pair[1] - pair[0])
    }
}

/// AISBench looks at the status and at nothing behind it: an error event in a
/// stream, and a stream without a proper end, are successes to it.
fn counts_as_success(record: &RequestRecord) -> bool {
    match &record.outcome {
        Outcome::Success => true,
        Outcome::Failure(failure) => {
            let blind = [FailureKind::ServerErrorEvent, FailureKind::TruncatedStream];
            blind.contains(&failure.kind) && record.first_event_ns.is_some()
        }
    }
}

/// The time points of a record in seconds. A record keeps the stamps of the
/// content, of the first and last event and of the last choice; events beyond
/// these are counted but not timed, and stand at the last event. They are
/// usually none: a usage event, a role event and a finish event are all timed.
fn points(record: &RequestRecord) -> Vec<f64> {
    let mut stamps = vec![];
    if record.streamed {
        let first_content = record.content_ns.first();
        stamps.extend(record.first_event_ns.filter(|at| Some(at) < first_content));
        stamps.extend(&record.content_ns);
        let last_content = record.content_ns.last();
        let last_choice = record.last_choice_ns.filter(|at| Some(at) > last_content);
        stamps.extend(last_choice);
        let last = stamps.last().copied();
        let events = record.events as usize;
        if let Some(at) = record.last_event_ns.or(last) {
            // The last event is one of those above, unless it came later or is
            // one more.
            while stamps.len() < events || stamps.last().is_some_and(|last| *last < at) {
                stamps.push(at);
            }
        }
    } else {
        stamps.extend(record.stream_end_ns.or(record.last_choice_ns));
    }
    std::iter::once(record.t_send_ns)
        .chain(stamps)
        .map(RunOffset::seconds)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample::{at, failed, stream};

    fn millis(timed: &Timed) -> Vec<f64> {
        let rounded = |point: &f64| (point * 1e6).round() / 1e3;
        timed.points.iter().map(rounded).collect()
    }

    #[test]
    fn the_usage_event_is_a_time_point() {
        let mut record = stream(&[50.0, 60.0, 70.0], 3);
        record.last_event_ns = Some(at(100.0));
        record.events = 4;
        let timed = Timed::of(&record).unwrap();
        assert_eq!(millis(&timed), [0.0, 50.0, 60.0, 70.0, 100.0]);
        assert!((timed.per_token() - 0.025).abs() < 1e-12);
    }

    #[test]
    fn a_usage_event_in_the_same_read_is_one_more() {
        let mut record = stream(&[50.0, 60.0], 2);
        record.last_event_ns = Some(at(60.0));
        record.events = 3;
        let timed = Timed::of(&record).unwrap();
        assert_eq!(millis(&timed), [0.0, 50.0, 60.0, 60.0]);
        let gaps: Vec<_> = timed.gaps().map(|gap| (gap * 1e3).round()).collect();
        assert_eq!(gaps, [10.0, 0.0]);
    }

    #[test]
    fn an_empty_first_event_is_the_first_token() {
        let mut record = stream(&[50.0, 60.0], 2);
        record.first_event_ns = Some(at(5.0));
        record.events = 3;
        let timed = Timed::of(&record).unwrap();
        assert_eq!(millis(&timed), [0.0, 5.0, 50.0, 60.0]);
    }

    #[test]
    fn one_token_has_a_tpot_of_zero() {
        assert!(Timed::of(&stream(&[50.0], 1)).unwrap().per_token().abs() < f64::EPSILON);
    }

    #[test]
    fn an_answer_that_was_not_streamed_has_its_end() {
        let mut record = stream(&[], 4);
        record.streamed = false;
        record.stream_end_ns = Some(at(80.0));
        assert_eq!(millis(&Timed::of(&record).unwrap()), [0.0, 80.0]);
    }

    #[test]
    fn error_events_pass_and_statuses_do_not() {
        let mut record = stream(&[50.0, 60.0], 2);
        let status = failed(FailureKind::HttpStatus, Some(500), 0.0, 5.0);
        assert_eq!(Timed::of(&status), None);
        record.outcome = failed(FailureKind::ServerErrorEvent, None, 0.0, 5.0).outcome;
        assert!(Timed::of(&record).is_some());
    }
}
