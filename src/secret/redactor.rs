//! Takes known credentials out of texts, such as a server's error body that
//! echoes a header.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;

use super::Secret;
use super::url::parts;

/// What stands in the place of a credential.
pub const REDACTED: &str = "[redacted]";

/// Shortest text that is taken for a credential, in characters. A shorter one
/// (`EMPTY`, `none`, a flag) would blot out ordinary words.
const SECRET_CHARS_MIN: usize = 6;

/// Shortest value of a header or query that is taken for one although its name
/// does not say so.
const UNNAMED_CHARS_MIN: usize = 12;

/// Parts of names whose values are credentials.
const SECRET_NAMES: [&str; 11] = [
    "key",
    "token",
    "secret",
    "passw",
    "pwd",
    "auth",
    "sig",
    "cookie",
    "session",
    "credential",
    "bearer",
];

/// The credentials of a command. `Debug` says how many it knows.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest first, so that one that holds another leaves no rest.
    secrets: Vec<String>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

impl Redactor {
    /// Knows `key` and the credentials in `urls`.
    pub fn new<'a>(key: &Secret, urls: impl IntoIterator<Item = &'a str>) -> Self {
        let mut redactor = Self::default();
        redactor.add(key.expose().unwrap_or_default());
        for url in urls {
            redactor.add_url(url);
        }
        redactor
    }

    /// One more credential, as it is and as it stands inside JSON.
    pub fn add(&mut self, secret: &str) {
        if secret.chars().count() < SECRET_CHARS_MIN {
            return;
        }
        let quoted = serde_json::Value::from(secret).to_string();
        for form in [secret, &quoted[1..quoted.len() - 1]] {
            if !self.secrets.iter().any(|known| known == form) {
                self.secrets.push(form.to_owned());
            }
        }
        self.secrets
            .sort_by_key(|known| Reverse(known.chars().count()));
    }

    /// The value of a header or a parameter, if it may be a credential: its
    /// name says so, or it is long. Of `Bearer TOKEN` the token alone is one.
    pub fn add_named(&mut self, name: &str, value: &str) {
        let name = name.to_ascii_lowercase();
        let named = SECRET_NAMES.iter().any(|part| name.contains(part));
        if named || value.chars().count() >= UNNAMED_CHARS_MIN {
            self.add(value);
            if let Some((_, token)) = value.split_once(' ') {
                self.add(token);
            }
        }
    }

    /// The credentials in the user info and the query of an address.
    pub fn add_url(&mut self, url: &str) {
        for (name, value) in parts(url) {
            self.add_named(&name, &value);
        }
    }

    /// Also everything that `other` knows.
    pub fn extend(&mut self, other: &Self) {
        other.secrets.iter().for_each(|secret| self.add(secret));
    }

    /// `text` without the credentials.
    pub fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for secret in &self.secrets {
            if clean.contains(secret.as_str()) {
                clean = Cow::Owned(clean.replace(secret.as_str(), REDACTED));
            }
        }
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-test-0123456789abcdef";

    fn redactor() -> Redactor {
        let url =
            "http://user:pw%2D0123@127.0.0.1:9/v1?api_key=qk%2B0123&flag=1&version=2024-05-01";
        Redactor::new(&Secret::new(KEY), [url])
    }

    #[test]
    fn each_credential_is_taken_out_in_each_of_its_forms() {
        for (text, clean) in [
            (
                format!("Bearer {KEY}, again {KEY}"),
                "Bearer [redacted], again [redacted]",
            ),
            ("pw-0123 pw%2D0123".to_owned(), "[redacted] [redacted]"),
            // user:pw-0123, as basic authorization has it.
            ("Basic dXNlcjpwdy0wMTIz".to_owned(), "Basic [redacted]"),
            ("qk%2B0123 qk+0123".to_owned(), "[redacted] [redacted]"),
            (
                "flag=1 version=2024-05-01".to_owned(),
                "flag=1 version=2024-05-01",
            ),
        ] {
            assert_eq!(redactor().clean(&text), clean);
        }
        assert!(matches!(redactor().clean("nothing"), Cow::Borrowed(_)));
    }

    #[test]
    fn nothing_is_left_of_one_that_holds_another() {
        let mut redactor = Redactor::new(&Secret::new("sk-test"), []);
        redactor.add(KEY);
        assert_eq!(
            redactor.clean(&format!("{KEY} sk-test")),
            "[redacted] [redacted]"
        );
    }

    #[test]
    fn a_credential_inside_json_is_found() {
        let redactor = Redactor::new(&Secret::new("a\"b\\c-0123"), []);
        let body = serde_json::json!({"error": "bad key a\"b\\c-0123"}).to_string();
        assert_eq!(redactor.clean(&body), r#"{"error":"bad key [redacted]"}"#);
    }

    #[test]
    fn names_and_lengths_decide_what_a_header_is() {
        let mut redactor = Redactor::default();
        for (name, value) in [
            ("Authorization", "Bearer tok-01"),
            ("X-Api-Key", "abc-01"),
            ("Accept", "text/plain"),
            ("X-Tenant", "0123456789abcdef"),
            ("X-Token", "short"),
        ] {
            redactor.add_named(name, value);
        }
        assert_eq!(
            redactor.clean("tok-01 abc-01 text/plain 0123456789abcdef short"),
            "[redacted] [redacted] text/plain [redacted] short"
        );
    }

    #[test]
    fn a_user_alone_is_a_token() {
        let redactor = Redactor::new(&Secret::default(), ["https://token-1@h/?opaque-1"]);
        assert_eq!(redactor.clean("token-1 opaque-1"), "[redacted] [redacted]");
    }

    #[test]
    fn it_says_nothing_of_what_it_knows() {
        let shown = format!(
            "{:?} {:?} {:?}",
            redactor(),
            Secret::new(KEY),
            Secret::default()
        );
        assert!(!shown.contains("0123"), "{shown}");
        assert!(shown.ends_with("Secret(set) Secret(none)"), "{shown}");
    }
}
