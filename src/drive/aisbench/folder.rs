//! The results of an AISBench run that is over, whoever started it: which files
//! they are, what its configuration says, and its requests.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: result files and a process"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;

use super::AisbenchError;
use super::collect::{TIME_POINTS, last_line};
use super::python::default_python;
use crate::measure::aisbench::{Detail, RequestTimes, joined, parse_common};
use crate::units::sha256_hex;

/// How the file of the requests ends.
const DETAILS: &str = "_details.jsonl";

/// What a finished run says.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRun {
    /// The file of the requests.
    pub path: PathBuf,
    /// Model asked for; `None` when the configuration is not there.
    pub model: Option<String>,
    /// Most requests in flight.
    pub slots: Option<u64>,
    /// Arrivals a second; `None` when they were not paced, or it is not known.
    pub request_rate: Option<f64>,
    /// Digest of the prompts in the order of the data set.
    pub inputs_sha256: String,
    /// The requests in order of completion.
    pub requests: Vec<(Detail, RequestTimes)>,
}

/// The file of the requests that `path` means: it itself, the one in it, or the
/// one of the run whose folder it is. `None` when it is nothing of AISBench's.
pub fn details_of(path: &Path) -> Result<Option<PathBuf>, AisbenchError> {
    if path.is_file() {
        return Ok(is_details(path).then(|| path.to_owned()));
    }
    let performances = path.join("performances");
    let mut found = details_in(path);
    for folder in folders_in(&performances) {
        found.extend(details_in(&folder));
    }
    found.sort();
    match found.as_slice() {
        [] if performances.is_dir() => Err(AisbenchError::Results {
            path: path.to_owned(),
            what: format!("no `*{DETAILS}` is in it"),
        }),
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        several => {
            let names: Vec<_> = several.iter().map(|one| one.to_string_lossy()).collect();
            Err(AisbenchError::Results {
                path: path.to_owned(),
                what: format!("it holds several results: {}", names.join(", ")),
            })
        }
    }
}

fn is_details(path: &Path) -> bool {
    path.to_string_lossy().ends_with(DETAILS)
}

fn details_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| is_details(path)).collect()
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

/// Reads the run whose requests lie at `details`. Time points that stand in a
/// database are read by Python, whose standard library can; AISBench itself is
/// not needed.
pub fn finished_run(details: &Path, python: Option<&Path>) -> Result<FinishedRun, AisbenchError> {
    let wrong = |what: String| AisbenchError::Results {
        path: details.to_owned(),
        what,
    };
    let text = fs::read_to_string(details).map_err(AisbenchError::io("read", details))?;
    let rows = rows(&text).map_err(wrong)?;
    let folder = details.parent().unwrap_or(Path::new("."));
    let times = times(details, folder, &rows, python)?;
    let requests = joined(&text, &times).map_err(|error| wrong(error.to_string()))?;
    let config = configuration(folder);
    let number = |key| field(&config, key)?.parse::<f64>().ok();
    Ok(FinishedRun {
        model: field(&config, "model")
            .map(|text| text.trim_matches(['\'', '"']).to_owned())
            .filter(|model| !model.is_empty()),
        slots: slots(details),
        // Below this AISBench does not pace.
        request_rate: number("request_rate").filter(|rate| *rate >= 0.001),
        inputs_sha256: inputs_sha256(&rows),
        path: details.to_owned(),
        requests,
    })
}

/// What is looked at of a line besides its figures.
#[derive(Deserialize)]
struct Row {
    id: u64,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    time_points: Value,
}

/// The rows, up to a last line that was cut off.
fn rows(text: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for line in text.split_inclusive('\n') {
        match serde_json::from_str(line) {
            Ok(row) => rows.push(row),
            Err(_) if !line.ends_with('\n') => break,
            Err(error) => return Err(format!("line {}: {error}", rows.len() + 1)),
        }
    }
    if rows.is_empty() {
        return Err("it holds no request".to_owned());
    }
    Ok(rows)
}

/// The time points as lines of JSON: those in the details, those beside them,
/// else those of the database.
fn times(
    details: &Path,
    folder: &Path,
    rows: &[Row],
    python: Option<&Path>,
) -> Result<String, AisbenchError> {
    if rows.iter().all(|row| row.time_points.is_array()) {
        let lines = rows.iter().map(|row| {
            let line = serde_json::json!({"id": row.id, "time_points": row.time_points});
            format!("{line}\n")
        });
        return Ok(lines.collect());
    }
    let beside = folder.join("time_points.jsonl");
    if beside.is_file() {
        return fs::read_to_string(&beside).map_err(AisbenchError::io("read", &beside));
    }
    let python = match python {
        Some(path) => path.to_owned(),
        None => default_python()?,
    };
    let output = Command::new(&python)
        .args(["-c", TIME_POINTS])
        .arg(details)
        .arg(folder.join("db_data"))
        .stdin(Stdio::null())
        .output()
        .map_err(AisbenchError::io("start", &python))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let last = last_line(&output.stderr);
    Err(AisbenchError::Results {
        path: details.to_owned(),
        what: format!("`{}` cannot read its time points: {last}", python.display()),
    })
}

