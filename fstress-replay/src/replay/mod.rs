//! Open-loop replay: the calls of a trace go out at their deadlines, whatever the server does, and every one is accounted
//! for, hour by hour.
//!
//! The calls of a [`Schedule`] are shared out to the lanes. Their number outstanding is bounded by
//! [`RunSpec::outstanding_max`]; what comes due beyond it is counted as not sent and the report marked as saturated.

mod hours;
mod judge;
mod versions;
mod work;

pub use crate::engine::Stop;

use crate::client::nfs::Sizes;
use crate::content::Content;
use crate::engine::{self, Lane, LaneSetting, Link, Source, Tally};
use crate::fileset::{self, Handles};
use crate::plan::http::CLIENTS_MAX;
use crate::plan::{Mapping, Model, Pace, Part, RequestKinds, Schedule, Tree};
use crate::report::ReplayReport;
use crate::{RunError, RunSpec};
use clockwork_traces::workload::Workload;
use hours::Hours;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use versions::Versions;
use work::{Nodes, Shared, TraceWork};

/// Time between two progress events.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Cache entries of a model client at the least.
const CACHE_ENTRIES_MIN: u64 = 64;
/// Largest WRITE that may be asked for.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Warm-up and cooldown have at most so many hours of the trace.
const PHASE_HOURS_MAX: f64 = 1e6;

/// What is replayed against which server.
#[derive(Debug, Clone)]
pub struct ReplaySpec {
    /// The server, and how it is called.
    pub run: RunSpec,
    /// The workload.
    pub workload: Arc<Workload>,
    /// Its hours to replay and measure; warm-up and cooldown have those before and after.
    pub hours: Range<u32>,
    /// What an hour becomes, in seconds.
    pub seconds_per_hour: f64,
    /// Requests are this times the workload's; [`Mapping::factor_for_mean`], [`Mapping::factor_for_peak`] and
    /// [`crate::plan::Rate`] give the factor for a rate of NFS calls.
    pub rate_factor: f64,
    /// How a request becomes calls, for [`Model::Calls`].
    pub mapping: Mapping,
    /// How a request becomes calls.
    pub model: Model,
    /// What requests do, where it is known; otherwise they read.
    pub kinds: Option<Arc<RequestKinds>>,
}

impl ReplaySpec {
    /// The day from hour 622 of a workload, five seconds an hour, at about 500 NFS calls a second in the mean, over TCP,
    /// NFS and MOUNT on one port. All of it can be changed.
    #[must_use]
    pub fn new(target: SocketAddr, export: impl Into<String>, workload: Arc<Workload>) -> Self {
        let (hours, seconds_per_hour, mapping) = (622..646, 5.0, Mapping::default());
        let factor = mapping.factor_for_mean(&workload, hours.clone(), seconds_per_hour, 500.0);
        Self {
            run: RunSpec::new(target, export),
            workload,
            hours,
            seconds_per_hour,
            // A workload without these hours is refused when the replay begins, whatever the factor.
            rate_factor: factor.unwrap_or(0.05),
            mapping,
            model: Model::Calls,
            kinds: None,
        }
    }

    /// What is replayed, and how fast.
    #[must_use]
    pub fn pace(&self) -> Pace {
        Pace {
            hours: self.hours.clone(),
            hour_length: Duration::try_from_secs_f64(self.seconds_per_hour).unwrap_or_default(),
            factor: self.rate_factor,
            mapping: self.mapping,
            model: self.model,
            warmup: self.run.warmup,
            cooldown: self.run.cooldown,
            kinds: self.kinds.clone(),
        }
    }

