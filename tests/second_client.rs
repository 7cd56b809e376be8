//! The lean decoder against a second, independent client on every recorded
//! stream: the same events, in the same order. Built with
//! `--features reqwest-client` only.
#![cfg(feature = "reqwest-client")]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "edge: a test's own server, and its recordings"
)]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use pcload::service::second::{SeenEvent, events};
use pcload::service::sse::SseDecoder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// What is posted; nobody looks at it.
const BODY: &[u8] = b"{}";

/// Recorded bodies of streams: the whole of `tests/data`.
fn streams() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut found = Vec::new();
    for folder in ["vllm-0.24.0", "vllm-0.32.0"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.contains(".stream") && name.ends_with(".body") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn decoded(body: &[u8]) -> Vec<SeenEvent> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut seen = Vec::new();
    SseDecoder::default()
        .feed(body, |event| {
            let name = if event.name.is_empty() {
                "message".to_owned()
            } else {
                text(event.name)
            };
            let data = text(event.data);
            seen.push(SeenEvent { name, data });
        })
        .unwrap();
    seen
}

/// Answers one request with `body`, written in pieces of `size` bytes.
async fn answer_once(listener: TcpListener, body: Vec<u8>, size: usize) -> usize {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    // A body left unread would make the close a reset.
    stream.read_exact(&mut [0; BODY.len()]).await.unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in body.chunks(size) {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
    }
    drop(stream);
    1
}

async fn by_second_client(body: &[u8], size: usize) -> Vec<SeenEvent> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/completions", listener.local_addr().unwrap());
    let serving = answer_once(listener, body.to_vec(), size);
    let asking = events(&url, Bytes::from_static(BODY));
    let (served, seen) = tokio::join!(serving, asking);
    assert_eq!(served, 1);
    seen.unwrap()
}

#[tokio::test]
async fn both_clients_see_the_same_events_on_every_recorded_stream() {
    let streams = streams();
    assert!(streams.len() >= 10, "{streams:?}");
    for path in streams {
        let body = std::fs::read(&path).unwrap();
        let lean = decoded(&body);
        assert!(!lean.is_empty(), "{}", path.display());
        for size in [1_000, usize::MAX] {
            let second = by_second_client(&body, size).await;
            assert_eq!(lean, second, "{} in pieces of {size}", path.display());
        }
    }
}

#[tokio::test]
async fn odd_but_legal_streams_agree_too() {
    for body in [
        "data: a\n\ndata: b\n\n",
        "data:a\r\n\r\ndata:[DONE]\r\n\r\n",
        ": ping\n\nevent: error\ndata: {}\n\n",
        "data: a\ndata:  b\n\n",
        "id: 1\nretry: 10\ndata: a\n\n",
        // Without a byte order mark, at which the second client panics.
        "data: \u{e9}\u{1f600}\n\n",
    ] {
        let second = by_second_client(body.as_bytes(), 1).await;
        assert_eq!(decoded(body.as_bytes()), second, "{body:?}");
    }
}
