//! Holds what is written for people against the program: each example runs,
//! each command and option that is named exists, each JSON and TOML example
//! loads, each link leads somewhere, each schema describes what is written.
//!
//! Code blocks say by their info string what is done with them:
//!
//! | info string | meaning |
//! |---|---|
//! | `console,test` | each `$ ` line is run by a shell and must end with 0; lines that follow only show |
//! | `console,test,exit=3` | the last command must end with 3 |
//! | `console,test,output` | each line that follows must be said, `…` standing for anything |
//! | `console,server` | the `$ ` line starts a server that runs until the page ends |
//! | `json,file=NAME` | is written to NAME before the commands that follow |
//!
//! A page's blocks run in order in one fresh folder. The address that pages give
//! a server is replaced by the one it really got.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "edge: tests run the program and read the pages, and fail where they cannot"
)]

#[path = "../conform/mod.rs"]
mod conform;
mod doctor;
mod examples;
mod formats;
mod links;
mod mentions;
mod outputs;
mod pages;
mod schemas;
mod simulated;
