//! Workloads as profiles: calls by weight, files by popularity, open loop at a rate, as in Fstress.
//!
//! - [`profile`]: the presets, and every number in them as a parameter.
//! - [`operation`]: the calls, which are all of NFSv3.
//! - [`report`]: what was measured, as text, JSON and a page.
//!
//! A run has lanes, each a thread with its own links, calls in flight and counts. Data is a function of file and position
//! ([`crate::content`]), also what is written, so that every byte read can be checked whoever wrote it.

mod account;
mod arrivals;
mod call;
mod distribution;
mod files;
mod lane;
mod link;
pub mod operation;
pub mod profile;
pub mod report;

pub use arrivals::Spread;
pub use distribution::{Popularity, SizeDistribution};

use crate::client::nfs::{self, Handle, NfsError, Sizes};
use crate::client::{CallError, Client, Options, Transport};
use crate::fileset::{self, FilesetError};
use crate::replay::Stop;
use account::{Account, Phases};
use arrivals::Arrivals;
use call::{Course, Limits};
use clockwork_wire::rpc;
use files::{Target, Wanted};
use lane::{Lane, Setting, Source, Tally};
use link::{Link, Origin};
use profile::{Profile, ProfileError};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use report::StressReport;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Largest READ and WRITE over UDP, in bytes: one datagram holds it, and servers answer it.
const UDP_DATA_BYTES_MAX: u32 = 32 << 10;
/// Most lanes, and most connections.
const LANES_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 1_024;
/// Time between two progress events.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How often the end of a run is looked for.
const JOIN_POLL: Duration = Duration::from_millis(20);
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

/// A run against a server.
#[derive(Debug, Clone)]
pub struct StressSpec {
    /// The server's NFS port.
    pub target: SocketAddr,
    /// The server's MOUNT port; often the same.
    pub mount: SocketAddr,
    /// The export to mount.
    pub export: String,
    /// Transport, connections in all, time-outs, credential.
    pub client: Options,
    /// Threads; each has its part of the connections.
    pub lanes: usize,
    /// The workloads.
    pub loads: Vec<Load>,
    /// Open or closed.
    pub source: Loop,
    /// Calls that come before what is measured.
    pub warmup: Duration,
    /// What is measured.
    pub run: Duration,
    /// Calls that come after it, so that its last calls meet the same load.
    pub cooldown: Duration,
    /// How long to wait for answers after the last call.
    pub drain: Duration,
    /// Most calls without an answer; what comes due beyond is not sent.
    pub outstanding_max: usize,
    /// Whether files that are missing are made.
    pub create: bool,
    /// Whether data is checked.
    pub verify: bool,
    /// Send lag, quantile .99, beyond which the run is invalid.
    pub lag_max: Duration,
    /// Seed of the file set, the arrivals and the calls.
    pub seed: u64,
}

