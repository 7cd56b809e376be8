//! Servers for the program to talk to: the simulated vLLM in this process, on a
//! free port of loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use pcload::sim::{Config, Pace, Server};
use pcload::tokenizer::HfTokenizer;
use serde_json::{Value, json};

use crate::folder::{scenario, with};

/// A simulated server, stopped with this value.
pub(crate) struct Simulated {
    address: SocketAddr,
    // Before the runtime: a server is dropped inside of it.
    _server: Server,
    _runtime: tokio::runtime::Runtime,
}

/// A server that answers at once.
pub(crate) fn instant() -> Config {
    Config {
        pace: Pace::Flood,
        ..Config::default()
    }
}

impl Simulated {
    /// Starts a server with the demo's tokenizer.
    pub(crate) fn start(config: Config) -> Self {
        let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo");
        Self::start_with(config, &assets.join("tokenizer/tokenizer.json"))
    }

    /// Starts a server with the tokenizer of a file.
    pub(crate) fn start_with(config: Config, tokenizer: &Path) -> Self {
        let bytes = std::fs::read(tokenizer).unwrap();
        let tokenizer = HfTokenizer::from_bytes(&bytes, "test", None).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = runtime
            .block_on(Server::start(config, Arc::new(tokenizer)))
            .unwrap();
        Self {
            address: server.addr().unwrap(),
            _server: server,
            _runtime: runtime,
        }
    }

    /// `http://host:port/path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// `service` of a scenario that uses it.
    pub(crate) fn service(&self) -> Value {
        json!({
            "inference_url": self.url("/v1/completions"),
            "metrics_url": self.url("/metrics"),
            "reset_url": self.url("/reset_prefix_cache"),
            "model": "sim",
            "dp_size": 1,
            "poll_interval_seconds": 0,
        })
    }

    /// The small scenario, sent to it.
    pub(crate) fn scenario(&self) -> Value {
        with(scenario(), "service", self.service())
    }

    /// Requests that it has answered.
    pub(crate) fn answered(&self) -> f64 {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page.lines()
            .filter(|line| line.starts_with("vllm:request_success_total"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}
