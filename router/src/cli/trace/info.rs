//! `clockwork trace info`.
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clockwork_traces::trace_file::TraceData;
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
    let data = TraceData::read(super::open(&args.trace)?).with_context(|| name.clone())?;
    let figures = Figures::of(&data, args.top);
    Ok(if args.json { figures.json(&data) } else { figures.text(&data) })
}

/// What there is to say of a trace.
struct Figures {
    requests: u64,
    writes: u64,
    bytes: u64,
    periods: u64,
    missing: u64,
    from: Option<i64>,
    to: Option<i64>,
    cycles: Option<Vec<usize>>,
    /// Number of a file and its requests, the most requested first.
    top: Vec<(u32, u64)>,
}

impl Figures {
    fn of(data: &TraceData, top: usize) -> Self {
        let mut of_files = vec![0_u64; data.files.len()];
        let (mut requests, mut writes, mut bytes) = (0_u64, 0_u64, 0_u64);
        for count in data.periods.values().flatten() {
            requests = requests.saturating_add(count.requests);
            writes = writes.saturating_add(count.writes);
            bytes = bytes.saturating_add(count.bytes);
            if let Some(of_file) = of_files.get_mut(count.file as usize) {
                *of_file = of_file.saturating_add(count.requests);
            }
        }
        let totals = data.totals();
        let mut ranked: Vec<(u32, u64)> = (0..).zip(of_files).collect();
        ranked.sort_by_key(|(number, requests)| (std::cmp::Reverse(*requests), *number));
        ranked.truncate(top);
        let ends = data.span().map(|(first, periods)| (first, first + periods.cast_signed()));
        Self {
            requests,
            writes,
            bytes,
            periods: totals.len() as u64,
            missing: totals.iter().filter(|total| total.is_none()).count() as u64,
            from: ends.map(|(first, _)| data.head.period_start_s(first)),
            to: ends.map(|(_, end)| data.head.period_start_s(end)),
            cycles: found_cycles(&totals),
            top: ranked,
        }
    }

    fn text(&self, data: &TraceData) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "site      {}", data.head.name);
        let _ = writeln!(out, "about     {}", data.head.about);
        let _ = writeln!(
            out,
            "periods   {} of {} s, {} of them missing",
            self.periods, data.head.period_s, self.missing
        );
        if let (Some(from), Some(to)) = (self.from, self.to) {
            let _ = writeln!(out, "span      {} to {}", utc(from), utc(to));
        }
        let _ = writeln!(
            out,
            "requests  {}, {} of them writes, {} bytes",
            self.requests, self.writes, self.bytes
        );
        let _ = writeln!(out, "files     {}", data.files.len());
        if !data.clients.is_empty() {
            let _ = writeln!(out, "clients   {}", data.clients.keys().filter(|number| **number > 0).count());
        }
        if let Some(cycles) = &self.cycles {
            let _ = writeln!(out, "cycles    {}", said(cycles));
        }
        for (index, (number, requests)) in self.top.iter().enumerate() {
            let label = if index == 0 { "hottest" } else { "" };
            let _ = writeln!(out, "{label:<9} {requests:>9}  {}", path(data, *number));
        }
        out
    }

    fn json(&self, data: &TraceData) -> String {
        let top: Vec<_> = self
            .top
            .iter()
            .map(|(n, requests)| json!({"path": path(data, *n), "requests": requests}))
            .collect();
        let object = json!({
            "name": data.head.name,
            "about": data.head.about,
            "period_s": data.head.period_s,
            "periods": self.periods,
            "missing_periods": self.missing,
            "from": self.from.map(utc),
            "to": self.to.map(utc),
            "requests": self.requests,
            "writes": self.writes,
            "bytes": self.bytes,
            "files": data.files.len(),
            "clients": data.clients.keys().filter(|number| **number > 0).count(),
            "cycles": self.cycles,
            "hottest": top,
        });
        format!("{object:#}\n")
    }
}

/// A path as one line of text: bytes that are none are escaped.
fn path(data: &TraceData, number: u32) -> String {
    let path = data.files.get(number as usize).map_or(&[][..], |file| &file.path);
    path.escape_ascii().to_string()
}
