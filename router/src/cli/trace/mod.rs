//! `clockwork trace`: logs in, traces out.
mod export;
mod import;
mod info;
mod summary;
mod warm;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};

pub(super) use summary::utc;

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Make a trace of access logs, tables of counts or packet captures
    Import(Box<import::ImportArgs>),
    /// Say what a trace holds, after checking all of it
    Info(info::InfoArgs),
    /// Write a trace as a table
    Export(export::ExportArgs),
}

pub(super) fn run(args: TraceArgs) -> ExitCode {
    match args.command {
        TraceCommand::Import(args) => import::run(&args),
        TraceCommand::Info(args) => super::said(info::run(&args)),
        TraceCommand::Export(args) => match export::run(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => super::said(Err::<String, _>(error)),
        },
    }
}

/// A file to read, or standard input for `-`; a directory is refused by name.
fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(BufReader::with_capacity(1 << 18, open_file(path)?)))
}

/// A trace that is read twice. What cannot be read twice, as standard input, is kept in a temporary file meanwhile.
fn open_twice(path: &Path) -> anyhow::Result<File> {
    if path.as_os_str() != "-" {
        let file = open_file(path)?;
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Ok(file);
        }
    }
    let mut kept = tempfile::tempfile().context("no room for a temporary file")?;
    io::copy(&mut open(path)?, &mut kept)
        .with_context(|| format!("cannot copy {} into a temporary file", path.display()))?;
    kept.rewind()?;
    Ok(kept)
}

fn open_file(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_directory = file.metadata().is_ok_and(|metadata| metadata.is_dir());
    anyhow::ensure!(!is_directory, "{} is a directory: name the files in it", path.display());
    Ok(file)
}

/// A temporary file is its owner's only; a trace may be read by whoever could read any new file.
fn readable(file: &File) {
    use std::os::unix::fs::PermissionsExt as _;
    // A file system without modes has nothing to change.
    let _ = file.set_permissions(std::fs::Permissions::from_mode(0o644));
}
