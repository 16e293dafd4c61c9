//! `clockwork demo`: what it is given.
use std::path::PathBuf;

use clap::Args;

/// Arguments of `demo`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  clockwork demo\n  clockwork demo --quick\n  clockwork demo --keep-running"
)]
pub struct DemoArgs {
    /// Take a minute at most, instead of six; the figures are then too noisy to judge by
    #[arg(long)]
    pub quick: bool,
    /// Leave the plex running afterwards, until an interrupt (Ctrl-C)
    #[arg(long)]
    pub keep_running: bool,
    /// Folder for report.html and report.json; made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "clockwork-demo")]
    pub output: PathBuf,
    /// Decides everything that is random: the same number, the same files on the same stores
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}
