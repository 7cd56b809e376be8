//! Keeps credentials out of everything that is stored: it knows the secrets of
//! a run and removes them from messages, and cuts messages to a length.

use std::fmt;

/// Longest message that is stored, in characters.
pub const MESSAGE_CHARS_MAX: usize = 500;

/// What stands in a secret's place.
const REMOVED: &str = "[removed]";

/// Shortest text that is taken for a secret, in bytes: a shorter one would
/// blot out ordinary words.
const SECRET_BYTES_MIN: usize = 4;

/// The secrets of a run. Neither `Debug` nor `Display` says anything of them.
#[derive(Clone, Default)]
pub struct Scrubber(Vec<String>);

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} secrets)", self.0.len())
    }
}

impl Scrubber {
    /// A scrubber of these secrets; the longest are removed first, so that one
    /// that holds another leaves no rest.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut secrets: Vec<String> = secrets
            .into_iter()
            .filter(|secret| secret.len() >= SECRET_BYTES_MIN)
            .collect();
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        Self(secrets)
    }

    /// `text` without secrets.
    pub fn text(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        for secret in &self.0 {
            if clean.contains(secret.as_str()) {
                clean = clean.replace(secret.as_str(), REMOVED);
            }
        }
        clean
    }

    /// `text` without secrets, of at most [`MESSAGE_CHARS_MAX`] characters.
    pub fn message(&self, text: &str) -> String {
        let clean = self.text(text);
        match clean.char_indices().nth(MESSAGE_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &clean[..end]),
            None => clean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_and_messages_cut() {
        let scrubber = Scrubber::new([
            "sk-test-0123456789abcdef".into(),
            "sk-test".into(),
            "x".into(),
        ]);
        assert_eq!(
            scrubber.message("Bearer sk-test-0123456789abcdef, sk-test, x"),
            "Bearer [removed], [removed], x"
        );
        let long = "é".repeat(MESSAGE_CHARS_MAX + 1);
        assert_eq!(
            scrubber.message(&long).chars().count(),
            MESSAGE_CHARS_MAX + 1
        );
        assert_eq!(format!("{scrubber:?}"), "Scrubber(2 secrets)");
    }
}
