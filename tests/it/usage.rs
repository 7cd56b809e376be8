//! The command line itself: help, version, wrong usage, completions, schema.

use serde_json::Value;

use crate::folder::{Folder, Ran};

/// Help as a user at a terminal of 100 columns sees it.
fn help(arguments: &[&str]) -> String {
    let folder = Folder::empty();
    let mut command = folder.command(arguments);
    command.env("COLUMNS", "100");
    let ran = Ran::of(command);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    ran.stdout
}

#[test]
fn the_help_of_every_command() {
    insta::assert_snapshot!("help", help(&["--help"]));
    for command in ["inspect", "prepare", "validate", "run", "analyze", "demo"] {
        insta::assert_snapshot!(format!("help_{command}"), help(&[command, "--help"]));
    }
    for command in ["schema", "completions"] {
        insta::assert_snapshot!(format!("help_{command}"), help(&[command, "--help"]));
    }
}

/// What `--help` lists is what there is.
#[test]
fn every_command_listed_has_help() {
    let all = help(&["--help"]);
    let (_, list) = all.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let commands: Vec<&str> = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 8, "{commands:?}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        let text = help(&[command, "--help"]);
        let usage = format!("Usage: pcload {command}");
        assert!(text.contains(&usage), "{text}");
    }
}

#[test]
fn the_version() {
    let ran = Folder::empty().done(&["--version"]);
    let expected = format!("pcload {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((ran.stdout, ran.stderr), (expected, String::new()));
}

#[test]
fn wrong_usage_is_one_error_line_and_exit_2() {
    let folder = Folder::new();
    let before = folder.listing();
    let run = ["run", "--scenario", "scenario.json"];
    let with = |more: &[&'static str]| [&run[..], more].concat();
    let cases: Vec<(Vec<&str>, &[&str])> = vec![
        (vec![], &["no command given", "pcload --help"]),
        (vec!["inspekt"], &["`inspekt`", "inspect"]),
        (vec!["inspect"], &["--scenario <FILE>"]),
        (vec!["run"], &["--scenario <FILE>|--manifest <FILE>"]),
        (vec!["inspect", "--scenarios", "x"], &["--scenarios"]),
        (
            vec!["analyze", "--manifest", "x", "--baseline", "y"],
            &["--after <FILE>"],
        ),
        (with(&["--manifest", "x"]), &["cannot be used with"]),
        (with(&["--concurrency", "0"]), &["--concurrency"]),
        (with(&["--concurrency", "2", "--rate", "3"]), &["--rate"]),
        (with(&["--rate", "-1"]), &["-1"]),
        (with(&["--rate", "NaN"]), &["--rate", "`NaN`"]),
        (with(&["--slo", "ttft=soon"]), &["--slo", "`ttft=soon`"]),
        (with(&["--percentiles", "101"]), &["`101`"]),
        (with(&["--idle-timeout", "0"]), &["--idle-timeout"]),
        (with(&["--request-timeout", "inf"]), &["--request-timeout"]),
        (with(&["--log-format", "xml"]), &["xml", "text"]),
        (vec!["schema", "nothing"], &["nothing", "scenario"]),
        (vec!["completions", "dos"], &["dos", "bash"]),
    ];
    for (arguments, words) in cases {
        let ran = folder.run(&arguments);
        let words: Vec<String> = words.iter().map(|word| word.replace('`', "")).collect();
        let bare = Ran {
            stderr: ran.stderr.replace(['`', '\''], ""),
            ..ran
        };
        bare.fails(
            2,
            "USAGE",
            &words.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
    assert_eq!(folder.listing(), before, "wrong usage wrote something");
}

/// The reference's parser takes unambiguous beginnings of options.
#[test]
fn options_may_be_abbreviated() {
    let folder = Folder::new();
    let whole = folder.done(&["inspect", "--quiet", "--scenario", "scenario.json"]);
    let short = folder.done(&["inspect", "--quie", "--scen", "scenario.json"]);
    let figures = |ran: &Ran| {
        let mut figures = ran.json();
        for key in ["log", "manifest"] {
            figures[key] = Value::Null;
        }
        figures
    };
    assert_eq!(figures(&whole), figures(&short));
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = Folder::empty().done(&["completions", shell]);
        for command in ["inspect", "prepare", "validate", "analyze"] {
            assert!(ran.stdout.contains(command), "{shell}: no {command}");
        }
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn the_schema_is_json_and_describes_every_section() {
    let schema = Folder::empty().done(&["schema", "scenario"]).json();
    assert_eq!(schema["type"], "object");
    for section in ["run", "tokenizer", "prefix_cache", "service", "pcload"] {
        let properties = &schema["properties"][section]["properties"];
        assert!(properties.is_object(), "{section}");
        assert_eq!(schema["properties"][section]["additionalProperties"], false);
    }
}

/// A reader that has gone is no error.
#[test]
fn a_closed_stdout_is_no_error() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_pcload"))
        .args(["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}

/// A code stands once in its line, the code of what went wrong.
#[test]
fn a_simulated_server_that_cannot_start_says_why() {
    let folder = Folder::empty();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--fault-stall", "1.5"], 2, "SIM_OPTION: `stall` is 1.5"),
        (
            &["--itl-ms", "5"],
            2,
            "SIM_OPTION: --itl-ms means something",
        ),
        (&["--port", &port], 3, "SIM_LISTEN: cannot listen on"),
        (
            &["--port", "0", "--truth-log", "no/log"],
            3,
            "SIM_TRUTH_LOG: cannot write no/log",
        ),
        (
            &["--tokenizer", "no/such"],
            2,
            "TOKENIZER_NOT_FOUND: no tokenizer",
        ),
    ];
    for (options, status, start) in cases {
        let ran = folder.run(&[&["sim"], options].concat());
        let line = ran.stderr.lines().next().unwrap_or_default();
        assert_eq!(ran.status, status, "{options:?}: {line}");
        assert!(
            line.starts_with(&format!("ERROR: {start}")),
            "{options:?}: {line}"
        );
        assert!(ran.stdout.is_empty());
    }
}
