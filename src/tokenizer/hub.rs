//! Downloads a `tokenizer.json` into the local Hugging Face cache. It refuses to
//! know where else one could be found.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: the network, a deadline, and the variable that forbids both"
)]

use std::env;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hf_hub::api::sync::ApiBuilder;
use hf_hub::{Repo, RepoType};

/// Longest wait for one file. Tokenizers have up to 35 MB.
const DOWNLOAD_WAIT_MAX: Duration = Duration::from_secs(300);

/// Whether the user has switched the network off (`HF_HUB_OFFLINE`).
pub(super) fn is_offline() -> bool {
    let value = env::var("HF_HUB_OFFLINE").unwrap_or_default();
    matches!(
        value.to_ascii_uppercase().as_str(),
        "1" | "ON" | "YES" | "TRUE"
    )
}

/// Path of the downloaded `file` of the model `id`, or what the library said.
pub(super) fn download(id: &str, revision: &str, file: &str) -> Result<PathBuf, String> {
    let repo = Repo::with_revision(id.to_owned(), RepoType::Model, revision.to_owned());
    let file = file.to_owned();
    let (done, wait) = mpsc::channel();
    // The library has no deadline of its own; a thread that misses ours ends
    // with the process.
    thread::spawn(move || {
        let path = ApiBuilder::from_env()
            .with_progress(false)
            .build()
            .and_then(|api| api.repo(repo).get(&file))
            .map_err(|error| error.to_string());
        done.send(path).ok();
    });
    match wait.recv_timeout(DOWNLOAD_WAIT_MAX) {
        Ok(path) => path,
        Err(_) => Err(format!(
            "no answer within {} s",
            DOWNLOAD_WAIT_MAX.as_secs()
        )),
    }
}
