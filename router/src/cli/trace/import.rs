//! `clockwork trace import`.
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{ArgGroup, Args, ValueEnum};
use clockwork_traces::import::{ImportOptions, Importer, LogFormat, Summary, Zone, time};
use clockwork_traces::trace_file::TraceIndex;
use indicatif::{ProgressBar, ProgressStyle};

use super::summary;
use super::warm::{self, Past};

/// Exit status for more bad lines than allowed.
const TOO_MANY_BAD: u8 = 3;

/// The form of a log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    /// Common Log Format, and Combined
    Common,
    /// W3C extended, with #Fields
    W3c,
    /// One JSON object a line: nginx, Caddy, Traefik
    Json,
    /// CSV with a row a request
    Requests,
    /// CSV with a row a file and period
    Counts,
    /// Packets of NFSv3: pcap or pcapng
    Capture,
}

impl From<FormatName> for LogFormat {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Common => Self::Common,
            FormatName::W3c => Self::W3c,
            FormatName::Json => Self::Json,
            FormatName::Requests => Self::Requests,
            FormatName::Counts => Self::Counts,
            FormatName::Capture => Self::Capture,
        }
    }
}

/// How many bad lines are accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BadMax {
    Lines(u64),
    Percent(f64),
}

impl BadMax {
    fn allows(self, summary: &Summary) -> bool {
        match self {
            Self::Lines(max) => summary.bad_lines <= max,
            Self::Percent(max) => summary.bad_lines as f64 * 100.0 <= max * summary.lines() as f64,
        }
    }
}

/// Arguments of `trace import`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("to").args(["output", "into_history"]).required(true).multiple(true),
    after_help = "Examples:\n  clockwork trace import access.log access.log.1.gz -o site.trace\n  \
    zcat -f access.log* | clockwork trace import - -o site.trace\n  \
    clockwork trace import requests.csv.gz --start 1994-10-24T00:00-07:00 --periods 2400 -o c.trace\n\n\
    Exit status: 0 done, 1 failed, 2 wrong command line, 3 more bad lines than --max-bad. Unless it is 0, nothing is written.")]
pub(super) struct ImportArgs {
    /// Logs, plain or compressed (gzip, zstd), in any order; - is standard input
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Add to the trace if it is there already
    #[arg(long, requires = "output")]
    append: bool,
    /// Write the periods into the history of a plex that is not running, as its past; made if it is not there
    #[arg(long, value_name = "FOLDER")]
    into_history: Option<PathBuf>,
    /// Path of the export that the files lie in, for --into-history
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = prefix)]
    export: String,
    /// What the paths of URLs begin with that lie in the export, and that is taken off, for --into-history
    #[arg(long, value_name = "PREFIX", default_value = "/", value_parser = prefix)]
    strip: String,
    /// The file that a URL with a / at its end is for, for --into-history; empty: the directory itself
    #[arg(long, value_name = "NAME", default_value = "index.html")]
    index: String,
    /// Take the place of periods of the same time that were imported before, for --into-history
    #[arg(long, requires = "into_history")]
    replace: bool,
    /// NFS calls that a request makes in the mean, for --into-history
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = factor)]
    calls_per_request: f64,
    /// The form of the logs, where their content does not show it
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// Name of the site
    #[arg(long, value_name = "NAME", default_value = "site")]
    name: String,
    /// Length of a period: 3600, 15m, 1h, 1d
    #[arg(long, value_name = "LENGTH", default_value = "1h", value_parser = length)]
    period: u32,
    /// When period 0 begins, such as 1994-10-24T00:00-07:00; requests before it are left out
    #[arg(long, value_name = "TIME", value_parser = moment)]
    start: Option<i64>,
    /// How many periods there are from --start on; requests behind them are left out
    #[arg(long, value_name = "N", requires = "start")]
    periods: Option<u64>,
    /// What times without a zone are ahead of UTC, such as +01:00
    #[arg(long, value_name = "OFFSET", default_value = "+00:00", value_parser = offset, allow_hyphen_values = true)]
    utc_offset: i32,
    /// The zone of times without one, by its name, such as Europe/Berlin, with its changes of the clock
    #[arg(long, value_name = "NAME", conflicts_with = "utc_offset", value_parser = zone)]
    zone: Option<Zone>,
    /// Count requests also where the status says that no file was sent (400 and above)
    #[arg(long)]
    all_statuses: bool,
    /// Take a POST for a read of the file that it is for, as of a script, not for a write to it
    #[arg(long)]
    post_reads: bool,
    /// Take periods without any line for periods without requests, not for missing ones
    #[arg(long)]
    silent_is_zero: bool,
    /// Keep the addresses of clients, which are otherwise replaced by numbers
    #[arg(long)]
    keep_addresses: bool,
    /// Most files with a number of their own; further ones are counted together
    #[arg(long, value_name = "N", default_value_t = ImportOptions::default().files_max)]
    files_max: usize,
    /// Bad lines beyond which nothing is written: a number, or a part such as 1%
    #[arg(long, value_name = "N|P%", default_value = "1%", value_parser = bad_max)]
    max_bad: BadMax,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ImportArgs) -> ExitCode {
    match import(args) {
        Ok((summary, written)) => {
            let said = if args.json { summary::json(&summary) } else { summary::text(&summary) };
            let printed = super::super::print(&said);
            if written {
                return printed;
            }
            let at_most = match args.max_bad {
                BadMax::Lines(max) => max.to_string(),
                BadMax::Percent(max) => format!("{max} %"),
            };
            eprintln!(
                "clockwork: {} of {} lines are bad, more than --max-bad allows ({at_most}); nothing was written",
                summary.bad_lines,
                summary.lines(),
            );
            ExitCode::from(TOO_MANY_BAD)
        }
        Err(error) => super::super::said(Err::<String, _>(error)),
    }
}