/// Digest of the prompts by row, so that two runs of one data set are known.
fn inputs_sha256(rows: &[Row]) -> String {
    let mut inputs: Vec<(u64, String)> = rows
        .iter()
        .map(|row| (row.id, row.input.to_string()))
        .collect();
    inputs.sort();
    sha256_hex(serde_json::json!(inputs).to_string().as_bytes())
}

/// Requests in flight at most, by the table of common metrics.
fn slots(details: &Path) -> Option<u64> {
    let table = details.to_string_lossy().replace(DETAILS, ".json");
    let text = fs::read_to_string(table).ok()?;
    let figures = ["total", "stable"]
        .into_iter()
        .find_map(|stage| parse_common(&text, stage).ok())?;
    let found = figures
        .iter()
        .find(|figure| figure.name == "Max Concurrency")?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small count"
    )]
    let slots = found.value as u64;
    Some(slots)
}

/// The newest configuration of the run, in Python; empty when there is none.
fn configuration(folder: &Path) -> String {
    let run = folder.ancestors().take(3);
    let configs = run.map(|above| above.join("configs"));
    let Some(configs) = configs.into_iter().find(|path| path.is_dir()) else {
        return String::new();
    };
    let entries = fs::read_dir(configs).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let newest = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "py"))
        .max();
    newest
        .and_then(|path| fs::read_to_string(path).ok())
        .unwrap_or_default()
}

/// What stands behind `key=` in a configuration, as it is written; of several
/// the last, since the models stand behind the command line's own arguments.
fn field<'t>(config: &'t str, key: &str) -> Option<&'t str> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let places = config.match_indices(key).filter(|(place, _)| {
        let before = config[..*place].chars().next_back();
        !before.is_some_and(is_name)
    });
    let values = places.filter_map(|(place, _)| {
        let rest = config[place + key.len()..].trim_start().strip_prefix('=')?;
        let end = rest.find([',', ')', '\n']).unwrap_or(rest.len());
        Some(rest[..end].trim())
    });
    values.filter(|value| *value != "None").last()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const LINES: &str = "{\"id\":1,\"success\":true,\"input\":\"b\",\"time_points\":[3.0,3.5]}\n\
                         {\"id\":0,\"success\":true,\"input\":\"a\",\"time_points\":[2.0,2.5]}\n";

    #[test]
    fn a_run_is_found_by_its_folder_by_the_model_s_and_by_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(details_of(root).unwrap(), None);
        let file = root.join("performances/model/set_details.jsonl");
        write(&file, LINES);
        for path in [root, file.parent().unwrap(), &file] {
            assert_eq!(details_of(path).unwrap().as_ref(), Some(&file));
        }
        write(&root.join("performances/other/set_details.jsonl"), LINES);
        let error = details_of(root).unwrap_err();
        assert_eq!(error.code(), "AISBENCH_RESULT_UNREADABLE");
        assert!(error.to_string().contains("several"), "{error}");
        assert!(details_of(file.parent().unwrap()).unwrap().is_some());
    }

    #[test]
    fn its_configuration_and_its_prompts_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let file = root.join("performances/model/set_details.jsonl");
        write(&file, LINES);
        write(
            &root.join("configs/20260101_1.py"),
            "cli_args = dict(\n    models=None,\n    model=None)\nmodels = [\n    dict(\n        \
             abbr='model',\n        batch_size=4,\n        model='the-model',\n        \
             request_rate=2.5,\n        max_out_len=1)]\n",
        );
        write(
            &root.join("performances/model/set.json"),
            r#"{"Max Concurrency": {"total": 4}}"#,
        );
        let run = finished_run(&file, None).unwrap();
        assert_eq!(run.model.as_deref(), Some("the-model"));
        assert_eq!((run.slots, run.request_rate), (Some(4), Some(2.5)));
        assert_eq!(run.requests.len(), 2);
        assert_eq!(run.requests[1].1.time_points, [2.0, 2.5]);
        // The order of completion is not that of the data set.
        let swapped: Vec<&str> = LINES.split_inclusive('\n').rev().collect();
        write(&file, &swapped.concat());
        let again = finished_run(&file, None).unwrap();
        assert_eq!(again.inputs_sha256, run.inputs_sha256);
        write(&file, &LINES.replace("\"a\"", "\"c\""));
        let other = finished_run(&file, None).unwrap();
        assert_ne!(other.inputs_sha256, run.inputs_sha256);
    }

    #[test]
    fn what_is_no_result_says_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x_details.jsonl");
        for (text, expected) in [
            ("", "no request"),
            ("{\"id\": 0}\nnot json\n", "line 2"),
            (
                "{\"id\":0,\"success\":true,\"time_points\":[2.0,1.0]}\n",
                "go backwards",
            ),
        ] {
            write(&file, text);
            let error = finished_run(&file, None).unwrap_err();
            assert_eq!(error.code(), "AISBENCH_RESULT_UNREADABLE");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let empty = tempfile::tempdir().unwrap();
        fs::create_dir(empty.path().join("performances")).unwrap();
        assert!(details_of(empty.path()).is_err());
    }
}
