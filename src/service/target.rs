//! Where requests go: a URL taken apart, with its credentials apart from what
//! may be shown. It opens nothing.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use url::Url;

/// Why a URL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It does not parse, or lacks a host.
    #[error("the URL is not valid: {reason}")]
    Invalid {
        /// The parser's words.
        reason: String,
    },
    /// Neither `http` nor `https`.
    #[error("the URL has scheme `{scheme}`; `http` or `https` is needed")]
    Scheme {
        /// What stands there.
        scheme: String,
    },
}

/// A service URL, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// Whether it is `https`.
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port, the scheme's own where none is given.
    pub port: u16,
    /// What goes into the `Host` header.
    pub authority: String,
    /// What goes into the request line; may hold credentials in its query.
    pub path_and_query: String,
    /// Path alone.
    pub path: String,
    /// `user:password`, percent-decoded.
    user_info: Option<String>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.shown())
    }
}

impl Target {
    /// Takes `url` apart.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let url = Url::parse(url).map_err(|error| TargetError::Invalid {
            reason: error.to_string(),
        })?;
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            scheme => {
                return Err(TargetError::Scheme {
                    scheme: scheme.to_owned(),
                });
            }
        };
        let host = url.host_str().ok_or_else(|| TargetError::Invalid {
            reason: "no host".to_owned(),
        })?;
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let path_and_query = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Ok(Self {
            tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url
                .port_or_known_default()
                .unwrap_or(if tls { 443 } else { 80 }),
            authority,
            path_and_query,
            path: url.path().to_owned(),
            user_info: user_info(&url),
        })
    }

    /// The URL without credentials, for messages and artifacts.
    pub fn shown(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.path)
    }

    /// Value of a basic `Authorization` header (RFC 7617), where the URL names
    /// a user.
    pub fn basic_authorization(&self) -> Option<String> {
        let user_info = self.user_info.as_ref()?;
        Some(format!("Basic {}", STANDARD.encode(user_info)))
    }
}

fn user_info(url: &Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let user = percent_decoded(url.username());
    let password = percent_decoded(url.password().unwrap_or(""));
    Some(format!("{user}:{password}"))
}

fn percent_decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target = Target::parse("http://[::1]:8000/v1/completions?a=b").unwrap();
        assert_eq!(
            (target.host.as_str(), target.port, target.authority.as_str()),
            ("::1", 8000, "[::1]:8000")
        );
        assert_eq!(target.path_and_query, "/v1/completions?a=b");
        let target = Target::parse("https://example.org").unwrap();
        assert!(target.tls);
        assert_eq!(
            (
                target.port,
                target.authority.as_str(),
                target.path_and_query.as_str()
            ),
            (443, "example.org", "/")
        );
        assert!(matches!(
            Target::parse("ftp://a/b"),
            Err(TargetError::Scheme { .. })
        ));
        assert!(matches!(
            Target::parse("nonsense"),
            Err(TargetError::Invalid { .. })
        ));
    }

    #[test]
    fn credentials_are_kept_apart() {
        let url = "http://user:pw-0123@127.0.0.1:9/v1/completions?key=qk-0123";
        let target = Target::parse(url).unwrap();
        assert_eq!(target.shown(), "http://127.0.0.1:9/v1/completions");
        assert!(!format!("{target:?}").contains("0123"));
        assert_eq!(
            target.basic_authorization().unwrap(),
            "Basic dXNlcjpwdy0wMTIz"
        );
    }
}
