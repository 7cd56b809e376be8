//! A scripted HTTP/1 server behind a pipe: answers each request as a script
//! says and notes what it saw. It has no clock but the test's paused one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pcload::service::clock::RunClock;
use pcload::service::connect::{Connector, Wire};
use pcload::service::socket::StampedRead;
use pcload::units::RunOffset;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, sleep_until};

/// What the server saw of one request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Milliseconds since the start when its last byte had been read.
    pub at_ms: u64,
    /// Milliseconds since the start when the answer had been written.
    pub answered_ms: Option<u64>,
    /// Head, lower case.
    pub head: String,
    /// Body as JSON.
    pub body: serde_json::Value,
    /// Which connection it came on, from 1.
    pub connection: u64,
    /// Which POST this was, from 0.
    pub post: usize,
}

impl Seen {
    /// The number in the prompt `p<number>`.
    pub fn number(&self) -> u32 {
        self.body["prompt"].as_str().unwrap()[1..].parse().unwrap()
    }
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last chunk, connection kept.
    Clean,
    /// The last chunk, then the connection closes.
    CleanThenClose,
    /// The connection closes without the last chunk.
    Cut,
    /// Nothing more, connection open.
    Silent,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    /// Milliseconds after the request, and what is written then as one chunk.
    pub steps: Vec<(u64, Vec<u8>)>,
    pub end: End,
}

impl Reply {
    /// A stream of these steps that ends well.
    pub fn stream<T: Into<Vec<u8>>>(steps: impl IntoIterator<Item = (u64, T)>) -> Self {
        Self {
            status: 200,
            content_type: "text/event-stream; charset=utf-8",
            steps: steps
                .into_iter()
                .map(|(at, step)| (at, step.into()))
                .collect(),
            end: End::Clean,
        }
    }

    /// One token at each of `ms`, the last with `finish_reason`, then usage and
    /// `[DONE]`.
    pub fn tokens(ms: &[u64]) -> Self {
        let last = ms.len() - 1;
        let steps = ms.iter().enumerate().map(|(i, at)| {
            let finish = if i == last { "\"length\"" } else { "null" };
            let mut step = text("a", finish);
            if i == last {
                step += &usage(10, ms.len() as u64, None);
                step += DONE;
            }
            (*at, step)
        });
        Self::stream(steps)
    }

    /// An error status with a body, after `ms`.
    pub fn status(status: u16, ms: u64, body: &str) -> Self {
        Self {
            status,
            content_type: "application/json",
            steps: vec![(ms, body.into())],
            end: End::Clean,
        }
    }

    pub fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

pub const DONE: &str = "data: [DONE]\n\n";

/// A completions chunk.
pub fn text(text: &str, finish_reason: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"finish_reason\":{finish_reason}}}]}}\n\n"
    )
}

/// A usage chunk.
pub fn usage(prompt: u64, completion: u64, cached: Option<u64>) -> String {
    let details = cached.map_or(String::new(), |cached| {
        format!(",\"prompt_tokens_details\":{{\"cached_tokens\":{cached}}}")
    });
    format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion}{details}}}}}\n\n"
    )
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

/// The server, as the driver connects to it.
pub struct Server {
    script: Arc<Script>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub clock: RunClock,
    connections: AtomicU64,
    /// Connections that are refused: by number, from 1.
    pub refused: Vec<u64>,
    /// Idle connections are closed after so long.
    pub keep_alive: Option<Duration>,
    /// Bytes a pipe holds; small ones cut events anywhere.
    pub pipe_bytes: usize,
}

impl Server {
    pub fn new(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            seen: Arc::default(),
            clock: RunClock::start(),
            connections: AtomicU64::new(0),
            refused: Vec::new(),
            keep_alive: None,
            pipe_bytes: 1 << 16,
        }
    }

    pub fn posts(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Connector for Server {
    type Io = StampedRead<DuplexStream>;

    async fn connect(&self) -> io::Result<Wire<Self::Io>> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        if self.refused.contains(&number) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (client, server) = tokio::io::duplex(self.pipe_bytes);
        let session = Session {
            script: Arc::clone(&self.script),
            seen: Arc::clone(&self.seen),
            clock: self.clock.clone(),
            number,
            keep_alive: self.keep_alive,
        };
        tokio::spawn(session.serve(server));
        let io = StampedRead::new(client, self.clock.clone());
        Ok(Wire {
            cell: io.cell(),
            io,
        })
    }
}

struct Session {
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
    clock: RunClock,
    number: u64,
    keep_alive: Option<Duration>,
}

impl Session {
    async fn serve(self, mut stream: DuplexStream) {
        loop {
            let reading = read_request(&mut stream);
            let read = match self.keep_alive {
                Some(limit) => tokio::time::timeout(limit, reading).await.unwrap_or(None),
                None => reading.await,
            };
            let Some((head, body)) = read else { return };
            let arrived = Instant::now();
            let post = self.note(head, &body);
            let seen = self.seen.lock().unwrap()[post].clone();
            let reply = (self.script)(&seen);
            let wrote = answer(&mut stream, &reply, arrived).await;
            let now = millis(self.clock.now());
            self.seen.lock().unwrap()[post].answered_ms = Some(now);
            match reply.end {
                End::Clean if wrote.is_ok() => {}
                End::Silent => std::future::pending().await,
                _ => return,
            }
        }
    }

    fn note(&self, head: String, body: &[u8]) -> usize {
        let mut seen = self.seen.lock().unwrap();
        let post = seen.len();
        seen.push(Seen {
            at_ms: millis(self.clock.now()),
            answered_ms: None,
            head,
            body: serde_json::from_slice(body).unwrap(),
            connection: self.number,
            post,
        });
        post
    }
}

pub fn millis(offset: RunOffset) -> u64 {
    offset.nanos() / 1_000_000
}

async fn read_request(stream: &mut DuplexStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

async fn answer(stream: &mut DuplexStream, reply: &Reply, arrived: Instant) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {} X\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        reply.status, reply.content_type
    );
    let is_error = reply.status >= 300;
    if let (true, Some((at, _))) = (is_error, reply.steps.first()) {
        sleep_until(arrived + Duration::from_millis(*at)).await;
    }
    stream.write_all(head.as_bytes()).await?;
    for (at, bytes) in &reply.steps {
        sleep_until(arrived + Duration::from_millis(*at)).await;
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        stream.write_all(&chunk).await?;
    }
    if matches!(reply.end, End::Clean | End::CleanThenClose) {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    Ok(())
}