impl StressSpec {
    /// 20 seconds of these workloads at 1,000 calls a second after 2 of warm-up, over 4 TCP connections.
    #[must_use]
    pub fn new(target: SocketAddr, export: impl Into<String>, loads: Vec<Load>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            target,
            mount: target,
            export: export.into(),
            client: Options::default(),
            lanes: cores.min(2),
            loads,
            source: Loop::Open { per_s: 1_000.0, spread: Spread::Poisson },
            warmup: Duration::from_secs(2),
            run: Duration::from_secs(20),
            cooldown: Duration::from_secs(1),
            drain: Duration::from_secs(10),
            outstanding_max: 8_192,
            create: true,
            verify: true,
            lag_max: Duration::from_millis(5),
            seed: 1,
        }
    }

    fn check(&self) -> Result<(), StressError> {
        let wrong = |setting, value: &dyn std::fmt::Display, allowed| {
            Err(StressError::Setting { setting, value: value.to_string(), allowed })
        };
        match self.source {
            Loop::Open { per_s, .. } if !(per_s > 0.0 && per_s <= 1e8) => {
                return wrong("rate", &per_s, "more than 0, at most 100000000 calls a second");
            }
            Loop::Closed { outstanding } if outstanding == 0 || outstanding > self.outstanding_max => {
                return wrong("calls outstanding", &outstanding, "from 1 to the most outstanding");
            }
            _ => {}
        }
        if self.loads.is_empty() {
            return wrong("number of workloads", &0, "at least 1");
        }
        let weights = || self.loads.iter().map(|load| load.weight);
        if !weights().all(|weight| weight >= 0.0 && weight.is_finite()) || weights().sum::<f64>() <= 0.0 {
            return wrong("weights of workloads", &"wrong", "not negative, with a sum above 0");
        }
        for (place, load) in self.loads.iter().enumerate() {
            load.profile.check(&load.name)?;
            if self.loads[..place].iter().any(|other| other.name == load.name) {
                return wrong("workload", &load.name, "each workload once");
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if load.name.is_empty() || load.name.len() > 64 || !load.name.chars().all(plain) {
                return wrong(
                    "workload",
                    &load.name,
                    "a name of letters, digits, - and _, because it becomes a directory",
                );
            }
        }
        if !(1..=LANES_MAX).contains(&self.lanes) {
            return wrong("threads", &self.lanes, "from 1 to 64");
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.client.connections) {
            return wrong("connections", &self.client.connections, "from 1 to 1024");
        }
        if self.run.is_zero() || self.warmup + self.run + self.cooldown > Duration::from_secs(10_000_000) {
            return wrong(
                "seconds",
                &self.run.as_secs_f64(),
                "more than 0, with warm-up and cooldown at most 10000000",
            );
        }
        if !(1..=1 << 24).contains(&self.outstanding_max) {
            return wrong("most calls outstanding", &self.outstanding_max, "from 1 to 16777216");
        }
        Ok(())
    }

    /// Lanes that there will be: no more than connections.
    fn lanes(&self) -> usize {
        self.lanes.min(self.client.connections).max(1)
    }

    fn phases(&self) -> Phases {
        Phases { warmup: self.warmup, run: self.run, cooldown: self.cooldown }
    }
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum StressError {
    /// The server cannot be reached.
    #[error(transparent)]
    Client(#[from] CallError),
    /// MOUNT, FSINFO, or a call that prepares or tidies up.
    #[error("export {export:?}: {cause}")]
    Export {
        /// The export.
        export: String,
        /// What went wrong.
        cause: Box<NfsError>,
    },
    /// The files are not there, and cannot be made.
    #[error(transparent)]
    Fileset(#[from] FilesetError),
    /// A profile that makes no sense.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A setting that makes no sense.
    #[error("{setting} is {value}: it must be {allowed}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A thread could not be started, or ended early.
    #[error("a thread that makes calls: {reason}")]
    Thread {
        /// What the system said.
        reason: String,
    },
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
/// See [`StressError`]. What goes wrong with single calls is in the report.
pub async fn run(
    spec: &StressSpec,
    stop: &Stop,
    on_event: &OnStressEvent,
) -> Result<StressReport, StressError> {
    spec.check()?;
    let (client, root, sizes) = attach(spec).await?;
    let mut targets = Vec::new();
    for load in &spec.loads {
        let (name, told) = (load.name.clone(), Arc::clone(on_event));
        let progress = move |progress| told(StressEvent::Files { load: name.clone(), progress });
        let wanted =
            Wanted { seed: spec.seed, weight: load.weight, create: spec.create, verify: spec.verify };
        let target =
            Target::prepare((&client, &root, sizes), (&load.name, &load.profile), wanted, &progress).await?;
        targets.push(target);
    }
    let targets = Arc::new(targets);
    let limit = match spec.client.transport {
        Transport::Tcp => u32::MAX,
        Transport::Udp => UDP_DATA_BYTES_MAX,
    };
    let limits = Limits { read: sizes.read_bytes_max.min(limit), write: sizes.write_bytes_max.min(limit) };
    let tally = Arc::new(Tally::default());
    let lanes = lanes(spec, &client, &targets, limits, &tally, stop).await?;
    let (account, courses) = drive(spec, lanes, &tally, stop, on_event).await?;
    let substituted = courses.iter().flatten().map(|course| course.substituted).sum();
    let left = tidy(&client, &targets, courses).await;
    Ok(StressReport::of(
        spec,
        &targets,
        limits,
        account,
        report::Extras { substituted, left, interrupted: stop.is_stopped() },
    ))
}

async fn attach(spec: &StressSpec) -> Result<(Arc<Client>, Handle, Sizes), StressError> {
    let few = Options { connections: spec.client.connections.min(4), ..spec.client.clone() };
    let client = Client::connect(spec.target, few.clone()).await?;
    let failed = |cause| StressError::Export { export: spec.export.clone(), cause: Box::new(cause) };
    let root = if spec.mount == spec.target {
        nfs::mount(&client, &spec.export).await
    } else {
        let mounter = Client::connect(spec.mount, Options { connections: 1, ..few }).await?;
        nfs::mount(&mounter, &spec.export).await
    };
    let root = root.map_err(failed)?;
    let sizes = nfs::fsinfo(&client, &root).await.map_err(failed)?;
    Ok((Arc::new(client), root, sizes))
}

/// The lanes with their links and, where names are made, a directory for each.
async fn lanes(
    spec: &StressSpec,
    client: &Client,
    targets: &Arc<Vec<Target>>,
    limits: Limits,
    tally: &Arc<Tally>,
    stop: &Stop,
) -> Result<Vec<(Lane, Source)>, StressError> {
    let lanes = spec.lanes();
    let origin = Origin {
        target: spec.target,
        options: spec.client.clone(),
        runtime: tokio::runtime::Handle::current(),
    };
    let run_number: u32 = rand::random();
    let mut credential = Vec::new();
    rpc::auth_sys(&mut credential, "fstress-replay", spec.client.uid, spec.client.gid);
    let mut made = Vec::new();
    for lane in 0..lanes {
        let part = |all: usize| (all + lanes - 1 - lane) / lanes;
        let mut links = Vec::new();
        for _ in 0..part(spec.client.connections) {
            let link = Link::open(&origin).await;
            links.push(link.map_err(|error| crate::client::unreachable(spec.target, &error))?);
        }
        let mut courses = Vec::new();
        for target in targets.iter() {
            let mut scratch = None;
            if target.profile.has_scratch() {
                let name = format!("scratch-{run_number:08x}-{lane}");
                let failed =
                    |cause| StressError::Export { export: spec.export.clone(), cause: Box::new(cause) };
                let handle = nfs::mkdir(client, &target.home, &name).await.map_err(failed)?;
                scratch = Some((name, handle));
            }
            courses.push(Course::new(target, limits, scratch));
        }
        let seed = spec.seed.wrapping_mul(1_000_003).wrapping_add(lane as u64);
        let source = match spec.source {
            Loop::Open { per_s, spread } => Source::Open(Box::new(Arrivals::new(
                ChaCha8Rng::seed_from_u64(seed ^ 0x5eed),
                spread,
                per_s,
                (lane, lanes),
                spec.phases().whole(),
            ))),
            Loop::Closed { outstanding } => Source::Closed(part(outstanding)),
        };
        let setting = Setting {
            targets: Arc::clone(targets),
            options: spec.client.clone(),
            credential: credential.clone(),
            outstanding_max: part(spec.outstanding_max).max(1),
            drain: spec.drain,
            verify: spec.verify,
            phases: spec.phases(),
            tally: Arc::clone(tally),
            stop: stop.clone(),
        };
        made.push((Lane::new(setting, links, courses, ChaCha8Rng::seed_from_u64(seed)), source));
    }
    Ok(made)
}

/// Starts the lanes and waits for them.
async fn drive(
    spec: &StressSpec,
    lanes: Vec<(Lane, Source)>,
    tally: &Tally,
    stop: &Stop,
    on_event: &OnStressEvent,
) -> Result<(Account, Vec<Vec<Course>>), StressError> {
    let ended = |reason: String| StressError::Thread { reason };
    let start = Instant::now() + Duration::from_millis(20);
    let mut threads = Vec::new();
    // Whoever drops this future stops the run.
    let mut guard = StopOnDrop(Some(stop.clone()));
    for (number, (lane, source)) in lanes.into_iter().enumerate() {
        let thread = std::thread::Builder::new().name(format!("lane-{number}"));
        let thread =
            thread.spawn(move || lane.run(start, source)).map_err(|error| ended(error.to_string()))?;
        threads.push(thread);
    }
    let mut told = start;
    while !threads.iter().all(std::thread::JoinHandle::is_finished) {
        tokio::time::sleep(JOIN_POLL).await;
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            on_event(progress(spec, start, tally));
        }
    }
    guard.0 = None;
    let mut account = Account::new(spec.phases());
    let mut courses = Vec::new();
    for thread in threads {
        let (lane, course) = thread.join().map_err(|_| ended("it panicked".into()))?;
        account.add(lane);
        courses.push(course);
    }
    Ok((account, courses))
}

fn progress(spec: &StressSpec, start: Instant, tally: &Tally) -> StressEvent {
    let gone = start.elapsed();
    let phase = match gone {
        gone if gone < spec.warmup => "warm-up",
        gone if gone < spec.warmup + spec.run => "run",
        gone if gone < spec.phases().whole() => "cooldown",
        _ => "last replies",
    };
    StressEvent::Calls {
        phase,
        part: (gone.as_secs_f64() / spec.phases().whole().as_secs_f64()).min(1.0),
        wanted: tally.wanted.load(Ordering::Relaxed),
        answered: tally.answered.load(Ordering::Relaxed),
        errors: tally.errors.load(Ordering::Relaxed),
    }
}

struct StopOnDrop(Option<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            stop.stop();
        }
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