/// Imports into a file beside the output, which takes its name when it is whole. Says whether it did.
fn import(args: &ImportArgs) -> anyhow::Result<(Summary, bool)> {
    let inputs = args.logs.iter().map(|path| Input::open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let temporary = temporary(args.output.as_deref())?;
    let out = BufWriter::with_capacity(1 << 18, temporary.as_file().try_clone()?);
    let mut importer = match &args.output {
        Some(old) if args.append && old.exists() => Importer::append(super::open(old)?, out, options(args))
            .with_context(|| old.display().to_string())?,
        _ => Importer::new(out, options(args))?,
    };
    let bar = bar(&inputs);
    for input in inputs {
        importer.read(&input.name, bar.wrap_read(input.bytes))?;
    }
    bar.finish_and_clear();
    let (out, summary) = importer.finish()?;
    anyhow::ensure!(summary.requests > 0 || summary.bad_lines > 0, "there is no request in {}", names(args));
    if !args.max_bad.allows(&summary) {
        return Ok((summary, false));
    }
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    if let Some(history) = &args.into_history {
        let trace = super::open_twice(temporary.path())?;
        let index = TraceIndex::read(BufReader::with_capacity(1 << 18, &trace))?;
        let past = Past {
            export: &args.export,
            strip: &args.strip,
            index: &args.index,
            calls_per_request: args.calls_per_request,
        };
        let written = warm::write(&index, &trace, history, &past, args.replace)?;
        let (periods, outside) = (written.periods, written.paths_outside);
        eprintln!("{periods} periods written into {}", history.display());
        if outside > 0 {
            let files = index.files();
            eprintln!(
                "{outside} of {files} files do not lie below --strip: their requests are counted together"
            );
        }
    }
    if let Some(output) = &args.output {
        let cannot = || format!("cannot write {}", output.display());
        file.sync_all().with_context(cannot)?;
        super::readable(&file);
        temporary.persist(output).with_context(cannot)?;
    }
    Ok((summary, true))
}

/// A file beside the output, so that it can take its name; without one, anywhere.
fn temporary(output: Option<&Path>) -> anyhow::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".clockwork-import-");
    let Some(output) = output else { return builder.tempfile().context("no room for a temporary file") };
    anyhow::ensure!(!output.is_dir(), "{} is a directory: name a file", output.display());
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    builder.tempfile_in(folder).with_context(|| format!("cannot write into {}", folder.display()))
}

