//! `clockwork trace info`.
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clockwork_traces::trace_file::TraceIndex;
use serde_json::json;

use super::summary::{found_cycles, said, utc};

/// Arguments of `trace info`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 the trace is whole, 1 it is not or cannot be read.")]
pub(super) struct InfoArgs {
    /// The trace; - is standard input
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// How many of the most requested files to name
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &InfoArgs) -> anyhow::Result<String> {
    let name = args.trace.display().to_string();
    let index = TraceIndex::read(super::open(&args.trace)?).with_context(|| name.clone())?;
    let figures = Figures::of(&index, args.top);
    Ok(if args.json { figures.json(&index) } else { figures.text(&index) })
}

/// What there is to say of a trace.
struct Figures {
    periods: u64,
    missing: u64,
    from: Option<i64>,
    to: Option<i64>,
    cycles: Option<Vec<usize>>,
    /// Number of a file and its requests, the most requested first.
    top: Vec<(u32, u64)>,
}

impl Figures {
    fn of(index: &TraceIndex, top: usize) -> Self {
        let totals = index.totals();
        let mut ranked: Vec<(u32, u64)> = (0..).zip(index.requests_by_file()).collect();
        ranked.sort_by_key(|(number, requests)| (std::cmp::Reverse(*requests), *number));
        ranked.truncate(top);
        let ends = index.span().map(|(first, periods)| (first, first + periods.cast_signed()));
        Self {
            periods: totals.len() as u64,
            missing: totals.iter().filter(|total| total.is_none()).count() as u64,
            from: ends.map(|(first, _)| index.head().period_start_s(first)),
            to: ends.map(|(_, end)| index.head().period_start_s(end)),
            cycles: found_cycles(&totals),
            top: ranked,
        }
    }

    fn text(&self, index: &TraceIndex) -> String {
        let (mut out, sum) = (String::new(), index.sum());
        // Writing to a string cannot fail.
        let _ = writeln!(out, "site      {}", index.head().name);
        let _ = writeln!(out, "about     {}", index.head().about);
        let _ = writeln!(
            out,
            "periods   {} of {} s, {} of them missing",
            self.periods,
            index.head().period_s,
            self.missing
        );
        if let (Some(from), Some(to)) = (self.from, self.to) {
            let _ = writeln!(out, "span      {} to {}", utc(from), utc(to));
        }
        let _ = writeln!(
            out,
            "requests  {}, {} of them writes, {} for metadata",
            index.requests(),
            sum.writes,
            sum.metadata
        );
        let _ = writeln!(out, "bytes     {} read, {} written", sum.bytes_read, sum.bytes_written);
        let _ = writeln!(out, "files     {}", index.files());
        if index.clients() > 0 {
            let _ = writeln!(out, "clients   {}", index.clients());
        }
        if let Some(cycles) = &self.cycles {
            let _ = writeln!(out, "cycles    {}", said(cycles));
        }
        for (rank, (number, requests)) in self.top.iter().enumerate() {
            let label = if rank == 0 { "hottest" } else { "" };
            let _ = writeln!(out, "{label:<9} {requests:>9}  {}", path(index, *number));
        }
        out
    }

    fn json(&self, index: &TraceIndex) -> String {
        let top: Vec<_> = self
            .top
            .iter()
            .map(|(n, requests)| json!({"path": path(index, *n), "requests": requests}))
            .collect();
        let sum = index.sum();
        let object = json!({
            "version": index.version(),
            "name": index.head().name,
            "about": index.head().about,
            "period_s": index.head().period_s,
            "periods": self.periods,
            "missing_periods": self.missing,
            "from": self.from.map(utc),
            "to": self.to.map(utc),
            "requests": index.requests(),
            "writes": sum.writes,
            "metadata": sum.metadata,
            "bytes_read": sum.bytes_read,
            "bytes_written": sum.bytes_written,
            "files": index.files(),
            "clients": index.clients(),
            "cycles": self.cycles,
            "hottest": top,
        });
        format!("{object:#}\n")
    }
}

/// A path as one line of text: bytes that are none are escaped.
fn path(index: &TraceIndex, number: u32) -> String {
    index.path(number).escape_ascii().to_string()
}
