//! A small engine behind HTTP: words are tokens, whole blocks of them are
//! cached by rank, salt and everything before them, and counters tell. Knobs
//! make it misbehave in the ways that real servers do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// Counters and cache of one rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rank {
    pub(crate) prompt_tokens: u64,
    pub(crate) queries: u64,
    pub(crate) hits: u64,
    pub(crate) external_hits: u64,
    /// Texts of cached block chains.
    pub(crate) cached: BTreeSet<String>,
    /// The same in a second tier, which only a flagged reset empties.
    pub(crate) external: BTreeSet<String>,
}

/// What the server does. Ordinary by default.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a knob of its own")]
pub(crate) struct State {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) block: usize,
    /// `block_size` on the metrics page.
    pub(crate) metric_block: String,
    pub(crate) prefix_caching: &'static str,
    pub(crate) max_model_len: u64,
    pub(crate) has_model_list: bool,
    /// `None`: the header decides. Otherwise ranks are taken from here, in a
    /// circle.
    pub(crate) ignores_header: Option<Vec<usize>>,
    /// Tokens that other clients send to every rank with each request, and for
    /// how many requests.
    pub(crate) foreign: (u64, u32),
    pub(crate) caches: bool,
    pub(crate) honors_salt: bool,
    pub(crate) has_external_tier: bool,
    pub(crate) resets_external_tier: bool,
    pub(crate) reports_usage: bool,
    pub(crate) reports_cached: bool,
    /// Answers to resets in order, each with whether it resets; the last one
    /// stays.
    pub(crate) resets: VecDeque<(u16, &'static str, bool)>,
    /// Pages that are still as they were after each completion.
    pub(crate) lag: u32,
    /// Status answers to `/metrics` before an ordinary one.
    pub(crate) metrics_fail: VecDeque<u16>,
    /// The same of `/v1/models`.
    pub(crate) models_fail: VecDeque<u16>,
    /// A page that replaces the ordinary one.
    pub(crate) page: Option<String>,
    /// Whether series appear only with the first request.
    pub(crate) starts_bare: bool,
    /// Everything is answered with this status and a body that repeats the
    /// credentials.
    pub(crate) refuses_key: bool,
    /// Completions are answered with this status.
    pub(crate) refuses_completions: Option<u16>,
    pub(crate) seen: Vec<Seen>,
    stale: (u32, String),
    requests: u32,
}

impl State {
    fn new(ranks: usize) -> Self {
        Self {
            ranks: vec![Rank::default(); ranks],
            block: 16,
            metric_block: "16".to_owned(),
            prefix_caching: "True",
            max_model_len: 32_768,
            has_model_list: true,
            ignores_header: None,
            foreign: (0, 0),
            caches: true,
            honors_salt: true,
            has_external_tier: false,
            resets_external_tier: true,
            reports_usage: true,
            reports_cached: true,
            resets: [(200, "{\"success\":true}", true)].into(),
            lag: 0,
            metrics_fail: VecDeque::new(),
            models_fail: VecDeque::new(),
            page: None,
            starts_bare: false,
            refuses_key: false,
            refuses_completions: None,
            seen: Vec::new(),
            stale: (0, String::new()),
            requests: 0,
        }
    }

    /// Paths of all requests, without queries.
    pub(crate) fn paths(&self) -> Vec<&str> {
        let path = |seen: &'_ Seen| -> usize { seen.path.find('?').unwrap_or(seen.path.len()) };
        self.seen.iter().map(|one| &one.path[..path(one)]).collect()
    }

    fn answer(&mut self, seen: &Seen) -> (u16, String) {
        if self.refuses_key {
            let echo = format!("no access for {:?} at {}", seen.headers, seen.path);
            return (401, json!({"error": {"message": echo}}).to_string());
        }
        let path = seen.path.split('?').next().unwrap_or_default();
        match (seen.method.as_str(), path) {
            ("POST", "/v1/completions") => self.complete(seen),
            ("GET", "/metrics") => self.metrics(),
            ("POST", "/reset_prefix_cache") => self.reset(seen),
            ("GET", "/v1/models") if !self.models_fail.is_empty() => {
                let status = self.models_fail.pop_front().unwrap();
                (status, "no healthy upstream".to_owned())
            }
            ("GET", "/v1/models") if self.has_model_list => {
                let model = json!({"id": "m", "max_model_len": self.max_model_len});
                (200, json!({"data": [model, {"id": "other"}]}).to_string())
            }
            ("GET", "/version") => (200, json!({"version": "0.32.0"}).to_string()),
            _ => (404, json!({"detail": "Not Found"}).to_string()),
        }
    }

    fn rank_of(&self, seen: &Seen) -> Result<usize, (u16, String)> {
        if let Some(order) = &self.ignores_header {
            return Ok(order[self.requests as usize % order.len()]);
        }
        let asked = seen.headers.get("x-data-parallel-rank");
        let rank: usize = asked.map_or(0, |text| text.parse().unwrap());
        if rank >= self.ranks.len() {
            let message = format!(
                "data_parallel_rank {rank} is out of range [0, {}).",
                self.ranks.len()
            );
            return Err((400, json!({"error": {"message": message}}).to_string()));
        }
        Ok(rank)
    }

