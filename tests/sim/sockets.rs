//! Streams on real sockets, where tokens are written past the HTTP library:
//! every byte arrives, in order, whoever wrote it. The clock is the real one,
//! and nothing here depends on how fast it goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pcload::sim::{Config, CostModel, Faults, Pace, Server, Toy};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::wire::{Answer, completion, ids, post, server, with_usage};

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
    request_to("/v1/completions", body, last)
}

fn request_to(path: &str, body: &Value, last: bool) -> Vec<u8> {
    let body = body.to_string();
    let connection = if last { "close" } else { "keep-alive" };
    format!(
        "POST {path} HTTP/1.1\r\nHost: s\r\nConnection: {connection}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.addr().unwrap()).await.unwrap()
}

/// A request sent on a connection of its own.
async fn begun(server: &Server, body: &Value) -> TcpStream {
    let mut stream = connect(server).await;
    stream.write_all(&request(body, true)).await.unwrap();
    stream
}

/// One whole answer on a connection of its own.
async fn alone(server: &Server, body: &Value) -> Answer {
    asked(server, "/v1/completions", body).await
}

async fn asked(server: &Server, path: &str, body: &Value) -> Answer {
    let mut stream = connect(server).await;
    let ask = request_to(path, body, true);
    stream.write_all(&ask).await.unwrap();
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

/// A series of the metrics page.
async fn sample(server: &Server, name: &str) -> f64 {
    let mut stream = connect(server).await;
    let ask = b"GET /metrics HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n";
    stream.write_all(ask).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    let series = format!("vllm:{name}{{engine=\"0\",model_name=\"sim\"}} ");
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix(series.as_str()));
    value.unwrap().parse().unwrap()
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
    let body = completion(&ids(0, 40), TOKENS, with_usage());
    let mut stream = begun(&server, &body).await;
    while sample(&server, "generation_tokens_total").await < TOKENS as f64 {}
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
        let body = completion(&ids(0, 40), 50, with_usage());
        let mut stream = begun(&server, &body).await;
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
    let body = completion(&ids(0, 40), 100_000, with_usage());
    let mut stream = begun(&server, &body).await;
    let mut buffer = vec![0; 2_048];
    stream.read_exact(&mut buffer).await.unwrap();
    drop(stream);
    while sample(&server, "num_requests_running").await > 0.0 {}
    server.shutdown().await;
}

/// Streams of every kind, each beside others, say what they say alone and
/// without a socket: nothing depends on who wrote an event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_stream_says_the_same_on_a_socket_as_without_one() {
    const TOKENS: u64 = 60;
    let merging = Config {
        pace: Pace::Batched(CostModel {
            step: Duration::from_micros(100),
            per_sequence: Duration::ZERO,
            ..CostModel::default()
        }),
        ..paced(Duration::ZERO)
    };
    let fewer = Config {
        stream_interval: 4,
        ..paced(Duration::from_micros(100))
    };
    let kinds = [
        json!({}),
        json!({"logprobs": 1}),
        json!({"return_token_ids": true}),
        json!({"n": 3, "temperature": 1.0}),
        json!({"stop": ["a"]}),
        json!({"echo": true}),
        json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}}),
    ];
    for config in [paced(Duration::from_micros(100)), merging, fewer] {
        let without = server(config.clone()).await;
        let server = Arc::new(listening(config).await);
        let mut clients = JoinSet::new();
        for (first, kind) in (0..).zip(kinds.iter().cycle().take(21)) {
            let body = completion(&ids(first * 100, 40), TOKENS, kind.clone());
            let mut body = body.as_object().unwrap().clone();
            body.insert("stream".to_owned(), true.into());
            let body = Value::from(body);
            let expected = post(&without, "/v1/completions", &body).await;
            let server = Arc::clone(&server);
            clients.spawn(async move {
                let answer = alone(&server, &body).await;
                assert!(answer.complete, "{body}");
                assert_eq!(said(&answer), said(&expected), "{body}");
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        without.shutdown().await;
    }
}

/// What each choice said, and how it ended.
fn said(answer: &Answer) -> BTreeMap<u64, (String, Vec<Value>)> {
    let mut said = BTreeMap::<u64, (String, Vec<Value>)>::new();
    for event in answer.events() {
        for choice in event["choices"].as_array().unwrap() {
            let (text, ends) = said.entry(choice["index"].as_u64().unwrap()).or_default();
            text.push_str(choice["text"].as_str().unwrap());
            ends.extend([&choice["finish_reason"], &choice["stop_reason"]].map(Value::clone));
            ends.retain(|end| !end.is_null());
        }
    }
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_ends_streams_in_the_middle() {
    let server = listening(paced(Duration::from_millis(1))).await;
    let body = completion(&ids(0, 40), 100_000, with_usage());
    let mut stream = begun(&server, &body).await;
    let mut all = vec![0; 2_048];
    stream.read_exact(&mut all).await.unwrap();
    asked(&server, "/abort_requests", &json!({})).await;
    stream.read_to_end(&mut all).await.unwrap();
    let answer = Answer::parse(&all);
    assert!(answer.complete);
    let events = answer.events();
    let [.., last, usage] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(last["choices"][0]["finish_reason"], "abort");
    assert_eq!(usage["usage"]["completion_tokens"], events.len() - 2);
    server.shutdown().await;
}

/// The log has the times of all events, of a stream that ended and of one whose
/// client left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_truth_log_misses_no_event() {
    const TOKENS: u64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("truth.jsonl");
    let server = listening(Config {
        truth_log: Some(path.clone()),
        ..paced(Duration::from_millis(1))
    })
    .await;
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}], "stream": true,
        "max_tokens": TOKENS, "ignore_eos": true});
    asked(&server, "/v1/chat/completions", &chat).await;
    let body = completion(&ids(0, 100), TOKENS, with_usage());
    alone(&server, &body).await;
    let body = completion(&ids(0, 100), 100_000, with_usage());
    let mut stream = begun(&server, &body).await;
    let mut buffer = vec![0; 4_096];
    stream.read_exact(&mut buffer).await.unwrap();
    drop(stream);
    while sample(&server, "num_requests_running").await > 0.0 {}
    server.shutdown().await;
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 3);
    for (row, whole) in rows.iter().zip([true, true, false]) {
        let sends: Vec<u64> = serde_json::from_value(row["sends_ns"].clone()).unwrap();
        assert!(sends.is_sorted() && sends[0] > row["recv_ns"].as_u64().unwrap());
        assert_eq!(row["completion_tokens"], sends.len());
        assert_eq!(row["complete"], whole);
        assert_eq!(
            sends.len() as u64 == TOKENS,
            whole,
            "{} events",
            sends.len()
        );
    }
    // 100 tokens are 3 whole blocks of 32.
    assert_eq!(rows[2]["cached_tokens"], 96);
}
