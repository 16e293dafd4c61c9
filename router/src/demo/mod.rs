//! `clockwork demo`: the paper's measurement on loopback, a day compressed into a minute, three times, and a report.
//!
//! Four unlike stores export one directory, each behind a device that saturates at its own load; the replay sends the
//! traffic of 24 hours of four web sites and a nightly batch. First the day before, from which the stores' response is
//! learnt; then the day under the default rule, with one static assignment by the stores' speeds, and with Clockwork, which
//! knows what was asked for in the 622 hours before. The objective is one that the default rule misses in 11 hours.

mod day;
mod outcome;
mod past;
mod plex;
mod show;

use crate::cli::DemoArgs;
use crate::config::{Control, ControlMode};
use crate::control::Decided;
use crate::heat::{Handle, PeriodRecord};
use crate::history::{History, HistoryLimits};
use crate::plex::{Change, Plex};
use crate::report::{
    Comparison, Facts, Measurement, Objective, Report, comparison_page, comparison_table, objective_ms,
};
use crate::store::{HandleMode, Namespace};
use anyhow::Context as _;
use clockwork_traces::workload::{DEFAULT_WEIGHTS, Workload};
use day::{Day, LEAD, Traffic, next_period_unix_ms, replay_day};
use fstress_replay::fileset::{self, Handles};
use fstress_replay::report::ReplayReport;
use plex::{DemoPlex, DemoSpec};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The day that is replayed, as in the paper: 24 hours from hour 622.
const HOURS: Range<u32> = 622..646;
/// The day before, from which the stores' response is learnt.
const LEARNT: Range<u32> = 598..622;
/// Hours from which the heat of files is taken.
const WEEK: u32 = 168;
/// An hour becomes this long.
const HOUR: Duration = Duration::from_millis(3_300);
const HOUR_QUICK: Duration = Duration::from_millis(400);
/// Weight of the nightly batch beside the sites of the default workload.
const BATCH_WEIGHT: f64 = 0.3;
/// From the import of the past to the day's first hour: the plex starts and the files are looked up.
const PREPARATIONS: Duration = Duration::from_secs(5);
/// Part of the periods in which the objective is to be met.
const CONFIDENCE: f64 = 0.66;

/// What all passes have in common.
struct Demo {
    folder: tempfile::TempDir,
    namespace: Arc<Namespace>,
    traffic: Traffic,
    seed: u64,
}

/// Runs the demo.
///
/// # Errors
/// Anything that keeps it from its report, and calls that were answered wrongly.
pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let demo = Demo::new(&args).await?;
    let (learnt, handles) = demo.learn().await?;
    let past = demo.past(&learnt, &handles);

    let base = demo
        .pass(
            "the day under the default rule",
            "base",
            Control { mode: ControlMode::Off, ..Control::default() },
            &[],
            &[],
        )
        .await?;
    let objective = Objective {
        ms: objective_ms(&base.day.records).context("the base pass measured nothing")?,
        confidence: CONFIDENCE,
    };
    let assignment = past::static_assignment(
        &past::heat(&past[past.len().saturating_sub(WEEK as usize)..]),
        &plex::STORES,
    );
    show::step(&format!("objective: {:.2} ms, which the default rule misses in 11 hours", objective.ms));
    let changes = assigned(assignment, "assigned once, by the stores' speeds");
    let fixed = demo
        .pass(
            "the day with one static assignment",
            "static",
            Control { mode: ControlMode::Off, ..Control::default() },
            &[],
            &changes,
        )
        .await?;
    let control = Control {
        mode: ControlMode::Control,
        objective_ms: objective.ms,
        confidence: objective.confidence,
        ..Control::default()
    };
    let adjusted = demo.pass("the day with Clockwork", "adjusted", control, &past, &[]).await?;

    let passes = [&base, &fixed, &adjusted].map(|pass| demo.report(pass, objective.ms, args.quick));
    let (forecast, moves) = outcome::compare(&adjusted.day, &adjusted.decisions, HOURS.start);
    let [base_report, fixed_report, adjusted_report] = &passes;
    let comparison =
        Comparison::new(objective, [base_report, fixed_report, adjusted_report], forecast, moves);
    let [report, _, _] = passes;
    let html = comparison_page(&report, &comparison);
    println!("{}", comparison_table(&report, &comparison));
    let measurement = Measurement { report, comparison };
    crate::cli::report::write(&args.output, &measurement.to_json()?, &html)?;
    let replayed = [&base, &fixed, &adjusted].map(|pass| &pass.day.replayed);
    show::summary(&replayed, args.quick, &args.output, began.elapsed());
    for pass in [&base, &fixed, &adjusted] {
        check(&pass.day.replayed)?;
    }
    if args.keep_running {
        let demo =
            demo.start("adjusted", &Control { mode: ControlMode::Observe, ..Control::default() }).await?;
        demo.keep_running().await?;
        demo.stop().await;
    }
    Ok(())
}

/// One pass of the day.
struct Pass {
    day: Day,
    mount: String,
    decisions: Vec<Arc<Decided>>,
}

