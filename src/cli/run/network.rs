//! How the service is reached, as the command line says it: headers, a proxy,
//! certificates, the HTTP version. The measured side and the control side are
//! told the same, but for the version: only the measured requests go by HTTP/2.

#![allow(clippy::disallowed_methods, reason = "edge: reads certificates")]

use std::fmt;
use std::fs;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use crate::cli::args::RunArgs;
use crate::cli::exit::Failure;
use crate::cli::secrets;
use crate::drive::NativeConfig;
use crate::secret::{Redactor, Secret};
use crate::service::ControlSettings;
use crate::service::chat::Headers;
use crate::service::target::Target;
use crate::service::wire::HttpVersion;

/// The options. Their `Debug` shows neither header values nor the proxy, which
/// may hold secrets.
#[derive(Clone, Default)]
pub(crate) struct Network {
    headers: Vec<(String, String)>,
    proxy: Option<String>,
    roots_pem: Option<Bytes>,
    version: HttpVersion,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.headers.iter().map(|(name, _)| name);
        f.debug_struct("Network")
            .field("headers", &names.collect::<Vec<_>>())
            .field("proxy", &self.proxy.is_some())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Network {
    /// As typed.
    pub(super) fn from_args(args: &RunArgs) -> Result<Self, Failure> {
        let headers = args.headers.iter().map(|text| header(text));
        let proxy = args.proxy.clone();
        if let Some(proxy) = &proxy {
            check_proxy(proxy)?;
        }
        let read = |path: &std::path::PathBuf| {
            fs::read(path).map(Bytes::from).map_err(|error| {
                let message = format!("cannot read `{}`: {error}", path.display());
                Failure::input("CERTIFICATES_UNREADABLE", message)
            })
        };
        let headers = headers.collect::<Result<Vec<_>, _>>()?;
        secrets::keep_out(&redactor(&headers, proxy.as_deref()));
        Ok(Self {
            headers,
            proxy,
            roots_pem: args.cacert.as_ref().map(read).transpose()?,
            version: if args.http2 {
                HttpVersion::Http2
            } else {
                HttpVersion::Http1
            },
        })
    }

    /// The driver's configuration with these options.
    pub(super) fn native(&self, config: NativeConfig) -> NativeConfig {
        NativeConfig {
            headers: self.headers.clone(),
            proxy: self.proxy.clone(),
            roots_pem: self.roots_pem.clone(),
            version: self.version,
            ..config
        }
    }

    /// The control side's settings with these options.
    pub(super) fn control(&self, settings: ControlSettings) -> ControlSettings {
        ControlSettings {
            headers: Headers(self.headers.clone()),
            proxy: self.proxy.clone(),
            roots_pem: self.roots_pem.clone(),
            ..settings
        }
    }
}

fn redactor(headers: &[(String, String)], proxy: Option<&str>) -> Redactor {
    let mut redactor = Redactor::new(&Secret::default(), proxy);
    for (name, value) in headers {
        redactor.add_named(name, value);
    }
    redactor
}

/// Reads `NAME=VALUE`. The message names no value, which may be a secret.
fn header(text: &str) -> Result<(String, String), Failure> {
    let wrong = |what: &str| Failure::input("USAGE", format!("--header: {what}"));
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| wrong("not of the form NAME=VALUE"))?;
    if HeaderName::try_from(name).is_err() {
        return Err(wrong(&format!("`{name}` is not a header name")));
    }
    if HeaderValue::from_str(value).is_err() {
        let what = format!("the value of `{name}` has characters that no header may have");
        return Err(wrong(&what));
    }
    // Lengths and framing are the client's; a wrong one breaks every request.
    let framing = ["content-length", "transfer-encoding", "connection"];
    if framing.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(wrong(&format!("`{name}` is set by the client itself")));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn check_proxy(url: &str) -> Result<(), Failure> {
    let wrong = |what: String| Failure::input("USAGE", format!("--proxy: {what}"));
    let target = Target::parse(url).map_err(|error| wrong(error.to_string()))?;
    if target.tls {
        return Err(wrong("the proxy must be an `http` URL".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_split_at_the_first_equals_sign() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(header("X-A=b=c").unwrap(), pair("X-A", "b=c"));
        assert_eq!(header("x-empty=").unwrap(), pair("x-empty", ""));
    }

    #[test]
    fn what_cannot_be_a_header_is_refused_without_its_value() {
        for wrong in [
            "X-A",
            "=s3cret",
            "a b=s3cret",
            "X-A=s3cret\n",
            "Content-Length=3",
            "transfer-encoding=chunked",
        ] {
            let failure = header(wrong).unwrap_err().render();
            assert!(failure.starts_with("ERROR: USAGE: --header: "), "{failure}");
            assert!(!failure.contains("s3cret"), "{failure}");
        }
    }

    #[test]
    fn a_proxy_is_a_plain_http_url() {
        check_proxy("http://user:pass@10.0.0.1:3128").unwrap();
        for wrong in ["10.0.0.1:3128", "https://proxy", "socks5://proxy"] {
            assert!(check_proxy(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn secrets_do_not_show_in_debug() {
        let network = Network {
            headers: vec![("X-Key".to_owned(), "s3cret".to_owned())],
            proxy: Some("http://u:s3cret@p".to_owned()),
            ..Network::default()
        };
        let shown = format!("{network:?}");
        assert!(
            shown.contains("X-Key") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
