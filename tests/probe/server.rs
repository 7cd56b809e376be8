//! A chat server with a prefix cache, small enough to be sure of: four bytes of
//! text are a token, whole blocks of a prompt are cached, the least recently
//! used go first. Knobs make it misbehave as real servers do.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Tokens that the chat template puts around each message.
const TEMPLATE_TOKENS: u64 = 5;

/// Longest wait of a test for a request to come.
const REQUEST_WAIT: Duration = Duration::from_secs(120);

/// What the model says when it is asked for a pass phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Right,
    /// Right without reuse, wrong with it.
    StaleOnReuse,
    Never,
}

/// What the server does. Ordinary by default.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a knob of its own")]
pub(crate) struct State {
    pub(crate) block: u64,
    /// `block_size` on the metrics page.
    pub(crate) metric_block: String,
    /// Blocks that the pool holds.
    pub(crate) pool_blocks: usize,
    pub(crate) models: Vec<&'static str>,
    pub(crate) max_model_len: u64,
    pub(crate) prefix_caching: &'static str,
    pub(crate) has_metrics: bool,
    pub(crate) ranks: u64,
    pub(crate) reports_usage: bool,
    pub(crate) reports_cached: bool,
    /// Prompt tokens that others send along with each request.
    pub(crate) foreign_tokens: u64,
    /// Nothing is reused when another prompt was served in between.
    pub(crate) loses_when_interleaved: bool,
    /// Only multiples of this are reused the first time.
    pub(crate) first_reuse_interval: u64,
    /// Caches a text whatever stands in front of it.
    pub(crate) ignores_salt: bool,
    pub(crate) refuses_template_kwargs: bool,
    /// Four bytes are a token, but prompts of more bytes than this have a
    /// tenth more.
    pub(crate) dense_above_bytes: u64,
    pub(crate) answers: Answers,
    /// From this request on (counted from 1), the status instead of an answer.
    pub(crate) fails_from: Option<(u32, u16)>,
    /// This request gets an error event in its stream.
    pub(crate) error_event_at: Option<u32>,
    /// This request's stream ends without an end.
    pub(crate) cut_at: Option<u32>,
    /// From this request on, no answer at all.
    pub(crate) hangs_from: Option<u32>,
    /// Bodies of the chat requests so far.
    pub(crate) bodies: Vec<Value>,
    /// Headers of the last chat request.
    pub(crate) headers: BTreeMap<String, String>,
    counters: (u64, u64),
    clock: u64,
    /// Prefix up to the block's end, and when it was used.
    cached: BTreeMap<String, u64>,
    last_prompt: String,
}

impl State {
    fn new() -> Self {
        Self {
            block: 16,
            metric_block: "16".to_owned(),
            pool_blocks: 1_000_000,
            models: vec!["m"],
            max_model_len: 200_000,
            prefix_caching: "True",
            has_metrics: true,
            ranks: 1,
            reports_usage: true,
            reports_cached: true,
            foreign_tokens: 0,
            loses_when_interleaved: false,
            first_reuse_interval: 0,
            ignores_salt: false,
            refuses_template_kwargs: false,
            dense_above_bytes: u64::MAX,
            answers: Answers::Right,
            fails_from: None,
            error_event_at: None,
            cut_at: None,
            hangs_from: None,
            bodies: Vec::new(),
            headers: BTreeMap::new(),
            counters: (0, 0),
            clock: 0,
            cached: BTreeMap::new(),
            last_prompt: String::new(),
        }
    }

    fn requests(&self) -> u32 {
        u32::try_from(self.bodies.len()).unwrap()
    }

    /// Tokens of a prompt of `bytes` in `messages`.
    fn tokens(&self, bytes: u64, messages: u64) -> u64 {
        let dense = bytes > self.dense_above_bytes;
        let text = if dense { bytes * 11 / 40 } else { bytes / 4 };
        text + messages * TEMPLATE_TOKENS
    }

