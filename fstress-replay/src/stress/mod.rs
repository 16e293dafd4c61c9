//! Workloads as profiles: calls by weight, files by popularity, open loop at a rate, as in Fstress.
//!
//! - [`profile`]: the presets, and every number in them as a parameter.
//! - [`operation`]: the calls, which are all of NFSv3.
//! - [`report`]: what was measured, as text, JSON and a page.
//!
//! Data is a function of file and position ([`crate::content`]), also what is written, so that every byte read can be
//! checked whoever wrote it.

mod account;
mod arrivals;
mod call;
mod distribution;
mod files;
pub mod operation;
pub mod profile;
pub mod report;
mod work;

pub use arrivals::Spread;
pub use distribution::{Popularity, SizeDistribution};

use crate::client::Client;
use crate::client::nfs::{self, Sizes};
use crate::engine::{self, Lane, LaneSetting, Source, Tally};
use crate::fileset;
use crate::{RunError, RunSpec, Stop};
use account::{Account, Phases};
use arrivals::Arrivals;
use call::Course;
use files::{Target, Wanted};
use profile::Profile;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use report::StressReport;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use work::StressWork;

/// Time between two progress events.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Names removed at once after a run.
const REMOVED_AT_ONCE: usize = 32;

/// How calls are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loop {
    /// At a rate, whatever the server does.
    Open {
        /// Calls a second.
        per_s: f64,
        /// How they are spread over each second.
        spread: Spread,
    },
    /// As many on their way as this, each lane its part: how fast is the server at all? Response times mean little then.
    Closed {
        /// Calls on their way.
        outstanding: usize,
    },
}

/// One of the workloads of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Its name; its files are in `fstress/NAME` below the export.
    pub name: String,
    /// Its part of the calls, by weight.
    pub weight: f64,
    /// What it does.
    pub profile: Profile,
}

/// A run by profile against a server.
#[derive(Debug, Clone)]
pub struct StressSpec {
    /// The server, and how it is called.
    pub run: RunSpec,
    /// The workloads.
    pub loads: Vec<Load>,
    /// Open or closed.
    pub source: Loop,
    /// How long is measured.
    pub length: Duration,
    /// Whether files that are missing are made.
    pub create: bool,
    /// Seed of the file set, the arrivals and the calls.
    pub seed: u64,
}

impl StressSpec {
    /// 20 seconds of these workloads at 1,000 calls a second between 2 of warm-up and 1 of cooldown, over 4 TCP connections.
    #[must_use]
    pub fn new(target: SocketAddr, export: impl Into<String>, loads: Vec<Load>) -> Self {
        let mut run = RunSpec::new(target, export);
        (run.warmup, run.cooldown) = (Duration::from_secs(2), Duration::from_secs(1));
        Self {
            run,
            loads,
            source: Loop::Open { per_s: 1_000.0, spread: Spread::Poisson },
            length: Duration::from_secs(20),
            create: true,
            seed: 1,
        }
    }

    fn check(&self) -> Result<(), RunError> {
        self.run.check()?;
        let outstanding_max = self.run.outstanding_max;
        match self.source {
            Loop::Open { per_s, .. } if !(per_s > 0.0 && per_s <= 1e8) => {
                return RunError::setting("rate", &per_s, "more than 0, at most 100000000 calls a second");
            }
            Loop::Closed { outstanding } if outstanding == 0 || outstanding > outstanding_max => {
                return RunError::setting(
                    "calls outstanding",
                    &outstanding,
                    "from 1 to the most outstanding",
                );
            }
            _ => {}
        }
        if self.loads.is_empty() {
            return RunError::setting("number of workloads", &0, "at least 1");
        }
        let weights = || self.loads.iter().map(|load| load.weight);
        if !weights().all(|weight| weight >= 0.0 && weight.is_finite()) || weights().sum::<f64>() <= 0.0 {
            return RunError::setting("weights of workloads", &"wrong", "not negative, with a sum above 0");
        }
        for (place, load) in self.loads.iter().enumerate() {
            load.profile.check(&load.name)?;
            if self.loads[..place].iter().any(|other| other.name == load.name) {
                return RunError::setting("workload", &load.name, "each workload once");
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if load.name.is_empty() || load.name.len() > 64 || !load.name.chars().all(plain) {
                return RunError::setting(
                    "workload",
                    &load.name,
                    "a name of letters, digits, - and _, because it becomes a directory",
                );
            }
        }
        if self.length.is_zero() || self.length > Duration::from_secs(10_000_000) {
            return RunError::setting("seconds", &self.length.as_secs_f64(), "more than 0, at most 10000000");
        }
        Ok(())
    }

    fn phases(&self) -> Phases {
        Phases { warmup: self.run.warmup, run: self.length, cooldown: self.run.cooldown }
    }
}

/// What a run tells while it goes on.
#[derive(Debug, Clone, PartialEq)]
pub enum StressEvent {
    /// Files of a workload being made or looked up.
    Files {
        /// The workload.
        load: String,
        /// How far it is.
        progress: fileset::Progress,
    },
    /// Counts since the start, every 200 ms.
    Calls {
        /// `warm-up`, `run`, `cooldown`, `last replies`.
        phase: &'static str,
        /// Part of the time that is gone, 0 to 1.
        part: f64,
        /// Calls that came due.
        wanted: u64,
        /// Calls answered.
        answered: u64,
        /// Calls answered otherwise than they should be, or given up.
        errors: u64,
    },
}

/// What is told about progress; called from several threads.
pub type OnStressEvent = Arc<dyn Fn(StressEvent) + Send + Sync>;

/// Makes the file sets where that is wanted, runs, tidies up, and reports.
///
/// # Errors
/// See [`RunError`]. What goes wrong with single calls is in the report.
pub async fn run(spec: &StressSpec, stop: &Stop, on_event: &OnStressEvent) -> Result<StressReport, RunError> {
    spec.check()?;
    let (client, root, sizes) = engine::attach(&spec.run).await?;
    let mut targets = Vec::new();
    for load in &spec.loads {
        let (name, told) = (load.name.clone(), Arc::clone(on_event));
        let progress = move |progress| told(StressEvent::Files { load: name.clone(), progress });
        let wanted =
            Wanted { seed: spec.seed, weight: load.weight, create: spec.create, verify: spec.run.verify };
        let target =
            Target::prepare((&client, &root, sizes), (&load.name, &load.profile), wanted, &progress).await?;
        targets.push(target);
    }
    let targets = Arc::new(targets);
    let limits = spec.run.sizes(sizes);
    let tally = Arc::new(Tally::default());
    let lanes = lanes(spec, &client, &targets, limits, &tally, stop).await?;
    let start = Instant::now() + Duration::from_millis(20);
    let mut told = start;
    let done = engine::drive(lanes, (start, start), stop, || {
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            on_event(progress(spec, start, &tally));
        }
    });
    let mut account = Account::new(spec.phases());
    let mut courses = Vec::new();
    for lane in done.await? {
        account.add(lane.account);
        courses.push(lane.courses);
    }
    let substituted = courses.iter().flatten().map(|course| course.substituted).sum();
    let left = tidy(&client, &targets, courses).await;
    let extras = report::Extras { substituted, left, interrupted: stop.is_stopped() };
    Ok(StressReport::of(spec, &targets, limits, account, extras))
}

