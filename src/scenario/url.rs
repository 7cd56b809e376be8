//! Service addresses: which are acceptable, and how they may be shown.

use serde_json::{Value, json};

use crate::scenario::json::{Kind, Node};
use crate::scenario::problem::{Code, Problem, Problems, shown};
use crate::scenario::rule::Rule;

/// The address without user info, query and fragment, which may hold secrets;
/// as it was written when it has none of them. Text that is no URL loses
/// everything up to its last `@`, too.
pub fn redact_url(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else {
        return redact_text(text);
    };
    if !carries_secrets(&url) {
        return text.to_owned();
    }
    url.set_query(None);
    url.set_fragment(None);
    match (url.set_username(""), url.set_password(None)) {
        (Ok(()), Ok(())) => url.into(),
        // Addresses without a host have no user either.
        _ => redact_text(url.as_str()),
    }
}

/// Whether an address holds what [`redact_url`] takes away.
pub(super) fn holds_secrets(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| carries_secrets(&url))
}

fn carries_secrets(url: &url::Url) -> bool {
    !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
}

fn redact_text(text: &str) -> String {
    let scheme = text.find("://").map_or("", |at| &text[..at + 3]);
    let rest = &text[scheme.len()..];
    let rest = rest.rfind('@').map_or(rest, |at| &rest[at + 1..]);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    format!("{scheme}{}", &rest[..end])
}

/// An `http` or `https` URL with a host.
pub(super) struct Address;

/// The parser mends white space and missing slashes; HTTP clients need not.
fn sound(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    let web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let odd = |letter: char| letter.is_whitespace() || letter.is_control();
    web && !text.contains(odd) && url::Url::parse(text).is_ok_and(|url| url.has_host())
}

impl Rule for Address {
    type Output = String;

    fn expected(&self) -> String {
        "an http:// or https:// URL with a host".to_owned()
    }

    fn schema(&self) -> Value {
        json!({"type": "string", "format": "uri", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"})
    }

    fn read(&self, node: &Node<'_>) -> Result<String, Code> {
        let Kind::Text(text) = &node.kind else {
            return Err(Code::WrongType);
        };
        sound(text).then(|| text.clone()).ok_or(Code::BadValue)
    }

    fn check(&self, node: &Node<'_>, path: &str, problems: &mut Problems) -> Option<String> {
        let code = match self.read(node) {
            Ok(url) => return Some(url),
            Err(code) => code,
        };
        let problem = match &node.kind {
            Kind::Text(text) => Problem::new(code, path, "not a usable address")
                .found(format!("`{}`", shown(&redact_url(text)))),
            _ => Problem::new(code, path, "wrong type").found(node.found()),
        };
        problems.push(problem.expected(self.expected()).at(Some(node.offset)));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_info_query_and_fragment_are_not_shown() {
        let check = |url: &str, expected: &str| assert_eq!(redact_url(url), expected, "{url}");
        check(
            "http://user:pw-0123@127.0.0.1:9/v1/completions?key=qk-0123",
            "http://127.0.0.1:9/v1/completions",
        );
        check("https://h/v1#frag", "https://h/v1");
        check("http://u:p@ss@h/x", "http://h/x");
        check("http://u:p/w@h/x", "http://h/x");
        check("user:pw@h/x?k=1", "h/x");
        check("http://h:1/metrics", "http://h:1/metrics");
        check("http://h/x?mail=a@b", "http://h/x");
        check("http://u:a?b@h/", "http://h/");
        check("", "");
    }

    #[test]
    fn only_web_addresses_with_a_host_are_sound() {
        for right in [
            "http://h",
            "HTTPS://[::1]:8/v1",
            "http://u:p@h/?q",
            "http://é.example/",
        ] {
            assert!(sound(right), "{right}");
        }
        let wrong = [
            "",
            "h",
            "http:/h",
            "http://",
            "ftp://h",
            "//h",
            " http://h",
            "http://h/ x",
        ];
        for wrong in wrong
            .into_iter()
            .chain(["http://h:99999", "file:///x", "http://h\n"])
        {
            assert!(!sound(wrong), "{wrong}");
        }
    }
}
