//! Credentials: what is one, and how they stay out of everything that is shown
//! or stored. There is one set of rules for it, and this is it.
//!
//! - A type that holds a credential says nothing of it in `Debug`, and has no
//!   `Display` ([`Secret`]).
//! - An address is shown without user info, query and fragment ([`shown_url`]).
//! - Any other text is shown without the credentials that are known, in every
//!   form in which a server, a library or a file may repeat one
//!   ([`Redactor`]).

mod redactor;
mod url;

use std::fmt;

pub use redactor::{REDACTED, Redactor};
pub use url::{holds_secrets, shown_url};

/// A credential. Neither `Debug` nor `Display` says anything of it, and it
/// cannot be serialized.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Option<String>);

impl Secret {
    /// Wraps a credential; an empty text is "none".
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self((!text.is_empty()).then_some(text))
    }

    /// Whether a credential is there.
    pub fn is_configured(&self) -> bool {
        self.0.is_some()
    }

    /// The credential itself, for the wire only.
    pub fn expose(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_configured() {
            "Secret(set)"
        } else {
            "Secret(none)"
        })
    }
}