    /// Serves a prompt: tokens found in the cache; its blocks are cached then.
    fn serve(&mut self, prompt: &str) -> u64 {
        let text = match prompt.split_once('\n') {
            Some((_, rest)) if self.ignores_salt => rest,
            _ => prompt,
        };
        let bytes = usize::try_from(self.block * 4).unwrap();
        let chain = |count: usize| text.get(..count * bytes).map(str::to_owned);
        let whole = text.len() / bytes;
        let findable = text.len().saturating_sub(1) / bytes;
        let hits = (1..=findable)
            .take_while(|&count| chain(count).is_some_and(|key| self.cached.contains_key(&key)))
            .count();
        let resumed = !self.last_prompt.is_empty() && text.starts_with(&self.last_prompt);
        let lost = self.loses_when_interleaved && !resumed;
        // The head is used last, so that the tail goes first.
        for count in (1..=whole).rev() {
            self.clock += 1;
            if let Some(key) = chain(count) {
                self.cached.insert(key, self.clock);
            }
        }
        while self.cached.len() > self.pool_blocks {
            let oldest = self.cached.iter().min_by_key(|(_, used)| **used);
            let oldest = oldest.map(|(key, _)| key.clone()).unwrap();
            self.cached.remove(&oldest);
        }
        text.clone_into(&mut self.last_prompt);
        if lost { 0 } else { hits as u64 * self.block }
    }

    fn answer(&self, messages: &[Value], cached: u64) -> String {
        let text = |message: &Value| message["content"].as_str().unwrap().to_owned();
        let last = text(messages.last().unwrap());
        if !last.contains("pass phrase") {
            return "It is about kettles.".to_owned();
        }
        let mut all = messages.iter().rev().skip(1).map(text);
        let phrase = all.find_map(|text| {
            let (_, rest) = text.split_once("The pass phrase is ")?;
            Some(rest.split_once('.')?.0.to_owned())
        });
        let right = match self.answers {
            Answers::Right => true,
            Answers::StaleOnReuse => cached == 0,
            Answers::Never => false,
        };
        phrase
            .filter(|_| right)
            .unwrap_or_else(|| "grey-heron-0017".to_owned())
    }

    fn chat(&mut self, body: Value) -> Option<(u16, &'static str, String)> {
        let messages = body["messages"].as_array().unwrap().clone();
        let refused = self.refuses_template_kwargs && body.get("chat_template_kwargs").is_some();
        self.bodies.push(body);
        let number = self.requests();
        if self.hangs_from.is_some_and(|from| number >= from) {
            return None;
        }
        let error = |message: &str| json!({"error": {"message": message, "code": 500}}).to_string();
        if let Some((from, status)) = self.fails_from
            && number >= from
        {
            return Some((status, "application/json", error("the engine is gone")));
        }
        if refused {
            return Some((400, "application/json", error("unknown field")));
        }
        if self.error_event_at == Some(number) {
            let events = format!("data: {}\n\ndata: [DONE]\n\n", error("EngineCore died"));
            return Some((200, "text/event-stream", events));
        }
        let parts = messages
            .iter()
            .map(|message| message["content"].as_str().unwrap());
        let prompt = parts.collect::<Vec<_>>().join("\u{1}");
        let tokens = self.tokens(prompt.len() as u64, messages.len() as u64);
        let mut cached = self.serve(&prompt);
        if messages.len() == 3 && self.first_reuse_interval > 0 {
            cached = cached / self.first_reuse_interval * self.first_reuse_interval;
        }
        self.counters.0 += tokens + self.foreign_tokens;
        self.counters.1 += cached;
        let answer = self.answer(&messages, cached);
        let cut = self.cut_at == Some(number);
        Some((
            200,
            "text/event-stream",
            self.events(&answer, tokens, cached, cut),
        ))
    }

