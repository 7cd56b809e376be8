//! Why the two drivers can differ where nothing is wrong. Each reason was read
//! in AISBench 3.1.20260630 and seen in recorded runs.

use super::By;

/// The reason for a figure, if there is one.
pub(super) fn reason(metric: &str, statistic: &str, by: By) -> Option<&'static str> {
    match (metric, statistic, by) {
        ("attempts", _, _) => Some("AISBench does not retry a status such as 503, pcload does"),
        ("in_flight_max", _, _) => Some(
            "AISBench admits one request in 5 ms, so a short run or a fast server never fills \
             its slots",
        ),
        ("ttft_ms", "p99", _) => Some(
            "AISBench opens connections and encodes bodies inside TTFT, on the loop that reads \
             all streams",
        ),
        ("ttft_ms", _, _) => Some(
            "AISBench stamps 2 to 4 ms before the request leaves, more at many slots: connecting \
             and encoding are inside",
        ),
        ("e2el_ms", "p99", _) => Some("TTFT's offset, and a late look at the last event"),
        ("itl_ms", "p99", _) => {
            Some("AISBench stamps when its loop comes round, pcload when the kernel received")
        }
        ("itl_ms", "mean", By::Pcload) => {
            Some("AISBench does not say which events bore text; the last one is taken for usage")
        }
        ("tpot_ms", "p99", _) => Some("one late first or last event of a short answer"),
        _ => None,
    }
}
