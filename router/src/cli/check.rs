//! `clockwork check`: what a configuration would do.
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::config::{Config, ConfigError};

/// Exit status for a configuration that cannot be used.
const WRONG_CONFIGURATION: u8 = 2;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  clockwork check --config /etc/clockwork/clockwork.toml\n\n\
    Prints what would be served where (exit status 0), or every wrong field with its line, its column and what is \
    allowed (exit status 2). Nothing is started, and no store is asked.")]
pub(super) struct CheckArgs {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) fn run(args: &CheckArgs) -> ExitCode {
    match load(&args.config) {
        Ok(config) => super::print(&format!("ok\n{}", config.summary())),
        Err(code) => code,
    }
}

/// The configuration; or all its faults are printed, and here is the exit status.
pub(super) fn load(file: &Path) -> Result<Config, ExitCode> {
    Config::load(file).map_err(|error| {
        eprintln!("{error}");
        if let ConfigError::Faults(faults) = &error {
            let number = faults.faults.len();
            eprintln!("\n{number} {} to correct", if number == 1 { "fault" } else { "faults" });
        }
        ExitCode::from(WRONG_CONFIGURATION)
    })
}
