//! Commands and options that pages name are those of the program.

use std::collections::BTreeMap;

use crate::pages::{all, blocks, page, prose};
use crate::simulated::pcload;

fn help(arguments: &[&str]) -> String {
    let output = pcload().args(arguments).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The visible commands by their own help.
fn commands() -> BTreeMap<String, String> {
    let text = help(&[]);
    let list = text.split_once("Commands:\n").unwrap().1;
    let names = list
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .filter(|name| *name != "help");
    names.map(|name| (name.to_owned(), help(&[name]))).collect()
}

/// Everything on the pages that calls the program: lines of code blocks and
/// code spans, cut at pipes and the like.
fn calls(text: &str) -> Vec<String> {
    let mut calls = Vec::new();
    for block in blocks(text) {
        let text = block.text.replace("\\\n", " ").replace("\n> ", " ");
        calls.extend(text.lines().map(|line| {
            let line = line.trim();
            line.strip_prefix("$ ").unwrap_or(line).to_owned()
        }));
    }
    let prose = prose(text);
    let spans = prose.split('`').skip(1).step_by(2).map(str::to_owned);
    calls.extend(spans.map(|span| span.replace('\n', " ")));
    let cut = |call: String| {
        let end = call.find(['|', '>', '&', ';', '#']).unwrap_or(call.len());
        call[..end].to_owned()
    };
    let calls = calls.into_iter().map(cut);
    calls.filter(|call| call.starts_with("pcload ")).collect()
}

#[test]
fn every_command_and_option_that_a_page_names_exists() {
    let commands = commands();
    let general = help(&[]);
    let mut seen = 0;
    for page in all() {
        for call in calls(&page.text) {
            let mut words = call.split_whitespace().skip(1);
            let Some(name) = words.next() else { continue };
            if name.starts_with("--") || name == "help" {
                continue;
            }
            let Some(help) = commands.get(name) else {
                panic!("{}: `{call}`: no command `{name}`", page.name);
            };
            // The help of a command below it, where the call goes there.
            let below = call.split_whitespace().nth(2).unwrap_or_default();
            let below = if help.contains("Commands:") && !below.starts_with('-') {
                self::help(&[name, below])
            } else {
                String::new()
            };
            for word in words.filter(|word| word.starts_with("--")) {
                let option = word.split('=').next().unwrap();
                let known = [help, &general, &below]
                    .iter()
                    .any(|help| names_option(help, option));
                assert!(known, "{}: `{call}`: no option `{option}`", page.name);
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} calls");
}

fn names_option(help: &str, option: &str) -> bool {
    let words = help.split(|letter: char| !(letter.is_alphanumeric() || letter == '-'));
    words.into_iter().any(|word| word == option)
}

#[test]
fn the_readme_names_every_command() {
    let calls = calls(&page("README.md").text);
    for name in commands().keys() {
        let named = calls.iter().any(|call| {
            let called = call.split_whitespace().nth(1);
            called == Some(name)
        });
        assert!(named, "README.md says nothing of `pcload {name}`");
    }
}

#[test]
fn the_readme_has_the_two_commands() {
    let text = page("README.md").text;
    for command in ["cargo run --release -- demo", "cargo test --locked"] {
        assert!(
            text.lines()
                .any(|line| line.trim_start_matches("$ ") == command)
        );
    }
}
