//! `clockwork report`: what the last periods came to, as a page and as JSON.
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::client::{AdminArgs, AdminClient};
use crate::heat::PeriodRecord;
use crate::history::{History, HistoryLimits};
use crate::report::{Report, page};

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  clockwork report\n  clockwork report --last 168 --output week\n  \
    clockwork report --history /var/lib/clockwork/history    (of a plex that is not running)")]
pub(super) struct ReportArgs {
    /// Closed periods to report on, at most
    #[arg(long, value_name = "N", default_value_t = 24)]
    last: usize,
    /// Folder for report.html and report.json; made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "clockwork-report")]
    output: PathBuf,
    /// Read this history instead of asking a running plex (which keeps its own locked)
    #[arg(long, value_name = "FOLDER", conflicts_with = "admin")]
    history: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<String> {
    let (json, html) = match &args.history {
        Some(folder) => {
            let report = Report::of_plex(&read(folder, args.last)?);
            (report.to_json()?, page(&report))
        }
        None => {
            let (json, html) = AdminClient::new(args.admin.admin).report(args.last)?;
            (serde_json::to_string_pretty(&json)?, html)
        }
    };
    write(&args.output, &json, &html)?;
    let place = |name: &str| args.output.join(name).display().to_string();
    Ok(format!("{} and {}\n", place("report.html"), place("report.json")))
}

/// The last periods of a history that no plex has open, the oldest first.
fn read(folder: &Path, last: usize) -> anyhow::Result<Vec<PeriodRecord>> {
    anyhow::ensure!(folder.is_dir(), "there is no history in {}: no such folder", folder.display());
    // Whoever reads must not thin the history out by limits of its own.
    let limits = HistoryLimits { periods_max: usize::MAX, bytes_max: u64::MAX };
    let opened = History::open(folder, limits)?;
    if let Some(moved) = &opened.moved_aside {
        eprintln!("clockwork: {moved}");
    }
    let mut records = opened.history.periods(..).rev().take(last).collect::<Result<Vec<_>, _>>()?;
    records.reverse();
    Ok(records)
}

/// Writes both forms of a report into a folder, which is made if it is not there.
pub(crate) fn write(output: &Path, json: &str, html: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(output)
        .with_context(|| format!("cannot make the folder {}", output.display()))?;
    for (name, text) in [("report.json", json), ("report.html", html)] {
        let path = output.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
