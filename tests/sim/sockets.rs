//! Streams on real sockets, where tokens are written past the HTTP library:
//! every byte arrives, in order, whoever wrote it. The clock is the real one,
//! and nothing here depends on how fast it goes.

use std::sync::Arc;
use std::time::Duration;

use pcload::sim::{Config, Faults, Pace, Server, Toy};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::wire::{Answer, completion, ids, with_usage};

async fn listening(config: Config) -> Server {
    Server::start(config, Arc::new(Toy::default()))
        .await
        .unwrap()
}

fn paced(itl: Duration) -> Config {
    Config {
        pace: Pace::Fixed {
            ttft: Duration::from_millis(1),
            itl,
        },
        precise_timers: true,
        ..Config::default()
    }
}

fn request(body: &Value, last: bool) -> Vec<u8> {
    let body = body.to_string();
    let connection = if last { "close" } else { "keep-alive" };
    format!(
        "POST /v1/completions HTTP/1.1\r\nHost: s\r\nConnection: {connection}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.addr().unwrap()).await.unwrap()
}

/// One whole answer on a connection of its own.
async fn alone(server: &Server, body: &Value) -> Answer {
    let mut stream = connect(server).await;
    stream.write_all(&request(body, true)).await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    Answer::parse(&all)
}

/// Text of a stream, after a look at its framing.
fn streamed_text(answer: &Answer, tokens: u64) -> String {
    assert!(answer.complete);
    assert!(answer.chunks.iter().all(|chunk| chunk.ends_with(b"\n\n")));
    let events = answer.events();
    assert_eq!(answer.chunks.len(), events.len() + 1, "one event a chunk");
    let usage = &events.last().unwrap()["usage"];
    assert_eq!(usage["completion_tokens"], tokens);
    events
        .iter()
        .filter_map(|event| event["choices"][0]["text"].as_str())
        .collect()
}

async fn whole_text(server: &Server, first: u32, tokens: u64) -> String {
    let body = completion(&ids(first, 40), tokens, json!({}));
    let answer = alone(server, &body).await;
    answer.json()["choices"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_on_connections_that_stay_open_arrive_whole() {
    const STREAMS: u32 = 32;
    const ROUNDS: usize = 3;
    const TOKENS: u64 = 120;
    let server = Arc::new(listening(paced(Duration::from_micros(100))).await);
    let mut clients = JoinSet::new();
    for client in 0..STREAMS {
        let server = Arc::clone(&server);
        clients.spawn(async move {
            let body = completion(&ids(client * 100, 40), TOKENS, with_usage());
            let mut stream = connect(&server).await;
            let mut all = Vec::new();
            let mut buffer = vec![0; 4_096];
            for round in 1..=ROUNDS {
                let ask = request(&body, round == ROUNDS);
                stream.write_all(&ask).await.unwrap();
                while all.windows(7).filter(|end| end == b"\r\n0\r\n\r\n").count() < round {
                    let count = stream.read(&mut buffer).await.unwrap();
                    assert!(count > 0, "the server closed in round {round}");
                    all.extend_from_slice(&buffer[..count]);
                }
            }
            let text = String::from_utf8(all).unwrap();
            let answers = text.split_inclusive("\r\n0\r\n\r\n");
            let texts: Vec<String> = answers
                .map(|answer| streamed_text(&Answer::parse(answer.as_bytes()), TOKENS))
                .collect();
            assert_eq!(texts.len(), ROUNDS);
            let expected = whole_text(&server, client * 100, TOKENS).await;
            assert!(texts.iter().all(|text| *text == expected));
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
}

/// More than any socket holds, unread until the engine has said everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_late_loses_nothing() {
    const TOKENS: u64 = 60_000;
    let server = listening(paced(Duration::from_micros(5))).await;
    let mut stream = connect(&server).await;
    let body = completion(&ids(0, 40), TOKENS, with_usage());
    stream.write_all(&request(&body, true)).await.unwrap();
    let series = "vllm:generation_tokens_total{engine=\"0\",model_name=\"sim\"} ";
    loop {
        let mut other = connect(&server).await;
        let ask = b"GET /metrics HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n";
        other.write_all(ask).await.unwrap();
        let mut page = String::new();
        other.read_to_string(&mut page).await.unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        let said: f64 = line.unwrap().parse().unwrap();
        if said >= TOKENS as f64 {
            break;
        }
    }
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    let text = streamed_text(&Answer::parse(&all), TOKENS);
    assert_eq!(text, whole_text(&server, 0, TOKENS).await);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_break_on_sockets_as_they_were_told_to() {
    for (faults, reset) in [
        (
            Faults {
                cut_stream: 1.0,
                ..Faults::default()
            },
            false,
        ),
        (
            Faults {
                reset_connection: 1.0,
                ..Faults::default()
            },
            true,
        ),
    ] {
        let server = listening(Config {
            faults,
            ..paced(Duration::from_micros(100))
        })
        .await;
        let mut stream = connect(&server).await;
        let body = completion(&ids(0, 40), 50, with_usage());
        stream.write_all(&request(&body, true)).await.unwrap();
        let mut all = Vec::new();
        let ended = stream.read_to_end(&mut all).await;
        assert_eq!(ended.is_err(), reset, "{ended:?}");
        if !reset {
            assert!(!Answer::parse(&all).complete);
        }
        server.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_a_socket_ends_its_sequence() {
    let server = listening(paced(Duration::from_millis(1))).await;
    let mut stream = connect(&server).await;
    let body = completion(&ids(0, 40), 100_000, with_usage());
    stream.write_all(&request(&body, true)).await.unwrap();
    let mut buffer = vec![0; 2_048];
    stream.read_exact(&mut buffer).await.unwrap();
    drop(stream);
    let series = "vllm:num_requests_running{engine=\"0\",model_name=\"sim\"} ";
    loop {
        let mut other = connect(&server).await;
        let ask = b"GET /metrics HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n";
        other.write_all(ask).await.unwrap();
        let mut page = String::new();
        other.read_to_string(&mut page).await.unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        if line == Some("0.0") {
            break;
        }
    }
    server.shutdown().await;
}