    fn events(&self, answer: &str, tokens: u64, cached: u64, cut: bool) -> String {
        let chunk = |delta: Value, finish: Value| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
            format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
        };
        let mut events = chunk(json!({"role": "assistant", "content": ""}), Value::Null);
        events.push_str(&chunk(json!({"content": answer}), Value::Null));
        if cut {
            return events;
        }
        events.push_str(&chunk(json!({}), json!("stop")));
        let mut usage = json!({"prompt_tokens": tokens, "completion_tokens": 6});
        if self.reports_cached {
            usage["prompt_tokens_details"] = json!({"cached_tokens": cached});
        }
        if self.reports_usage {
            let last = json!({"id": "c", "choices": [], "usage": usage});
            events.push_str(&format!("data: {last}\n\n"));
        }
        events.push_str("data: [DONE]\n\n");
        events
    }

    fn metrics(&self) -> String {
        let (queries, hits) = self.counters;
        let mut page = String::new();
        for rank in 0..self.ranks {
            let labels = format!("engine=\"{rank}\",model_name=\"{}\"", self.models[0]);
            let share = |count: u64| if rank == 0 { count } else { 0 };
            page.push_str(&format!(
                "vllm:prefix_cache_queries_total{{{labels}}} {}.0\n\
                 vllm:prefix_cache_hits_total{{{labels}}} {}.0\n\
                 vllm:prompt_tokens_total{{{labels}}} {}.0\n\
                 vllm:cache_config_info{{{labels},block_size=\"{}\",num_gpu_blocks=\"{}\",\
                 enable_prefix_caching=\"{}\"}} 1.0\n",
                share(queries),
                share(hits),
                share(queries),
                self.metric_block,
                self.pool_blocks,
                self.prefix_caching
            ));
        }
        page
    }

    fn respond(&mut self, path: &str, body: &[u8]) -> Option<(u16, &'static str, String)> {
        let json = "application/json";
        Some(match path {
            "/v1/chat/completions" => return self.chat(serde_json::from_slice(body).unwrap()),
            "/v1/models" => {
                let model = |id: &&str| json!({"id": id, "max_model_len": self.max_model_len});
                let list: Vec<Value> = self.models.iter().map(model).collect();
                (200, json, json!({"data": list}).to_string())
            }
            "/version" => (200, json, json!({"version": "0.32.0"}).to_string()),
            "/metrics" if self.has_metrics => (200, "text/plain", self.metrics()),
            _ => (404, json, json!({"detail": "Not Found"}).to_string()),
        })
    }
}

/// A server on loopback that ends with its value.
pub(crate) struct Server {
    shared: Arc<(Mutex<State>, Condvar)>,
    address: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    /// Starts one whose state `change` has set.
    pub(crate) fn start(change: impl FnOnce(&mut State)) -> Self {
        let mut state = State::new();
        change(&mut state);
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&shared);
        drop(runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = Arc::clone(&serving);
                let service = hyper::service::service_fn(move |request| {
                    let shared = Arc::clone(&shared);
                    async move { answer(request, &shared).await }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                drop(tokio::task::spawn(connection));
            }
        }));
        Self {
            shared,
            address,
            _runtime: runtime,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap()
    }

    /// Waits until `count` chat requests have come.
    pub(crate) fn wait_for(&self, count: u32) {
        let (state, came) = &*self.shared;
        let guard = state.lock().unwrap();
        let (_guard, wait) = came
            .wait_timeout_while(guard, REQUEST_WAIT, |state| state.requests() < count)
            .unwrap();
        assert!(!wait.timed_out(), "request {count} never came");
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: &(Mutex<State>, Condvar),
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let headers: BTreeMap<String, String> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let answer = {
        let mut state = shared.0.lock().unwrap();
        if path == "/v1/chat/completions" {
            state.headers = headers;
        }
        state.respond(&path, &body)
    };
    shared.1.notify_all();
    let Some((status, kind, text)) = answer else {
        return std::future::pending().await;
    };
    let response = Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(Full::new(Bytes::from(text)));
    Ok(response.unwrap())
}
