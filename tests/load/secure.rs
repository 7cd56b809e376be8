//! TLS and HTTP/2 over real loopback sockets: what is spoken, whom the client
//! trusts, and that stamps are declared for what they are.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use pcload::drive::NativeConfig;
use pcload::drive::native::{Control, NativeError, NativeOutcome, run};
use pcload::measure::{FailureKind, Outcome, TimestampSource};
use pcload::plan::LoadPlan;
use pcload::service::clock::RunClock;
use pcload::service::connect::ConnectorError;
use pcload::service::wire::HttpVersion;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::free_requests;
use crate::server::{DONE, text, usage};

/// One request as the server saw it.
#[derive(Clone, Debug)]
struct Seen {
    version: Version,
    authority: String,
    team: Option<String>,
    body_bytes: usize,
}

/// A server that answers each request with the same two tokens.
struct Host {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// The certificate to trust, PEM.
    pem: Bytes,
    tasks: JoinSet<()>,
}

impl Host {
    fn url(&self, scheme: &str) -> String {
        format!(
            "{scheme}://localhost:{}/v1/completions",
            self.address.port()
        )
    }
}

/// Starts a server; `protocols` are those it offers in a TLS handshake, `None`
/// for no TLS.
async fn host(protocols: Option<&[&[u8]]>) -> Host {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = Bytes::from(made.cert.pem());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let acceptor = protocols.map(|protocols| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let log = Arc::clone(&seen);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut sessions = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (log, acceptor) = (Arc::clone(&log), acceptor.clone());
            sessions.spawn(async move {
                match acceptor {
                    None => serve(stream, log).await,
                    // A client that does not trust us leaves here.
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve(stream, log).await;
                        }
                    }
                }
            });
        }
    });
    Host {
        address,
        seen,
        pem,
        tasks,
    }
}

async fn serve<S>(stream: S, log: Arc<Mutex<Vec<Seen>>>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = service_fn(move |request| answer(request, Arc::clone(&log)));
    // A client that has what it wants just leaves.
    auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

async fn answer(
    request: Request<Incoming>,
    log: Arc<Mutex<Vec<Seen>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let text_of = |name: &str| {
        let value = head.headers.get(name)?;
        value.to_str().ok().map(ToOwned::to_owned)
    };
    let authority = head.uri.authority().map(ToString::to_string);
    let seen = Seen {
        version: head.version,
        authority: authority.or_else(|| text_of("host")).unwrap_or_default(),
        team: text_of("x-team"),
        body_bytes: body.collect().await.map_or(0, |body| body.to_bytes().len()),
    };
    log.lock().unwrap().push(seen);
    let events = text("a", "null") + &text("b", "\"length\"") + &usage(10, 2, Some(8)) + DONE;
    let mut response = Response::new(Full::new(Bytes::from(events)));
    let kind = http::HeaderValue::from_static("text/event-stream");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}

async fn drive(config: NativeConfig, count: u32) -> Result<NativeOutcome, NativeError> {
    let requests = free_requests(&config, count);
    let plan = LoadPlan::closed(3, count as usize);
    let clock = RunClock::start();
    run(config, requests, plan, clock, Control::default(), None).await
}

/// Everything arrived, once, over three connections, stamped at the read.
fn assert_exact(outcome: &NativeOutcome, host: &Host, version: Version) {
    for record in &outcome.records {
        assert_eq!(record.outcome, Outcome::Success);
        assert_eq!(record.timestamp_source, TimestampSource::Read);
        assert_eq!(record.content_ns.len(), 2);
        assert_eq!(record.usage.unwrap().cached_tokens, Some(8));
        assert!(record.t_send_ns < record.content_ns[0]);
    }
    assert_eq!((outcome.health.connections, outcome.health.posts), (3, 12));
    assert_eq!(outcome.health.own_lag.count, 0);
    let seen = host.seen.lock().unwrap();
    assert_eq!(seen.len(), 12);
    for one in seen.iter() {
        assert_eq!(one.version, version);
        assert_eq!(one.authority, format!("localhost:{}", host.address.port()));
        assert_eq!(one.team.as_deref(), Some("search"));
        assert!(one.body_bytes > 50);
    }
}

fn config(host: &Host, scheme: &str, version: HttpVersion) -> NativeConfig {
    NativeConfig {
        headers: vec![("X-Team".to_owned(), "search".to_owned())],
        roots_pem: Some(host.pem.clone()),
        version,
        ..NativeConfig::new(host.url(scheme))
    }
}

#[tokio::test]
async fn tls_is_stamped_at_the_read_and_says_so() {
    let host = host(Some(&[b"http/1.1"])).await;
    let config = config(&host, "https", HttpVersion::Http1);
    let outcome = drive(config, 12).await.unwrap();
    assert_exact(&outcome, &host, Version::HTTP_11);
    drop(host.tasks);
}

#[tokio::test]
async fn http2_is_negotiated_under_tls() {
    let host = host(Some(&[b"h2", b"http/1.1"])).await;
    let config = config(&host, "https", HttpVersion::Http2);
    let outcome = drive(config, 12).await.unwrap();
    assert_exact(&outcome, &host, Version::HTTP_2);
    drop(host.tasks);
}

#[tokio::test]
async fn http2_is_spoken_by_prior_knowledge_without_tls() {
    let host = host(None).await;
    let config = config(&host, "http", HttpVersion::Http2);
    let outcome = drive(config, 12).await.unwrap();
    assert_exact(&outcome, &host, Version::HTTP_2);
    drop(host.tasks);
}

/// The message of the only way in which all requests failed.
fn only_failure(outcome: &NativeOutcome) -> String {
    let mut messages = outcome.records.iter().map(|record| match &record.outcome {
        Outcome::Failure(failure) => {
            assert_eq!(failure.kind, FailureKind::Connect);
            failure.message.clone()
        }
        Outcome::Success => panic!("a success that cannot be"),
    });
    let first = messages.next().unwrap();
    assert!(messages.all(|message| message == first));
    first
}

#[tokio::test]
async fn a_server_without_http2_is_a_connect_failure_that_says_why() {
    let host = host(Some(&[])).await;
    let config = config(&host, "https", HttpVersion::Http2);
    let outcome = drive(config, 4).await.unwrap();
    assert_eq!(only_failure(&outcome), "the server does not offer HTTP/2");
    assert_eq!(outcome.health.posts, 0);
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let host = host(Some(&[b"http/1.1"])).await;
    let mut config = config(&host, "https", HttpVersion::Http1);
    config.roots_pem = None;
    let outcome = drive(config.clone(), 4).await.unwrap();
    let message = only_failure(&outcome);
    assert!(message.contains("certificate"), "{message}");
    assert!(host.seen.lock().unwrap().is_empty());

    config.roots_pem = Some(Bytes::from_static(b"no certificate"));
    let error = drive(config, 4).await.unwrap_err();
    assert!(
        matches!(error, NativeError::Connector(ConnectorError::Roots { .. })),
        "{error}"
    );
}
