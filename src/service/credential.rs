//! Secrets of the connection to a server, and how they are kept out of every
//! text: the API key, and whatever a URL carries in its user part and query.

use std::fmt;

use url::Url;

/// What stands where a secret stood.
const REDACTED: &str = "***";

/// Shortest query value that is taken for a secret; shorter ones are flags.
const QUERY_SECRET_CHARS_MIN: usize = 4;

/// An API key. Neither `Debug` nor `Display` shows it; an empty text is none.
#[derive(Clone, Default)]
pub struct ApiKey(Option<String>);

impl ApiKey {
    /// Wraps a key.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self((!text.is_empty()).then_some(text))
    }

    /// The key itself, for the wire only.
    pub fn expose(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "ApiKey(set)"
        } else {
            "ApiKey(none)"
        })
    }
}

/// A URL as it may be shown: without user part, query and fragment.
pub fn shown_url(url: &str) -> String {
    if let Ok(url) = Url::parse(url) {
        return shown(&url);
    }
    // Whatever stands before an `@` or after a `?` may be a secret.
    let visible = &url[..url.find(['?', '#']).unwrap_or(url.len())];
    match visible.rfind('@') {
        Some(at) => format!("{REDACTED}{}", &visible[at..]),
        None => visible.to_owned(),
    }
}

pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Fails only for URLs that cannot have a user part.
    if url.set_username("").is_err() || url.set_password(None).is_err() {
        return format!("{}:{REDACTED}", url.scheme());
    }
    url.to_string()
}

/// Takes secrets out of texts, such as a server's error body that echoes a
/// header.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest first, so that a secret inside another leaves no rest.
    secrets: Vec<String>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

impl Redactor {
    /// The secrets of `key` and of `urls`.
    pub fn new<'a>(key: &ApiKey, urls: impl IntoIterator<Item = &'a str>) -> Self {
        let mut redactor = Self::default();
        if let Some(key) = key.expose() {
            redactor.add(key);
        }
        for url in urls {
            redactor.add_url(url);
        }
        redactor
    }

    /// One more secret.
    pub fn add(&mut self, secret: &str) {
        if !secret.is_empty() && !self.secrets.iter().any(|known| known == secret) {
            self.secrets.push(secret.to_owned());
            self.secrets
                .sort_by_key(|known| std::cmp::Reverse(known.len()));
        }
    }

    fn add_url(&mut self, url: &str) {
        let Ok(url) = Url::parse(url) else {
            return;
        };
        match url.password() {
            Some(password) => self.add_encoded(password),
            // `https://TOKEN@host`: the name alone is the secret.
            None => self.add_encoded(url.username()),
        }
        for pair in url.query().unwrap_or_default().split('&') {
            let value = pair.split_once('=').map_or("", |(_, value)| value);
            if value.chars().count() >= QUERY_SECRET_CHARS_MIN {
                self.add_encoded(value);
            }
        }
    }

    /// A text as it stands in a URL, and decoded.
    fn add_encoded(&mut self, text: &str) {
        self.add(text);
        let query = format!("x={text}");
        if let Some((_, decoded)) = url::form_urlencoded::parse(query.as_bytes()).next() {
            self.add(&decoded);
        }
    }

    /// `text` without the secrets.
    pub fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret, REDACTED)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_user_part_and_no_query() {
        for (url, shown) in [
            (
                "http://user:pw-0123@127.0.0.1:9/v1/completions?key=qk-0123#f",
                "http://127.0.0.1:9/v1/completions",
            ),
            ("http://localhost/metrics", "http://localhost/metrics"),
            ("user:pw@host/x?key=1", "user:***"),
            ("//a:b@c/?d", "***@c/"),
        ] {
            assert_eq!(shown_url(url), shown, "{url}");
        }
    }

    #[test]
    fn every_secret_of_a_connection_is_taken_out() {
        let key = ApiKey::new("sk-test-0123456789abcdef");
        let url = "http://user:pw%2D0123@127.0.0.1:9/v1?key=qk-0123&flag=1";
        let redactor = Redactor::new(&key, [url]);
        let text = "Bearer sk-test-0123456789abcdef pw-0123 pw%2D0123 qk-0123 flag=1";
        assert_eq!(redactor.clean(text), "Bearer *** *** *** *** flag=1");
        let shown = format!("{key:?} {redactor:?}");
        assert!(!shown.contains("sk-test"), "{shown}");
        let token = Redactor::new(&ApiKey::default(), ["https://tok-1@h/"]);
        assert_eq!(token.clean("tok-1"), "***");
    }
}
