//! `clockwork weights`: what the default rule goes by.
use std::fmt::Write as _;

use clap::Args;

use super::client::{AdminArgs, AdminClient, ClientError, with_not_kept};
use super::table::{Side, aligned};
use crate::web::types::{Weight, Weights};

/// Arguments of `weights`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  clockwork weights\n  clockwork weights --reset\n\n\
    With `control.weights = \"apply\"` the controller changes them at most once a day. After a reset it may do so again, a day \
    later; to keep the configuration's for good set `control.weights` to \"advise\" or \"off\".")]
pub(super) struct WeightsArgs {
    /// Put the configuration's weights in force again; files that follow the default rule go where these give them
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(super) fn run(args: &WeightsArgs) -> Result<String, ClientError> {
    let client = AdminClient::new(args.admin.admin);
    let weights = if args.reset { client.reset_weights()? } else { client.weights()? };
    Ok(shown(&weights))
}

fn shown(weights: &Weights) -> String {
    let total: f64 = weights.stores.iter().map(|store| store.in_force).sum();
    let header = [
        ("STORE", Side::Left),
        ("CONFIGURED", Side::Right),
        ("IN FORCE", Side::Right),
        ("SHARE", Side::Right),
    ];
    let row = |store: &Weight| {
        let share = if total > 0.0 { 100.0 * store.in_force / total } else { 0.0 };
        vec![
            store.store.clone(),
            store.configured.to_string(),
            store.in_force.to_string(),
            format!("{share:.1} %"),
        ]
    };
    let mut text = aligned(&header, &weights.stores.iter().map(row).collect::<Vec<_>>());
    let whose = if weights.learnt { "learnt by the controller" } else { "those of the configuration" };
    // Writing to a String cannot fail.
    let _ =
        writeln!(text, "{whose} (control.weights = \"{}\", table {})", weights.mode, weights.table_version);
    if !weights.reason.is_empty() {
        let _ = writeln!(text, "last change: {}", weights.reason);
    }
    with_not_kept(text, weights.not_kept.as_deref())
}