/// The lanes with their links and, where names are made, a directory for each.
async fn lanes(
    spec: &StressSpec,
    client: &Client,
    targets: &Arc<Vec<Target>>,
    limits: Sizes,
    tally: &Arc<Tally>,
    stop: &Stop,
) -> Result<Vec<(Lane<StressWork>, Source)>, RunError> {
    let run = &spec.run;
    let lanes = run.lanes();
    let run_number: u32 = rand::random();
    let mut made = Vec::new();
    for (lane, links) in engine::links(run).await?.into_iter().enumerate() {
        let mut courses = Vec::new();
        for target in targets.iter() {
            let mut scratch = None;
            if target.profile.has_scratch() {
                let name = format!("scratch-{run_number:08x}-{lane}");
                let failed = |cause| RunError::Export { export: run.export.clone(), cause: Box::new(cause) };
                let handle = nfs::mkdir(client, &target.home, &name).await.map_err(failed)?;
                scratch = Some((name, handle));
            }
            courses.push(Course::new(target, limits, scratch));
        }
        let seed = spec.seed.wrapping_mul(1_000_003).wrapping_add(lane as u64);
        let rng = || ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        let (source, arrivals) = match spec.source {
            Loop::Open { per_s, spread } => {
                let end = spec.phases().whole();
                (Source::Open, Some(Arrivals::new(rng(), spread, per_s, (lane, lanes), end)))
            }
            Loop::Closed { outstanding } => {
                (Source::Closed(run.part(outstanding, lane), spec.phases().whole()), None)
            }
        };
        let setting = LaneSetting {
            options: run.client.clone(),
            outstanding_max: run.part(run.outstanding_max, lane).max(1),
            drain: run.drain,
            tally: Arc::clone(tally),
            stop: stop.clone(),
        };
        let account = Account::new(spec.phases());
        let chance = (ChaCha8Rng::seed_from_u64(seed), arrivals);
        let work = StressWork::new(targets, courses, account, chance, run.verify);
        made.push((Lane::new(setting, links, work), source));
    }
    Ok(made)
}

fn progress(spec: &StressSpec, start: Instant, tally: &Tally) -> StressEvent {
    let gone = start.elapsed();
    let phases = spec.phases();
    let phase = match gone {
        gone if gone < phases.warmup => "warm-up",
        gone if phases.counts(gone) => "run",
        gone if gone < phases.whole() => "cooldown",
        _ => "last replies",
    };
    StressEvent::Calls {
        phase,
        part: (gone.as_secs_f64() / phases.whole().as_secs_f64()).min(1.0),
        wanted: tally.wanted.load(Ordering::Relaxed),
        answered: tally.answered.load(Ordering::Relaxed),
        errors: tally.errors.load(Ordering::Relaxed),
    }
}

/// Removes what the lanes have made and not removed; how many names are left because the server would not.
async fn tidy(client: &Arc<Client>, targets: &[Target], courses: Vec<Vec<Course>>) -> u64 {
    let mut left = 0;
    for (place, course) in courses.into_iter().flat_map(|lane| lane.into_iter().enumerate()) {
        let (Some((name, directory)), Some(target)) = (course.scratch, targets.get(place)) else { continue };
        let names = course.names.iter().map(|name| (*name, false));
        let mut waiting: Vec<(u64, bool)> =
            names.chain(course.directories.iter().map(|name| (*name, true))).collect();
        let mut tasks = JoinSet::new();
        loop {
            while tasks.len() < REMOVED_AT_ONCE {
                let Some((number, is_directory)) = waiting.pop() else { break };
                let (client, directory) = (Arc::clone(client), directory.clone());
                tasks.spawn(async move {
                    nfs::remove(&client, &directory, &call::scratch_name(number), is_directory).await.is_ok()
                });
            }
            let Some(done) = tasks.join_next().await else { break };
            left += u64::from(!done.unwrap_or(false));
        }
        left += u64::from(nfs::remove(client, &target.home, &name, true).await.is_err());
    }
    left
}
