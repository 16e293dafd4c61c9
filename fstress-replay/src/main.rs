//! The command `fstress-replay`.

mod cli;

use anyhow::Context as _;
use clap::Parser as _;
use fstress_replay::Stop;
use fstress_replay::replay::{self, Event, OnEvent};
use fstress_replay::stress::{self, OnStressEvent, StressEvent};
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    if let Some(code) = fstress_replay::simulate::main_if_asked(std::env::args_os()) {
        return code;
    }
    let arguments = cli::Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("fstress-replay: no tokio runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(&arguments)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fstress-replay: {error:#}");
            if let Some(hint) = arguments.hint(&error) {
                eprintln!("{hint}");
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &cli::Arguments) -> anyhow::Result<ExitCode> {
    if arguments.stress.show_presets {
        print!("{}", arguments.stress.shown()?);
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.stress.preset.is_some() { stress(arguments).await } else { trace(arguments).await }
}

/// Replays hours of web sites.
async fn trace(arguments: &cli::Arguments) -> anyhow::Result<ExitCode> {
    let spec = arguments.replay_spec().await?;
    let files = spec.workload.files().len();
    if arguments.create {
        let bar = bar(files, "making files");
        let written = replay::create_files(&spec, &files_shown(&bar)).await?;
        bar.finish_and_clear();
        eprintln!("{written} of {files} files written, the others were there");
    }
    let bar = bar(files, "finding files");
    let prepared = replay::prepare(spec, &files_shown(&bar)).await?;
    bar.finish_and_clear();
    let report = replay_with_progress(prepared).await?;
    show(arguments, &report, || report.text(), || report.page())?;
    Ok(status(report.run.valid, report.is_clean()))
}

/// Runs workloads by profile.
async fn stress(arguments: &cli::Arguments) -> anyhow::Result<ExitCode> {
    let spec = arguments.stress_spec().await?;
    let stop = stop_on_interrupt();
    let bar = bar(1_000, "");
    let shown = bar.clone();
    let on_event: OnStressEvent = Arc::new(move |event| match event {
        StressEvent::Files { load, progress } => {
            shown.set_prefix(format!("files of {load}"));
            shown.set_position((progress.files * 1_000 / progress.files_total.max(1)) as u64);
        }
        StressEvent::Calls { phase, part, wanted, answered, errors } => {
            shown.set_prefix(phase);
            shown.set_position((part * 1_000.0) as u64);
            shown.set_message(format!("{answered} answered of {wanted} calls, {errors} errors"));
        }
    });
    let report = stress::run(&spec, &stop, &on_event).await?;
    bar.finish_and_clear();
    show(arguments, &report, || report.text(), || report.page())?;
    Ok(status(report.run.valid, report.is_clean()))
}

/// Prints the report as text or JSON, and writes the page if there is to be one.
fn show(
    arguments: &cli::Arguments,
    report: &impl serde::Serialize,
    text: impl FnOnce() -> String,
    page: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if let Some(file) = &arguments.html {
        std::fs::write(file, page()).with_context(|| format!("--html {}", file.display()))?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        print!("{}", text());
    }
    Ok(())
}

/// Whoever scripts this must notice calls that failed or were never sent, and runs that were not what was asked for; see
/// the help of the command.
fn status(is_valid: bool, is_clean: bool) -> ExitCode {
    match (is_valid, is_clean) {
        (false, _) => ExitCode::from(3),
        (true, false) => ExitCode::from(2),
        (true, true) => ExitCode::SUCCESS,
    }
}

fn stop_on_interrupt() -> Stop {
    let stop = Stop::default();
    let on_interrupt = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_interrupt.stop();
        }
    });
    stop
}

fn bar(length: usize, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length as u64).with_prefix(what);
    match ProgressStyle::with_template("{prefix:12} [{bar:30}] {percent:>3}% {wide_msg}") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

fn files_shown(bar: &ProgressBar) -> OnEvent {
    let bar = bar.clone();
    Arc::new(move |event| {
        if let Event::Files(progress) = event {
            bar.set_position(progress.files as u64);
        }
    })
}

async fn replay_with_progress(
    prepared: replay::Prepared,
) -> anyhow::Result<fstress_replay::report::ReplayReport> {
    let bar = bar(1_000, "replaying");
    let stop = stop_on_interrupt();
    let shown = bar.clone();
    let on_event: OnEvent = Arc::new(move |event| match event {
        Event::Hour { hour, index, hours } => {
            shown.set_prefix(format!("hour {hour} ({} of {hours})", index + 1));
        }
        Event::Calls(counts) => {
            shown.set_position((counts.part * 1_000.0) as u64);
            shown.set_message(format!(
                "{} answered of {} calls, {} outstanding, {} errors, mean {:.2} ms",
                counts.answered, counts.wanted, counts.outstanding, counts.errors, counts.mean_ms
            ));
        }
        Event::Files(_) => {}
    });
    let start = Instant::now() + Duration::from_millis(100);
    let report = prepared.run(start, &stop, &on_event).await?;
    bar.finish_and_clear();
    Ok(report)
}
