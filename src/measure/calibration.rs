//! The client's own error: what it recorded against what the server really did,
//! joined by the request's name. It compares with times that were logged, never
//! with a schedule, so a late server is no error of the client.
//!
//! The TTFT error holds the request's way to the server and its being read
//! there, which a client cannot tell from the server's own time: it is an upper
//! bound. The chunk delay and the ITL error hold the server's write and the
//! kernel's delivery.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::{RequestRecord, StatsPhase, TimestampSource};
use crate::stats::{Percent, percentile};
use crate::units::RunOffset;

/// What a server really did with one request, nanoseconds on the system's
/// monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTruth {
    /// When it had read the request.
    pub received_ns: u64,
    /// When it handed each content-bearing chunk to its socket.
    pub sends_ns: Vec<u64>,
}

/// The client's own error on this machine at a given load. Errors are what the
/// client said minus what was true, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// Streams open side by side.
    pub streams: u32,
    /// Content-bearing chunks received per second.
    pub chunks_per_second: f64,
    /// Where the stamps come from.
    pub timestamp_source: TimestampSource,
    /// Requests compared.
    pub requests: u64,
    /// Measured requests that could not be compared: failed, or not logged.
    pub left_out: u64,
    /// Gaps between chunks compared.
    pub gaps: u64,
    /// Mean TTFT error, µs.
    pub ttft_bias_us: f64,
    /// 99th percentile of the absolute TTFT error, µs.
    pub ttft_p99_error_us: f64,
    /// Mean ITL error, µs.
    pub itl_bias_us: f64,
    /// 99th percentile of the absolute ITL error, µs.
    pub itl_p99_error_us: f64,
    /// Median time from the server's write to the client's stamp, µs.
    pub chunk_delay_p50_us: f64,
    /// 99th percentile of it, µs.
    pub chunk_delay_p99_us: f64,
}

/// Why nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationError {
    /// No request with at least two chunks stands in both logs.
    #[error("none of {requests} measured requests could be compared with the server's log")]
    NothingToCompare {
        /// Measured requests.
        requests: u64,
    },
}

/// Compares the measured `records`, whose clock started at `clock_start_ns` of
/// the monotonic clock, with the `truth` by request name.
pub fn calibration(
    records: &[RequestRecord],
    truth: &BTreeMap<String, ServerTruth>,
    clock_start_ns: u64,
    streams: u32,
) -> Result<Calibration, CalibrationError> {
    let mut errors = Errors::default();
    let mut source = TimestampSource::Kernel;
    let (mut requests, mut left_out) = (0, 0);
    let measured = |record: &&RequestRecord| record.phase == StatsPhase::Measure;
    for record in records.iter().filter(measured) {
        let known = truth
            .get(&record.request_id)
            .filter(|truth| record.succeeded() && truth.sends_ns.len() == record.content_ns.len());
        let Some(known) = known else {
            left_out += 1;
            continue;
        };
        requests += 1;
        errors.add(record, known, clock_start_ns);
        if record.timestamp_source == TimestampSource::Read {
            source = TimestampSource::Read;
        }
    }
    let nothing = CalibrationError::NothingToCompare {
        requests: requests + left_out,
    };
    let ttft = Error::of(&errors.firsts).ok_or(nothing)?;
    let itl = Error::of(&errors.gaps).ok_or(nothing)?;
    let delay = |percent| quantile(&errors.delays, percent).ok_or(nothing);
    Ok(Calibration {
        streams,
        chunks_per_second: chunks_per_second(records),
        timestamp_source: source,
        requests,
        left_out,
        gaps: errors.gaps.len() as u64,
        ttft_bias_us: ttft.bias,
        ttft_p99_error_us: ttft.p99,
        itl_bias_us: itl.bias,
        itl_p99_error_us: itl.p99,
        chunk_delay_p50_us: delay(50.0)?,
        chunk_delay_p99_us: delay(99.0)?,
    })
}

/// Errors of single figures, microseconds.
#[derive(Debug, Default)]
struct Errors {
    firsts: Vec<f64>,
    gaps: Vec<f64>,
    delays: Vec<f64>,
}

