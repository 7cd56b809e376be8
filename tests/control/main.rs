//! The control side against a scripted server on loopback: precheck, reset,
//! warm-up, settled readings, secrets, proxies. Each case states what a server
//! does and which code or value follows.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "edge: tests over loopback sockets, which fail where the world does"
)]

mod precheck;
mod proxies;
mod real;
mod reset;
mod secrets;
mod server;
mod settle;
mod warm_up;

use std::time::Duration;

use pcload::drive::phases::{Patience, PhaseOptions, Session};
use pcload::service::ControlSettings;
use pcload::units::BlockSize;
use server::Server;

/// For what comes after a number of requests: long enough for any machine.
fn patience() -> Patience {
    Patience {
        settle: Duration::from_secs(60),
        reset: Duration::from_secs(60),
        pause_first: Duration::from_millis(1),
        pause_most: Duration::from_millis(4),
    }
}

/// For what never comes.
fn impatience() -> Patience {
    Patience {
        settle: Duration::from_millis(50),
        reset: Duration::from_millis(50),
        ..patience()
    }
}

fn settings(server: &Server, dp_size: u32) -> ControlSettings {
    let url = server.url();
    ControlSettings {
        reset_url: Some(format!("{url}/reset_prefix_cache")),
        dp_size,
        ..ControlSettings::new(
            format!("{url}/v1/completions"),
            format!("{url}/metrics"),
            "m",
        )
    }
}

fn options() -> PhaseOptions {
    PhaseOptions {
        patience: patience(),
        ..PhaseOptions::new(BlockSize::new(16).unwrap(), 100, 8)
    }
}

fn session(server: &Server, dp_size: u32) -> Session {
    Session::new(settings(server, dp_size), options()).unwrap()
}

fn impatient_session(server: &Server, dp_size: u32) -> Session {
    let options = PhaseOptions {
        patience: impatience(),
        ..options()
    };
    Session::new(settings(server, dp_size), options).unwrap()
}

/// The codes of warnings.
fn codes(warnings: &[pcload::drive::phases::PhaseWarning]) -> Vec<&'static str> {
    warnings.iter().map(|warning| warning.code).collect()
}
