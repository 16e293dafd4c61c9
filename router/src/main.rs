//! The command `clockwork`.
use std::process::ExitCode;

fn main() -> ExitCode {
    clockwork_router::cli::main()
}