impl Errors {
    fn add(&mut self, record: &RequestRecord, truth: &ServerTruth, clock_start_ns: u64) {
        let on_clock = |at: RunOffset| at.nanos().saturating_add(clock_start_ns);
        let seen: Vec<u64> = record.content_ns.iter().map(|at| on_clock(*at)).collect();
        let sent = &truth.sends_ns;
        if let (Some(first_seen), Some(first_sent)) = (seen.first(), sent.first()) {
            let client = micros(*first_seen, on_clock(record.t_send_ns));
            let server = micros(*first_sent, truth.received_ns);
            self.firsts.push(client - server);
        }
        let pairs = seen.windows(2).zip(sent.windows(2));
        self.gaps
            .extend(pairs.map(|(seen, sent)| micros(seen[1], seen[0]) - micros(sent[1], sent[0])));
        let delays = seen.iter().zip(sent);
        self.delays
            .extend(delays.map(|(seen, sent)| micros(*seen, *sent)));
    }
}

/// From `earlier` to `later` in microseconds, negative where they are not.
fn micros(later: u64, earlier: u64) -> f64 {
    RunOffset(later).millis_since(RunOffset(earlier)) * 1e3
}

/// What is said of a series of errors.
struct Error {
    bias: f64,
    p99: f64,
}

impl Error {
    fn of(errors: &[f64]) -> Option<Self> {
        let absolute: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        Some(Self {
            p99: quantile(&absolute, 99.0)?,
            bias: errors.iter().sum::<f64>() / errors.len() as f64,
        })
    }
}

fn quantile(samples: &[f64], percent: f64) -> Option<f64> {
    percentile(samples, Percent::new(percent)?)
}

/// Over all records, from the first send to the last chunk.
fn chunks_per_second(records: &[RequestRecord]) -> f64 {
    let chunks: usize = records.iter().map(|record| record.content_ns.len()).sum();
    let first = records.iter().map(|record| record.t_send_ns).min();
    let last = records.iter().filter_map(|one| one.content_ns.last()).max();
    let seconds = match (first, last) {
        (Some(first), Some(last)) => last.millis_since(first) / 1e3,
        _ => 0.0,
    };
    if seconds > 0.0 {
        chunks as f64 / seconds
    } else {
        0.0
    }
}

/// The load that records show, to calibrate at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenLoad {
    /// Most requests in flight at once.
    pub streams: u32,
    /// Mean gap between the chunks of a stream; above 0.
    pub gap: RunOffset,
}

/// The load of a run's streams; `None` where there are no gaps to repeat.
pub fn seen_load(records: &[RequestRecord]) -> Option<SeenLoad> {
    let (mut count, mut sum) = (0_u64, 0_u64);
    for gap in records.iter().flat_map(super::derive::gaps) {
        count += 1;
        sum = sum.saturating_add(gap);
    }
    let gap = sum.checked_div(count).filter(|gap| *gap > 0)?;
    Some(SeenLoad {
        streams: most_in_flight(records),
        gap: RunOffset(gap),
    })
}

