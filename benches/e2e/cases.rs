//! The loads of the harness: each a mode of the mock and a plan of the client.

use std::time::Duration;

/// One line of the table.
pub struct Case {
    pub name: &'static str,
    pub mock: &'static [&'static str],
    pub streams: u32,
    pub requests: usize,
    pub chunks: u64,
    /// Prompts are token ids, which no server has to tokenize.
    pub ids: bool,
    /// Starts are spread over this time.
    pub spread: Duration,
    /// Poisson arrivals per second in place of the closed loop.
    pub rate: Option<f64>,
    /// Whether the server dies in the middle.
    pub killed: bool,
}

/// A closed loop without pauses, to be filled in.
pub const CLOSED: Case = Case {
    name: "",
    mock: &[],
    streams: 32,
    requests: 0,
    chunks: 128,
    ids: false,
    spread: Duration::ZERO,
    rate: None,
    killed: false,
};

const PACED: &[&str] = &[
    "--mode",
    "paced",
    "--ttft-ms",
    "50",
    "--itl-ms",
    "10",
    "--truth-full",
];
const STEP: &[&str] = &[
    "--mode",
    "paced",
    "--ttft-ms",
    "50",
    "--itl-ms",
    "10",
    "--truth-full",
    "--align",
    "step",
];
const PACED_SLOW: &[&str] = &[
    "--mode",
    "paced",
    "--ttft-ms",
    "50",
    "--itl-ms",
    "50",
    "--truth-full",
];
/// So slow that the number of open streams is what costs.
const PACED_IDLE: &[&str] = &[
    "--mode",
    "paced",
    "--ttft-ms",
    "50",
    "--itl-ms",
    "1000",
    "--truth-full",
];
/// Over what the starts of paced streams are spread.
const SPREAD: Duration = Duration::from_millis(1_330);

/// All lines, in the order of the table.
pub const CASES: &[Case] = &[
    Case {
        name: "flood-32",
        mock: &["--mode", "flood"],
        requests: 800,
        chunks: 500,
        ..CLOSED
    },
    Case {
        name: "flood-256",
        mock: &["--mode", "flood"],
        streams: 256,
        requests: 3_072,
        ..CLOSED
    },
    Case {
        name: "flood-2000",
        mock: &["--mode", "flood"],
        streams: 2_000,
        requests: 4_000,
        ..CLOSED
    },
    Case {
        name: "solo-256",
        mock: &["--mode", "flood", "--coalesce", "1"],
        streams: 256,
        requests: 2_048,
        ..CLOSED
    },
    Case {
        name: "paced-256",
        mock: PACED,
        streams: 256,
        requests: 1_024,
        spread: SPREAD,
        ..CLOSED
    },
    Case {
        name: "step-256",
        mock: STEP,
        streams: 256,
        requests: 1_024,
        spread: SPREAD,
        ..CLOSED
    },
    Case {
        name: "paced-2000",
        mock: PACED_SLOW,
        streams: 2_000,
        requests: 4_000,
        chunks: 64,
        spread: Duration::from_secs(3),
        ..CLOSED
    },
    Case {
        name: "open-10000",
        mock: PACED_IDLE,
        streams: 10_000,
        requests: 10_000,
        chunks: 16,
        spread: Duration::from_secs(10),
        ..CLOSED
    },
    Case {
        name: "open-loop",
        mock: PACED,
        requests: 6_000,
        chunks: 16,
        rate: Some(100.0),
        ..CLOSED
    },
    Case {
        name: "faults",
        mock: PACED,
        streams: 64,
        requests: 256,
        killed: true,
        ..CLOSED
    },
];
