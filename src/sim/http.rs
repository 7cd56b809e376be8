//! The HTTP face: paths, methods, headers, and which part of the simulator
//! answers. The only file that knows requests and responses as such.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: bounds the wait for a body"
)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    RETRY_AFTER, SERVER, VARY,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::sim::body::{ReplyBody, StreamBody};
use crate::sim::config::Release;
use crate::sim::control::{detokenize, metrics, models, reset, tokenize};
use crate::sim::core::Shared;
use crate::sim::generate::generate;
use crate::sim::line::Line;
use crate::sim::operator;
use crate::sim::page::Exchange;
use crate::sim::refusal::Refusal;
use crate::sim::truth::monotonic_nanos;
use crate::units::RunOffset;

/// Longest wait for a request's body.
const BODY_WAIT: Duration = Duration::from_secs(60);

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// A request without its body.
pub(super) struct Asked {
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
    /// Wall time of its head, in seconds since 1970.
    pub(super) began: f64,
    /// Monotonic time of its last byte, in nanoseconds.
    pub(super) received_ns: u64,
    /// The same moment by the server's clock.
    pub(super) arrived: RunOffset,
}

impl Asked {
    /// A header that is text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Its exchange, as far as it is known before the end.
    pub(super) fn exchange(&self, handler: &'static str, status: u16) -> Exchange {
        let length = self.header(CONTENT_LENGTH.as_str());
        Exchange {
            handler,
            method: match self.method {
                Method::GET => "GET",
                Method::POST => "POST",
                Method::HEAD => "HEAD",
                Method::PUT => "PUT",
                Method::DELETE => "DELETE",
                _ => "OTHER",
            },
            status,
            request_bytes: length.and_then(|text| text.parse().ok()).unwrap_or(0),
            response_bytes: 0,
            seconds: 0.0,
            ended: 0.0,
        }
    }
}

/// What a path and method lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Completions,
    Chat,
    Models,
    Tokenize,
    Detokenize,
    Metrics,
    MetricsSlash,
    Health,
    Ping,
    Load,
    Version,
    Reset,
    Abort,
    Pause,
    Resume,
    IsPaused,
    ServerInfo,
}

/// Paths, their routes and their methods.
const ROUTES: &[(&str, Route, &[Method])] = &[
    ("/v1/completions", Route::Completions, &[Method::POST]),
    ("/v1/chat/completions", Route::Chat, &[Method::POST]),
    ("/v1/models", Route::Models, &[Method::GET]),
    ("/tokenize", Route::Tokenize, &[Method::POST]),
    ("/detokenize", Route::Detokenize, &[Method::POST]),
    ("/metrics", Route::Metrics, &[Method::GET, Method::HEAD]),
    (
        "/metrics/",
        Route::MetricsSlash,
        &[Method::GET, Method::HEAD],
    ),
    ("/health", Route::Health, &[Method::GET]),
    ("/ping", Route::Ping, &[Method::GET, Method::POST]),
    ("/load", Route::Load, &[Method::GET]),
    ("/version", Route::Version, &[Method::GET]),
    ("/reset_prefix_cache", Route::Reset, &[Method::POST]),
    ("/abort_requests", Route::Abort, &[Method::POST]),
    ("/pause", Route::Pause, &[Method::POST]),
    ("/resume", Route::Resume, &[Method::POST]),
    ("/is_paused", Route::IsPaused, &[Method::GET]),
    ("/server_info", Route::ServerInfo, &[Method::GET]),
];

/// An answer before it is a response.
pub(super) struct Answer {
    status: u16,
    content_type: Option<HeaderValue>,
    retry_after: Option<u64>,
    allow: Option<&'static str>,
    /// A refusal that 0.24.0 answers without `vary`.
    deep: bool,
    body: AnswerBody,
}

enum AnswerBody {
    Whole(Bytes),
    /// The stream records its exchange itself, when it ends.
    Stream(StreamBody),
    Canned(VecDeque<Bytes>),
}

impl Answer {
    /// A document.
    pub(super) fn json(text: String) -> Self {
        Self::whole(200, Some(JSON), text)
    }

    /// 200 and nothing else.
    pub(super) fn empty() -> Self {
        Self::whole(200, None, String::new())
    }

    /// A stream of events.
    pub(super) fn stream(stream: StreamBody) -> Self {
        Self::events(AnswerBody::Stream(stream))
    }

    /// A stream whose events are known.
    pub(super) fn canned(events: impl IntoIterator<Item = String>) -> Self {
        Self::events(AnswerBody::Canned(
            events.into_iter().map(Bytes::from).collect(),
        ))
    }

    fn events(body: AnswerBody) -> Self {
        Self {
            status: 200,
            content_type: Some(EVENTS),
            retry_after: None,
            allow: None,
            deep: false,
            body,
        }
    }

