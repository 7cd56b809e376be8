//! The server: sockets, connections, the driver that lets the engine's time
//! pass. Every task lives in a `JoinSet` under one token.

#![allow(clippy::disallowed_methods, reason = "edge: sockets, tasks and timers")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::sim::config::{Config, SimError};
use crate::sim::core::Shared;
use crate::sim::driver::drive;
use crate::sim::http::answer;
use crate::sim::line::{Gate, Line};
use crate::system::descriptors;
use crate::tokenizer::Tokenizer;

/// How long open exchanges may go on after a shutdown was asked for.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);
/// Pause after the system refused a connection (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that may wait to be accepted: uvicorn's default. The kernel cuts
/// it to `net.core.somaxconn`; what finds no place tries again after a second.
const BACKLOG: u32 = 2048;
/// Bytes in flight on a connection inside the process, each way.
const DUPLEX_BYTES: usize = 64 << 10;

/// A simulated server that runs until it is shut down or dropped.
pub struct Server {
    shared: Arc<Shared>,
    addr: Option<SocketAddr>,
    cancel: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

impl Server {
    /// Checks the configuration, opens the socket, and begins to serve.
    #[expect(
        clippy::unused_async,
        reason = "its tasks and socket need a runtime around them, as an async function has"
    )]
    pub async fn start(config: Config, tokenizer: Arc<dyn Tokenizer>) -> Result<Self, SimError> {
        let shared = Arc::new(Shared::new(config, tokenizer)?);
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(drive(Arc::clone(&shared), cancel.clone()));
        let addr = match shared.config.listen {
            None => None,
            Some(address) => {
                let refused = |source| SimError::Listen { address, source };
                descriptors::make_room(shared.config.connections_max as u64);
                let listener = listen(address).map_err(refused)?;
                let bound = listener.local_addr().map_err(refused)?;
                tasks.spawn(accept(Arc::clone(&shared), listener, cancel.clone()));
                Some(bound)
            }
        };
        Ok(Self {
            shared,
            addr,
            cancel,
            tasks: Mutex::new(tasks),
        })
    }

    /// Where it listens; `None` without a socket.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addr
    }

    /// `http://address:port`, without a slash at the end. A server without a
    /// socket answers to `http://sim.invalid`.
    pub fn base_url(&self) -> String {
        self.addr.map_or_else(
            || "http://sim.invalid".to_owned(),
            |addr| format!("http://{addr}"),
        )
    }

    /// Serves HTTP on a stream that is already open, one end of a
    /// `tokio::io::duplex` for instance. With a paused clock everything then
    /// happens at exact times.
    pub fn serve_stream<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Ended connections leave the set here, so that it stays small.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(serve(
            Arc::clone(&self.shared),
            stream,
            Arc::new(Line::default()),
            self.cancel.clone(),
        ));
    }

    /// Opens a connection inside the process and returns the client's end.
    pub fn connect(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(DUPLEX_BYTES);
        self.serve_stream(server);
        client
    }

    /// Stops listening, lets open exchanges end for a moment, and waits for
    /// every task.
    pub async fn shutdown(self) {
        self.cancel.cancel();
        let mut tasks =
            std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a task of the simulated server failed");
            }
        }
        if let Some(truth) = &self.shared.truth {
            truth.flush();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(truth) = &self.shared.truth {
            truth.flush();
        }
    }
}

/// A socket that listens, with a queue as long as the real server's.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // As tokio's own `bind` does where a port is free at once.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, cancel: CancellationToken) {
    let slots = Arc::new(Semaphore::new(shared.config.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let slot = tokio::select! {
            () = cancel.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot,
        };
        let accepted = tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        shared.catch_up();
        match accepted {
            Ok((stream, _)) => {
                let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
                connections.spawn(async move {
                    let _slot = slot;
                    let line = Arc::new(Line::new(stream));
                    serve(shared, Gate(Arc::clone(&line)), line, cancel).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection until it closes, idles too long, or the server stops.
async fn serve<S>(shared: Arc<Shared>, stream: S, line: Arc<Line>, cancel: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let idle = shared.config.keep_alive;
    let service =
        service_fn(move |request| answer(Arc::clone(&shared), Arc::clone(&line), request));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        // One buffer instead of a list of slices: a flood of small events
        // costs a third of the CPU.
        .writev(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    // An error here is a client that left or a stream broken on purpose.
    let ended = tokio::select! {
        ended = serving.as_mut() => Some(ended),
        () = cancel.cancelled() => None,
    };
    if ended.is_none() {
        serving.as_mut().graceful_shutdown();
        if tokio::time::timeout(SHUTDOWN_WAIT, serving).await.is_err() {
            tracing::debug!("an exchange was cut by the shutdown");
        }
    }
}