    fn check(&self) -> Result<(), RunError> {
        self.run.check()?;
        if !(0.001..=1e6).contains(&self.seconds_per_hour) {
            return RunError::setting("seconds per hour", &self.seconds_per_hour, "from 0.001 to 1000000");
        }
        if !(self.rate_factor > 0.0 && self.rate_factor.is_finite()) {
            return RunError::setting("rate factor", &self.rate_factor, "a number greater than 0");
        }
        if self.hours.is_empty() {
            return RunError::setting("number of hours", &0, "at least one");
        }
        let around = self.run.warmup.max(self.run.cooldown).as_secs_f64();
        if around / self.seconds_per_hour > PHASE_HOURS_MAX {
            return RunError::setting(
                "seconds of warm-up or cooldown",
                &around,
                "at most 1000000 hours of the trace",
            );
        }
        let [read_bytes, write_bytes] = match self.model {
            Model::Calls | Model::Nfs => [self.mapping.read_bytes, self.mapping.write_bytes],
            Model::Http(clients) => {
                if !(1..=CLIENTS_MAX).contains(&clients.clients) {
                    return RunError::setting("clients", &clients.clients, "from 1 to 4096");
                }
                if !clients.attributes.is_sound() {
                    let value = format!("{:?}", clients.attributes);
                    return RunError::setting(
                        "times of attributes",
                        &value,
                        "seconds, none at first longer than at most",
                    );
                }
                if clients.cache_entries_max / u64::from(clients.clients) < CACHE_ENTRIES_MIN {
                    let entries = &clients.cache_entries_max;
                    return RunError::setting("cache entries", entries, "at least 64 for each client");
                }
                [clients.read_bytes, clients.write_bytes]
            }
        };
        if !(512..=WRITE_BYTES_MAX).contains(&write_bytes) {
            return RunError::setting("bytes of a WRITE", &write_bytes, "from 512 to 1048576");
        }
        if read_bytes < 512 {
            return RunError::setting("bytes of a READ", &read_bytes, "at least 512");
        }
        Schedule::new(&self.workload, self.pace())?;
        Ok(())
    }

    /// Makes READs and WRITEs no larger than the server takes.
    fn limit(&mut self, sizes: Sizes) {
        let most = self.run.sizes(sizes);
        let limit = |read_bytes: &mut u32, write_bytes: &mut u32| {
            *read_bytes = (*read_bytes).min(most.read_bytes_max);
            *write_bytes = (*write_bytes).min(most.write_bytes_max);
        };
        limit(&mut self.mapping.read_bytes, &mut self.mapping.write_bytes);
        if let Model::Http(clients) = &mut self.model {
            limit(&mut clients.read_bytes, &mut clients.write_bytes);
        }
    }
}

/// What a replay tells while it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// Files being looked up or made.
    Files(fileset::Progress),
    /// An hour begins.
    Hour {
        /// The hour of the workload.
        hour: u32,
        /// How many came before it.
        index: u32,
        /// How many there are.
        hours: u32,
    },
    /// Counts since the start, every 200 ms.
    Calls(Counts),
}

/// Counts since the start of a replay, warm-up included.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Part of the replay's time that is gone, 0 to 1.
    pub part: f64,
    /// Calls that came due.
    pub wanted: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls answered otherwise than they should be, or given up.
    pub errors: u64,
    /// Calls not sent.
    pub not_sent: u64,
    /// Calls without an answer at this moment.
    pub outstanding: usize,
    /// Mean response time so far in ms.
    pub mean_ms: f64,
}

impl Counts {
    fn of(tally: &Tally, part: f64) -> Self {
        // Read from the last to the first that is counted of a call, so that no difference is negative.
        let answered = tally.answered.load(Ordering::Acquire);
        let (errors, response_us) = (&tally.errors, &tally.response_us);
        let (errors, response_us) = (errors.load(Ordering::Relaxed), response_us.load(Ordering::Relaxed));
        let not_sent = tally.not_sent.load(Ordering::Relaxed);
        let wanted = tally.wanted.load(Ordering::Relaxed);
        Self {
            part: part.min(1.0),
            wanted,
            answered,
            errors,
            not_sent,
            outstanding: usize::try_from(wanted.saturating_sub(not_sent + answered)).unwrap_or(usize::MAX),
            mean_ms: if answered > 0 { response_us as f64 / answered as f64 / 1e3 } else { 0.0 },
        }
    }
}

/// What is told about progress; called from several threads.
pub type OnEvent = Arc<dyn Fn(Event) + Send + Sync>;

/// A replay with its server mounted, its files found and its connections made, ready to start at a moment of the caller's
/// choice.
pub struct Prepared {
    shared: Arc<Shared>,
    handles: Handles,
    directories: Vec<Arc<[u8]>>,
    /// Of each lane.
    links: Vec<Vec<Link>>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("spec", &self.shared.spec).finish_non_exhaustive()
    }
}

/// Mounts the export and makes the file set on it; how many files had to be written is returned.
///
/// # Errors
/// See [`RunError`].
pub async fn create_files(spec: &ReplaySpec, on_event: &OnEvent) -> Result<usize, RunError> {
    let (client, root, sizes) = engine::attach(&spec.run).await?;
    let progress = |progress| on_event(Event::Files(progress));
    Ok(fileset::create(&client, &root, sizes, &spec.workload, &progress).await?)
}

