//! `clockwork drain` and `clockwork undrain`: whether a store takes part.
use clap::Args;

use super::client::{AdminArgs, AdminClient, ClientError, with_not_kept};
use crate::web::types::Drained;

/// Arguments of `drain`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  clockwork drain slow\n\n\
    Its files go to the other stores at once, those with unstable writes as soon as these are committed; calls in \
    flight there end as usual.")]
pub(super) struct DrainArgs {
    /// The store
    store: String,
    /// Also if it is the last store in service
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `undrain`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  clockwork undrain slow")]
pub(super) struct UndrainArgs {
    /// The store
    store: String,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(super) fn drain(args: &DrainArgs) -> Result<String, ClientError> {
    AdminClient::new(args.admin.admin).drain(&args.store, args.force).map(|drained| said(&drained))
}

pub(super) fn undrain(args: &UndrainArgs) -> Result<String, ClientError> {
    AdminClient::new(args.admin.admin).undrain(&args.store).map(|drained| said(&drained))
}

fn said(drained: &Drained) -> String {
    let Drained { store, before, now, in_flight, table_version, not_kept } = drained;
    if before == now {
        return with_not_kept(format!("{store}: {} already\n", now.word()), not_kept.as_deref());
    }
    let (before, now) = (before.word(), now.word());
    let text = format!("{store}: {now}, was {before}; {in_flight} calls in flight (table {table_version})\n");
    with_not_kept(text, not_kept.as_deref())
}
