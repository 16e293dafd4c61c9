//! `clockwork demo`: a whole plex on loopback, a day of real traffic compressed into minutes, and a report.
//!
//! Four unlike stores export one directory, each behind a device that saturates at its own load; the router spreads the
//! files over them by the default rule; the replay sends the traffic of 24 hours of four web sites. What comes out is
//! what the default rule does with unlike stores: requests spread evenly, response times very unlike.

mod plex;
mod show;

use crate::cli::DemoArgs;
use crate::report::{Report, page, table};
use anyhow::Context as _;
use clockwork_traces::workload::{DEFAULT_WEIGHTS, Workload};
use fstress_replay::fileset;
use fstress_replay::replay::{self, ReplaySpec, Stop};
use fstress_replay::report::ReplayReport;
use plex::DemoPlex;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The day that is replayed, as in the paper: 24 hours from hour 622.
const HOURS: Range<u32> = 622..646;
/// An hour becomes this many seconds.
const HOUR_SECONDS: f64 = 5.0;
const HOUR_SECONDS_QUICK: f64 = 1.0;
/// Between the preparations and the first hour.
const LEAD: Duration = Duration::from_millis(300);

/// Runs the demo.
///
/// # Errors
/// Anything that keeps it from its report, and calls that were answered wrongly.
pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let folder =
        tempfile::Builder::new().prefix("clockwork-demo-").tempdir().context("no temporary folder")?;
    let workload = Arc::new(Workload::of_bundled(&DEFAULT_WEIGHTS, args.seed)?);
    let export = folder.path().join("export");
    show::step(&format!("making {} files of {} sites", workload.files().len(), workload.sites().len()));
    let files = Arc::clone(&workload);
    let directory = export.clone();
    tokio::task::spawn_blocking(move || fileset::create_local(&directory, &files)).await??;

    let demo = DemoPlex::start(folder.path(), &export, args.seed).await?;
    show::step(&format!(
        "four stores and the router are up; clients mount it with\n      {}",
        demo.mount_command()
    ));
    let spec = replay_spec(&demo, &workload, args.quick)?;
    let (records, replayed) = replay_day(&demo, spec).await?;

    let facts = show::facts(&demo, &workload, &replayed, args.quick, HOURS);
    let report = Report::new(facts, &records);
    crate::cli::report::write(&args.output, &report.to_json()?, &page(&report))?;
    println!("{}", table(&report));
    show::summary(&report, &replayed, &args.output, began.elapsed());
    check(&replayed)?;
    if args.keep_running {
        demo.keep_running().await?;
    }
    demo.stop().await;
    Ok(())
}

fn replay_spec(demo: &DemoPlex, workload: &Arc<Workload>, quick: bool) -> anyhow::Result<ReplaySpec> {
    let mut spec = ReplaySpec::new(demo.address(), plex::EXPORT, Arc::clone(workload));
    spec.hours = HOURS;
    spec.seconds_per_hour = if quick { HOUR_SECONDS_QUICK } else { HOUR_SECONDS };
    spec.rate_factor = spec.mapping.factor_for_peak(
        workload,
        HOURS,
        spec.seconds_per_hour,
        plex::peak_calls_per_second(),
    )?;
    Ok(spec)
}

/// Replays the day; the plex's periods begin and end with the hours.
async fn replay_day(
    demo: &DemoPlex,
    spec: ReplaySpec,
) -> anyhow::Result<(Vec<crate::heat::PeriodRecord>, ReplayReport)> {
    let progress = show::Progress::new();
    let hour = Duration::from_secs_f64(spec.seconds_per_hour);
    let prepared = replay::prepare(spec, &progress.events()).await?;
    // What was asked while the files were looked up belongs to no hour.
    let start = Instant::now() + LEAD;
    let stop = Stop::default();
    let on_interrupt = stop.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_interrupt.stop();
        }
    });
    let periods = async {
        tokio::time::sleep_until(start.into()).await;
        demo.plex().close_period().await;
        let mut records = Vec::new();
        for number in 1..=HOURS.end - HOURS.start {
            tokio::time::sleep_until((start + hour * number).into()).await;
            if stop.is_stopped() {
                break;
            }
            records.push(crate::heat::PeriodRecord::clone(&*demo.plex().close_period().await));
        }
        records
    };
    let events = progress.events();
    let (replayed, records) = tokio::join!(prepared.run(start, &stop, &events), periods);
    interrupt.abort();
    progress.finish();
    let replayed = replayed?;
    anyhow::ensure!(!replayed.interrupted, "interrupted before the day was over: no report");
    Ok((records, replayed))
}

/// A demo whose files came back wrong has shown the opposite of what it should.
fn check(replayed: &ReplayReport) -> anyhow::Result<()> {
    let total = &replayed.total;
    anyhow::ensure!(
        total.errors == 0 && total.unanswered == 0,
        "{} calls were answered wrongly and {} not at all: {:?}",
        total.errors,
        total.unanswered,
        total.error_kinds
    );
    Ok(())
}
