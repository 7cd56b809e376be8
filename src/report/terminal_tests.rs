//! What the tables of a run look like.

use super::*;
use crate::report::fixture::{explained, hopeless};

fn shown(analysis: &Analysis, width: u16, color: bool) -> String {
    let mut text = Vec::new();
    terminal(analysis, TerminalOptions { width, color }, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_run_at_80_columns() {
    insta::assert_snapshot!(shown(&explained(), 80, false));
}

#[test]
fn a_run_at_120_columns() {
    insta::assert_snapshot!(shown(&explained(), 120, false));
}

#[test]
fn a_failed_run_at_80_columns() {
    insta::assert_snapshot!(shown(&hopeless(), 80, false));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [60, 80, 100, 120, 160] {
        for analysis in [explained(), hopeless()] {
            for line in shown(&analysis, width, false).lines() {
                assert!(
                    line.chars().count() <= usize::from(width),
                    "{width}: {line}"
                );
            }
        }
    }
}

#[test]
fn color_adds_nothing_but_color() {
    let plain = shown(&explained(), 80, false);
    let mut colored = shown(&explained(), 80, true);
    assert!(colored.contains("\u{1b}[1;33m"));
    for code in [RED, YELLOW, GREEN, "0"] {
        colored = colored.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_eq!(colored, plain);
}
