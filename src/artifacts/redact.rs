//! Takes credentials out of a configuration before it is stored. The rest of
//! it stays byte for byte.

use serde_json::Value;
use url::Url;

use crate::scenario::Secret;

/// What stands in the place of a credential.
pub(crate) const REDACTED: &str = "REDACTED";

/// Shortest credential that is looked for inside other texts; a shorter one
/// would match by chance.
const SECRET_BYTES_MIN: usize = 8;

/// Parts of names whose values are credentials.
const SECRET_NAMES: [&str; 6] = ["key", "token", "secret", "password", "auth", "signature"];

/// `config` without the credentials in its URLs, and without `secret` wherever
/// it stands.
pub(crate) fn redacted(config: &Value, secret: &Secret) -> Value {
    let mut config = config.clone();
    scrub(&mut config, secret);
    config
}

/// `url` without user and password and without the values of query parameters
/// named like credentials. A text that is no URL stays as it is.
fn redacted_url(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else {
        return url.to_owned();
    };
    let has_user = !parsed.username().is_empty() || parsed.password().is_some();
    let has_secret = parsed.query_pairs().any(|(name, _)| is_secret_name(&name));
    if !has_user && !has_secret {
        return url.to_owned();
    }
    if has_user {
        let user = parsed.set_username(REDACTED);
        let password = parsed.set_password(None);
        assert!(
            user.is_ok() && password.is_ok(),
            "a URL with a user has a host"
        );
    }
    if has_secret {
        let pairs: Vec<(String, String)> = parsed
            .query_pairs()
            .map(|(name, value)| {
                let hidden = is_secret_name(&name);
                let value = if hidden { REDACTED } else { &*value };
                (name.to_string(), value.to_owned())
            })
            .collect();
        parsed.query_pairs_mut().clear().extend_pairs(pairs);
    }
    parsed.into()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

fn scrub(value: &mut Value, secret: &Secret) {
    match value {
        Value::String(text) => {
            if text.contains("://") {
                *text = redacted_url(text);
            }
            if let Some(secret) = secret.expose()
                && secret.len() >= SECRET_BYTES_MIN
                && text.contains(secret)
            {
                *text = text.replace(secret, REDACTED);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| scrub(item, secret)),
        Value::Object(map) => map.values_mut().for_each(|item| scrub(item, secret)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_leave_a_url_and_nothing_else_does() {
        for (url, expected) in [
            (
                "http://user:pw-0123@127.0.0.1:9/v1/completions?key=qk-0123&v=2",
                "http://REDACTED@127.0.0.1:9/v1/completions?key=REDACTED&v=2",
            ),
            (
                "http://127.0.0.1:8000/metrics",
                "http://127.0.0.1:8000/metrics",
            ),
            ("http://host?api-version=1", "http://host?api-version=1"),
            ("not a url", "not a url"),
        ] {
            assert_eq!(redacted_url(url), expected);
        }
    }

    #[test]
    fn the_secret_is_removed_wherever_it_stands() {
        let secret = Secret::new("sk-test-0123456789abcdef");
        let config = serde_json::json!({"a": ["--api-key=sk-test-0123456789abcdef", 1]});
        let expected = serde_json::json!({"a": ["--api-key=REDACTED", 1]});
        assert_eq!(redacted(&config, &secret), expected);
    }
}
