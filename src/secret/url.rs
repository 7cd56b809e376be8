//! Addresses as they may be shown, and the credentials in one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use url::Url;

/// The address without user info, query and fragment, which may hold
/// credentials; as it was written when it has none of them. Text that is no URL
/// loses everything up to its last `@`, too.
pub fn shown_url(text: &str) -> String {
    // `user:password@host` parses, as an address without a host.
    let Some(mut url) = Url::parse(text).ok().filter(Url::has_host) else {
        return shown_text(text);
    };
    if !carries_secrets(&url) {
        return text.to_owned();
    }
    url.set_query(None);
    url.set_fragment(None);
    match (url.set_username(""), url.set_password(None)) {
        (Ok(()), Ok(())) => url.into(),
        // A file has no user, wherever it is.
        _ => shown_text(url.as_str()),
    }
}

/// Whether an address holds what [`shown_url`] takes away.
pub fn holds_secrets(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| url.has_host() && carries_secrets(&url))
}

fn carries_secrets(url: &Url) -> bool {
    !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
}

fn shown_text(text: &str) -> String {
    let scheme = text.find("://").map_or("", |at| &text[..at + 3]);
    let rest = &text[scheme.len()..];
    let rest = rest.rfind('@').map_or(rest, |at| &rest[at + 1..]);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    format!("{scheme}{}", &rest[..end])
}

/// Everything in an address that may be a credential, each with the name it
/// goes by: the password, or the user where there is none; both as the base64
/// of a header; and the values of the query. As written and decoded.
pub(super) fn parts(text: &str) -> Vec<(String, String)> {
    let Ok(url) = Url::parse(text) else {
        return Vec::new();
    };
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut parts: Vec<(String, String)> = Vec::new();
    let mut password = |text: &str| parts.push(("password".to_owned(), text.to_owned()));
    let (user, secret) = (url.username(), url.password());
    // `https://TOKEN@host`: the name alone is the secret.
    let alone = secret.unwrap_or(user);
    password(alone);
    password(&decoded(alone));
    if !user.is_empty() || secret.is_some() {
        let pair = format!("{}:{}", decoded(user), decoded(secret.unwrap_or("")));
        password(&STANDARD.encode(pair));
    }
    for pair in url.query().unwrap_or_default().split('&') {
        // A query without names is all value.
        let (name, value) = pair.split_once('=').unwrap_or(("key", pair));
        let name = decoded(name);
        parts.push((name.clone(), value.to_owned()));
        parts.push((name, decoded(&value.replace('+', " "))));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_info_query_and_fragment_are_not_shown() {
        let check = |url: &str, expected: &str| assert_eq!(shown_url(url), expected, "{url}");
        check(
            "http://user:pw-0123@127.0.0.1:9/v1/completions?key=qk-0123",
            "http://127.0.0.1:9/v1/completions",
        );
        check("https://h/v1#frag", "https://h/v1");
        check("http://u:p@ss@h/x", "http://h/x");
        check("http://u:p/w@h/x", "http://h/x");
        check("user:pw@h/x?k=1", "h/x");
        check("user:pw@h/x", "h/x");
        check("h:8000/x", "h:8000/x");
        check("//a:b@c/?d", "c/");
        check("http://h:1/metrics", "http://h:1/metrics");
        check("http://h/x?mail=a@b", "http://h/x");
        check("http://u:a?b@h/", "http://h/");
        check("", "");
    }
}
