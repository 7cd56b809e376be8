//! The pcload program: parses arguments, runs a command, maps its result to an
//! exit status.

fn main() -> std::process::ExitCode {
    pcload::cli::main()
}