/// Mounts the export, finds the files and makes the connections.
///
/// # Errors
/// See [`RunError`].
pub async fn prepare(mut spec: ReplaySpec, on_event: &OnEvent) -> Result<Prepared, RunError> {
    spec.check()?;
    let (client, root, sizes) = engine::attach(&spec.run).await?;
    spec.limit(sizes);
    let progress = |progress| on_event(Event::Files(progress));
    let tree = Arc::new(Tree::of(spec.workload.files()));
    let files = (spec.workload.files(), &*tree);
    let (handles, directories) = fileset::find_tree(&client, &root, files, &progress).await?;
    let links = engine::links(&spec.run).await?;
    let contents = spec.workload.files().iter().map(|file| Content::of(&file.path)).collect();
    let versions = Versions::new(spec.workload.files().len(), rand::random());
    let shared = Arc::new(Shared { spec, tree, contents, versions });
    Ok(Prepared { shared, handles, directories, links })
}

/// Prepares a replay and runs it at once.
///
/// # Errors
/// See [`RunError`].
pub async fn run(spec: ReplaySpec, stop: &Stop, on_event: &OnEvent) -> Result<ReplayReport, RunError> {
    let prepared = prepare(spec, on_event).await?;
    prepared.run(Instant::now(), stop, on_event).await
}

impl Prepared {
    /// The handles of the workload's files, as the server gave them.
    #[must_use]
    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    /// What will be replayed; READs may have become smaller than asked for, if the server takes no more.
    #[must_use]
    pub fn spec(&self) -> &ReplaySpec {
        &self.shared.spec
    }

    /// Replays from `start` on: the warm-up begins then, or if there is none the first hour, so that the caller's periods can
    /// begin with it.
    ///
    /// # Errors
    /// A thread cannot be started. Errors of single calls are in the report.
    pub async fn run(
        mut self,
        start: Instant,
        stop: &Stop,
        on_event: &OnEvent,
    ) -> Result<ReplayReport, RunError> {
        let tally = Arc::new(Tally::default());
        let (closed, parts) = mpsc::channel();
        let lanes = self.lanes(&tally, stop, &closed)?;
        drop(closed);
        let spec = &self.shared.spec;
        let pace = spec.pace();
        let whole = pace.whole();
        let mut hours = Hours::new(spec, lanes.len());
        let mut next_hour = spec.hours.start;
        let mut told = start;
        let mut stopped_after = None;
        let done = engine::drive(lanes, (start, start + whole), stop, || {
            let gone = start.elapsed();
            while next_hour < spec.hours.end && gone >= hours.begin(next_hour) && !stop.is_stopped() {
                let index = next_hour - spec.hours.start;
                let count = u32::try_from(spec.hours.len()).unwrap_or(u32::MAX);
                // Before the start, elapsed time reads zero.
                if index == 0 && Instant::now() < start {
                    break;
                }
                on_event(Event::Hour { hour: next_hour, index, hours: count });
                next_hour += 1;
            }
            if stop.is_stopped() {
                stopped_after.get_or_insert(gone);
            }
            parts.try_iter().for_each(|part| hours.add(part));
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                let part = gone.as_secs_f64() / whole.as_secs_f64().max(1e-9);
                on_event(Event::Calls(Counts::of(&tally, part)));
            }
        });
        let done = done.await?;
        parts.try_iter().for_each(|part| hours.add(part));
        Ok(hours.finish(done, stopped_after))
    }

    fn lanes(
        &mut self,
        tally: &Arc<Tally>,
        stop: &Stop,
        closed: &mpsc::Sender<work::ClosedPart>,
    ) -> Result<Vec<(Lane<TraceWork>, Source)>, RunError> {
        let shared = &self.shared;
        let run = &shared.spec.run;
        let mut lanes = Vec::new();
        for (number, links) in std::mem::take(&mut self.links).into_iter().enumerate() {
            let part = Part { number, parts: run.lanes(), connections: run.client.connections };
            let schedule = Schedule::part(&shared.spec.workload, &shared.tree, shared.spec.pace(), part)?;
            let setting = LaneSetting {
                options: run.client.clone(),
                outstanding_max: run.part(run.outstanding_max, number).max(1),
                drain: run.drain,
                tally: Arc::clone(tally),
                stop: stop.clone(),
            };
            let nodes = Nodes { files: self.handles.files.clone(), directories: self.directories.clone() };
            let work = TraceWork::new(shared, (schedule, part), nodes, closed.clone());
            lanes.push((Lane::new(setting, links, work), Source::Open));
        }
        Ok(lanes)
    }
}