impl Demo {
    async fn new(args: &DemoArgs) -> anyhow::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("clockwork-demo-").tempdir().context("no temporary folder")?;
        let mut weights = DEFAULT_WEIGHTS.to_vec();
        weights.push((clockwork_traces::bundled::BATCH, BATCH_WEIGHT));
        let workload = Arc::new(Workload::of_bundled(&weights, args.seed)?);
        show::step(&format!("making {} files of {} sites", workload.files().len(), workload.sites().len()));
        let (export, files) = (folder.path().join("export"), Arc::clone(&workload));
        let directory = export.clone();
        tokio::task::spawn_blocking(move || fileset::create_local(&directory, &files)).await??;
        let namespace = Namespace::open(&export, HandleMode::Path { seed: args.seed })?;
        let hour = if args.quick { HOUR_QUICK } else { HOUR };
        let traffic = Traffic::new(workload, HOURS, hour, plex::peak_calls_per_second())?;
        Ok(Self { folder, namespace, traffic, seed: args.seed })
    }

    async fn start(&self, name: &str, control: &Control) -> anyhow::Result<DemoPlex> {
        let history = self.folder.path().join(name);
        let spec = DemoSpec {
            history: &history,
            period: self.traffic.hour,
            control: control.clone(),
            seed: self.seed,
        };
        DemoPlex::start(&spec, &self.namespace).await
    }

    /// Replays the day before, each hour with another store that has more than its share.
    async fn learn(&self) -> anyhow::Result<(Day, Handles)> {
        let demo = self.start("learnt", &Control { mode: ControlMode::Off, ..Control::default() }).await?;
        show::step(&format!(
            "four stores and the router are up; clients mount it with\n      {}",
            demo.mount_command()
        ));
        show::step("the day before, to learn how the stores respond to load");
        let progress = show::Progress::new();
        let prepared = self.traffic.prepare(&demo, LEARNT, &progress).await?;
        let handles = prepared.handles().clone();
        let hour = self.traffic.hour;
        let before = LEARNT.start - WEEK..LEARNT.start;
        let (workload, factor) = (&self.traffic.workload, self.traffic.factor);
        let past = past::imported(workload, &handles, factor, before, hour, u64::from(WEEK) * 86_400_000);
        let heat = past::heat(&past);
        let start = next_period_unix_ms(hour, LEAD);
        let turns = tokio::spawn(take_turns(Arc::clone(demo.plex()), heat, start, hour));
        let day = replay_day(demo.plex(), prepared, Some(start), &progress).await;
        turns.abort();
        let day = day?;
        demo.stop().await;
        check(&day.replayed)?;
        Ok((day, handles))
    }

    /// The 622 hours before the day: imported, but for the last ones, which were replayed. They end at time 0 of a history
    /// yet to be placed in time.
    fn past(&self, learnt: &Day, handles: &Handles) -> Vec<PeriodRecord> {
        let hour_ms = self.traffic.hour.as_millis() as u64;
        let end = u64::from(LEARNT.start) * hour_ms;
        let (workload, hour) = (&self.traffic.workload, self.traffic.hour);
        let mut past = past::imported(workload, handles, self.traffic.factor, 0..LEARNT.start, hour, end);
        past.extend(past::moved_to(&learnt.records, end, hour));
        past
    }

    /// Replays the day on a plex of its own, with this past and this assignment.
    async fn pass(
        &self,
        what: &str,
        name: &str,
        control: Control,
        past: &[PeriodRecord],
        changes: &[Change],
    ) -> anyhow::Result<Pass> {
        show::step(what);
        let hour = self.traffic.hour;
        // The past ends where the day begins, so that its days and weeks are in step.
        let start = (!past.is_empty()).then(|| next_period_unix_ms(hour, PREPARATIONS));
        if let Some(start) = start {
            import(&self.folder.path().join(name), past, start, hour).await?;
        }
        let demo = self.start(name, &control).await?;
        demo.plex().move_files(changes.to_vec()).await?;
        let progress = show::Progress::new();
        let prepared = self.traffic.prepare(&demo, HOURS, &progress).await?;
        let day = replay_day(demo.plex(), prepared, start, &progress).await?;
        let mount = demo.mount_command();
        let decisions = demo.plex().decisions(usize::MAX);
        demo.stop().await;
        Ok(Pass { day, mount, decisions })
    }

    fn report(&self, pass: &Pass, objective_ms: f64, quick: bool) -> Report {
        let facts = show::facts(&self.traffic.workload, &pass.day.replayed, quick, HOURS, objective_ms);
        Report::new(Facts { mount: vec![pass.mount.clone()], ..facts }, &pass.day.records)
    }
}

/// Assigns all files anew for every hour of the day that is learnt from.
async fn take_turns(plex: Arc<Plex>, heat: BTreeMap<Handle, f64>, start_unix_ms: u64, hour: Duration) {
    for (number, of_day) in (0..).zip(LEARNT) {
        let shares = past::learning_shares(of_day, &plex::STORES);
        let changes = assigned(past::static_assignment(&heat, &shares), "to learn how the stores respond");
        if let Ok(begin) = day::moment(start_unix_ms + number * hour.as_millis() as u64) {
            tokio::time::sleep_until(begin.into()).await;
        }
        if let Err(error) = plex.move_files(changes).await {
            tracing::error!(%error, "files cannot be assigned");
        }
    }
}

fn assigned(files: Vec<(Handle, &'static str)>, reason: &str) -> Vec<Change> {
    let change = |(handle, store): (Handle, &'static str)| Change {
        handle: handle.as_bytes().into(),
        store: Some(store.to_owned()),
        replicas: Vec::new(),
        reason: reason.to_owned(),
    };
    files.into_iter().map(change).collect()
}

/// Writes a past into a history, so that it ends at `end_unix_ms`.
async fn import(
    folder: &Path,
    past: &[PeriodRecord],
    end_unix_ms: u64,
    hour: Duration,
) -> anyhow::Result<()> {
    let length_ms = u64::try_from(hour.as_millis() * past.len() as u128)?;
    let records = past::moved_to(past, end_unix_ms.saturating_sub(length_ms), hour);
    let folder = folder.to_owned();
    let write = move || -> anyhow::Result<()> {
        History::open(&folder, HistoryLimits::default())?.history.append_all(&records)?;
        Ok(())
    };
    tokio::task::spawn_blocking(write).await?
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
