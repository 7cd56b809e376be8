//! Service addresses: which are acceptable.

use serde_json::{Value, json};

use crate::scenario::json::{Kind, Node};
use crate::scenario::problem::{Code, Problem, Problems, shown};
use crate::scenario::rule::Rule;
use crate::secret::shown_url;

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
                .found(format!("`{}`", shown(&shown_url(text)))),
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
