//! `clockwork assign` and `clockwork unassign`: which store serves one file, and which files are served so.
use std::fmt::Write as _;

use clap::Args;

use super::client::{AdminArgs, AdminClient, ClientError, with_not_kept};
use super::table::{Side, aligned};
use super::trace::utc;
use crate::web::types::{Assign, Exception, ExceptionPage, FileName, Moved, ReadShare};

/// Files that are asked for at once.
const PAGE: usize = 1_000;

/// Arguments of `assign`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    clockwork assign /export/news/index.html fast\n  \
    clockwork assign /export/news/index.html fast --reason 'front page today'\n  \
    clockwork assign /export/news/index.html fast big    (reads at both, all else at `fast`)\n  \
    clockwork assign 0a3f6c0000000000 fast\n  \
    clockwork assign                                     (lists what is assigned)")]
pub(super) struct AssignArgs {
    /// The file: its path from the export down, or its handle in hexadecimal; without it, assigned files are listed
    #[arg(requires = "store")]
    file: Option<String>,
    /// The store that is to serve it
    store: Option<String>,
    /// Further stores that are to share its reads, each as its weight says
    #[arg(value_name = "MORE")]
    also: Vec<String>,
    /// Why, for whoever looks at the list of assignments later
    #[arg(long, default_value = "", hide_default_value = true, requires = "file")]
    reason: String,
    /// Files to list at most; how many more there are is said
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print the list as JSON
    #[arg(long, conflicts_with = "file")]
    json: bool,
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
    let client = AdminClient::new(args.admin.admin);
    let (Some(file), Some(store)) = (&args.file, &args.store) else {
        let page = first(&client, usize::try_from(args.limit).unwrap_or(usize::MAX))?;
        return Ok(if args.json { json(&page) } else { listed(page) });
    };
    let (store, also, reason) = (store.clone(), args.also.clone(), args.reason.clone());
    let assign = Assign { file: named(file), store, also, reason };
    client.assign(&assign).map(|moved| said(&moved))
}

/// The first assigned files, at most so many.
fn first(client: &AdminClient, limit: usize) -> Result<ExceptionPage, ClientError> {
    let mut page = client.exceptions(None, limit.min(PAGE))?;
    while page.exceptions.len() < limit
        && let Some(next) = page.next.take()
    {
        let more = client.exceptions(Some(&next), (limit - page.exceptions.len()).min(PAGE))?;
        if more.exceptions.is_empty() {
            break;
        }
        page.exceptions.extend(more.exceptions);
        (page.next, page.total) = (more.next, more.total);
    }
    Ok(page)
}

fn json(page: &ExceptionPage) -> String {
    // Only maps with keys that are no texts cannot be written, and there are none.
    serde_json::to_string_pretty(page).map_or_else(|_| String::new(), |json| json + "\n")
}

fn listed(mut page: ExceptionPage) -> String {
    if page.exceptions.is_empty() {
        return "no file is assigned: all are where the default rule puts them\n".to_owned();
    }
    let name = |file: &Exception| file.path.clone().unwrap_or_else(|| file.handle.clone());
    page.exceptions.sort_by_key(name);
    let header = ["FILE", "STORE", "BY", "SINCE", "REASON"].map(|title| (title, Side::Left));
    let row = |file: &Exception| {
        let shared = ReadShare::in_words(&file.replicas);
        let since = i64::try_from(file.since_unix_ms / 1_000).ok().filter(|seconds| *seconds > 0);
        vec![
            name(file),
            if file.replicas.len() > 1 { shared } else { file.store.clone() },
            file.by.to_string(),
            since.map_or_else(|| "-".to_owned(), utc),
            // Whatever an operator wrote, it is one line.
            file.reason.replace(char::is_control, " "),
        ]
    };
    let mut text = aligned(&header, &page.exceptions.iter().map(row).collect::<Vec<_>>());
    let shown = u64::try_from(page.exceptions.len()).unwrap_or(u64::MAX);
    if page.total > shown {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} more; `--limit {}` shows all", page.total - shown, page.total);
    }
    text
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
    let text = if moved.waiting {
        format!(
            "{file}: from {from} to {to} as soon as its unstable writes are committed{reads} (table {table})\n"
        )
    } else if from == to {
        format!("{file}: stays with {to}{reads} (table {table})\n")
    } else {
        format!("{file}: from {from} to {to}{reads} (table {table})\n")
    };
    with_not_kept(text, moved.not_kept.as_deref())
}