/// Most requests between send and end at one time; one that ends as another is
/// sent is not beside it.
fn most_in_flight(records: &[RequestRecord]) -> u32 {
    let mut moments: Vec<(RunOffset, i32)> = Vec::with_capacity(records.len() * 2);
    for record in records {
        let end = record.stream_end_ns.or(record.last_choice_ns);
        let Some(end) = end.filter(|end| *end > record.t_send_ns) else {
            continue;
        };
        moments.push((record.t_send_ns, 1));
        moments.push((end, -1));
    }
    moments.sort_unstable();
    let (mut open, mut most) = (0_i32, 0_i32);
    for (_, change) in moments {
        open += change;
        most = most.max(open);
    }
    most.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::FailureKind;
    use crate::measure::sample::{at, failed, stream};

    /// Two requests, sent at 0; the clock started at 5 ms.
    const START: u64 = 5_000_000;

    fn truth(received_us: u64, sends_us: &[u64]) -> ServerTruth {
        let on_clock = |us: &u64| START + us * 1_000;
        ServerTruth {
            received_ns: on_clock(&received_us),
            sends_ns: sends_us.iter().map(on_clock).collect(),
        }
    }

    fn named(mut record: RequestRecord, name: &str) -> RequestRecord {
        record.request_id = name.to_owned();
        record
    }

    fn close(found: f64, right: f64) {
        assert!((found - right).abs() < 1e-6, "{found} is not {right}");
    }

    #[test]
    fn errors_are_what_was_said_minus_what_was_true() {
        // Sent at 0, read by the server at 60 µs, first chunk written at 50 ms
        // and stamped 4 µs later; the second 10 µs later; the third 2 µs.
        let records = [named(stream(&[50.004, 60.010, 70.002], 3), "a")];
        let log = BTreeMap::from([("a".to_owned(), truth(60, &[50_000, 60_000, 70_000]))]);
        let found = calibration(&records, &log, START, 1).unwrap();
        assert_eq!((found.requests, found.left_out, found.gaps), (1, 0, 2));
        assert_eq!(found.timestamp_source, TimestampSource::Kernel);
        // 50.004 ms against 49.940 ms.
        close(found.ttft_bias_us, 64.0);
        close(found.ttft_p99_error_us, 64.0);
        // +6 and −8 µs.
        close(found.itl_bias_us, -1.0);
        close(found.itl_p99_error_us, 6.0 + 0.99 * 2.0);
        close(found.chunk_delay_p50_us, 4.0);
        close(found.chunk_delay_p99_us, 4.0 + 0.98 * 6.0);
        close(found.chunks_per_second, 3.0 / 0.070_002);
    }

    #[test]
    fn a_late_server_is_no_error_of_the_client() {
        let records = [named(stream(&[500.0, 900.0], 2), "a")];
        let log = BTreeMap::from([("a".to_owned(), truth(0, &[500_000, 900_000]))]);
        let found = calibration(&records, &log, START, 1).unwrap();
        close(found.ttft_p99_error_us, 0.0);
        close(found.itl_p99_error_us, 0.0);
    }

    #[test]
    fn only_measured_requests_that_both_know_whole_are_compared() {
        let mut warmup = named(stream(&[1.0, 9.0], 2), "w");
        warmup.phase = StatsPhase::Warmup;
        let mut by_read = named(stream(&[1.0, 2.0], 2), "a");
        by_read.timestamp_source = TimestampSource::Read;
        let records = [
            warmup,
            by_read,
            named(stream(&[1.0, 2.0], 2), "short"),
            named(stream(&[1.0, 2.0], 2), "unknown"),
            named(failed(FailureKind::ConnectionError, None, 0.0, 1.0), "bad"),
        ];
        let log = BTreeMap::from([
            ("w".to_owned(), truth(0, &[1_000, 2_000])),
            ("a".to_owned(), truth(0, &[1_000, 2_000])),
            ("short".to_owned(), truth(0, &[1_000])),
            ("bad".to_owned(), truth(0, &[])),
        ]);
        let found = calibration(&records, &log, START, 7).unwrap();
        assert_eq!((found.requests, found.left_out, found.gaps), (1, 3, 1));
        assert_eq!(found.timestamp_source, TimestampSource::Read);
        assert_eq!(found.streams, 7);
        close(found.itl_p99_error_us, 0.0);
    }

    #[test]
    fn nothing_in_common_says_nothing() {
        let records = [named(stream(&[1.0, 2.0], 2), "a")];
        assert_eq!(
            calibration(&records, &BTreeMap::new(), START, 1),
            Err(CalibrationError::NothingToCompare { requests: 1 })
        );
        // A single chunk has no gap.
        let records = [named(stream(&[1.0], 1), "a")];
        let log = BTreeMap::from([("a".to_owned(), truth(0, &[1_000]))]);
        assert_eq!(
            calibration(&records, &log, START, 1),
            Err(CalibrationError::NothingToCompare { requests: 1 })
        );
    }

    #[test]
    fn the_load_is_the_most_in_flight_and_the_mean_gap() {
        // 0–30, 0–20 and 30–50 ms: two side by side, gaps 20, 10 and 20.
        let mut later = stream(&[30.0, 50.0], 2);
        later.t_send_ns = at(30.0);
        let records = [stream(&[10.0, 30.0], 2), stream(&[10.0, 20.0], 2), later];
        let load = seen_load(&records).unwrap();
        assert_eq!(load.streams, 2);
        assert_eq!(load.gap, RunOffset(50_000_000 / 3));
        assert_eq!(seen_load(&[stream(&[10.0], 1)]), None);
        assert_eq!(seen_load(&[]), None);
    }
}
