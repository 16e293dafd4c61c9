//! Messages of the long-running commands, on standard error.
use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::EnvFilter;

/// Writes messages to standard error from now on. `filter` is a level or levels by module, as in `log.filter` of the
/// configuration, which has checked it; one that cannot be read counts as `info`. A second call changes nothing.
pub fn start(filter: &str) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    // Fails only if messages go somewhere already.
    let _ = subscriber.with_ansi(stderr().is_terminal()).try_init();
}
