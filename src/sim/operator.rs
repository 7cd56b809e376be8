//! What an operator may do to a server while it works: end its requests, let
//! it stand still, let it go on. It refuses to know connections.

#![allow(clippy::disallowed_methods, reason = "edge: waits for requests to end")]

use std::time::Duration;

use serde_json::Value;

use crate::sim::config::Release;
use crate::sim::core::Shared;
use crate::sim::engine::Pause;
use crate::sim::http::Answer;
use crate::sim::refusal::Refusal;

/// How often a pause looks whether everything has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Ends every request; a list of ids in the body is not looked at.
pub(super) fn abort(shared: &Shared, body: &[u8]) -> Result<Answer, Refusal> {
    if shared.config.release == Release::V0_24 {
        shared.act(|core| core.engine.abort_all());
        return Ok(Answer::empty());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(_)) => {}
        Ok(_) => return Err(Refusal::framework("Request body must be a JSON object")),
        Err(_) => return Err(Refusal::framework("Invalid JSON format")),
    }
    let aborted = shared.act(|core| {
        let aborted = core.engine.unfinished();
        core.engine.abort_all();
        aborted
    });
    Ok(Answer::json(format!(
        "{{\"status\":\"aborted\",\"aborted\":{aborted}}}"
    )))
}

/// Stands still, in one of three ways, and empties the cache unless told not
/// to.
pub(super) async fn pause(shared: &Shared, query: &str) -> Result<Answer, Refusal> {
    let value = |name: &str| {
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(key, value)| (key == name).then_some(value))
    };
    let clears = !value("clear_cache")
        .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "false" | "0"));
    let now = shared.now();
    match value("mode").unwrap_or("abort") {
        "abort" => shared.act(|core| {
            core.engine.pause(now, Pause::New);
            core.engine.abort_all();
        }),
        "wait" => {
            shared.act(|core| core.engine.pause(now, Pause::New));
            while shared.lock().engine.running() > 0 {
                tokio::time::sleep(LOOK).await;
            }
        }
        "keep" => shared.act(|core| core.engine.pause(now, Pause::All)),
        other => return Err(Refusal::pause_mode(other)),
    }
    if clears {
        shared.act(|core| core.engine.reset(true, false));
    }
    shared.news.notify_one();
    Ok(Answer::json("{\"status\":\"paused\"}".to_owned()))
}

/// Goes on.
pub(super) fn resume(shared: &Shared) -> Answer {
    let now = shared.now();
    shared.act(|core| core.engine.resume(now));
    shared.news.notify_one();
    Answer::json("{\"status\":\"resumed\"}".to_owned())
}

/// Whether it stands still.
pub(super) fn is_paused(shared: &Shared) -> Answer {
    let paused = shared.lock().engine.is_paused();
    Answer::json(format!("{{\"is_paused\":{paused}}}"))
}