    /// Any text.
    pub(super) fn whole(status: u16, content_type: Option<HeaderValue>, text: String) -> Self {
        Self {
            status,
            content_type,
            retry_after: None,
            allow: None,
            deep: false,
            body: AnswerBody::Whole(Bytes::from(text)),
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let mut answer = Self::whole(refusal.status, Some(JSON), refusal.body());
        answer.retry_after = refusal.retry_after;
        answer.deep = refusal.deep;
        answer
    }
}

/// Answers one request. Never fails: what goes wrong is an answer, too.
pub(super) async fn answer(
    shared: Arc<Shared>,
    line: Arc<Line>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    shared.catch_up();
    let (head, body) = request.into_parts();
    let mut asked = Asked {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or("").to_owned(),
        headers: head.headers,
        began: shared.wall(),
        received_ns: 0,
        arrived: RunOffset::default(),
    };
    let listed = ROUTES.iter().find(|(path, ..)| *path == asked.path);
    let handler = listed.map_or("none", |(path, ..)| path);
    let answer = match listed {
        None => Refusal::not_found().into(),
        Some((_, route, methods)) => {
            dispatch(&shared, line, &mut asked, *route, methods, body).await
        }
    };
    Ok(respond(&shared, &asked, handler, answer))
}

/// Whether a route exists on this server.
fn exists(shared: &Shared, route: Route) -> bool {
    let development = matches!(
        route,
        Route::Reset
            | Route::Abort
            | Route::Pause
            | Route::Resume
            | Route::IsPaused
            | Route::ServerInfo
    );
    shared.config.dev_mode || !development
}

async fn dispatch(
    shared: &Arc<Shared>,
    line: Arc<Line>,
    asked: &mut Asked,
    route: Route,
    methods: &'static [Method],
    body: Incoming,
) -> Answer {
    if !exists(shared, route) {
        return Refusal::not_found().into();
    }
    if !methods.contains(&asked.method) {
        let mut answer = Answer::from(Refusal::method());
        answer.allow = Some(if methods[0] == Method::POST {
            "POST"
        } else {
            "GET"
        });
        return answer;
    }
    if !allowed(shared, asked) {
        return Refusal::unauthorized().into();
    }
    let body = match read_body(shared, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal.into(),
    };
    asked.received_ns = monotonic_nanos();
    asked.arrived = shared.now();
    let answer = match route {
        Route::Completions | Route::Chat => {
            generate(shared, line, asked, route == Route::Chat, body).await
        }
        Route::Tokenize => tokenize(shared, &body),
        Route::Detokenize => detokenize(shared, &body),
        Route::Abort => operator::abort(shared, &body),
        Route::Pause => operator::pause(shared, &asked.query).await,
        Route::Resume => Ok(operator::resume(shared)),
        _ => Ok(control(shared, asked, route)),
    };
    answer.unwrap_or_else(Answer::from)
}

/// Whether the key asked for is there; only paths under `/v1` need one.
fn allowed(shared: &Shared, asked: &Asked) -> bool {
    let Some(key) = &shared.config.api_key else {
        return true;
    };
    let bearer = asked
        .header(AUTHORIZATION.as_str())
        .and_then(|value| value.strip_prefix("Bearer "));
    !asked.path.starts_with("/v1") || bearer == Some(key)
}

async fn read_body(shared: &Shared, body: Incoming) -> Result<Bytes, Refusal> {
    let most = shared.config.body_bytes_max;
    let limited = Limited::new(body, most);
    match tokio::time::timeout(BODY_WAIT, limited.collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::too_large(most)),
        Ok(Err(_)) | Err(_) => Err(Refusal::bad_request(
            "the request's body did not arrive".to_owned(),
            None,
        )),
    }
}

/// Everything that is no generation.
fn control(shared: &Arc<Shared>, asked: &Asked, route: Route) -> Answer {
    match route {
        Route::Metrics => metrics(shared, "text/plain; version=1.0.0; charset=utf-8"),
        Route::MetricsSlash => metrics(shared, "text/plain; version=0.0.4; charset=utf-8"),
        Route::Load => Answer::json("{\"server_load\":0}".to_owned()),
        Route::Version => Answer::json(format!(
            "{{\"version\":\"{}\"}}",
            shared.config.release.version()
        )),
        Route::Models => Answer::json(models(shared)),
        Route::Reset => reset(shared, &asked.query),
        Route::IsPaused => operator::is_paused(shared),
        Route::ServerInfo => Answer::json(format!(
            "{{\"vllm_config\":\"simulated vLLM {}\"}}",
            shared.config.release.version()
        )),
        _ => Answer::empty(),
    }
}

fn respond(
    shared: &Shared,
    asked: &Asked,
    handler: &'static str,
    answer: Answer,
) -> Response<ReplyBody> {
    let record = |bytes: usize| {
        let mut exchange = asked.exchange(handler, answer.status);
        exchange.response_bytes = bytes as u64;
        exchange.ended = shared.wall();
        exchange.seconds = exchange.ended - asked.began;
        shared.record(exchange);
    };
    let body = match answer.body {
        AnswerBody::Whole(bytes) => {
            record(bytes.len());
            ReplyBody::Whole(Some(bytes))
        }
        AnswerBody::Canned(events) => {
            record(0);
            ReplyBody::Canned(events)
        }
        AnswerBody::Stream(stream) => ReplyBody::Stream(stream),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("uvicorn"));
    if let Some(content_type) = answer.content_type {
        headers.insert(CONTENT_TYPE, content_type);
    }
    if let Some(seconds) = answer.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(methods) = answer.allow {
        headers.insert(ALLOW, HeaderValue::from_static(methods));
    }
    if !(answer.deep && shared.config.release == Release::V0_24) {
        headers.insert(VARY, HeaderValue::from_static("Origin"));
    }
    if shared.config.request_id_headers
        && let Some(id) = request_id(shared, asked)
    {
        headers.insert(X_REQUEST_ID, id);
    }
    response
}

/// The request's own id, or a new one.
fn request_id(shared: &Shared, asked: &Asked) -> Option<HeaderValue> {
    if let Some(own) = asked.headers.get(X_REQUEST_ID) {
        return Some(own.clone());
    }
    let number = shared.next_id();
    let mut stream = shared.seed.stream(&format!("sim/request-id/{number}"));
    let id = format!("{:016x}{:016x}", stream.next_u64(), stream.next_u64());
    HeaderValue::try_from(id).ok()
}