fn names(args: &ImportArgs) -> String {
    args.logs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn options(args: &ImportArgs) -> ImportOptions {
    ImportOptions {
        name: args.name.clone(),
        period_s: args.period,
        start_s: args.start,
        periods: args.periods,
        format: args.format.map(LogFormat::from),
        zone: args.zone.clone().unwrap_or(Zone::Offset(args.utc_offset)),
        all_statuses: args.all_statuses,
        post_reads: args.post_reads,
        silent_is_zero: args.silent_is_zero,
        keep_addresses: args.keep_addresses,
        files_max: args.files_max,
        ..ImportOptions::default()
    }
}

struct Input {
    name: String,
    bytes: Box<dyn Read>,
    /// Its length, unless it is a pipe.
    length: Option<u64>,
}

impl Input {
    fn open(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            let bytes = Box::new(std::io::stdin().lock());
            return Ok(Self { name: "standard input".into(), bytes, length: None });
        }
        let file = super::open_file(path)?;
        let metadata = file.metadata()?;
        let length = metadata.is_file().then_some(metadata.len());
        Ok(Self { name: path.display().to_string(), bytes: Box::new(file), length })
    }
}

fn bar(inputs: &[Input]) -> ProgressBar {
    let length: Option<u64> = inputs.iter().map(|input| input.length).sum();
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::new(length),
            "importing [{bar:30}] {percent:>3}% {binary_bytes_per_sec}, {eta} left",
        ),
        None => (ProgressBar::new_spinner(), "importing {binary_bytes} {binary_bytes_per_sec}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

fn length(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is not a length such as 3600, 15m, 1h or 1d");
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    digits.parse::<u32>().ok().and_then(|n| n.checked_mul(unit)).filter(|n| *n > 0).ok_or_else(wrong)
}

fn moment(text: &str) -> Result<i64, String> {
    let parsed = time::iso(text.as_bytes()).map(time::Moment::unix_s);
    parsed
        .ok_or_else(|| format!("{text:?} is not a time such as 1994-10-24T00:00-07:00 (without a zone: UTC)"))
}

fn offset(text: &str) -> Result<i32, String> {
    let parsed = time::iso(format!("2000-01-01T00:00{text}").as_bytes()).and_then(|moment| moment.offset_s);
    parsed.ok_or_else(|| format!("{text:?} is not an offset such as +01:00 or -0700"))
}

fn zone(text: &str) -> Result<Zone, String> {
    Zone::named(text)
        .ok_or_else(|| format!("{text:?} is no zone of the time zone database, such as Europe/Berlin"))
}

fn prefix(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.into()) } else { Err(format!("{text:?} does not begin with /")) }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| (1e-6..=1e6).contains(factor));
    factor.ok_or_else(|| format!("{text:?} is not a number from 0.000001 to 1000000"))
}

fn bad_max(text: &str) -> Result<BadMax, String> {
    let wrong = || format!("{text:?} is neither a number of lines nor a part such as 1%");
    match text.strip_suffix('%') {
        Some(part) => {
            let part: f64 = part.trim().parse().map_err(|_| wrong())?;
            if (0.0..=100.0).contains(&part) { Ok(BadMax::Percent(part)) } else { Err(wrong()) }
        }
        None => text.parse().map(BadMax::Lines).map_err(|_| wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_times_offsets_and_parts_are_read() {
        assert_eq!((length("3600"), length("15m"), length("1d")), (Ok(3_600), Ok(900), Ok(86_400)));
        assert_eq!(moment("1994-10-24T00:00-07:00"), Ok(782_982_000));
        assert_eq!((offset("+01:00"), offset("-0730"), offset("Z")), (Ok(3_600), Ok(-27_000), Ok(0)));
        assert_eq!((bad_max("7"), bad_max("0.5%")), (Ok(BadMax::Lines(7)), Ok(BadMax::Percent(0.5))));
        for wrong in ["", "0", "h", "1w", "-1", "99999999999"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
        assert!(moment("yesterday").is_err() && offset("1").is_err());
        assert!(bad_max("x").is_err() && bad_max("101%").is_err() && bad_max("-1").is_err());
    }
}
