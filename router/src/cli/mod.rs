//! The command line: one file a subcommand.
mod assign;
mod backtest;
mod check;
mod client;
mod demo;
mod drain;
pub mod log;
pub(crate) mod report;
mod serve;
mod simulate;
mod status;
mod table;
mod trace;
mod weights;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use client::{AdminArgs, AdminClient, ClientError};
pub use demo::DemoArgs;
pub use serve::ServeArgs;

use crate::store::{self, StoreArgs};

/// Several NFSv3 servers as one virtual NAS.
#[derive(Debug, Parser)]
#[command(name = "clockwork", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Exit status: 0 done, 1 failed, 2 wrong configuration or command line.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole plex on this machine under a day of real traffic, and report
    Demo(DemoArgs),
    /// Say what a configuration would serve, or everything that is wrong with it
    Check(check::CheckArgs),
    /// Serve a plex: one NAS in front of several stores
    Serve(ServeArgs),
    /// Serve a directory over NFSv3 (TCP), without privileges
    Store(StoreArgs),
    /// Show a running plex: stores, limits, alarms
    Status(status::StatusArgs),
    /// Say how good forecasts of given series would have been
    Backtest(backtest::BacktestArgs),
    /// Make traces of logs, and look at them
    Trace(trace::TraceArgs),
    /// Try policies side by side on a simulated plex
    Simulate(simulate::SimulateArgs),
    /// Write a report on the last periods, as a page and as JSON
    Report(report::ReportArgs),
    /// Give a file to a store, whatever the default rule says; or list the files that are given to one
    Assign(assign::AssignArgs),
    /// Give a file back to the default rule
    Unassign(assign::UnassignArgs),
    /// Take a store out of service
    Drain(drain::DrainArgs),
    /// Take a store back into service
    Undrain(drain::UndrainArgs),
    /// Show the weights of the default rule, or put those of the configuration in force again
    Weights(weights::WeightsArgs),
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Demo(args) => run_until_done(STORE_LOG, crate::demo::run(args)),
        Command::Check(args) => check::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Store(args) => run_until_done(STORE_LOG, store::run(args)),
        Command::Status(args) => said(status::run(&args)),
        Command::Backtest(args) => said(backtest::run(&args)),
        Command::Trace(args) => trace::run(args),
        Command::Simulate(args) => said(simulate::run(&args)),
        Command::Report(args) => said(report::run(&args)),
        Command::Assign(args) => said(assign::assign(&args)),
        Command::Unassign(args) => said(assign::unassign(&args)),
        Command::Drain(args) => said(drain::drain(&args)),
        Command::Undrain(args) => said(drain::undrain(&args)),
        Command::Weights(args) => said(weights::run(&args)),
    }
}

/// What embedded stores log unless RUST_LOG says otherwise. The server inside of them reports every ordinary NFS error.
const STORE_LOG: &str = "info,nfs3_server=off";

/// Runs a command that serves: with messages (`filter` as in the configuration) on standard error, on as many threads as
/// there are cores.
fn run_until_done(filter: &str, command: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    log::start(filter);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(command));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("clockwork: {}", in_full(&error));
            ExitCode::FAILURE
        }
    }
}

/// Prints what a command has to say, or what went wrong.
fn said<E: Into<anyhow::Error>>(result: Result<String, E>) -> ExitCode {
    match result {
        Ok(text) => print(&text),
        Err(error) => {
            eprintln!("clockwork: {}", in_full(&error.into()));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes in one line. Many errors have their cause in their own words already, and go on to say what to do;
/// such a cause is not said a second time.
fn in_full(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Prints a text. A reader that has gone, as `head` does, is no failure of the command.
fn print(text: &str) -> ExitCode {
    use std::io::{ErrorKind, Write as _};
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("clockwork: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_cause_is_said_once() {
        use crate::history::HistoryError;
        use crate::net::ListenError;
        use crate::plex::PlexError;
        use anyhow::Context as _;
        use std::io::{Error, ErrorKind};

        let denied = || Error::from_raw_os_error(13);
        let listen = |source| ListenError { address: ([0, 0, 0, 0], 111).into(), transport: "TCP", source };
        for (error, expected) in [
            (
                PlexError::from(listen(denied())).into(),
                "cannot listen on 0.0.0.0:111 over TCP: Permission denied (os error 13); ports below 1024 need the \
                 capability CAP_NET_BIND_SERVICE",
            ),
            (
                PlexError::from(HistoryError::Access {
                    path: "/h".into(),
                    action: "make the folder",
                    source: denied(),
                })
                .into(),
                "history /h: cannot make the folder: Permission denied (os error 13); check the folder's owner, mode \
                 and free space",
            ),
            (
                Err::<(), _>(denied()).context("cannot listen for the admin interface").unwrap_err(),
                "cannot listen for the admin interface: Permission denied (os error 13)",
            ),
            (
                anyhow::Error::new(Error::from(ErrorKind::TimedOut))
                    .context("asked twice")
                    .context("no report"),
                "no report: asked twice: timed out",
            ),
        ] {
            assert_eq!(in_full(&error), expected);
        }
    }
}
