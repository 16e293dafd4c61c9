//! `clockwork serve`: what it is given.
use std::path::PathBuf;

use clap::Args;

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  clockwork serve --config /etc/clockwork/clockwork.toml\n\n\
    `clockwork check` says beforehand what would be served, or what is wrong with the configuration. An interrupt \
    (Ctrl-C) or SIGTERM ends it.")]
pub struct ServeArgs {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}
