//! Connections opened ahead of their use that the server closes before, seen
//! at every moment: the request goes out on another as long as none of it was
//! written.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use pcload::drive::native::{Control, Setup, run_with};
use pcload::measure::{LiveHistogram, Outcome};
use pcload::plan::LoadPlan;
use pcload::service::clock::RunClock;
use pcload::service::connect::{Connector, Wire};
use pcload::service::socket::StampedRead;
use pcload::sim::{Config, Pace, Server};
use pcload::tokenizer;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::{config, free_requests};

/// A pipe that seems closed from a number of looks on.
struct Fickle {
    pipe: DuplexStream,
    looks_left: usize,
    written: Arc<AtomicBool>,
}

impl AsyncRead for Fickle {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.looks_left.checked_sub(1) {
            None => return Poll::Ready(Ok(())),
            Some(left) => self.looks_left = left,
        }
        ready!(Pin::new(&mut self.pipe).poll_read(context, buffer))?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Fickle {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.store(true, Ordering::Relaxed);
        Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

/// The first connection closes after so many looks, the others stay.
struct Closing {
    server: Arc<Server>,
    clock: RunClock,
    looks: usize,
    opened: AtomicUsize,
    /// Whether anything was written to the first one.
    written: Arc<AtomicBool>,
}

impl Connector for Closing {
    type Io = StampedRead<Fickle>;

    async fn connect(&self) -> io::Result<Wire<Self::Io>> {
        let first = self.opened.fetch_add(1, Ordering::Relaxed) == 0;
        let pipe = Fickle {
            pipe: self.server.connect(),
            looks_left: if first { self.looks } else { usize::MAX },
            written: if first {
                Arc::clone(&self.written)
            } else {
                Arc::default()
            },
        };
        let io = StampedRead::new(pipe, self.clock.clone());
        Ok(Wire {
            cell: io.cell(),
            io,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_opened_ahead_may_close_before_it_is_used() {
    let sim = Config {
        listen: None,
        model: "m".to_owned(),
        pace: Pace::Flood,
        ..Config::default()
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tokenizer = tokenizer::load("assets/demo/tokenizer", path, None).unwrap();
    let server = Arc::new(Server::start(sim, Arc::new(tokenizer)).await.unwrap());
    let mut unwritten = 0;
    for looks in 0..8 {
        let clock = RunClock::start();
        let written = Arc::new(AtomicBool::new(false));
        let setup = Setup {
            connector: Arc::new(Closing {
                server: Arc::clone(&server),
                clock: clock.clone(),
                looks,
                opened: AtomicUsize::new(0),
                written: Arc::clone(&written),
            }),
            own_lag: Arc::new(LiveHistogram::default()),
            clock,
            control: Control::default(),
            journal: None,
        };
        let config = pcload::drive::NativeConfig {
            open_ahead: true,
            ..config()
        };
        let requests = free_requests(&config, 1);
        let outcome = run_with(setup, config, requests, LoadPlan::closed(1, 1));
        let outcome = outcome.await.unwrap();
        if !written.load(Ordering::Relaxed) {
            unwritten += 1;
            let record = &outcome.records[0];
            assert_eq!(
                record.outcome,
                Outcome::Success,
                "after {looks} looks: {record:?}"
            );
            assert_eq!(record.attempts.len(), 1);
            assert_eq!(outcome.health.posts, 1);
            assert_eq!(outcome.health.stale_connections, 1, "after {looks} looks");
        }
    }
    // Closed at once, and between the last look and the request.
    assert!(unwritten >= 2, "{unwritten}");
}
