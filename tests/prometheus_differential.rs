//! The text parser against Python's `prometheus_client`, where that is at hand
//! (`PCLOAD_PYTHON` names the interpreter; `python3` otherwise). Whatever
//! Python reads, pcload must read alike. What Python refuses, pcload may read:
//! it also knows the quoted names of the format's version 1.0.0 and exemplars.
//! Left out is what the format forbids and Python lets pass: names such as `x-y`
//! and `2x`, colons in label names, `{,}`, words after the time stamp, torn lines.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "edge: asks another program, and says so where there is none"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use pcload::engine::lines;
use pcload::rng::{Seed, Stream};

const LINES: usize = 20_000;

/// Answers of Python, one a line; `None` without the library.
fn python(lines: &[String]) -> Option<Vec<Option<Vec<PythonSample>>>> {
    let interpreter = std::env::var("PCLOAD_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = Command::new(&interpreter)
        .args(["-c", "import prometheus_client"])
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: {interpreter} has no prometheus_client");
        return None;
    }
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/prometheus_differential.py"
    );
    let mut child = Command::new(&interpreter)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: Vec<String> = lines
        .iter()
        .map(|line| serde_json::to_string(line).unwrap())
        .collect();
    let writer = std::thread::spawn(move || input.write_all(text.join("\n").as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    Some(
        answers
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

type PythonSample = (String, BTreeMap<String, String>, String);

/// Lines whose labels are well formed and whose numbers mostly are. (Of a torn
/// line Python may read some part; pcload refuses it.)
fn line(stream: &mut Stream) -> String {
    let mut pick = |choices: &[&str]| {
        let at = stream.below(choices.len() as u64);
        choices[usize::try_from(at).unwrap()].to_owned()
    };
    let value = [
        "plain",
        "",
        "a b",
        "{",
        "}",
        "{}",
        ",",
        "=",
        "#",
        "\\\\",
        "\\\"",
        "\\n",
        "\\",
        "é",
        "模型",
        "a=\\\"b\\\"",
        "\\x",
        "x\\\\\"",
        " lead",
        "trail ",
        "\\\\n",
        "1e5",
    ];
    let mut text = pick(&["x", "vllm:a_total", "_y:", ":z", "x2", "nan_"]);
    text += &pick(&["", "", "", " ", "\t"]);
    let labels = pick(&["none", "empty", "one", "two", "three"]);
    let names = ["a", "b_1", "_c", "le", "d"];
    let blanks = ["", "", "", " ", "  ", "\t"];
    let count = match labels.as_str() {
        "one" => 1,
        "two" => 2,
        "three" => 3,
        _ => 0,
    };
    if labels != "none" {
        text.push('{');
        for at in 0..count {
            if at > 0 {
                text += &pick(&[",", ",", ",", " , "]);
            }
            text += &pick(&blanks);
            text += &pick(&names);
            text += &pick(&blanks);
            text.push('=');
            text += &pick(&blanks);
            text.push('"');
            text += &pick(&value);
            text.push('"');
        }
        let trailing: &[&str] = if count > 0 {
            &["", "", ",", " , ", " "]
        } else {
            &["", " "]
        };
        text += &pick(trailing);
        text.push('}');
    }
    text += &pick(&[" ", " ", " ", "  ", "\t", ""]);
    text += &pick(&[
        "1",
        "0",
        "1.5",
        "-2",
        "+3",
        "1e5",
        "1E-3",
        "NaN",
        "nan",
        "+Inf",
        "-inf",
        "Infinity",
        ".5",
        "5.",
        "1e",
        "0x10",
        "1_0",
        "",
        "abc",
        "1,5",
        "103176.0",
        "1.7959582167928724e+09",
        "1e400",
    ]);
    text += &pick(&[
        "",
        "",
        "",
        " ",
        " 1700000000000",
        " -5",
        " 1.5",
        " x",
        "\t17 ",
    ]);
    text
}

#[test]
fn whatever_python_reads_is_read_alike() {
    let mut stream = Seed::from(5).stream("differential");
    let written: Vec<String> = (0..LINES).map(|_| line(&mut stream)).collect();
    let Some(answers) = python(&written) else {
        return;
    };
    assert_eq!(answers.len(), written.len());
    let mut both = 0;
    let mut wrong = Vec::new();
    for (text, answer) in written.iter().zip(answers) {
        let Some(expected) = answer.filter(|found| !found.is_empty()) else {
            continue;
        };
        both += 1;
        let found: Vec<_> = lines(text)
            .map(|line| line.sample().map_err(|error| error.reason))
            .map(|sample| {
                sample.map(|sample| {
                    let labels: BTreeMap<String, String> = sample
                        .labels
                        .iter()
                        .map(|(key, value)| (key.to_string(), value.to_string()))
                        .collect();
                    (sample.name.to_string(), labels, sample.value)
                })
            })
            .collect();
        let alike = match (&found[..], &expected[..]) {
            ([Ok((name, labels, value))], [(their_name, their_labels, their_value)]) => {
                let theirs: f64 = their_value.parse().unwrap();
                name == their_name
                    && labels == their_labels
                    && (value.total_cmp(&theirs).is_eq() || value.is_nan() && theirs.is_nan())
            }
            _ => false,
        };
        if !alike {
            wrong.push(format!("{text:?}: {found:?}, Python {expected:?}"));
        }
    }
    eprintln!("{both} of {LINES} lines are read by Python");
    assert!(both > LINES / 20, "{both}");
    wrong.truncate(40);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
