//! The endpoints of a server, from the one URL that a user gives: with or
//! without a slash, `/v1`, or the whole path of an endpoint at its end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use super::error::ProbeError;

/// Endings of a URL that name an endpoint and not the server.
const ENDPOINTS: &[&str] = &[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/v1",
];

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Chat completions endpoint; it may hold credentials.
    pub chat: String,
    /// Metrics page.
    pub metrics: String,
    /// Addresses of this machine that the URL means; empty for another one.
    pub loopback: Vec<IpAddr>,
    /// Port.
    pub port: u16,
}

impl Address {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, ProbeError> {
        let url = Url::parse(text.trim()).map_err(|_| ProbeError::BadUrl)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(ProbeError::BadUrl);
        }
        let path = url.path().trim_end_matches('/');
        let named = ENDPOINTS.iter().find_map(|end| path.strip_suffix(end));
        let base = named.unwrap_or(path).to_owned();
        let at = |path: &str| {
            let mut endpoint = url.clone();
            endpoint.set_path(&format!("{base}/{path}"));
            endpoint.set_fragment(None);
            endpoint.to_string()
        };
        Ok(Self {
            chat: at("v1/chat/completions"),
            metrics: at("metrics"),
            loopback: loopback(url.host().as_ref()),
            port: url.port_or_known_default().unwrap_or(80),
        })
    }
}

fn loopback(host: Option<&Host<&str>>) -> Vec<IpAddr> {
    let this_machine = |address: IpAddr| {
        let address = address.to_canonical();
        (address.is_loopback() || address.is_unspecified()).then_some(address)
    };
    match host {
        Some(Host::Ipv4(address)) => this_machine((*address).into()).into_iter().collect(),
        Some(Host::Ipv6(address)) => this_machine((*address).into()).into_iter().collect(),
        Some(Host::Domain(name)) if name.eq_ignore_ascii_case("localhost") => {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        }
        Some(Host::Domain(_)) | None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_server_gives_its_endpoints() {
        for text in [
            "http://127.0.0.1:8000",
            "http://127.0.0.1:8000/",
            " http://127.0.0.1:8000/v1",
            "http://127.0.0.1:8000/v1/",
            "http://127.0.0.1:8000/v1/chat/completions",
            "http://127.0.0.1:8000/v1/completions",
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.chat, "http://127.0.0.1:8000/v1/chat/completions");
            assert_eq!(address.metrics, "http://127.0.0.1:8000/metrics");
            assert_eq!(address.port, 8_000);
        }
        let behind = Address::parse("https://gate.example/team/v1?key=k").unwrap();
        assert_eq!(
            behind.chat,
            "https://gate.example/team/v1/chat/completions?key=k"
        );
        assert_eq!((behind.port, behind.loopback.len()), (443, 0));
        for wrong in [
            "127.0.0.1:8000",
            "localhost:8000",
            "ftp://h/",
            "",
            "http://",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn this_machine_is_known_by_its_loopback_names() {
        let count = |text: &str| Address::parse(text).unwrap().loopback.len();
        assert_eq!(count("http://localhost:1"), 2);
        assert_eq!(count("http://[::1]:1"), 1);
        assert_eq!(count("http://127.8.0.1:1"), 1);
        assert_eq!(count("http://[::ffff:127.0.0.1]:1"), 1);
        assert_eq!(count("http://10.0.0.1:1"), 0);
    }
}
