//! Which Python runs AISBench, and what it has installed.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: looks for interpreters and asks one"
)]

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use super::AisbenchError;

/// Longest time an interpreter may take to say what it has: imports of a cold
/// disk take some ten seconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(120);

/// What the interpreter is asked.
const PROBE: &str = include_str!("probe.py");

/// An interpreter with AISBench.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Python {
    /// The interpreter.
    pub path: PathBuf,
    /// Version of the package; `None` from a source tree.
    pub version: Option<String>,
    /// Whether the prefix-cache plugin's classes can be imported.
    pub plugin: bool,
}

#[derive(Deserialize)]
struct Answer {
    found: bool,
    version: Option<String>,
    plugin: bool,
}

/// The interpreter that was named, else that of the active virtual
/// environment, else the one that `ais_bench` on the path belongs to, else
/// `python3`; asked what it has.
pub async fn find_python(named: Option<&Path>) -> Result<Python, AisbenchError> {
    let path = match named {
        Some(path) => absolute(path)?,
        None => default_python()?,
    };
    let asked = Command::new(&path)
        .args(["-c", PROBE])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let Ok(output) = tokio::time::timeout(PROBE_TIMEOUT, asked).await else {
        let message = format!("`{}` does not answer", path.display());
        return Err(AisbenchError::NoPython(message));
    };
    let output = output.map_err(AisbenchError::io("start", &path))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let answer = text
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str::<Answer>(line).ok());
    let Some(answer) = answer else {
        let message = format!("`{}` is no Python that works", path.display());
        return Err(AisbenchError::NoPython(message));
    };
    if !answer.found {
        return Err(AisbenchError::NotInstalled(path));
    }
    Ok(Python {
        path,
        version: answer.version,
        plugin: answer.plugin,
    })
}

/// The path as it was named: a link into an environment must stay one.
fn absolute(path: &Path) -> Result<PathBuf, AisbenchError> {
    let is_bare = path.components().count() == 1 && !path.exists();
    let found = if is_bare {
        on_path(path.as_os_str())
    } else {
        std::path::absolute(path).ok().filter(|path| path.is_file())
    };
    found.ok_or_else(|| AisbenchError::NoPython(format!("`{}` is not there", path.display())))
}

pub(super) fn default_python() -> Result<PathBuf, AisbenchError> {
    let active = env::var_os("VIRTUAL_ENV").map(|root| Path::new(&root).join("bin/python"));
    active
        .filter(|python| python.is_file())
        .or_else(|| {
            let script = on_path(OsStr::new("ais_bench"))?;
            let beside = script.parent()?.join("python");
            beside.is_file().then_some(beside)
        })
        .or_else(|| on_path(OsStr::new("python3")))
        .ok_or_else(|| {
            let message = "no virtual environment is active and PATH has no `python3`";
            AisbenchError::NoPython(message.to_owned())
        })
}

fn on_path(name: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
