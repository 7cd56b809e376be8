//! The driver over real loopback sockets: kernel stamps, reuse, a proxy, the
//! journal. Nothing here depends on how long anything takes.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use pcload::drive::NativeConfig;
use pcload::drive::native::{Control, NativeOutcome, run};
use pcload::measure::{FailureKind, Outcome, RequestRecord, TimestampSource};
use pcload::plan::LoadPlan;
use pcload::service::clock::RunClock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::free_requests;
use crate::server::{DONE, text, usage};

/// Serves every connection with the same short stream until it is dropped.
struct Loopback {
    address: SocketAddr,
    tasks: JoinSet<()>,
}

async fn loopback() -> Loopback {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut sessions = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            sessions.spawn(session(stream));
        }
    });
    Loopback { address, tasks }
}

async fn session(mut stream: TcpStream) {
    let events = text("a", "null") + &text("b", "\"length\"") + &usage(10, 2, Some(8)) + DONE;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{events}",
        events.len()
    );
    while read_head(&mut stream).await.is_some() {
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads a head and the body it announces.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?.to_lowercase();
    if let Some(length) = head.split("content-length: ").nth(1) {
        let length = length.split("\r\n").next()?.parse().ok()?;
        stream.read_exact(&mut vec![0; length]).await.ok()?;
    }
    Some(head)
}

async fn drive(
    config: NativeConfig,
    count: u32,
    journal: Option<pcload::drive::Sink>,
) -> NativeOutcome {
    let requests = free_requests(&config, count);
    let plan = LoadPlan::closed(3, count as usize);
    run(
        config,
        requests,
        plan,
        RunClock::start(),
        Control::default(),
        journal,
    )
    .await
    .unwrap()
}

#[tokio::test]
async fn plain_tcp_is_stamped_by_the_kernel_and_reused() {
    let server = loopback().await;
    let config = NativeConfig::new(format!("http://{}/v1/completions", server.address));
    let outcome = drive(config, 30, None).await;
    assert!(
        outcome
            .records
            .iter()
            .all(|record| record.outcome == Outcome::Success)
    );
    assert_eq!((outcome.health.connections, outcome.health.posts), (3, 30));
    for record in &outcome.records {
        let order = [
            record.t_sched_ns,
            record.t_ready_ns,
            record.t_send_ns,
            record.content_ns[0],
            record.content_ns[1],
            record.stream_end_ns.unwrap(),
            record.attempts[0].t_end_ns,
        ];
        assert!(order.is_sorted(), "{order:?}");
        assert_eq!(record.usage.unwrap().cached_tokens, Some(8));
    }
    if outcome.records[0].timestamp_source == TimestampSource::Kernel {
        assert!(outcome.health.own_lag.count >= 30);
    } else {
        eprintln!("skipped: this platform has no receive times");
    }
    drop(server.tasks);
}

#[tokio::test]
async fn nobody_listening_is_a_connect_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = NativeConfig::new(format!("http://{address}/v1/completions"));
    let outcome = drive(config, 4, None).await;
    for record in &outcome.records {
        let Outcome::Failure(failure) = &record.outcome else {
            panic!("a success without a server");
        };
        assert_eq!(failure.kind, FailureKind::Connect);
    }
    assert_eq!(outcome.records.len(), 4);
    assert_eq!(outcome.health.posts, 0);
}

/// O-LOAD-3: a proxy is used when it is asked for, by a tunnel.
#[tokio::test]
async fn a_proxy_that_is_asked_for_is_tunnelled_through() {
    let server = loopback().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let to = server.address;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let heads = Arc::clone(&seen);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut tunnels = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let heads = Arc::clone(&heads);
            tunnels.spawn(async move {
                let head = read_head(&mut stream).await.unwrap();
                heads.lock().unwrap().push(head);
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let mut onward = TcpStream::connect(to).await.unwrap();
                tokio::io::copy_bidirectional(&mut stream, &mut onward)
                    .await
                    .ok();
            });
        }
    });
    let mut config = NativeConfig::new("http://service.invalid/v1/completions");
    config.proxy = Some(format!("http://user:word@{proxy}"));
    let outcome = drive(config, 6, None).await;
    assert!(
        outcome
            .records
            .iter()
            .all(|record| record.outcome == Outcome::Success)
    );
    let heads = seen.lock().unwrap().clone();
    assert_eq!(heads.len(), 3);
    assert!(
        heads[0].starts_with("connect service.invalid:80 http/1.1\r\n"),
        "{}",
        heads[0]
    );
    assert!(
        heads[0].contains("proxy-authorization: basic "),
        "{}",
        heads[0]
    );
}

/// A sink that can be looked at, and that fails after so many bytes.
#[derive(Clone, Default)]
struct Paper {
    bytes: Arc<Mutex<Vec<u8>>>,
    full_at: Option<usize>,
}

impl Write for Paper {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        if self
            .full_at
            .is_some_and(|limit| bytes.len() + more.len() > limit)
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// O-ART-3: one line a request; a full disk costs the file, not the run.
#[tokio::test]
async fn records_are_written_line_by_line_and_a_full_disk_is_reported() {
    let server = loopback().await;
    let config = NativeConfig::new(format!("http://{}/v1/completions", server.address));
    let paper = Paper::default();
    let outcome = drive(config.clone(), 8, Some(Box::new(paper.clone()))).await;
    assert!(outcome.journal_error.is_none());
    let text = String::from_utf8(paper.bytes.lock().unwrap().clone()).unwrap();
    let mut rows: Vec<RequestRecord> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    rows.sort_by_key(|row| row.sequence_index);
    assert_eq!(rows, outcome.records);

    let full = Paper {
        full_at: Some(100),
        ..Paper::default()
    };
    let outcome = drive(config, 8, Some(Box::new(full))).await;
    assert_eq!(outcome.records.len(), 8);
    let error = outcome.journal_error.unwrap();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}