    fn complete(&mut self, seen: &Seen) -> (u16, String) {
        if let Some(status) = self.refuses_completions {
            return (status, json!({"error": {"message": "no"}}).to_string());
        }
        let body: Value = serde_json::from_str(&seen.body).unwrap();
        if body["model"] != "m" {
            let message = format!("The model `{}` does not exist.", body["model"]);
            return (404, json!({"error": {"message": message}}).to_string());
        }
        let rank = match self.rank_of(seen) {
            Ok(rank) => rank,
            Err(refusal) => return refusal,
        };
        if self.stale.0 == 0 {
            self.stale = (self.lag, self.render());
        }
        self.requests += 1;
        let text = body["prompt"].as_str().unwrap();
        let salt = body["cache_salt"].as_str().filter(|_| self.honors_salt);
        let salt = salt.unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let (local, external) = self.serve(rank, salt, &words);
        self.disturb();
        let mut usage = json!({"prompt_tokens": words.len(), "completion_tokens": 1});
        if self.reports_cached {
            usage["prompt_tokens_details"] = json!({"cached_tokens": local + external});
        }
        let mut answer = json!({"choices": [{"text": "x", "finish_reason": "length"}]});
        if self.reports_usage {
            answer["usage"] = usage;
        }
        (200, answer.to_string())
    }

    /// Tokens found in the local and in the external tier; everything is in
    /// both afterwards.
    fn serve(&mut self, rank: usize, salt: &str, words: &[&str]) -> (usize, usize) {
        let (block, caches, second) = (self.block, self.caches, self.has_external_tier);
        let rank = &mut self.ranks[rank];
        let chain = |blocks: usize| format!("{salt}|{}", words[..blocks * block].join(" "));
        let findable = words.len().saturating_sub(1) / block;
        let local = (1..=findable)
            .take_while(|blocks| rank.cached.contains(&chain(*blocks)))
            .count();
        let external = (local + 1..=findable)
            .take_while(|blocks| rank.external.contains(&chain(*blocks)))
            .count();
        for blocks in 1..=words.len() / block {
            if caches {
                rank.cached.insert(chain(blocks));
            }
            if caches && second {
                rank.external.insert(chain(blocks));
            }
        }
        let tokens = words.len() as u64;
        rank.prompt_tokens += tokens;
        rank.queries += tokens;
        rank.hits += (local * block) as u64;
        rank.external_hits += (external * block) as u64;
        (local * block, external * block)
    }

    fn disturb(&mut self) {
        if self.foreign.1 == 0 {
            return;
        }
        self.foreign.1 -= 1;
        for rank in &mut self.ranks {
            rank.prompt_tokens += self.foreign.0;
            rank.queries += self.foreign.0;
        }
    }

    fn reset(&mut self, seen: &Seen) -> (u16, String) {
        let (status, body, resets) = match self.resets.len() {
            1 => self.resets[0],
            _ => self.resets.pop_front().unwrap(),
        };
        if resets {
            let all = self.resets_external_tier && seen.path.contains("reset_external=true");
            for rank in &mut self.ranks {
                rank.cached.clear();
                if all {
                    rank.external.clear();
                }
            }
        }
        (status, body.to_owned())
    }

    fn metrics(&mut self) -> (u16, String) {
        if let Some(status) = self.metrics_fail.pop_front() {
            return (status, "no page".to_owned());
        }
        if let Some(page) = &self.page {
            return (200, page.clone());
        }
        if self.stale.0 > 0 {
            self.stale.0 -= 1;
            return (200, self.stale.1.clone());
        }
        (200, self.render())
    }

    fn render(&self) -> String {
        if self.starts_bare && self.requests == 0 {
            return "# nothing yet\n".to_owned();
        }
        let mut page = String::new();
        for (index, rank) in self.ranks.iter().enumerate() {
            for (name, value) in [
                ("prompt_tokens_total", rank.prompt_tokens),
                ("prefix_cache_queries_total", rank.queries),
                ("prefix_cache_hits_total", rank.hits),
                ("external_prefix_cache_hits_total", rank.external_hits),
            ] {
                writeln!(
                    page,
                    "vllm:{name}{{engine=\"{index}\",model_name=\"m\"}} {value}.0"
                )
                .unwrap();
            }
            let (block, caching) = (&self.metric_block, self.prefix_caching);
            writeln!(
                page,
                "vllm:kv_cache_usage_perc{{engine=\"{index}\",model_name=\"m\"}} 0.25\n\
                 vllm:cache_config_info{{engine=\"{index}\",block_size=\"{block}\",\
                 enable_prefix_caching=\"{caching}\"}} 1.0"
            )
            .unwrap();
        }
        page
    }
}

/// The server on a free port, stopped when dropped.
pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start(ranks: usize) -> Self {
        Self::with(ranks, |_| ()).await
    }

    /// A server whose knobs are turned by `turn`.
    pub(crate) async fn with(ranks: usize, turn: impl FnOnce(&mut State)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut state = State::new(ranks);
        turn(&mut state);
        let state = Arc::new(Mutex::new(state));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&state)));
        Self {
            address,
            state,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(respond(request, &state).await) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(served);
        });
    }
}

async fn respond(request: Request<Incoming>, state: &Mutex<State>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let header = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        (name.to_string(), value.to_str().unwrap().to_owned())
    };
    let seen = Seen {
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: head.headers.iter().map(header).collect(),
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let (status, text) = {
        let mut state = state.lock().unwrap();
        let answer = state.answer(&seen);
        state.seen.push(seen);
        answer
    };
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(text)))
        .unwrap()
}
