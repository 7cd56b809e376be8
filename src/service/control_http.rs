//! The HTTP client under the control client: headers, proxy, certificates, the
//! address it comes from, and what the system said when it failed. It refuses to
//! know what is asked.
#![allow(clippy::disallowed_methods, reason = "edge: requests over the network")]

use std::io;
use std::net::Ipv4Addr;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, RequestBuilder, Response};
use url::{Host, Url};

use crate::service::chat::Headers;
use crate::service::connect::{CONTROL_SOURCE, is_used_up};
use crate::service::control_error::ControlError;
use crate::service::settings::ControlSettings;

/// Sends once; a loopback service is tried from another source address where
/// the ports of the usual one are used up, by the load or by connections that
/// were closed within the last minute.
pub(super) async fn send(
    request: RequestBuilder,
    url: &Url,
    settings: &ControlSettings,
) -> Result<Result<Response, reqwest::Error>, ControlError> {
    let again = request.try_clone();
    let refused = match request.send().await {
        Err(error) if ports_are_used_up(&error) && is_loopback(url) => error,
        sent => return Ok(sent),
    };
    let Some(Ok(again)) = again.map(RequestBuilder::build) else {
        return Ok(Err(refused));
    };
    let aside = client(settings, Some(CONTROL_SOURCE))?;
    Ok(aside.execute(again).await)
}

/// Further headers as the client takes them.
pub(super) fn headers_of(headers: &Headers) -> Result<HeaderMap, ControlError> {
    let mut map = HeaderMap::new();
    for (name, value) in &headers.0 {
        let bad = || ControlError::BadHeader { name: name.clone() };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        map.insert(key, value);
    }
    Ok(map)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        _ => false,
    }
}

/// Whether a connection failed for want of a port to come from.
fn ports_are_used_up(error: &reqwest::Error) -> bool {
    let io = chain(error).find_map(|cause| cause.downcast_ref::<io::Error>());
    error.is_connect() && io.is_some_and(is_used_up)
}

/// A client whose connections come from `source`, if one is named.
pub(super) fn client(
    settings: &ControlSettings,
    source: Option<Ipv4Addr>,
) -> Result<Client, ControlError> {
    let mut headers = headers_of(&settings.headers)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut builder = Client::builder()
        .user_agent(concat!("pcload/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(0)
        .connect_timeout(settings.timeout)
        .timeout(settings.timeout)
        .local_address(source.map(Into::into))
        .no_proxy();
    if let Some(proxy) = &settings.proxy {
        let proxy =
            reqwest::Proxy::all(proxy).map_err(|_| ControlError::BadUrl { field: "the proxy" })?;
        builder = builder.proxy(proxy);
    }
    if let Some(pem) = &settings.roots_pem {
        let roots = Certificate::from_pem_bundle(pem).map_err(|error| ControlError::NoClient {
            reason: innermost(&error),
        })?;
        for root in roots {
            builder = builder.add_root_certificate(root);
        }
    }
    builder.build().map_err(|error| ControlError::NoClient {
        reason: innermost(&error.without_url()),
    })
}

/// The cause at the bottom of an error's chain: what the system said.
pub(super) fn innermost(error: &reqwest::Error) -> String {
    chain(error)
        .last()
        .map_or_else(String::new, ToString::to_string)
}

/// An error and its causes, the outermost first.
fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |cause| {
        cause.source()
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn settings() -> ControlSettings {
        ControlSettings::new("http://h/v1/completions", "http://h/metrics", "m")
    }

    async fn error_from(source: Ipv4Addr, peer: std::net::SocketAddr) -> reqwest::Error {
        let client = client(&settings(), Some(source)).unwrap();
        client
            .get(format!("http://{peer}/"))
            .send()
            .await
            .unwrap_err()
    }

    #[tokio::test]
    async fn want_of_a_port_is_told_from_a_server_that_is_not_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = listener.local_addr().unwrap();
        // The system has no port at an address that is not its own (TEST-NET-1).
        let nowhere = error_from(Ipv4Addr::new(192, 0, 2, 1), peer).await;
        assert!(ports_are_used_up(&nowhere), "{nowhere:?}");
        drop(listener);
        let refused = error_from(Ipv4Addr::LOCALHOST, peer).await;
        assert!(
            refused.is_connect() && !ports_are_used_up(&refused),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn the_other_source_is_seen_by_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = listener.local_addr().unwrap();
        let client = client(&settings(), Some(CONTROL_SOURCE)).unwrap();
        let asking = client.get(format!("http://{peer}/")).send();
        let accepting = async { listener.accept().await.unwrap().1.ip() };
        let seen = tokio::select! {
            seen = accepting => seen,
            answer = asking => panic!("nobody answers: {answer:?}"),
        };
        assert_eq!(seen, CONTROL_SOURCE);
    }

    #[test]
    fn only_loopback_services_have_another_way() {
        for (url, expected) in [
            ("http://127.0.0.1:8000/metrics", true),
            ("http://localhost:8000/metrics", true),
            ("http://127.1.2.3/", true),
            ("http://10.0.0.1/", false),
            ("http://[::1]/", false),
            ("http://localhost.example/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
