//! What a server's answer to a cache reset means. A 200 alone means nothing:
//! vLLM answers it, with `"success": false` in current versions and with an
//! empty body in older ones, also when blocks were held and nothing was reset.

use serde::Serialize;

/// What one answer says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetVerdict {
    /// Done, in the server's own words.
    Confirmed,
    /// A 2xx that does not say whether anything was reset.
    Unconfirmed,
    /// Not now: blocks are held, the scheduler is not idle, or it is overloaded.
    Busy,
    /// There is no such function here.
    Unavailable,
    /// The key is refused.
    Unauthorized,
    /// Refused for good.
    Refused,
}

/// Reads status and body of an answer.
pub fn classify_reset(status: u16, body: &str) -> ResetVerdict {
    match status {
        200..=299 => match success_of(body) {
            Some(true) => ResetVerdict::Confirmed,
            Some(false) => ResetVerdict::Busy,
            None => ResetVerdict::Unconfirmed,
        },
        401 | 403 => ResetVerdict::Unauthorized,
        404 | 405 | 501 => ResetVerdict::Unavailable,
        // SGLang answers 400 while its scheduler is not idle.
        400 | 408 | 409 | 423 | 425 | 429 | 500 | 502..=504 => ResetVerdict::Busy,
        _ => ResetVerdict::Refused,
    }
}

/// `success` of a JSON object.
pub fn success_of(body: &str) -> Option<bool> {
    let value: serde_json::Value = serde_json::from_str(body).ok()?;
    value.get("success")?.as_bool()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_body_decide_together() {
        for (status, body, verdict) in [
            (200, "{\"success\":true}", ResetVerdict::Confirmed),
            (200, "{\"success\":false}", ResetVerdict::Busy),
            (200, "", ResetVerdict::Unconfirmed),
            (200, "Cache flushed.", ResetVerdict::Unconfirmed),
            (204, "", ResetVerdict::Unconfirmed),
            (200, "{\"success\":\"yes\"}", ResetVerdict::Unconfirmed),
            (400, "", ResetVerdict::Busy),
            (503, "", ResetVerdict::Busy),
            (404, "{\"detail\":\"Not Found\"}", ResetVerdict::Unavailable),
            (405, "", ResetVerdict::Unavailable),
            (401, "", ResetVerdict::Unauthorized),
            (302, "", ResetVerdict::Refused),
            (422, "", ResetVerdict::Refused),
        ] {
            assert_eq!(classify_reset(status, body), verdict, "{status} {body}");
        }
    }
}
