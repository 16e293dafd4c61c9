//! `clockwork trace export`.
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use clockwork_traces::trace_file::TraceData;

/// Arguments of `trace export`.
#[derive(Debug, Args)]
#[command(
    after_help = "The table has the columns file, period, count, writes and bytes, a row for each file and period with \
    requests, and comes back by `clockwork trace import` with the start that `clockwork trace info` says."
)]
pub(super) struct ExportArgs {
    /// The trace; - is standard input
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// The table to write; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let name = args.trace.display().to_string();
    let data = TraceData::read(super::open(&args.trace)?).with_context(|| name)?;
    match &args.output {
        None => match write(&data, io::stdout().lock()) {
            // A reader that has gone, as `head` does, is no failure.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            done => done.context("cannot write to standard output"),
        },
        Some(path) => {
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let cannot = || format!("cannot write {}", path.display());
            let temporary = tempfile::Builder::new().prefix(".clockwork-export-").tempfile_in(folder);
            let temporary = temporary.with_context(cannot)?;
            write(&data, temporary.as_file()).with_context(cannot)?;
            super::readable(temporary.as_file());
            temporary.persist(path).with_context(cannot)?;
            Ok(())
        }
    }
}

fn write(data: &TraceData, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    writeln!(out, "file,period,count,writes,bytes")?;
    let first = data.span().map_or(0, |(first, _)| first);
    for (period, counts) in &data.periods {
        for count in counts {
            let path = data.files.get(count.file as usize).map_or(&[][..], |file| &file.path);
            field(&mut out, path)?;
            writeln!(out, ",{},{},{},{}", period - first, count.requests, count.writes, count.bytes)?;
        }
    }
    out.flush()
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
