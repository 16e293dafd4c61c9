//! `clockwork assign` and `clockwork unassign`: which store serves one file.
use clap::Args;

use super::client::{AdminArgs, AdminClient, ClientError};
use crate::web::types::{Assign, FileName, Moved, ReadShare};

/// Arguments of `assign`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    clockwork assign /export/news/index.html fast\n  \
    clockwork assign /export/news/index.html fast --reason 'front page today'\n  \
    clockwork assign /export/news/index.html fast big    (reads at both, all else at `fast`)\n  \
    clockwork assign 0a3f6c0000000000 fast")]
pub(super) struct AssignArgs {
    /// The file: its path from the export down, or its handle in hexadecimal
    file: String,
    /// The store that is to serve it
    store: String,
    /// Further stores that are to share its reads, each as its weight says
    #[arg(value_name = "MORE")]
    also: Vec<String>,
    /// Why, for whoever looks at the list of assignments later
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `unassign`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  clockwork unassign /export/news/index.html")]
pub(super) struct UnassignArgs {
    /// The file: its path from the export down, or its handle in hexadecimal
    file: String,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(super) fn assign(args: &AssignArgs) -> Result<String, ClientError> {
    let (store, also, reason) = (args.store.clone(), args.also.clone(), args.reason.clone());
    let assign = Assign { file: named(&args.file), store, also, reason };
    AdminClient::new(args.admin.admin).assign(&assign).map(|moved| said(&moved))
}

pub(super) fn unassign(args: &UnassignArgs) -> Result<String, ClientError> {
    AdminClient::new(args.admin.admin).unassign(&named(&args.file)).map(|moved| said(&moved))
}

/// What begins with a slash is a path; nothing else can be one.
fn named(file: &str) -> FileName {
    if file.starts_with('/') { FileName::Path(file.to_owned()) } else { FileName::Handle(file.to_owned()) }
}

fn said(moved: &Moved) -> String {
    let file = moved.path.as_ref().unwrap_or(&moved.handle);
    let store = |store: &Option<String>| store.clone().unwrap_or_else(|| "no store".to_owned());
    let (from, to) = (store(&moved.from), store(&moved.to));
    let table = moved.table_version;
    let reads = if moved.replicas.len() > 1 {
        format!("; reads are shared: {}", ReadShare::in_words(&moved.replicas))
    } else {
        String::new()
    };
    if moved.waiting {
        format!(
            "{file}: from {from} to {to} as soon as its unstable writes are committed{reads} (table {table})\n"
        )
    } else if from == to {
        format!("{file}: stays with {to}{reads} (table {table})\n")
    } else {
        format!("{file}: from {from} to {to}{reads} (table {table})\n")
    }
}
