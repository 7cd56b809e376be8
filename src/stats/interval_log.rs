//! HDR interval logs (`.hlog`): one histogram a second and tag, V2 with deflate,
//! the text format of the Java tools, so that they can merge and plot it. It
//! refuses to know what the tags stand for.
//!
//! Samples are kept as numbers (8 bytes each) until the log is written, because
//! a histogram for each second of a long run would take gigabytes.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::histogram::Histogram;
use crate::units::RunOffset;

const INTERVAL: Duration = Duration::from_secs(1);

/// Samples by second and tag.
#[derive(Clone, Debug, Default)]
pub struct IntervalLog {
    intervals: BTreeMap<(u64, &'static str), Vec<u64>>,
}

impl IntervalLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds durations of `nanos` that ended `at`, under `tag` (e.g.
    /// `measure.hit`).
    pub fn record(&mut self, at: RunOffset, tag: &'static str, nanos: u64) {
        let second = at.nanos() / 1_000_000_000;
        self.intervals.entry((second, tag)).or_default().push(nanos);
    }

    /// Writes the log; `run_start` is the wall time of offset 0. A tag that the
    /// format cannot hold (a comma or white space in it) is an error.
    pub fn write(&self, run_start: SystemTime, out: &mut impl io::Write) -> io::Result<()> {
        let refused = |error: &dyn std::fmt::Debug| io::Error::other(format!("{error:?}"));
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment("pcload: durations in nanoseconds, one interval a second and tag")
            .with_start_time(run_start)
            .with_base_time(run_start)
            .with_max_value_divisor(1e6)
            .begin_log_with(out, &mut serializer)?;
        for ((second, tag), samples) in &self.intervals {
            let mut histogram = Histogram::new();
            for &nanos in samples {
                histogram.record(nanos);
            }
            let tag = Tag::new(tag)
                .ok_or_else(|| io::Error::other(format!("`{tag}` cannot be a log tag")))?;
            let start = Duration::from_secs(*second);
            log.write_histogram(histogram.counts(), start, INTERVAL, Some(tag))
                .map_err(|error| refused(&error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    #[test]
    fn a_log_reads_back_by_second_and_tag() {
        let at = |ms: u64| RunOffset(ms * 1_000_000);
        let mut log = IntervalLog::new();
        log.record(at(2_100), "measure.miss", 30_000_000);
        log.record(at(100), "measure.hit", 10_000_000);
        log.record(at(900), "measure.hit", 0);
        log.record(at(1_100), "measure.hit", 20_000_000);
        let mut text = Vec::new();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        log.write(start, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("BaseTime: 1700000000"), "{text}");

        let seen: Vec<_> = IntervalLogIterator::new(text.as_bytes())
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(line) => Some(line),
                _ => None,
            })
            .map(|line| {
                let tag = line.tag().unwrap().as_str();
                // The format states the largest value, here in milliseconds.
                (line.start_timestamp().as_secs(), tag, line.max().round())
            })
            .collect();
        assert_eq!(
            seen,
            [
                (0, "measure.hit", 10.0),
                (1, "measure.hit", 20.0),
                (2, "measure.miss", 30.0)
            ]
        );
    }

    #[test]
    fn an_impossible_tag_is_an_error() {
        let mut log = IntervalLog::new();
        log.record(RunOffset(0), "a,b", 1);
        assert!(log.write(SystemTime::UNIX_EPOCH, &mut Vec::new()).is_err());
    }
}
