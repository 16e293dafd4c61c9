//! `clockwork trace export`.
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use clockwork_traces::trace_file::{TraceFileError, TraceIndex};

/// Arguments of `trace export`.
#[derive(Debug, Args)]
#[command(
    after_help = "The table has the columns file, period, count, writes, metadata, bytes and bytes_written, a row for each \
    file and period with requests. As CSV it comes back by `clockwork trace import` with the start that `clockwork trace info` says.\n\n\
    Exit status: 0 done, 1 failed (nothing is written), 2 wrong command line."
)]
pub(super) struct ExportArgs {
    /// The trace; - is standard input
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// The table to write; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What to write
    #[arg(long, value_enum, default_value_t = ExportFormat::Csv)]
    format: ExportFormat,
}

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum ExportFormat {
    /// A table of text (RFC 4180)
    Csv,
    /// A table for tools that read Parquet, where this was built with `--features parquet`
    Parquet,
}

pub(super) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.format != ExportFormat::Parquet || cfg!(feature = "parquet"),
        "--format parquet: this was built without it; build with `cargo build --release --features parquet`"
    );
    let name = || args.trace.display().to_string();
    let trace = super::open_twice(&args.trace)?;
    let index = TraceIndex::read(BufReader::with_capacity(1 << 18, &trace)).with_context(name)?;
    let Some(path) = &args.output else {
        let is_text = args.format == ExportFormat::Csv;
        anyhow::ensure!(
            is_text || !io::stdout().is_terminal(),
            "this is no text for a terminal: name a file (-o)"
        );
        return match write(args.format, &index, &trace, io::stdout()) {
            // A reader that has gone, as `head` does, is no failure.
            Err(Failed::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            Err(Failed::Write(error)) => Err(error).context("cannot write to standard output"),
            Err(Failed::Read(error)) => Err(error).with_context(name),
            Ok(()) => Ok(()),
        };
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot = || format!("cannot write {}", path.display());
    let temporary = tempfile::Builder::new().prefix(".clockwork-export-").tempfile_in(folder);
    let temporary = temporary.with_context(cannot)?;
    match write(args.format, &index, &trace, temporary.as_file()) {
        Err(Failed::Write(error)) => return Err(error).with_context(cannot),
        Err(Failed::Read(error)) => return Err(error).with_context(name),
        Ok(()) => {}
    }
    super::readable(temporary.as_file());
    temporary.persist(path).with_context(cannot)?;
    Ok(())
}

/// Why an export cannot be done.
enum Failed {
    Read(TraceFileError),
    Write(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

fn write(
    format: ExportFormat,
    index: &TraceIndex,
    trace: &File,
    out: impl Write + Send,
) -> Result<(), Failed> {
    match format {
        ExportFormat::Csv => write_csv(index, trace, out),
        #[cfg(not(feature = "parquet"))]
        ExportFormat::Parquet => Err(Failed::Write(io::ErrorKind::Unsupported.into())),
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => {
            use clockwork_traces::parquet::{ParquetExportError, write};
            match write(index, trace, out) {
                Ok(_) => Ok(()),
                Err(ParquetExportError::Read(error)) => Err(Failed::Read(error)),
                Err(ParquetExportError::Write(error)) => Err(Failed::Write(io::Error::other(error))),
            }
        }
    }
}

fn write_csv(index: &TraceIndex, trace: &File, out: impl Write) -> Result<(), Failed> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    writeln!(out, "file,period,count,writes,metadata,bytes,bytes_written")?;
    let first = index.span().map_or(0, |(first, _)| first);
    let mut periods = index.counts(trace);
    while let Some((period, counts)) = periods.next_period().map_err(Failed::Read)? {
        for count in counts {
            field(&mut out, index.path(count.file))?;
            let figures =
                [count.requests, count.writes, count.metadata, count.bytes_read, count.bytes_written];
            write!(out, ",{}", period - first)?;
            figures.iter().try_for_each(|figure| write!(out, ",{figure}"))?;
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}

/// A field of CSV: in quotes where it must be (RFC 4180), the bytes otherwise as they are.
fn field(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    if !bytes.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        return out.write_all(bytes);
    }
    out.write_all(b"\"")?;
    for part in bytes.split_inclusive(|byte| *byte == b'"') {
        out.write_all(part)?;
        if part.ends_with(b"\"") {
            out.write_all(b"\"")?;
        }
    }
    out.write_all(b"\"")
}
