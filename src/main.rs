//! The pcload program: parses arguments, runs a command, maps its result to an
//! exit status.

/// musl's own allocator takes one lock for all threads, and far more of the
/// processor than that of glibc.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    pcload::cli::main()
}
