//! A client that keeps every byte: one request a connection, read to its end.

use std::sync::Arc;
use std::time::Duration;

use pcload::sim::{Config, CostModel, Pace, Server, Toy};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names lower case, in order.
    pub(crate) headers: Vec<(String, String)>,
    /// Without chunk framing.
    pub(crate) body: Vec<u8>,
    /// Sizes of its chunks; empty without framing.
    pub(crate) chunks: Vec<Vec<u8>>,
    /// Whether the body ended as it said it would.
    pub(crate) complete: bool,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let head = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(bytes)));
        let text = std::str::from_utf8(&bytes[..head]).unwrap();
        let mut lines = text.split("\r\n");
        let status = lines.next().unwrap()[9..12].parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let rest = &bytes[head + 4..];
        let chunked = headers
            .iter()
            .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let (chunks, complete) = if chunked {
            unchunk(rest)
        } else {
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
            (Vec::new(), rest.len() == length)
        };
        let body = if chunked {
            chunks.concat()
        } else {
            rest.to_vec()
        };
        Self {
            status,
            headers,
            body,
            chunks,
            complete,
        }
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Events of a stream, `[DONE]` left out.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.text()
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

fn unchunk(mut rest: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut chunks = Vec::new();
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        rest = &rest[line + 2..];
        if size == 0 {
            return (chunks, rest == b"\r\n");
        }
        chunks.push(rest[..size].to_vec());
        rest = &rest[size + 2..];
    }
    (chunks, false)
}

/// A server without a socket.
pub(crate) async fn server(config: Config) -> Server {
    let config = Config {
        listen: None,
        ..config
    };
    Server::start(config, Arc::new(Toy::default()))
        .await
        .unwrap()
}

/// Sends bytes as they are and reads until the server closes.
pub(crate) async fn send_raw(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = server.connect();
    stream.write_all(bytes).await.unwrap();
    let mut all = Vec::new();
    // A connection the server breaks ends in an error; what came, counts.
    let _broken = stream.read_to_end(&mut all).await;
    all
}

/// Sends a request with extra headers.
pub(crate) async fn send_with(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let extra: String = headers
        .iter()
        .flat_map(|(name, value)| [name, ": ", value, "\r\n"])
        .collect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n{extra}Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut bytes = request.into_bytes();
    bytes.extend_from_slice(body);
    Answer::parse(&send_raw(server, &bytes).await)
}

pub(crate) async fn get(server: &Server, path: &str) -> Answer {
    send_with(server, "GET", path, &[], b"").await
}

pub(crate) async fn post(server: &Server, path: &str, body: &Value) -> Answer {
    let headers = [("Content-Type", "application/json")];
    send_with(server, "POST", path, &headers, body.to_string().as_bytes()).await
}

/// A completion of ids; `more` is merged into the body.
pub(crate) fn completion(ids: &[u32], max_tokens: u64, more: Value) -> Value {
    let mut body = json!({
        "model": "sim", "prompt": ids, "max_tokens": max_tokens, "ignore_eos": true,
    });
    let fields = body.as_object_mut().unwrap();
    if let Value::Object(more) = more {
        fields.extend(more);
    }
    body
}

/// Value of a series on the metrics page, found by its name and labels.
pub(crate) async fn metric(server: &Server, series: &str) -> f64 {
    let page = get(server, "/metrics").await;
    let line = page
        .text()
        .lines()
        .find(|line| line.starts_with(&format!("{series} ")))
        .unwrap_or_else(|| panic!("no {series} on the page"))
        .to_owned();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

pub(crate) fn ids(from: u32, count: u32) -> Vec<u32> {
    (from..from + count).collect()
}

/// Steps of exactly 10 ms.
pub(crate) fn steady() -> Pace {
    Pace::Batched(CostModel {
        prefill_tokens_per_second: 1e12,
        step: Duration::from_millis(10),
        per_sequence: Duration::ZERO,
        jitter_ratio: 0.0,
    })
}

pub(crate) fn cached(answer: &Answer) -> u64 {
    answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap()
}

pub(crate) fn with_usage() -> Value {
    json!({"stream": true, "stream_options": {"include_usage": true}})
}
