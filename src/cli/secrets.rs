//! The credentials of this command, kept out of everything that the program
//! says: log lines, words for people, error lines. One process is one command.

use std::sync::{LazyLock, Mutex, PoisonError};

use crate::secret::Redactor;

static KNOWN: LazyLock<Mutex<Redactor>> = LazyLock::new(Mutex::default);

/// From now on, nothing that `redactor` knows is said.
pub(super) fn keep_out(redactor: &Redactor) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.extend(redactor);
}

/// `text` without them.
pub(super) fn without(text: &str) -> String {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.clean(text).into_owned()
}
